/*
 * The process that forks spawners and file helpers. It is forked before pid 1 takes its own filter,
 * holds no socket to the outside, and obeys one socket pair.
 */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "base/auto.h"
#include "base/err.h"

#include "sandboxd/plan.h"
#include "sandboxd/policy_image.h"

struct secrets;

/* What the children of pid 1 need of the start-up. */
struct nursery_context {
	struct shim_params params;
	const struct session_policy *policy; /* mapped */
	struct secrets *secrets;
};

struct nursery {
	int fd; /* the end of pid 1, non-blocking */
	pid_t pid;
	int spawner_fd; /* of the first spawner, which it forks at once */
};

/* Fork the nursery. 0 or -errno. Never returns in the child. */
MUST_USE int nursery_start(const struct nursery_context *context, struct nursery *ret_nursery,
			   struct err *err);
