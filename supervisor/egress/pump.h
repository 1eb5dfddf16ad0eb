/*
 * Bytes from one socket to another without a copy: through a pipe that is taken from a bounded pool
 * when there is something to move and given back when it is empty. An idle connection holds none;
 * where none is left, bytes are copied, so that nobody waits for those who read slowly.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/auto.h"

#define PUMP_PIPE_BYTES  262144u
#define PUMP_POOL_MAX    128 /* pipes; 64 pages each stay below pipe-user-pages-soft */
#define PUMP_POOL_KEPT   16  /* that stay open unused */
#define PUMP_SESSION_MAX 32  /* of one session: slow readers hold them full */

struct pipe_pool {
	int kept[PUMP_POOL_KEPT][2];
	uint32_t n_kept;
	uint32_t n_out;
};

enum pump_state {
	PUMP_WANT_READ,
	PUMP_WANT_WRITE,
	PUMP_WANT_BUDGET,
	PUMP_WANT_NOTHING, /* of this side: the other one decides */
	PUMP_DONE,         /* the sender has ended and everything was delivered */
};

struct pump {
	int pipe[2]; /* -1, -1: none */
	size_t held;
	bool eof;
	bool hold_end; /* the end is not passed on: something is still to be said */
	enum pump_state state;
};
#define PUMP_NULL ((struct pump){.pipe[0] = -1, .pipe[1] = -1})

void pipe_pool_done(struct pipe_pool *pool);
/* n_session: pipes of the session; at most *budget bytes are taken, and *budget becomes what is
 * left. 0 with the new state in pump->state, or -errno of either socket. */
MUST_USE int pump_run(struct pump *pump, struct pipe_pool *pool, uint32_t *n_session, int from,
		      int to, uint64_t *budget);
void pump_stop(struct pump *pump, struct pipe_pool *pool, uint32_t *n_session);
