/*
 * The process that runs one command at a time and ends its whole tree.
 */
#pragma once

struct nursery_context;

/* Body of the process after the spawner forked it. fd: socket to pid 1, blocking. */
_Noreturn void runner_main(const struct nursery_context *context, int fd);
