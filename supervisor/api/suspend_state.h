/*
 * The parts of suspend.h, for its own files only: suspend_steps is what the others share, suspend
 * the way there, resume the way back.
 */
#pragma once

#include "supervisor/api/http/runtime_errors.h"
#include "supervisor/api/live.h"
#include "supervisor/api/provider.h"
#include "supervisor/api/session/spec_suspend.h"
#include "supervisor/api/suspend.h"
#include "supervisor/api/suspend_prepare.h"

/* One way, or back, of one session. */
struct suspend {
	struct live *live;
	struct list waiters;
	struct suspend_prepare *prepare; /* under way */
	sd_event_source *timer;
	usec_t deadline;       /* boottime: until all of it has stopped */
	usec_t look_us;        /* until the next look */
	bool is_telling;       /* the shim was told and has not answered */
	bool is_durable_first; /* who waits is told when it is durable */
	bool has_rules;        /* a resume's: in force before anything runs */
};

/* Something asked for; whoever asked may be gone, or further, when the answer comes. */
struct suspend_step {
	struct app *app;
	struct id session;
	uint32_t number;
	void (*next)(struct live *live, enum store_result result);
	bool is_degraded;
};

/* 0 or -ENOMEM. live->suspend is there until suspend_end, or suspend_free. */
MUST_USE int suspend_begin(struct live *live);
void suspend_free(struct suspend *suspend);
/* Those who wait are answered. error: RUNTIME_ERROR_MAX_: it was done. */
void suspend_end(struct live *live, enum runtime_error error, const char *detail);
void suspend_reply(struct request *request, const struct session *session);
/* How its snapshot ended, as of suspend_persisted. */
void suspend_note_persisted(struct live *live, int r);
/* Waits for what is under way. False: it was answered. */
bool suspend_wait_for(struct request *request, struct suspend *suspend);
/* The row as the session is now; then next, once, maybe from inside. NULL: nobody waits for it. */
void suspend_write_row(struct live *live,
		       void (*next)(struct live *live, enum store_result result));
/* For something else that is asked for. NULL: no memory. */
struct suspend_step *suspend_step_new(struct live *live,
				      void (*next)(struct live *live, enum store_result result));
/* what: of the session's provider. The answer has a struct suspend_step, which it frees. 0 or
 * -errno. */
MUST_USE int suspend_ask(struct live *live, provider_ask *what, supervisor_answer answer);
void suspend_ignore_answer(void *userdata, const struct launch_msg *answer, int fd);
/* Its answer is there. Who still waits for it, as the last thing that was asked; else NULL. */
struct live *suspend_step_end(struct suspend_step *step);
/* The same for an answer to suspend_ask. */
struct live *suspend_answered(void *userdata, int fd);
/* Time counts again. One of an earlier worker hears of it when it has said what it is. */
void suspend_tell_thawed(struct live *live);
void suspend_set_expiry(struct live *live, usec_t expires_at);
/* Requests that wait for its commands. Where a tree is on its way they go on with that. */
void suspend_go_on(struct live *live);

/* suspend.c: its snapshot is made, where none is under way. 0 or -errno. */
MUST_USE int suspend_persist(struct live *live);

/* Nobody has used it for long. */
void suspend_idle(struct live *live);

/* resume.c: of one that is suspended. 0 or -ENOMEM. */
MUST_USE int suspend_resume(struct live *live);
/* False: it was answered. What it began with again cannot be read, and it stays suspended. */
bool suspend_may_resume(struct request *request, struct live *live);
/* Behind it. False: it was answered: its time is over, or the store takes nothing. */
bool suspend_is_resuming(struct request *request, const struct session *session);
/* The row says running, and its tree is frozen. */
void suspend_thaw(struct live *live);
/* Nothing has moved: it is suspended as before. */
void suspend_resume_failed(struct live *live, enum runtime_error error, const char *detail);
/* The tree is gone. */
void suspend_resumed_without(struct live *live);
