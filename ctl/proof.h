/*
 * The isolation report: each property of a session as seen by a command inside it, as the
 * supervisor read it back after the launch, and, where we may look, as /proc and the cgroup files
 * say now.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

enum proof_ns {
	PROOF_AT_MNT,
	PROOF_AT_NET,
	PROOF_AT_PID,
	PROOF_AT_IPC,
	PROOF_AT_UTS,
	PROOF_AT_CGROUP,
	PROOF_AT_USER,
	PROOF_AT_MAX_,
};
extern const char *const proof_ns_names[PROOF_AT_MAX_];

/* What a process' files tell. Numbers that were not found stay UINT64_MAX. */
struct proof_facts {
	uint64_t ns[PROOF_AT_MAX_];
	uint64_t uid;
	uint64_t seccomp;
	uint64_t no_new_privs;
	uint64_t caps; /* all five sets or'ed, the shim's permitted set outside */
	uint64_t map_base;
	uint64_t map_count;
	uint64_t files;
	uint64_t disk_kib;
	uint64_t inodes;
	uint64_t memory_bytes;
	uint64_t pids;
	uint64_t cpu_pct;
};
void proof_facts_init(struct proof_facts *facts);
/* Take the lines of a /proc/PID/status text. all_caps: or all sets together, else the permitted. */
void proof_take_status(struct proof_facts *facts, const char *text, bool all_caps);

/* Look at the shim's process from here. 0; -ENOENT: it is not visible to us (another PID namespace,
 * or we are not root); -errno. */
int proof_look_outside(int pid, uint64_t mnt_inode, struct proof_facts *facts);
