/*
 * The flat plan of one session: what the api worker asks of the supervisor in one message, and what
 * the supervisor passes to the child that sets the session up. No pointer, no path, no text to
 * interpret: a compromised api worker can only choose among known profiles and lower bounded
 * numbers.
 */
#pragma once

#include <stdint.h>

#include "sandboxd/limits.h"

#define PLAN_MAGIC   0x50424c4eu
#define PLAN_VERSION 1

struct plan {
	uint32_t magic;
	uint16_t version;
	uint16_t size; /* sizeof(struct plan) */
	uint8_t session[ID_BYTES];

	uint32_t profile;         /* index in the policy image */
	uint32_t egress;          /* index of the egress worker that serves this session */
	uint8_t profile_hash[32]; /* of that profile's compiled bytes: both sides mean the same
				     policy */

	uint64_t tmpfs_bytes;
	uint64_t tmpfs_inodes;
	uint64_t memory_bytes;
	uint32_t max_pids;
	uint32_t max_files;  /* RLIMIT_NOFILE of commands */
	uint32_t cpu_pct;    /* 100 = one core */
	uint32_t cpu_weight; /* 1..10000, as cgroup v2's cpu.weight */
	uint32_t max_ptys;
	uint32_t flags; /* PLAN_CANARY or 0 */
};
_Static_assert(sizeof(struct plan) == 112, "wire");

/* sandbox-canary takes the place of the loader. It runs under the policy of any session, so whoever
 * asks for it gains nothing. */
#define PLAN_CANARY 1u

/* Ranges that base/plan.c checks; the supervisor's own ceilings (configuration) come on top. */
#define PLAN_TMPFS_MIN_BYTES  (1024ull * 1024)
#define PLAN_TMPFS_MAX_BYTES  (1ull << 40)
#define PLAN_INODES_MIN       64u
#define PLAN_INODES_MAX       (1u << 26)
#define PLAN_MEMORY_MIN_BYTES (16ull * 1024 * 1024)
#define PLAN_MEMORY_MAX_BYTES (1ull << 42)
#define PLAN_PIDS_MIN         8u
#define PLAN_PIDS_MAX         32768u
#define PLAN_FILES_MIN        64u
#define PLAN_FILES_MAX        16384u
#define PLAN_CPU_MIN_PCT      1u
#define PLAN_CPU_MAX_PCT      100000u
#define PLAN_PTYS_MAX         1024u
#define PLAN_CPU_WEIGHT_MIN   1u
#define PLAN_CPU_WEIGHT_MAX   10000u
#define PLAN_EGRESS_MAX       63u

/*
 * Processes of the session's programs: RLIMIT_NPROC. Of the session's limit this many are kept for
 * the service's own in it and a runner for each command, so that the kernel meets this limit first:
 * it refuses before it copies anything, where the control group refuses a copy that is complete,
 * and what a fork bomb does all day is asking (B16).
 */
#define PLAN_OWN_PIDS 20u

static inline uint32_t plan_user_pids(uint32_t max_pids)
{
	return max_pids - (PLAN_OWN_PIDS < max_pids / 4 ? PLAN_OWN_PIDS : max_pids / 4);
}

/*
 * Descriptors of the shim after its exec. Everything else is closed before. 0, 1 and 2 are
 * /dev/null of the session.
 */
enum shim_fd {
	SHIM_FD_LISTEN =
		3, /* SOCK_SEQPACKET listener, bound before the clone; one connection at a time */
	SHIM_FD_POLICY = 4, /* sealed memfd: struct session_policy (policy_image.h) */
	SHIM_FD_LOADER = 5, /* sealed memfd: sandbox-loader, for execveat */
	SHIM_FD_PARAMS = 6, /* sealed memfd or pipe: struct shim_params */
	SHIM_FD_READY = 7,  /* pipe to the supervisor: struct err if start-up fails, SHIM_READY_BYTE
			       when confined */
	SHIM_FD_SECRETS =
		8,          /* pipe: struct secret_stream (secret.h); absent where there are none */
	SHIM_FD_QUEUES = 9, /* the session's POSIX message queues, as a folder: a Landlock rule
			       names it, then it is closed; absent where there is no need */
	SHIM_FD_GIT = 10,   /* sealed memfd that cannot be read: sandbox-git, for execveat */
	SHIM_FD_ARCHIVE = 11,  /* sealed memfd: sandbox-archive, for execveat */
	SHIM_FD_TEMPLATE = 12, /* the record of its template, which is in use while pid 1 has it
				  open; absent where the root is the host's /usr */
	SHIM_FD_NEXT_ = 13,
};
#define SHIM_READY_BYTE 0x52

