/*
 * What the supervisor opens and probes once at start, before it enters its own tiny mount
 * namespace: cgroup parents, layers of the default template, sealed programs, the compiled policy,
 * the id-block file, kernel probes. Everything later works on these descriptors; no path is looked
 * up again.
 */
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "base/id.h"
#include "base/loop.h"

#include "sandboxd/launch.h"
#include "sandboxd/policy_image.h"

struct egress_guard;
struct host;

struct host_options {
	const char *instance;      /* 8 hexadecimal digits */
	const char *runtime_dir;   /* root-owned, 0700 `private` below it is made here */
	const char *libexec_dir;   /* our programs and policy.img */
	const char *cgroup_parent; /* group for the instance's groups; NULL: the own one */
	bool kernel_6_1;           /* SANDBOX_KERNEL=6.1: every newer feature off */
	int state_dir_fd; /* state directory, whose `api` becomes a worker's /state; 0 or -1: none
			   */
};

/* What sandboxd-config answers, and so is not known before its worker root is there. */
struct host_configuration {
	uint32_t userns_reserve; /* user namespaces prepared ahead, refilled between loop turns */
	bool strict;             /* a limit that this host cannot set: -ENOTSUP */
	/* All sessions together, kept by the kernel whatever is counted elsewhere (B21); 0: none.
	 * Processes are in any case fewer than four fifths of what the host can have. */
	uint64_t max_memory_bytes;
	uint64_t max_pids;
	const struct egress_guard *guard; /* what egress workers may reach; NULL: there are none */
};

/*
 * Runs as root in the host's namespaces, before any child. On return the process is in its own
 * mount namespace: a tmpfs root with /proc, and the one-letter layer directories. Errors name the
 * missing feature.
 */
MUST_USE int host_open(struct loop *loop, const struct host_options *options,
		       struct host **ret_host, struct err *err);
/* Wait until sessions can be launched: the look through /usr, begun by host_open, has ended. Called
 * last, when everything that can start beside it has been started. */
MUST_USE int host_settle(struct host *host, struct err *err);
/* Looks for what a former supervisor of the instance left. Every session is either found whole, and
 * then waits to be taken, or ended and removed. Called before the first launch. -errno is trouble
 * of our own: no session that lives was touched. */
MUST_USE int host_adopt(struct host *host, struct err *err);
struct session_events;
struct session;
/* One of the sessions that were found whole; from now on as if it had been started here, but for
 * its trace and its exit status. -ENOENT: no more. */
MUST_USE int host_take_adopted(struct host *host, const struct session_events *events,
			       void *userdata, struct session **ret_session);
/* Sessions that host_adopt ended because another release had made them: *ret_n ids. */
const struct id *host_incompatible(const struct host *host, size_t *ret_n);
/* Sessions of any state, taken or not. */
bool host_has_sessions(const struct host *host);
struct host *host_close(struct host *host); /* removes the instance's groups and id blocks */

/* Comes once, after host_open and host_adopt and before the first launch. err names what
 * the host cannot do. */
MUST_USE int host_configure(struct host *host, const struct host_configuration *configuration,
			    struct err *err);

uint32_t host_probes(const struct host *host);         /* enum kernel_probe */
uint64_t host_limits_missing(const struct host *host); /* bits of enum launch_proof_bit */
const struct policy_image_header *host_policy(const struct host *host);
int host_policy_fd(const struct host *host); /* stays the host's */
/* The mount namespace that the service was started in, for a child that looks up a path of the
 * operator's; stays the host's. */
int host_mounts_fd(const struct host *host);
/* First host id of the block that the instance's workers use. */
uint32_t host_worker_ids(const struct host *host);
/* Enter a new root for a worker: run in its child after clone (own mount, PID, IPC, UTS
 * namespaces). Empty root with the read-only libraries, /dev/null, own /proc, and `state_fd`'s
 * directory at /state when >= 0. */
MUST_USE int host_enter_worker_root(const struct host *host, int state_fd, struct err *err);
/* As host_worker_group, for the workers that connect outward: bound by the guard. */
int host_egress_group(const struct host *host);
/* Step of a worker's child: the groups of version 1. */
MUST_USE int host_join_workers(const struct host *host, bool is_egress);
/* Is it bound? The log says why it is not. */
bool host_egress_guarded(const struct host *host);
/* The v2 group `workers` of the instance, for CLONE_INTO_CGROUP; the descriptor stays the host's.
 * -1: there is no v2 tree. */
int host_worker_group(const struct host *host);
/* A program of ours by its file name in libexec_dir, opened at start: for execveat. -1: unknown. */
int host_program(const struct host *host, const char *name);
