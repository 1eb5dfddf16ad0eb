/*
 * The supervisor's own root: a tmpfs with one-letter directories and nothing of the host's paths.
 *
 *   /u   the host's /usr, read-only          /e   template of a session's root (bin dev etc …)
 *   /m   whiteouts for /u                    /w   template of a worker's root
 *   /s   where a session's tmpfs is attached while its root is built, in its own namespace
 *   /n   where that root is attached         /proc   own procfs of the supervisor's PID namespace
 *   /d   the service's state directory, for the roots of its workers; in it, templates
 *   /f   frame around a template (dev etc …)   /t   where a session's template is attached
 *   /h   copies of files of /u, in numbered sets (usr_copies.h)
 *
 * Theory. Every session is cloned from this namespace, and CLONE_NEWNS copies the whole mount table
 * under one global lock: four mounts make that cheap, where a host's hundreds do not. Nothing is
 * ever mounted in the host's namespace, and the names that a session can read in its own mountinfo
 * are these letters.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

#include "supervisor/usr_mask.h"

/*
 * Build it and enter it. Runs as root in the host's namespaces; every host path that is needed
 * later must be open already. Needs SYS_ADMIN and, for the device nodes, MKNOD. state_fd: becomes
 * /d; -1: /d stays empty. No session may be mounted before usr_mask_end(ret_job).
 */
MUST_USE int rootfs_enter(int state_fd, struct usr_mask_job *ret_job, struct err *err);
/* Make the root read-only, when the process of usr_mask_begin has written its last whiteout. */
MUST_USE int rootfs_seal(struct err *err);

/* What covers /proc's top level where a profile cannot take subset=pid: everything that the running
 * kernel has there and that is not on the allowed list, so that new entries are covered too (B17).
 */
#define ROOTFS_PROC_NAME_BYTES 32
#define ROOTFS_PROC_MASK_MAX   128
struct rootfs_proc_mask {
	uint32_t n;
	struct {
		char name[ROOTFS_PROC_NAME_BYTES];
		bool is_directory;
	} entry[ROOTFS_PROC_MASK_MAX];
};
/* Read /proc of this process's root. */
MUST_USE int rootfs_proc_mask(struct rootfs_proc_mask *ret_mask, struct err *err);
