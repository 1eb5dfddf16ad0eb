/*
 * Limits of the kernel per process and per id (setrlimit).
 */
#pragma once

#include <stdint.h>
#include <sys/resource.h>

#include "base/auto.h"

/* One byte is no file, and the one value at which the kernel starts no handler where core_pattern
 * is a pipe; at 0 it does, with the whole memory, and leaves it to that program (B18). */
#define RLIMITS_NO_CORE 1

/* Hard and soft; only lowered, never raised: hosts may lack SYS_RESOURCE. */
MUST_USE int rlimits_lower(__rlimit_resource_t resource, uint64_t value);
/* Those that the kernel adds up by id and user namespace. A namespace keeps what its maker had as
 * the limit of all ids in it together. */
MUST_USE int rlimits_lower_counted(void);
