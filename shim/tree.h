/*
 * All descendants of a process, and who is stopped, as /proc shows them.
 */
#pragma once

#include <sys/types.h>

#include "base/auto.h"

/*
 * Send `number` to every descendant of `root`. Processes that are stopped already are not stopped
 * again. Returns how many were not stopped before, or -errno (no /proc; no memory).
 */
MUST_USE int tree_signal(pid_t root, int number);
/* Who is stopped, at most `max` of them. Their number, or -errno as above. */
MUST_USE int tree_stopped(pid_t *ret_pid, size_t max);
/* One pass: SIGSTOP to whoever runs under that id and whose parent does not: one that waits would
 * else be told, when it goes on, that its child had stopped. Processes that are not dumpable are
 * passed over. How many ran, or -errno as above. */
MUST_USE int tree_stop(uid_t uid);
/* SIGCONT to whoever is stopped but these: to a child before its parent, which else could see it
 * stopped, as a shell would take for its user's wish. Nobody else may start or continue one
 * meanwhile. 0, or -errno as above. */
MUST_USE int tree_continue(const pid_t *but, size_t n_but);
