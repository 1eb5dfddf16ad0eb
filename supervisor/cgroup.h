/*
 * Control groups of the instance and of its sessions, on cgroup v2, on v1 and on hybrid hosts.
 *
 * Theory. The v2 tree is always there and always used to start processes in (CLONE_INTO_CGROUP), to
 * freeze and to kill: all three are race-free there and none waits for a thaw (E2). Limits are set
 * where the controller lives: in v2 if the host delegates it there, else in its v1 hierarchy. What
 * is in neither is `missing`, and said so. All groups are children of `sandboxd-<instance>`, made
 * below the group that the supervisor was started in or was told of; they are reached through
 * directory descriptors opened once, and their names are session ids that we drew ourselves (A15).
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

#include "sandboxd/launch.h"
#include "sandboxd/plan.h"

enum cgroup_controller {
	CGROUP_MEMORY,
	CGROUP_PIDS,
	CGROUP_CPU,
	CGROUP_CONTROLLER_MAX_,
};

enum cgroup_workers {
	CGROUP_WORKERS, /* all but those of egress */
	CGROUP_EGRESS,
	CGROUP_WORKERS_MAX_,
};

#define CGROUP_PART_WORK "work" /* cgroup_part.c: below a session's group */

struct cgroup {
	char name[32];                            /* sandboxd-<instance> */
	int v2_parent_fd;                         /* the supervisor's own or the told group in v2 */
	int v2_fd;                                /* <name> below it */
	int v1_parent_fd[CGROUP_CONTROLLER_MAX_]; /* -1: not a v1 hierarchy here */
	int v1_fd[CGROUP_CONTROLLER_MAX_];
	bool parent_is_told; /* this process is not in it, and does not move there */
	bool in_v2[CGROUP_CONTROLLER_MAX_];
	bool has_memsw;
	uint64_t id; /* inode of v2_fd: names this instance for the id-block file */
};
#define CGROUP_NULL                                                                                \
	((struct cgroup){.v2_parent_fd = -1,                                                       \
			 .v2_fd = -1,                                                              \
			 .v1_parent_fd[0] = -1,                                                    \
			 .v1_parent_fd[1] = -1,                                                    \
			 .v1_parent_fd[2] = -1,                                                    \
			 .v1_fd[0] = -1,                                                           \
			 .v1_fd[1] = -1,                                                           \
			 .v1_fd[2] = -1})

/* Find the hierarchies by /proc/self/mountinfo and /proc/self/cgroup, make the instance's groups.
 * parent: make them below that group, which is there and ours to divide; NULL: below our own.
 * Errors name what the host lacks. */
MUST_USE int cgroup_open(struct cgroup *cgroup, const char *instance, const char *parent,
			 struct err *err);
/* What all sessions together may have, whatever their single limits add up to (B21); 0: no limit.
 * -EBUSY: the sessions that are there use more. */
MUST_USE int cgroup_set_totals(const struct cgroup *cgroup, uint64_t max_memory_bytes,
			       uint64_t max_pids);
/* Remove the instance's groups and close. A group that is still populated stays. */
void cgroup_done(struct cgroup *cgroup);
/* Controllers that this host cannot limit by: bits PROOF_MEMORY, PROOF_PIDS, PROOF_CPU. */
uint64_t cgroup_missing(const struct cgroup *cgroup);

/* Make the v2 group `name` and open it for CLONE_INTO_CGROUP. The descriptor is the caller's. */
MUST_USE int cgroup_make(const struct cgroup *cgroup, const char *name, int *ret_fd);
/* is_v2: set the limits in the v2 group, before the clone; else make the v1 groups with theirs. */
MUST_USE int cgroup_limit(const struct cgroup *cgroup, bool is_v2, const char *name,
			  const struct plan *plan, struct err *err);
/*
 * Step of the child: the calling process, still single, joins the v1 groups. `tasks` is
 * "<name>/tasks". By itself and through that file, because the kernel then knows that nobody forks
 * meanwhile: moving another process waits for an RCU grace period, 10 ms and more on a busy host.
 * No allocation.
 */
MUST_USE int cgroup_join_self(const struct cgroup *cgroup, const char *tasks);
/* Bits PROOF_MEMORY, PROOF_PIDS, PROOF_CPU of the controllers whose group `name` is named in text,
 * a copy of /proc/PID/cgroup, which is changed. */
