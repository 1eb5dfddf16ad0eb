/*
 * The end of the service, in order.
 */
#pragma once

#include <stdbool.h>

#include "base/auto.h"
#include "base/loop.h"

#include "supervisor/notify.h"
#include "supervisor/serve.h"
#include "supervisor/workers.h"

enum stop_state {
	STOP_STATE_RUNNING,
	STOP_STATE_API,      /* the api worker ends its streams and flushes; it may still kill */
	STOP_STATE_SESSIONS, /* every session is killed; their ends come in */
	STOP_STATE_EGRESS,
	STOP_STATE_DONE, /* the loop ends in its next turn */
	STOP_STATE_MAX_,
};

struct stop {
	enum stop_state state;
	bool leaving; /* sessions are not touched */
	struct loop *loop;
	const struct notify *notify;
	struct serve *serve;
	struct workers *workers;
	struct loop_source *timer;
	int result; /* of the loop */
};

MUST_USE int stop_init(struct stop *stop, struct loop *loop, const struct notify *notify);
void stop_done(struct stop *stop);
/* Idempotent. result: what loop_run returns at the end. Stronger than stop_leave, however far that
 * is: its result stays, but the sessions end. */
void stop_begin(struct stop *stop, int result);
/* End all but the sessions, which the next supervisor adopts. at_once: workers have no time for
 * anything; all that they promised is written down. */
void stop_leave(struct stop *stop, int result, bool at_once);
/* The two things it waits for. */
void stop_workers_gone(struct stop *stop, enum serve_worker kind);
void stop_sessions_gone(struct stop *stop);
