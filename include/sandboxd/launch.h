/*
 * The supervisor's socket: a fixed set of fixed-size requests from its own workers (SOCK_SEQPACKET
 * socketpair made by the supervisor, one per worker). Requests are even, answers are the request's
 * number plus one, events that nobody asked for are odd from 101. Any surprise ends the connection.
 */
#pragma once

#include <stdint.h>

#include "base/err.h"

#include "sandboxd/limits.h"
#include "sandboxd/plan.h"
#include "sandboxd/redis.h"
#include "sandboxd/secret.h"
#include "sandboxd/template.h"

#define LAUNCH_MAGIC   0x4c424158u
#define LAUNCH_VERSION 1

enum launch_type {
	LAUNCH_HELLO =
		2, /* must be first: struct launch_hello; answered with the instance's facts */
	LAUNCH_START = 4,  /* struct plan; answered with a connected shim socket (1 descriptor) and
			      struct launch_trace, or an error */
	LAUNCH_KILL = 6,   /* by session id; answered when nothing of the session is left */
	LAUNCH_FREEZE = 8, /* by session id: all of it, its shim too; answered at once with struct
			      launch_stat, whose `frozen` says whether all has stopped */
	LAUNCH_THAW = 10,  /* by session id */
	LAUNCH_STAT = 12,  /* by session id: struct launch_stat */
	LAUNCH_ADOPT = 14, /* after HELLO: one answer per live session (connected socket each), and
			      one with LAUNCH_E_INCOMPATIBLE per session that another release had
			      made and that was ended; then one with session all zero and more = 0
			      */
	LAUNCH_PROOF = 16, /* by session id: struct launch_proof */
	LAUNCH_TRACE = 18, /* by session id: struct launch_trace */
	LAUNCH_LOG_LEVEL = 20, /* struct launch_level: of all our processes, until the next start */
	LAUNCH_REDIS = 22, /* by session id: struct launch_redis; answered with struct redis_report.
			      For REDIS_LIST and REDIS_MEASURE the id is none of a session's */
	LAUNCH_LINK = 24,  /* struct launch_link: the connection to that egress worker is lost,
			      and a new LAUNCH_EVENT_LINK is wanted. LAUNCH_E_STATE: that
			      worker is not up, and brings one when it is */
	LAUNCH_SERVICE = 26, /* from an egress worker, struct launch_service: answered with a
				socket that is connected to that service of this host
				(1 descriptor), or LAUNCH_E_STEP with the errno */
	LAUNCH_LEASE = 28, /* struct launch_lease: so long the sessions that are there may run. They
			      stand still from then on, until another one comes, whatever becomes
			      of the worker. Before the first one there is no end */
	LAUNCH_PART = 30,  /* by session id, which is frozen: its shim and what that starts run,
			      the rest stays as it is; answered when it is so */
	LAUNCH_JOIN = 32,  /* by session id: all of it is frozen again; answered likewise */
	LAUNCH_S3 = 34, /* answered with a socket to a helper of the object store, which waits for
			   struct s3_job (1 descriptor). LAUNCH_E_STATE: there is none;
			   LAUNCH_E_RATE: too many run */
	LAUNCH_EVENT_GONE =
		101, /* the session ended by itself: struct launch_gone; it is already cleaned up */
	LAUNCH_EVENT_FACTS = 103,  /* struct launch_facts: after HELLO and whenever they change */
	LAUNCH_EVENT_CONFIG = 105, /* to the api worker, after its HELLO and after each reload:
				      struct launch_config; a descriptor, as WORKER_FD_CONFIG,
				      where there is something new */
	LAUNCH_EVENT_LINK = 107, /* struct launch_link: one end of a new socket pair between the api
				    worker and an egress worker (egress.h; 1 descriptor). It
				    replaces the former one */
	LAUNCH_EVENT_NET = 109,  /* to the session's egress worker, also for each session again when
				    the worker has restarted: LAUNCH_NET_FDS descriptors */
	LAUNCH_EVENT_NET_GONE = 111, /* to the egress worker: the session has ended */
};

/*
 * Descriptors of LAUNCH_EVENT_NET, all non-blocking and made inside the session's network
 * namespace. On the listener arrive all TCP connections to other than loopback addresses, IPv4 ones
 * in the mapped form, and those to the resolver's address and port 53; getsockname of the accepted
 * socket is what was dialled. The other is the resolver's UDP socket.
 */
enum launch_net_fd {
	LAUNCH_NET_LISTENER,
	LAUNCH_NET_RESOLVER,
	LAUNCH_NET_FDS,
};

