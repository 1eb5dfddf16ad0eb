/*
 * The parts of sandbox-contain. Those that say so return only to end the process: its exit status.
 */
#pragma once

#include "base/auto.h"

/* argv: SESSION PROFILE MAX_FILES. Becomes the shim. */
int contain_start(char *argv[]);
/* listen_fd: for streams, non-blocking. Returns as above, when the shim is gone. */
int contain_relay(int listen_fd);
/* Until either end is closed. */
int contain_connect(void);

/* All of this process. 0 or -errno. */
MUST_USE int contain_drop_capabilities(void);
/* A socket of the type that listens at the path, maybe in a moment: ten seconds at most. 0 or
 * -errno. */
MUST_USE int contain_dial(const char *path, int type, int *ret_fd);
