/*
 * The start of a worker that is no api worker, in the worker itself: its one signal, and the
 * greeting on WORKER_FD_SUPERVISOR.
 */
#pragma once

#include "base/auto.h"

#include "sandboxd/launch.h"

/* TERM as a descriptor, which does not block; made before the filter, which has no use for more of
 * them. The descriptor or -errno. */
MUST_USE int worker_start_signals(void);
/* Say hello to the supervisor and wait for its answer, at most ten seconds. 0 and *ret_hello, which
 * is what it said; -ETIMEDOUT; -EPROTO: it is of another version, or refuses; -errno. */
MUST_USE int worker_start_greet(struct launch_hello *ret_hello);
