/*
 * A session's mounts, made by its child between clone and exec; and the root of a worker. Without a
 * template:
 *
 *   /         its own overlay over (its private layer : the template), ro nosuid nodev
 *   /usr      its own overlay over (mask : copies : host's /usr), ro nosuid nodev
 *   /session, /tmp, /dev/shm  three directories of one tmpfs, its only disk, with its quota
 *   /proc     its own procfs
 *   /dev      devices of the template
 *   /dev/pts  its own devpts
 *
 * With one, / is its own overlay of (its private layer, on its disk, to be written to) over (frame
 * : template), nosuid nodev, and there is no mount at /usr. The frame is ours and lies over the
 * template: it has the mount points, so whatever the template has there, link or file, is neither
 * followed nor seen (A6 to A8), but for /etc, whose files are the template's where they are not
 * ours.
 *
 * For a profile with root commands the shared layers are covered by idmapped views of themselves
 * first (idmap.h).
 *
 * Theory. Everything read-only is seen through overlay superblocks that only this session has:
 * inotify, locks and leases are kept by the inode one sees, so they reach neither the host nor
 * another session (B15, B23). All writable places are one tmpfs superblock, so one size and one
 * inode count bound them together. Mounts are made detached and attached by descriptor: no path
 * that a session could ever have touched is looked up (A3 to A8).
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

#include "sandboxd/plan.h"
#include "supervisor/rootfs.h"

/* Everything as text and numbers before the clone: the child formats and allocates nothing. */
struct mountns {
	char size[24];
	char inodes[24];
	char max_ptys[12];
	char tty_gid[12];
	char shim_gid[12]; /* host id: hidepid hides nothing from pid 1 and its runners */
	char machine_id[36];
	char usr_layers[16];
	int template_fd;  /* detached mount of its template's root; -1: none */
	uint32_t user_id; /* host id of `user` */
	uint32_t root_id; /* of uid 0 inside */
	bool subset_pid;
	const struct rootfs_proc_mask *proc_mask;
	/* the child's own */
	int session_fd;
	int root_fd;
	int proc_fd;
	int empty_fd;
	int queues_fd; /* becomes SHIM_FD_QUEUES; -1: none */
};

MUST_USE int mountns_prepare(struct mountns *mountns, const struct plan *plan, uint32_t id_base,
			     bool subset_pid, const struct rootfs_proc_mask *proc_mask);
/* The layers of its /usr: with a set of copies, or 0. Not with a template. */
MUST_USE int mountns_prepare_usr(struct mountns *mountns, uint8_t set);

/* Steps, in this order. 0 or -errno. */
MUST_USE int mountns_tmpfs(struct mountns *mountns);    /* the session's disk */
MUST_USE int mountns_folders(struct mountns *mountns);  /* its directories, its private layer */
MUST_USE int mountns_root(struct mountns *mountns);     /* / */
MUST_USE int mountns_usr(struct mountns *mountns);      /* /usr */
MUST_USE int mountns_dev(struct mountns *mountns);      /* /dev, /dev/pts */
MUST_USE int mountns_writable(struct mountns *mountns); /* /session, /tmp, /dev/shm */
MUST_USE int mountns_queues(struct mountns *mountns);   /* its POSIX message queues */
MUST_USE int mountns_proc(struct mountns *mountns);     /* /proc */
MUST_USE int mountns_mask(struct mountns *mountns);     /* covers in /proc, with /dev/null */
MUST_USE int mountns_pivot(struct mountns *mountns);

/* See host_enter_worker_root. */
MUST_USE int mountns_worker(int state_fd, struct err *err); /* state_fd: "api" in /d, or -1 */