/*
 * Capabilities of the shim in the session's user namespace when it is exec'd: permitted,
 * inheritable and ambient, bits of 1 << CAP_. It keeps fewer: pid 1 KILL, the nursery all of them,
 * the spawner and its runners SETUID SETGID KILL, the file helper and commands none.
 *
 * Where the profile has root commands, those of SHIM_CAPS_ROOT come on top: the nursery keeps them
 * for the second spawner. A root command has exactly them, over the session's own files and
 * processes; see shim_caps_command() for kernels without Landlock's signal scope.
 */
#define SHIM_CAP_CHOWN    (1ull << 0)
#define SHIM_CAP_DAC      (1ull << 1) /* DAC_OVERRIDE */
#define SHIM_CAP_FOWNER   (1ull << 3)
#define SHIM_CAP_FSETID   (1ull << 4)
#define SHIM_CAP_KILL     (1ull << 5)
#define SHIM_CAP_SETGID   (1ull << 6)
#define SHIM_CAP_SETUID   (1ull << 7)
#define SHIM_CAP_SETPCAP  (1ull << 8)
#define SHIM_CAPS         (SHIM_CAP_KILL | SHIM_CAP_SETGID | SHIM_CAP_SETUID | SHIM_CAP_SETPCAP)
#define SHIM_CAPS_PID1    SHIM_CAP_KILL
#define SHIM_CAPS_SPAWNER (SHIM_CAP_KILL | SHIM_CAP_SETGID | SHIM_CAP_SETUID)
#define SHIM_CAPS_ROOT                                                                             \
	(SHIM_CAP_CHOWN | SHIM_CAP_DAC | SHIM_CAP_FOWNER | SHIM_CAP_FSETID | SHIM_CAP_KILL |       \
	 SHIM_CAP_SETGID | SHIM_CAP_SETUID)

enum shim_params_flags {
	/* Test builds only, see supervisor/weaken.h: commands keep capabilities, a descriptor; one
	 * rule of their Landlock domain is wide. */
	SHIM_PARAMS_WEAK_CAPS = 2,
	SHIM_PARAMS_WEAK_FD = 4,
	SHIM_PARAMS_ROOT_COMMANDS = 8,  /* the profile has commands of `root` */
	SHIM_PARAMS_WEAK_ROOT_CAP = 16, /* test builds: these have one capability more */
	SHIM_PARAMS_WEAK_LANDLOCK = 32,
	SHIM_PARAMS_TEMPLATE = 64, /* its root is a template, which may be written to */
	/* Nobody can freeze its commands alone: the shim stops them while the session is paused */
	SHIM_PARAMS_STOPS = 128,
#ifdef SANDBOXD_TEST_HOOKS
	SHIM_PARAMS_ALL_ = 254,
#else
	SHIM_PARAMS_ALL_ = 200,
#endif
};

/* Of the shim when it is exec'd, also as its bounding set. flags: enum shim_params_flags. */
static inline uint64_t shim_caps(uint32_t flags)
{
	return SHIM_CAPS | (flags & SHIM_PARAMS_ROOT_COMMANDS ? SHIM_CAPS_ROOT : 0);
}

/* Of a root command: permitted, effective, bounding. KILL reaches whatever is in its user
 * namespace, our own processes too, unless Landlock keeps it to the second spawner's children;
 * where it does not (before ABI 6), `root` signals what has its own id and no more (B24, C8). */
static inline uint64_t shim_caps_command(uint32_t landlock_abi)
{
	return landlock_abi >= 6 ? SHIM_CAPS_ROOT : SHIM_CAPS_ROOT & ~SHIM_CAP_KILL;
}

struct shim_params {
	uint32_t magic; /* PLAN_MAGIC */
	uint16_t version;
	uint16_t size;
	uint8_t session[ID_BYTES];
	uint32_t user_id; /* inside */
	uint32_t group_id;
	uint32_t max_files;    /* RLIMIT_NOFILE of commands */
	uint32_t flags;        /* enum shim_params_flags */
	uint64_t ring_bytes;   /* a running job: 128 KiB .. SHIM_RING_BYTES */
	uint32_t landlock_abi; /* to be used; 0: none */
	uint32_t zero;
};
_Static_assert(sizeof(struct shim_params) == 56, "wire");
