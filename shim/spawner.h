/*
 * The process that has taken the confinement of commands once and forks their runners. There are
 * two: of the commands of `user`, which the session begins with, and of root commands, made at the
 * first of them. While those are frozen with their commands, two more for jail tools, made each
 * time.
 */
#pragma once

#include <stdbool.h>

#include "base/auto.h"

struct nursery_context;

enum spawner_kind {
	SPAWNER_USER,
	SPAWNER_ROOT,
	SPAWNER_TOOL, /* while the session is paused, as the next */
	SPAWNER_ROOT_TOOL,
	SPAWNER_MAX_,
};

/* Body of the process after the nursery forked it. fd: socket to pid 1, blocking. */
_Noreturn void spawner_main(const struct nursery_context *context, int fd, bool is_root);
/* Wait for the spawner's report that it is confined. Blocks: start-up of pid 1 only.
 * *ret_listener_fd: of its filter, or -1. */
struct err;
MUST_USE int spawner_wait(int fd, int *ret_listener_fd, struct err *err);
