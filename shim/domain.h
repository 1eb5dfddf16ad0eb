/*
 * The Landlock domains of a session's processes.
 */
#pragma once

#include "base/err.h"

#include "sandboxd/plan.h"

/* SHIM_FD_QUEUES is for domain_command() alone: every other process closes it. */
void domain_close_queues(void);
/* Of the spawner, and so of every command. */
MUST_USE int domain_command(const struct shim_params *params, struct err *err);
/* Of the file helper: /session alone, and nothing runs. */
MUST_USE int domain_helper(const struct shim_params *params, struct err *err);
/* Of pid 1, which opens nothing. */
MUST_USE int domain_init(const struct shim_params *params, struct err *err);
