/*
 * The few mount operations that everything here is built of. Raw system calls without allocation:
 * they also run in the child between clone and exec.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/auto.h"

struct rootfs_option {
	const char *key;
	const char *value; /* NULL: a flag */
};

/* A new superblock of that type as a detached mount. The descriptor or -errno. */
MUST_USE int rootfs_mount(const char *type, const struct rootfs_option *options, size_t n_options,
			  unsigned int mount_attr);
/* A detached clone of the mount at path (or of the directory in it), without mounts below it. */
MUST_USE int rootfs_clone(int dir_fd, const char *path);
MUST_USE int rootfs_attach(int mount_fd, int dir_fd, const char *path);
/* set and clear: MOUNT_ATTR_ bits of this one mount. */
MUST_USE int rootfs_set_attr(int mount_fd, uint64_t set, uint64_t clear);
/* Make the mounted mount_fd the root of the process's mount namespace and detach the old one. */
MUST_USE int rootfs_pivot(int mount_fd);
