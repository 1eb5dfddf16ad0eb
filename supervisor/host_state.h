/*
 * Inside of struct host: for the launch engine's own files only.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/list.h"
#include "base/loop.h"

#include "policy/image.h"
#include "supervisor/cgroup.h"
#include "supervisor/egress_guard.h"
#include "supervisor/host.h"
#include "supervisor/idblock.h"
#include "supervisor/lookup_reserve.h"
#include "supervisor/rootfs.h"
#include "supervisor/steps_child.h"
#include "supervisor/userns.h"

#define HOST_PROGRAMS 6
#define HOST_CLOCKS   64 /* launches at once that can be traced in the child */

enum host_namespace {
	HOST_NS_MNT,
	HOST_NS_NET,
	HOST_NS_PID,
	HOST_NS_IPC,
	HOST_NS_UTS,
	HOST_NS_CGROUP,
	HOST_NS_USER,
	HOST_NS_MAX_,
};

struct host {
	struct loop *loop;
	struct loop_source *turn; /* deferred: frees sessions, refills the reserve */
	bool strict;
	bool ipv6;
	uint32_t probes;       /* enum kernel_probe */
	uint32_t landlock_abi; /* 0: none */
	struct cgroup cgroup;
	int workers_group_fd;
	int egress_group_fd;
	bool guarded; /* that group */
	struct egress_guard_programs guard_programs;
	struct idblock idblock;
	struct loop_source *idblock_timer; /* the next try, while it owes blocks */
	uint32_t worker_ids;               /* first id of the workers' block; 0: not taken */
	struct userns_reserve reserve;
	struct lookup_reserve lookups;
	int sockets_fd; /* <runtime>/private/sessions */
	struct image image;
	int policy_fd;
	int mounts_fd; /* the mount namespace that the service was started in */
	int session_policy_fd[POLICY_MAX_PROFILES]; /* sealed struct session_policy; -1: no session
						       profile */
	int shim_fd;
	int loader_fd;
	int git_fd;
	int archive_fd;
	int canary_fd;
	int program_fd[HOST_PROGRAMS];
	struct rootfs_proc_mask proc_mask;
	struct usr_mask usr_mask;
	struct usr_copies_use usr_use;
	struct usr_mask_job mask_job; /* until the first session needs its result */
	struct loop_source *mask_source;
	int mask_error;             /* what it ended with */
	struct steps_clock *clocks; /* shared with children between clone and exec */
	uint64_t clocks_used;       /* one bit each */
	uint64_t ns_inode[HOST_NS_MAX_];
	struct list sessions;
	struct list adopted;     /* found at the start, until somebody takes them */
	struct buf incompatible; /* struct id each: ended at the start, see host.h */
	struct list dead;        /* told about, freed at the end of the turn */
	const char *fail_step;   /* test builds; NULL */
	const char *crash_step;  /* as well: the supervisor dies after it */
};

/* File name below /proc/PID/ns. */
const char *host_namespace_name(enum host_namespace which);
/* The workers' v2 group, made where it is missing. */
MUST_USE int host_make_workers_group(struct host *host, struct err *err);
/* Have the deferred work done at the end of this turn. */
void host_wake(struct host *host);
/* Free the sessions of host->dead: session.c. */
void session_free_dead(struct host *host);
