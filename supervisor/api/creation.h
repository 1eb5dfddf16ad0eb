/*
 * A session being made: what its 201 waits for.
 */
#pragma once

#include "supervisor/api/live.h"

/* Told once when nothing is left of a session; frees itself in `ended`. */
struct end_waiter {
	struct list link; /* live->waiters */
	void (*ended)(struct end_waiter *waiter, bool degraded);
};

/* From sessions.c, where the state changes. Each accepts a session without a creation. */
void creation_row_done(struct session *session);
void creation_launched(struct session *session);
void creation_failed(struct session *session);

/* From creation.c and adopt.c. */
void creation_learn_limits(struct app *app, struct session *session);
void sessions_insert(struct app *app, struct session *session);
void sessions_kill_unknown(struct app *app, const struct id *session);
