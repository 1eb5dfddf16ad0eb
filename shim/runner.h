/*
 * The process that runs one command at a time and ends its whole tree.
 */
#pragma once

#include <stdbool.h>

struct nursery_context;

/* Body of the process after the spawner forked it. is_root: it runs root commands and no others.
 * fd: socket to pid 1, blocking. */
_Noreturn void runner_main(const struct nursery_context *context, bool is_root, int fd);
