/*
 * Directories of our own on the host.
 */
#pragma once

#include <sys/types.h>

#include "base/auto.h"
#include "base/err.h"

/*
 * Open an absolute directory whose every component is root's and writable by nobody else, making
 * the missing ones (the last with `mode`, those above 0755). Runs as root in the host's mount
 * namespace. The descriptor, close-on-exec, or -errno with the step `step` in err.
 */
MUST_USE int trusted_dir_open(const char *path, mode_t mode, const char *step, struct err *err);
