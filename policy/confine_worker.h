/*
 * A worker's own confinement: the first thing in its main, before it reads a byte from outside.
 */
#pragma once

#include <stdbool.h>

#include "base/auto.h"
#include "base/err.h"

/*
 * Take the filter of the worker profile `name` from the compiled policy in policy_fd, after
 * no_new_privs and not-dumpable, which are set here as well. *ret_applied is false only in
 * sanitizer builds, whose runtime needs calls that no worker may have: the caller then logs that
 * the filter is off. 0, or -errno with err, and the worker must exit: confined by half is not
 * confined.
 */
MUST_USE int confine_worker(int policy_fd, const char *name, bool *ret_applied, struct err *err);
/* As above for a worker that opens no file: it cannot, whatever its filter lets through. Says in
 * the log what is wrong or left away. */
MUST_USE int confine_fileless_worker(int policy_fd, const char *name);
/* As above for one that reads files at or below `path` and opens no other. NULL: none. */
MUST_USE int confine_reading_worker(int policy_fd, const char *name, const char *path);
