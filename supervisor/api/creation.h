/*
 * A session being made: what its 201 waits for.
 */
#pragma once

#include "supervisor/api/live.h"

enum end_result {
	END_DONE,     /* nothing is left, and its row says so */
	END_DEGRADED, /* nothing is left; the row waits for the store */
	END_UNKNOWN,  /* the supervisor did not say so in time, or the service stops */
};

/* Told once when a session has ended, or when that will not be known soon; frees itself in `ended`.
 */
struct end_waiter {
	struct list link; /* live->waiters */
	void (*ended)(struct end_waiter *waiter, enum end_result result);
};

/* From sessions.c, where the state changes. Each accepts a session without a creation. */
void creation_row_done(struct session *session);
void creation_launched(struct session *session);
void creation_failed(struct session *session);

/* From creation.c and adopt.c. */
void sessions_insert(struct app *app, struct session *session);
void sessions_kill_unknown(struct app *app, const struct id *session);
