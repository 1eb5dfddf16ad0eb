/*
 * What a worker finds after its exec: descriptors by fixed number and one sealed struct each, so
 * that no worker parses configuration and none can change it.
 */
#pragma once

#include <stdint.h>

#include "sandboxd/egress.h"
#include "sandboxd/limits.h"
#include "sandboxd/s3.h"

enum worker_fd {
	WORKER_FD_SUPERVISOR = 3, /* SOCK_SEQPACKET: launch.h */
	WORKER_FD_POLICY = 4,     /* the compiled policy image */
	WORKER_FD_CONFIG = 5,     /* sealed memfd: struct api_config or struct egress_config */
	WORKER_FD_CONTROL = 6,    /* api: listening stream socket */
	WORKER_FD_OPERATOR = 7,   /* api: listening stream socket, peer uid 0 only */
	WORKER_FD_STATE = 8,      /* api: directory descriptor of its state; also its /state */
	WORKER_FD_ENGINE = 9,     /* provider: O_PATH, the engine's Unix socket; or, readable, the
				     credential of a remote service */
	WORKER_FD_NEXT_ = 10,
};
#define WORKER_STATE_DIR "/state"

/* Argument of an api worker that is a client of servers. */
#define WORKER_MODE_NETWORK "network"

#define CONFIG_MAGIC          0x43464731u
#define CONFIG_VERSION        1
#define CONFIG_MAX_PEERS      16
#define CONFIG_TEXT_BYTES     64
#define CONFIG_VALUE_BYTES    2048
#define CONFIG_ORIGINS_BYTES  256
#define CONFIG_MAX_NS         4
#define CONFIG_DSN_BYTES      1024
#define CONFIG_PASSWORD_BYTES 256

/* What one owner, one workspace, or all of them together may have. */
enum quota_scope {
	QUOTA_SCOPE_OWNER,
	QUOTA_SCOPE_WORKSPACE,
	QUOTA_SCOPE_HOST,
	QUOTA_SCOPE_MAX_,
};

/* 0: no bound, but for sessions and jobs. */
struct quota_limits {
	uint64_t memory_bytes; /* sum of the sessions' memory limits */
	uint64_t stored_bytes; /* components of open sessions and frames of tasks */
	uint32_t sessions;     /* open ones */
	uint32_t jobs;         /* that wait */
	uint32_t cpu_s;        /* processor time in one day (UTC) */
	uint32_t launches_per_s;
	uint64_t stored_per_s;  /* bytes of components */
	uint32_t changes_per_s; /* requests that change something */
	uint32_t zero;
};

#define QUOTA_OVERRIDES_MAX 256
struct quota_override {
	char name[40]; /* of the owner or workspace */
	uint32_t scope;
	uint32_t zero;
	struct quota_limits limits; /* all of them: what the file leaves out is the scope's */
};

struct quota_config {
	struct quota_limits limits[QUOTA_SCOPE_MAX_];
	uint32_t n_overrides;
	uint32_t zero;
	struct quota_override override[QUOTA_OVERRIDES_MAX];
};

/* What all sessions' network is bound to, read from text by sandboxd-config: the supervisor fills
 * the kernel's second line from it, the egress workers and the api worker check with it. */
#define CONFIG_PRIVATE_MAX       32
#define CONFIG_HOST_SERVICES_MAX 16
#define CONFIG_PRODUCTION_MAX    64
#define CONFIG_SOCKET_BYTES      108 /* as sockaddr_un has room for */
struct config_host_service {
	char name[EGRESS_NAME_BYTES + 2]; /* as an endpoint names it: a name or an address */
	struct egress_address address;    /* of this host, where it really is; or family 0 and */
	char path[CONFIG_SOCKET_BYTES];   /* its Unix socket; else "" */
	uint32_t name_port;
	uint32_t port; /* with a socket: name_port */
};
struct config_production {
	struct egress_address network;
	struct egress_port_range port;
};
struct network_config {
	uint32_t n_private;
	uint32_t n_host_services;
	uint32_t n_production;
	uint32_t zero;
	struct egress_address private_network[CONFIG_PRIVATE_MAX]; /* allow_private */
	struct config_host_service host_service[CONFIG_HOST_SERVICES_MAX];
	/* The addresses among the production hosts of all endpoints; a name has none here. */
	struct config_production production[CONFIG_PRODUCTION_MAX];
};

