/*
 * A session being made: what its 201 waits for.
 */
#pragma once

#include "supervisor/api/live.h"
#include "supervisor/api/session/quota.h"

enum end_result {
	END_DONE,     /* nothing is left, and its row says so */
	END_DEGRADED, /* nothing is left; the row waits for the store */
	END_TAKEN,    /* nothing is left here; the session goes on at another host */
	END_UNKNOWN,  /* the supervisor did not say so in time, or the service stops */
};

/* Told once when a session has ended, or when that will not be known soon; frees itself in `ended`.
 */
struct end_waiter {
	struct list link;      /* live->waiters */
	uint32_t n_redis_keys; /* dropped; set before `ended` */
	void (*ended)(struct end_waiter *waiter, enum end_result result);
};

/* Why a launch gave no session: what its request is answered. */
enum refusal_template {
	REFUSAL_TEMPLATE_NONE,
	REFUSAL_TEMPLATE_UNKNOWN, /* whoever asks named it */
	REFUSAL_TEMPLATE_GONE,    /* the session had it */
};

struct refusal {
	int status; /* 0: none was named */
	enum quota_reason quota;
	bool is_snapshot_store; /* it is not ready: may be over in a moment */
	char detail[128];
	char secret[SECRET_NAME_BYTES]; /* which one is not available; "": none */
	enum refusal_template template; /* it is not there */
};
void refusal_reply(const struct refusal *refusal, struct request *request);

/* From sessions.c, where the state changes. Each accepts a session without a creation. */
void creation_row_done(struct session *session);
void creation_launched(struct session *session);
void creation_failed(struct session *session);

/* The session's plan to the supervisor. What follows is LAUNCHED or another event. 0 or -errno. */
MUST_USE int creation_launch(struct app *app, struct session *session);

/* From creation.c and adopt.c: session_writes.c, sessions.c. */
void sessions_insert(struct app *app, struct session *session);
void sessions_kill_unknown(struct app *app, const struct provider *provider,
			   const struct id *session);
/* NULL: there is none, or one that another provider has: what this one says is not about that. */
struct session *session_of_provider(struct app *app, const struct provider *provider,
				    const struct id *id);
