/*
 * A process of ours that works for one job at a time: a runner, of commands of `user`, of root
 * commands or of jail tools, or a file helper. One idle one of each kind is kept; a further one is
 * forked where it is needed.
 */
#pragma once

#include "base/auto.h"

struct shim;

enum agent_kind {
	AGENT_RUNNER,
	AGENT_ROOT_RUNNER,
	/* The same while the session is paused: commands and their spawners are frozen. */
	AGENT_TOOL_RUNNER,
	AGENT_ROOT_TOOL_RUNNER,
	AGENT_HELPER,
	AGENT_MAX_,
};

/* An idle agent, or a new one. *ret_fd: its socket, non-blocking. 0 or -errno. */
MUST_USE int agent_acquire(struct shim *shim, enum agent_kind kind, int *ret_fd);
/* Give an idle one back: it is kept, or dismissed. Returns -1. */
int agent_release(struct shim *shim, enum agent_kind kind, int fd);
/* Nothing more is asked of the tool runners that are there: their spawners end, and a next job
 * makes another. */
void agent_drop_tools(struct shim *shim);
