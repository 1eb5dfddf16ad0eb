/*
 * The platform around us, as far as it reads Redis: frames of tasks are published there.
 */
#pragma once

#include "supervisor/api/app.h"

/* Nothing where none is configured. 0 or -errno. */
MUST_USE int platform_start(struct app *app);
void platform_stop(struct app *app);
/* Its part of the readiness. */
void platform_observe(struct app *app);
