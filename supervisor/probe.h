/*
 * Kernel features: what must be there, and which newer ones are in use.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* 0, or -ENOSYS with the missing feature's name: Linux 6.1 and x86-64 are the minimum. */
MUST_USE int probe_minimum(struct err *err);
/* Bits of enum kernel_probe that this kernel has; none with force_minimum (SANDBOX_KERNEL=6.1). */
uint32_t probe_features(bool force_minimum);
/* The Landlock ABI to use: the kernel's best, that of Linux 6.1 with force_minimum, 0 without it.
 */
uint32_t probe_landlock(bool force_minimum);
/* The id of the v2 control group that a process is in: 0, -ESRCH (it has ended), or -errno where
 * the kernel does not know the question (KERNEL_PIDFD_INFO). */
MUST_USE int probe_pidfd_group(int pid_fd, uint64_t *ret_group_id);
