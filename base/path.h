/*
 * Paths from outside are opened only here, beneath a directory descriptor.
 */
#pragma once

#include <sys/types.h>

#include "base/auto.h"

/* A relative path whose components are neither empty, "." nor "..": 0 or -EINVAL; -ENAMETOOLONG. */
MUST_USE int path_check_relative(const char *path);

/* openat2 with RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS, O_CLOEXEC. mode
 * counts with O_CREAT and O_TMPFILE. The descriptor, -EXDEV (leads out), -ELOOP (a symlink),
 * -EAGAIN (too many renames at once), or -errno. A fifo or device is opened as the flags say: add
 * O_NONBLOCK and look at the type. */
MUST_USE int path_open_beneath(int dir_fd, const char *path, int flags, mode_t mode);

/* The same where links count as long as they stay below dir_fd: one that leads up and out, or an
 * absolute one, is -EXDEV. Nothing is created. */
MUST_USE int path_open_within(int dir_fd, const char *path, int flags);

/* Open an absolute path and check every component: owned by root, not writable by group or others
 * (a sticky directory excepted as parent), no symlink. For paths from the root-owned configuration.
 * O_CREAT and O_TRUNC are refused, as are "//", "." and "..". The descriptor, -EPERM (a component
 * fails the check; an untrusted fifo or device is never opened), -EINVAL, or -errno. */
MUST_USE int path_open_trusted(const char *path, int flags);