/* Why a request was refused: stable numbers, texts in base/launch.c. */
enum launch_error {
	LAUNCH_E_NONE,
	LAUNCH_E_STEP,        /* err names the step and its errno */
	LAUNCH_E_NOT_FOUND,   /* no such session */
	LAUNCH_E_EXISTS,      /* the id is in use */
	LAUNCH_E_PLAN,        /* the plan is outside its ranges or names an unknown profile */
	LAUNCH_E_SESSIONS,    /* ceiling: sessions */
	LAUNCH_E_MEMORY,      /* ceiling: sum of memory limits */
	LAUNCH_E_PIDS,        /* ceiling: sum of pids limits */
	LAUNCH_E_RATE,        /* ceiling: launches a second */
	LAUNCH_E_IDS,         /* no id block is free */
	LAUNCH_E_DESCRIPTORS, /* RLIMIT_NOFILE would be reached */
	LAUNCH_E_STATE,       /* not in this state (freeze of a frozen session, ...) */
	LAUNCH_E_STOPPING,    /* the service is going down */
	LAUNCH_E_PROOF, /* strict mode: what is in force differs from the plan; the session was
			   destroyed */
	LAUNCH_E_INCOMPATIBLE, /* ADOPT: of a release that this one does not understand; ended */
	LAUNCH_E_SECRET, /* err names the secret, its errno says why: ENOENT (none of that name for
			    this workspace), EBADMSG (damaged), E2BIG (all together), EIO */
	LAUNCH_E_UNSUPPORTED, /* who is asked can never do this */
	LAUNCH_E_TEMPLATE,    /* there is no template of that name, or it is being removed */
	LAUNCH_E_MAX_,
};

struct launch_hello {
	uint32_t magic;
	uint16_t version;
	uint16_t message_bytes; /* sizeof(struct launch_msg) */
	char instance[16];      /* answer: instance id, NUL padded */
	uint32_t max_sessions;  /* answer: ceilings in force */
	uint32_t n_profiles;    /* answer */
	uint64_t max_memory_bytes;
	uint32_t kernel_probes; /* answer: enum kernel_probe bits that are in use */
	uint32_t n_egress;
	uint64_t limits_missing; /* answer: limits that this host cannot set, as in launch_proof */
};

struct launch_level {
	uint32_t level; /* enum log_level */
	uint32_t zero;
};

/* Whose sandboxes sandboxd-provider makes. */
enum launch_engine {
	LAUNCH_ENGINE_NONE,
	LAUNCH_ENGINE_DOCKER,
	LAUNCH_ENGINE_REMOTE,
	LAUNCH_ENGINE_MAX_,
};

/* Of the service as it is now; the counts are of this supervisor's life. */
struct launch_facts {
	uint32_t n_api_restarts;
	uint32_t n_egress_restarts;
	uint32_t n_egress;
	uint32_t n_egress_up; /* have said HELLO and live */
	uint32_t log_level;
	uint32_t egress_guarded; /* the kernel refuses what no session may reach, too */
	uint32_t n_provider_restarts;
	uint32_t engine;      /* enum launch_engine: the one that is configured */
	uint32_t provider_up; /* it has said HELLO and lives */
	uint32_t zero;
};

struct launch_stat {
	uint64_t memory_bytes;
	uint64_t memory_peak_bytes;
	uint64_t cpu_us;
	uint32_t n_pids;
	uint32_t frozen;
	uint32_t oom_kills;     /* processes that the kernel killed for lack of memory */
	uint32_t forks_refused; /* by the limit of processes; 1: it was reached */
};

/* What is in force, read back after the launch (proof of effect). */
enum launch_proof_bit {
	PROOF_NS_MNT = 1u << 0, /* the namespace differs from the supervisor's */
	PROOF_NS_NET = 1u << 1,
	PROOF_NS_PID = 1u << 2,
	PROOF_NS_IPC = 1u << 3,
	PROOF_NS_UTS = 1u << 4,
	PROOF_NS_CGROUP = 1u << 5,
	PROOF_NS_USER = 1u << 6,
	PROOF_SECCOMP_SHIM = 1u << 7,    /* Seccomp: 2, one filter */
	PROOF_SECCOMP_SPAWNER = 1u << 8, /* Seccomp: 2, one filter */
	PROOF_NO_NEW_PRIVS = 1u << 9,
	PROOF_CAPS_SHIM = 1u << 10,      /* only the listed ones */
	PROOF_CAPS_SPAWNER = 1u << 11,   /* only the listed ones; bounding set empty */
	PROOF_IDS = 1u << 12,            /* all uids and gids are the block's last, no groups */
	PROOF_ID_MAP = 1u << 13,         /* uid_map and gid_map are exactly the block */
	PROOF_USERNS_CEILING = 1u << 14, /* user.max_user_namespaces is 0 inside */
	PROOF_MEMORY = 1u << 15,
	PROOF_PIDS = 1u << 16,
	PROOF_CPU = 1u << 17,
	PROOF_RLIMITS = 1u << 18,
	PROOF_LANDLOCK = 1u << 19, /* commands are in a domain: the spawner has tried it */
	PROOF_EGRESS = 1u << 20,   /* connections are steered to the egress worker's listener */
};