/* Of each session. */
struct network_limits {
	uint64_t bytes_per_s; /* both directions together; 0: no bound */
	uint32_t connections;
	uint32_t connects_per_s;
};

/* The Redis server of the sessions. */
struct redis_place {
	struct egress_address address;
	uint32_t port; /* 0: there is none */
	uint32_t zero;
};

/* A Redis server that the api worker itself is a client of. */
struct redis_server {
	struct redis_place place;         /* without an address: the name has to be looked up */
	char name[EGRESS_NAME_BYTES + 2]; /* "": an address alone */
	uint32_t tls;                     /* its certificate is checked, for the name or address */
	char database[8];                 /* "": its first */
	char user[CONFIG_TEXT_BYTES];     /* "": the password alone */
	char url_password[CONFIG_PASSWORD_BYTES];
	char password[CONFIG_PASSWORD_BYTES]; /* an option of its own; where the URL has none */
};

/* What the platform around us is told. */
struct platform_config {
	struct redis_server redis;
	char frames_prefix[CONFIG_TEXT_BYTES]; /* channel of a task: PREFIX "task:" ID */
	uint32_t frames_hold_s;                /* a first subscriber is waited for so long */
	uint32_t zero;
};

/* The Celery queue that the api worker serves, and puts tasks into. */
struct celery_config {
	struct redis_server broker;  /* port 0: none */
	struct redis_server results; /* port 0: the broker */
	char queue[CONFIG_TEXT_BYTES];
	char task_name[CONFIG_ORIGINS_BYTES]; /* names between spaces; the first is what we send */
	uint32_t visibility_timeout_s;
	uint32_t prefetch;
	uint32_t executes; /* 0 local, 1 celery: what POST .../execute does */
	uint32_t zero;
};

#define CONFIG_LIST_BYTES 2048 /* entries between spaces */
enum config_shared_host {
	CONFIG_SHARED_REFUSE, /* no host is shared: the configuration says so or is refused */
	CONFIG_SHARED_PATH,
	CONFIG_SHARED_TRUST_CREDENTIALS,
	CONFIG_SHARED_MAX_,
};
struct endpoint_config {
	char production[CONFIG_LIST_BYTES]; /* rules of egress_rule.h; without a port: all ports */
	char production_buckets[CONFIG_LIST_BYTES]; /* bucket[/prefix] */
	char companions[CONFIG_LIST_BYTES];         /* rules */
	char shared_paths[CONFIG_LIST_BYTES];       /* host/path */
	uint32_t on_production_reroute;             /* 0 refuse, 1 reroute */
	uint32_t shared_host;                       /* enum config_shared_host */
	uint32_t companion_env;                     /* 0 no, 1 yes: variables of companions.h */
	uint32_t zero;
};

/* How components log in to Airbyte. */
enum config_airbyte {
	CONFIG_AIRBYTE_CLIENT,   /* self-managed, client id and secret */
	CONFIG_AIRBYTE_PASSWORD, /* self-managed, user name and password */
	CONFIG_AIRBYTE_OPEN,     /* self-managed, without */
	CONFIG_AIRBYTE_CLOUD,    /* Airbyte Cloud, client id and secret */
	CONFIG_AIRBYTE_MAX_,
};

/* Keys of snapshots, the oldest of each organisation first. Secret. */
#define SNAPSHOT_KEYS_MAX     256
#define SNAPSHOT_KEY_ID_BYTES 24
#define SNAPSHOT_KEY_BYTES    32
struct snapshot_key_config {
	char id[SNAPSHOT_KEY_ID_BYTES]; /* no other one has it */
	char name[40];                  /* of the owner or workspace; "": everybody's */
	uint32_t scope;                 /* enum quota_scope; QUOTA_SCOPE_HOST: everybody's */
	uint32_t zero;
	uint8_t key[SNAPSHOT_KEY_BYTES];
};
struct snapshot_key_list {
	uint32_t n;
	uint32_t zero;
	struct snapshot_key_config key[SNAPSHOT_KEYS_MAX];
};

