/*
 * The platform around us, as far as it reads Redis: frames of tasks are published on a channel
 * each. What cannot be published is in the store and in our own streams all the same, and waits
 * for nobody here.
 */
#pragma once

#include "supervisor/api/app.h"

/* Nothing where no server is configured. 0 or -errno. */
MUST_USE int platform_start(struct app *app);
/* After the store has told everything. */
void platform_stop(struct app *app);
/* Frames of this task may be seen now that could not before. */
void platform_frames(struct app *app, struct job *job);
/* Nothing is on its way that the server would take. */
bool platform_is_idle(const struct app *app);
/* Its part of the readiness. */
void platform_observe(struct app *app);

struct platform_counters {
	uint64_t n_published;
	uint64_t n_unheard; /* of them: nobody had subscribed */
	uint64_t n_given_up;
};
struct platform_counters platform_counters(const struct app *app);