struct launch_proof {
	uint32_t wanted;   /* bits that the plan asks for on this host */
	uint32_t in_force; /* bits that were seen */
	uint32_t id_base;
	int32_t shim_pid;     /* in the supervisor's PID namespace */
	uint64_t ns_inode[8]; /* mnt net pid ipc uts cgroup user, 0 */
	uint64_t host_ns_inode[8];
	uint64_t caps_shim; /* permitted */
	uint64_t caps_spawner;
	uint64_t memory_bytes; /* as set */
	uint32_t max_pids;
	uint32_t cpu_pct;
	uint64_t limits_missing; /* bits of enum launch_proof_bit: limits that this host cannot set
				  */
};

#define LAUNCH_TRACE_MAX  48
#define LAUNCH_TRACE_NAME 24
struct launch_trace_step {
	char name[LAUNCH_TRACE_NAME]; /* NUL padded */
	uint32_t us;                  /* since the request was read */
	uint32_t side;                /* 0 parent, 1 child, 2 shim */
};
struct launch_trace {
	uint32_t n;
	uint32_t zero;
	struct launch_trace_step step[LAUNCH_TRACE_MAX];
};

enum launch_gone_reason {
	LAUNCH_GONE_SHIM_EXITED = 1,
	LAUNCH_GONE_OOM,
	LAUNCH_GONE_KILLED,
};
/* The session was launched by a former supervisor: its exit status went to another process. */
#define LAUNCH_STATUS_UNKNOWN (-1)
struct launch_gone {         /* also in the answer to KILL, without the first two */
	uint32_t reason;     /* enum launch_gone_reason */
	int32_t wait_status; /* as of wait(), or LAUNCH_STATUS_UNKNOWN */
	uint64_t cpu_us;     /* that its processes used in all */
	uint32_t oom_kills;  /* as in launch_stat, in all */
	uint32_t forks_refused;
};

struct launch_adopted { /* of each live session in the answers to ADOPT */
	uint32_t is_frozen;
	uint32_t is_parted;
};

/* The configuration in force, and what became of the last reload. No values of it. */
#define LAUNCH_CONFIG_TEXT 384
struct launch_config {
	uint32_t refused;    /* the last reload changed nothing; `text` says why */
	uint32_t generation; /* reloads that took effect */
	uint64_t at;         /* realtime of the last attempt, before it read; microseconds */
	char text[LAUNCH_CONFIG_TEXT];
	char waiting[LAUNCH_CONFIG_TEXT]; /* options that wait for a restart: "section.key ..." */
};

/* In the place of an egress worker's index: the provider (provider.h). */
#define LAUNCH_LINK_PROVIDER UINT32_MAX
struct launch_link {
	uint32_t egress; /* index of the egress worker, as in struct plan */
	uint32_t zero;
};

/* Of one egress worker: what it asks beyond that is refused. */
#define LAUNCH_SERVICES_AT_ONCE 4u
struct launch_service {
	uint64_t id; /* host_service_id */
};

#define LAUNCH_LEASE_ENDLESS UINT64_MAX
struct launch_lease {
	uint64_t until; /* CLOCK_BOOTTIME, microseconds */
};

struct launch_redis {
	uint32_t action;                         /* enum redis_action */
	uint32_t is_over;                        /* REDIS_MAKE: writes are left out */
	uint8_t password_hash[REDIS_HASH_BYTES]; /* REDIS_MAKE */
};

/* The HTTP request that a session is made for, for the log; "": none. [A-Za-z0-9._-] */
#define LAUNCH_REQUEST_BYTES 72

struct launch_msg {
	uint32_t magic;
	uint16_t version;
	uint16_t type;   /* enum launch_type, or that plus 1 in an answer */
	uint32_t serial; /* chosen by the asker, repeated in the answer */
	uint32_t error;  /* enum launch_error; answers */
	uint8_t session[ID_BYTES];
	uint32_t more; /* answers to ADOPT: 1 while more follow */
	uint32_t zero;
	union {
		struct launch_hello hello;
		struct plan plan; /* of START, too */
		struct {
			struct plan plan;
			struct secret_request secrets; /* n 0: none */
			char request[LAUNCH_REQUEST_BYTES];
			/* NUL padded; empty: the host's /usr. Only where the profile has
			 * commands of `root` */
			char template[TEMPLATE_NAME_BYTES];
		} start;
		struct launch_stat stat;
		struct launch_proof proof;
		struct launch_trace trace;
		struct launch_gone gone;
		struct launch_adopted adopted;
		struct launch_level level;
		struct launch_facts facts;
		struct launch_config config;
		struct launch_link link;
		struct launch_service service;
		struct launch_lease lease;
		struct launch_redis redis;        /* request */
		struct redis_report redis_report; /* answer */
		struct err err;                   /* error = LAUNCH_E_STEP, LAUNCH_E_SECRET */
	} u;
};
_Static_assert(sizeof(struct launch_msg) <= 2048, "one message stays small");