/* Snapshots are encrypted. */
enum config_encryption {
	CONFIG_ENCRYPTION_OFF,       /* not those that are made from now on */
	CONFIG_ENCRYPTION_AVAILABLE, /* where there is a key */
	CONFIG_ENCRYPTION_REQUIRED,  /* and none is made without one */
	CONFIG_ENCRYPTION_MAX_,
};

/* Where snapshots go from now on; those that are elsewhere are read from there. */
enum config_snapshot_store {
	CONFIG_SNAPSHOTS_LOCAL, /* the state directory */
	CONFIG_SNAPSHOTS_S3,    /* the object store of config_answer.s3 */
	CONFIG_SNAPSHOTS_MAX_,
};

/* Every number is checked against its range by sandboxd-config and again by the supervisor. */
struct api_config {
	uint32_t magic;
	uint16_t version;
	uint16_t zero16;
	uint32_t size;
	uint32_t n_trusted_peers;
	uint32_t trusted_peer[CONFIG_MAX_PEERS]; /* uids whose identity headers are believed */
	char header_user[CONFIG_TEXT_BYTES];
	char header_workspace[CONFIG_TEXT_BYTES];
	char header_project[CONFIG_TEXT_BYTES];
	char header_scopes[CONFIG_TEXT_BYTES];
	char env_prefix[CONFIG_TEXT_BYTES];                     /* "ALPHASWARM_" */
	char stream_url[CONFIG_TEXT_BYTES];                     /* "/chat/stream/" */
	char endpoint_default[ENDPOINTS_N][CONFIG_VALUE_BYTES]; /* operator's defaults; valid where
								   the bit is set */
	char websocket_origins[CONFIG_ORIGINS_BYTES]; /* between spaces, `*`: any; "": none but the
						       host's own */
	uint32_t endpoint_default_set;                /* bit per endpoint */
	uint32_t provider; /* of sandboxes that name none: 0 native, 1 docker, 2 remote */
	uint32_t provider_by_variable;       /* 0; 1: as SANDBOX_PROVIDER has it */
	uint32_t unknown_fields_ignore;      /* 0 refuse, 1 ignore */
	uint32_t component_names_compatible; /* 0 strict, 1 compatible */
	uint32_t max_sessions;
	uint32_t queue_max_jobs; /* waiting jobs of one session */
	uint32_t frames_keep_s;
	uint32_t rows_keep_s;
	uint32_t bodies_keep_s;
	uint32_t janitor_interval_s;
	uint32_t stream_wait_s;
	uint32_t chat_stream_wait_s;
	uint32_t idle_timeout_s; /* 0: no sandbox is suspended by itself */
	uint32_t snapshot_retention_s;
	uint32_t frozen_max_s; /* 0: no bound, as the next */
	uint32_t snapshot_max_entries;
	uint64_t frozen_memory_max_bytes;
	uint64_t audit_file_bytes;            /* of one file */
	uint64_t store_max_bytes;             /* of the embedded database */
	uint64_t snapshot_max_bytes;          /* of one: of its content, and of its file */
	uint64_t snapshot_organization_bytes; /* of all files of one; 0: no bound */
	struct snapshot_key_list snapshot_keys;
	uint32_t snapshot_encryption;     /* enum config_encryption */
	uint32_t snapshot_store;          /* enum config_snapshot_store */
	char store_dsn[CONFIG_DSN_BYTES]; /* of PostgreSQL; "": the embedded one. Secret */
	char store_password[CONFIG_PASSWORD_BYTES];
	uint32_t store_freezes; /* sessions stand still while the lease is over */
	struct quota_config quota;
	uint32_t log_level; /* enum log_level; the supervisor's own option, 0 in the reader's answer
			     */
	struct endpoint_config endpoint[ENDPOINTS_N];
	char component_allow[CONFIG_LIST_BYTES]; /* rules of every session of that profile */
	char agent_allow[CONFIG_LIST_BYTES];
	char agent_gateways[CONFIG_LIST_BYTES]; /* NAME=URL: a variable there, and its host a rule
						 */
	struct network_config network;
	struct network_limits network_limits;
	struct redis_place redis;
	char redis_root[CONFIG_TEXT_BYTES]; /* keys of a session: ROOT:ID:* */
	uint64_t redis_max_bytes;           /* of one session's keys; 0: no bound */
	uint32_t redis_max_keys;            /* the same */
	uint32_t redis_zero;
	struct platform_config platform;
	char airbyte_prefix[CONFIG_TEXT_BYTES]; /* of the variables that components name */
	uint32_t airbyte_workspace;             /* enum config_airbyte */
	struct celery_config celery;
};

