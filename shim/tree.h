/*
 * All descendants of a process, as /proc shows them.
 */
#pragma once

#include <sys/types.h>

#include "base/auto.h"

/*
 * Send `number` to every descendant of `root`. Processes that are stopped already are not stopped
 * again. Returns how many were not stopped before, or -errno (no /proc; no memory).
 */
MUST_USE int tree_signal(pid_t root, int number);