uint64_t cgroup_joined(const struct cgroup *cgroup, const char *name, char *text);
MUST_USE int cgroup_kill(const struct cgroup *cgroup, const char *name);
MUST_USE int cgroup_freeze(const struct cgroup *cgroup, const char *name, bool frozen);
/* Was told to freeze, whether or not all of it has stopped yet. */
bool cgroup_is_frozen(const struct cgroup *cgroup, const char *name);
/* 1: it has processes; 0: none (or no such group); -errno. `events_fd`: its cgroup.events. */
MUST_USE int cgroup_populated(int events_fd);
MUST_USE int cgroup_open_events(const struct cgroup *cgroup, const char *name);
/* Remove every group of that name. 0, or -EBUSY: try again later. */
MUST_USE int cgroup_remove(const struct cgroup *cgroup, const char *name);

/* cgroup_workers.c. "workers", "egress". */
const char *cgroup_workers_name(enum cgroup_workers which);
/* Limit of all of them together; memory and pids. */
uint64_t cgroup_workers_total(enum cgroup_controller controller);
/* Set the limits of a group of workers, whose v2 group is there, and make those of v1. */
MUST_USE int cgroup_limit_workers(const struct cgroup *cgroup, enum cgroup_workers which);
/* A worker, before it gives up its ids, joins those of v1. As cgroup_join_self. */
MUST_USE int cgroup_join_workers(const struct cgroup *cgroup, enum cgroup_workers which);
/* Accepts that there is none, and after up to a second that somebody is in it. */
void cgroup_remove_workers(const struct cgroup *cgroup, enum cgroup_workers which);

/* cgroup_former.c. What a start finds. is_v2: of the v2 tree; a name comes once for each hierarchy
 * that has it. */
typedef int (*cgroup_visit)(void *userdata, const char *name, bool is_v2);
/* Every group of the instance. 0, what visit returned, or -errno. */
MUST_USE int cgroup_visit_all(const struct cgroup *cgroup, cgroup_visit visit, void *userdata);
/* 0: the v2 group of that name has that id, and every v1 hierarchy has its group. -ENOENT, -ESTALE.
 */
MUST_USE int cgroup_check(const struct cgroup *cgroup, const char *name, uint64_t id);
/* Any group of the v2 tree that tree_fd is in. The descriptor (O_PATH), -ESTALE: there is none of
 * that id; -errno. Needs DAC_READ_SEARCH. */
MUST_USE int cgroup_open_by_id(int tree_fd, uint64_t id);
/* Kill and remove the v2 group of that id, wherever it is, if that is its name. 0: it is gone;
 * -ESTALE: another name; -EBUSY after three seconds. Waits: start-up only. */
MUST_USE int cgroup_end_by_id(const struct cgroup *cgroup, uint64_t id, const char *name);
/* 1: the process is in the v2 group itself; 0: it is not; -errno. */
MUST_USE int cgroup_holds(const struct cgroup *cgroup, const char *name, int pid);

/* What of a session goes on while its commands stand still. */
struct cgroup_shim {
	uint32_t id;
	int pid; /* of pid 1 */
};

/* cgroup_part.c. Both wait for the kernel, up to seconds: for a process of their own. What of the
 * frozen group is not the shim goes to a group below, which stays frozen; the rest runs. 0: so it
 * is; else all of it is frozen, as well as may be. */
MUST_USE int cgroup_part(const struct cgroup *cgroup, const char *name,
			 const struct cgroup_shim *shim);
/* All of it is frozen again, in the group itself. Also where it was left half-way. */
MUST_USE int cgroup_join(const struct cgroup *cgroup, const char *name);
bool cgroup_is_parted(const struct cgroup *cgroup, const char *name);
/* Where nobody is in it: the group below. */
void cgroup_remove_work(const struct cgroup *cgroup, const char *name);

/* Processor time of all that ran in the group; 0: it is not known. */
uint64_t cgroup_cpu_us(const struct cgroup *cgroup, const char *name);
MUST_USE int cgroup_stat(const struct cgroup *cgroup, const char *name,
			 struct launch_stat *ret_stat);
/* Limits as the kernel reports them, for the proof. What is missing reads as 0. */
void cgroup_read_limits(const struct cgroup *cgroup, const char *name, uint64_t *ret_memory_bytes,
			uint32_t *ret_max_pids, uint32_t *ret_cpu_pct);
/* How many processes of the group the kernel killed for lack of memory. */
uint32_t cgroup_oom_kills(const struct cgroup *cgroup, const char *name);
/* How many forks the limit of processes refused in the group, or 1: that limit was reached, and how
 * many were refused is not counted. */
uint32_t cgroup_forks_refused(const struct cgroup *cgroup, const char *name);