struct egress_config {
	uint32_t magic;
	uint16_t version;
	uint16_t zero16;
	uint32_t size;
	uint32_t n_name_servers;
	struct egress_address name_server[CONFIG_MAX_NS]; /* of the host, from its resolv.conf */
	struct network_config network;
};

/* What one session may have at most, whatever the api worker asks. */
struct session_ceilings {
	uint64_t memory_bytes;
	uint64_t tmpfs_bytes;
	uint64_t tmpfs_inodes;
	uint32_t max_pids;
	uint32_t max_files;
	uint32_t cpu_pct;
	uint32_t max_ptys;
};

/* A foreign engine that sandboxes can be made by. */
struct engine_config {
	char socket[CONFIG_SOCKET_BYTES]; /* its Unix socket; "": there is none */
	char image[CONFIG_ORIGINS_BYTES]; /* of every sandbox */
	uint32_t in_production;           /* it may be used there, too */
	uint32_t zero;
};

/* A service elsewhere that makes sandboxes, in the place of an engine. */
struct remote_config {
	char url[CONFIG_ORIGINS_BYTES];            /* http(s), no slash at its end; "": none */
	char credential_file[CONFIG_SOCKET_BYTES]; /* a path of this host */
	char template[CONFIG_ORIGINS_BYTES];       /* of every sandbox there */
};

struct supervisor_config {
	uint32_t magic;
	uint16_t version;
	uint16_t zero16;
	uint32_t size;
	uint32_t max_sessions;
	uint32_t max_launches_per_s;
	uint32_t userns_reserve;   /* user namespaces prepared ahead */
	uint32_t strict;           /* a limit that cannot be set refuses the launch */
	uint32_t n_egress;         /* egress workers */
	uint64_t max_memory_bytes; /* sum over sessions; 0: 80 % of the host's */
	uint64_t max_pids;         /* sum over sessions */
	uint32_t control_gid;      /* group of the control socket; UINT32_MAX: leave */
	uint32_t log_format;       /* enum log_format: logfmt or JSON */
	struct session_ceilings session;
	struct network_config network;
	struct engine_config docker;
	struct remote_config remote;
	uint32_t environment; /* 0 production, 1 development */
	uint32_t zero;
};

/* Who may make users on the server. The supervisor's and its helper's alone. */
struct redis_credential {
	char user[CONFIG_TEXT_BYTES];
	char password[CONFIG_PASSWORD_BYTES];
};

/* The one bounded answer of sandboxd-config: this struct on its standard output; or a non-zero
 * status, and there the reason alone, where the files are what is wrong. What it has on standard
 * error is for the log. */
#define CONFIG_REFUSAL_MAGIC 0x53424352u
#define CONFIG_REASON_BYTES  384
struct config_refusal {
	uint32_t magic;
	char reason[CONFIG_REASON_BYTES]; /* the first complaint, terminated */
};
struct config_answer {
	uint32_t magic;
	uint16_t version;
	uint16_t zero16;
	uint32_t size;
	uint32_t zero32;
	struct supervisor_config supervisor;
	struct api_config api;
	struct egress_config egress;
	struct redis_credential redis;
	struct s3_config s3;
};
