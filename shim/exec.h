/*
 * Start one command: the only place where a process of ours becomes one of the session's.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/auto.h"
#include "base/frame.h"

#include "sandboxd/plan.h"

struct exec_failure {
	uint32_t step; /* enum wire_step */
	int32_t error_number;
};

/*
 * Clone and exec, as `user` or, as exec says, as root. stdin_fd -1: the caller's descriptor 0
 * (/dev/null). The pid of the child, which has exec'd; or -1 with *ret_failure filled, and no child
 * is left.
 */
MUST_USE int exec_start(const struct shim_params *params, const struct frame_exec *exec,
			int stdin_fd, int stdout_fd, int stderr_fd,
			struct exec_failure *ret_failure);
/* The signal to every process of `user` (is_root: of uid 0) in the session that a command could
 * signal, in one step of the kernel: who is being forked meanwhile gets it too. 0, or -EAGAIN:
 * there is no free pid for it. */
MUST_USE int exec_signal_all(const struct shim_params *params, bool is_root, int number);
