/*
 * A terminal for a command.
 */
#pragma once

#include <stdbool.h>

#include "base/auto.h"

#include "sandboxd/launch.h"
#include "sandboxd/wire.h"

struct shim_params;

/*
 * A new terminal of the session's own devpts: *ret_pty_fd is our side, non-blocking, *ret_tty_fd
 * the command's. It belongs to `user`, or to root where the command is root's. 0 or -errno;
 * -ENOSPC: the session has as many as it may.
 */
MUST_USE int pty_open(const struct shim_params *params, bool is_root, const struct wire_size *size,
		      int *ret_pty_fd, int *ret_tty_fd);
