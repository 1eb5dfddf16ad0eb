#include "supervisor/config/option_table.h"

#include <inttypes.h>
#include <string.h>

#include "base/str.h"

#include "sandboxd/config.h"
#include "sandboxd/worker.h"

#define AT(member) offsetof(struct config_answer, member)

#define SUPERVISOR "supervisor"
#define API        "api"
#define IDENTITY   "identity"
#define ENDPOINTS  "endpoints"
#define LIMITS     "limits"
#define AUDIT      "audit"
#define STATE      "state"
#define STORE      "store"
#define SNAPSHOTS  "snapshots"
#define OWNER      "owner"
#define WORKSPACE  "workspace"
#define HOST       "host"
#define ENDPOINT   "endpoint"
#define NETWORK    "network"
#define REDIS      "redis"
#define PLATFORM   "platform"
#define AIRBYTE    "airbyte"
#define CELERY     "celery"
#define DOCKER     "docker"
#define REMOTE     "remote"

#define QUOTA(scope, member) AT(api.quota.limits[QUOTA_SCOPE_##scope].member)

/* Two lines an option. */
/* clang-format off */
static const struct option_row rows[] = {
	{SUPERVISOR, "userns_reserve", OPTION_TYPE_U32, 0, CONFIG_RESERVE_MAX, "8",
	 AT(supervisor.userns_reserve), OPTION_RELOAD_NEW, "user namespaces prepared ahead"},
	{SUPERVISOR, "strict", OPTION_TYPE_BOOL, 0, 1, "no",
	 AT(supervisor.strict), OPTION_RELOAD_NEW, "refuse to run where a limit cannot be set"},
	{SUPERVISOR, "egress_workers", OPTION_TYPE_U32, 1, CONFIG_EGRESS_MAX, "1",
	 AT(supervisor.n_egress), OPTION_RESTART, "processes that carry the sessions' network"},
	{SUPERVISOR, "control_gid", OPTION_TYPE_ID, 0, CONFIG_GID_MAX, NULL,
	 AT(supervisor.control_gid), OPTION_RESTART, "group that may open the control socket"},
	{SUPERVISOR, "launches_per_second", OPTION_TYPE_U32, 1, CONFIG_LAUNCH_RATE_MAX, "1000",
	 AT(supervisor.max_launches_per_s), OPTION_RELOAD_NEW, "session launches a second, over all callers"},
	{SUPERVISOR, "log_level", OPTION_TYPE_LEVEL, 0, 0, "info",
	 AT(api.log_level), OPTION_RELOAD, "error, warning, info or debug; --log-level goes before it"},
	{SUPERVISOR, "log_format", OPTION_TYPE_FORMAT, 0, 1, "logfmt",
	 AT(supervisor.log_format), OPTION_RELOAD, "logfmt or json, where there is no journal"},

	{SUPERVISOR, "environment", OPTION_TYPE_ENVIRONMENT, 0, 1, "production",
	 AT(supervisor.environment), OPTION_RESTART, "production or development, where foreign engines need no leave"},

	{API, "provider", OPTION_TYPE_PROVIDER, 0, 2, "native",
	 AT(api.provider), OPTION_RELOAD_NEW, "what makes a sandbox that names no provider: native, docker or remote"},
	{API, "stream_url", OPTION_TYPE_URL_PREFIX, 0, 0, "/chat/stream/",
	 AT(api.stream_url), OPTION_RELOAD, "prefix of a task's stream_url"},
	{API, "websocket_origins", OPTION_TYPE_ORIGINS, 0, 0, NULL,
	 AT(api.websocket_origins), OPTION_RELOAD, "further origins that may open a WebSocket; *: any"},
	{API, "env_prefix", OPTION_TYPE_PREFIX, 0, 0, "ALPHASWARM_",
	 AT(api.env_prefix), OPTION_RELOAD, "prefix of the endpoint variables in a session"},
	{API, "unknown_fields", OPTION_TYPE_FIELDS, 0, 1, "refuse",
	 AT(api.unknown_fields_ignore), OPTION_RELOAD, "unknown fields of a body: refuse or ignore"},
	{API, "component_names", OPTION_TYPE_NAMES, 0, 1, "strict",
	 AT(api.component_names_compatible), OPTION_RELOAD, "rule for component names: strict or compatible"},
	{API, "queue_jobs", OPTION_TYPE_U32, 1, CONFIG_QUEUE_MAX, "32",
	 AT(api.queue_max_jobs), OPTION_RELOAD, "waiting jobs of one session"},
	{API, "frames_keep", OPTION_TYPE_SECONDS, CONFIG_KEEP_MIN_S, CONFIG_KEEP_MAX_S, "24h",
	 AT(api.frames_keep_s), OPTION_RELOAD, "frames live this long after their session"},
	{API, "rows_keep", OPTION_TYPE_SECONDS, CONFIG_KEEP_MIN_S, CONFIG_KEEP_MAX_S, "30d",
	 AT(api.rows_keep_s), OPTION_RELOAD, "rows of closed sessions"},
	{API, "bodies_keep", OPTION_TYPE_SECONDS, CONFIG_KEEP_MIN_S, CONFIG_KEEP_MAX_S, "7d",
	 AT(api.bodies_keep_s), OPTION_RELOAD, "component bodies of closed sessions"},
	{API, "janitor_interval", OPTION_TYPE_SECONDS, CONFIG_JANITOR_MIN_S, CONFIG_JANITOR_MAX_S, "60s",
	 AT(api.janitor_interval_s), OPTION_RELOAD, "pause between two looks at what was kept long enough"},

	{API, "stream_wait", OPTION_TYPE_SECONDS, 0, CONFIG_HOLD_MAX_S, "0s",
	 AT(api.stream_wait_s), OPTION_RELOAD, "a stream below /dagster/sandbox/tasks/ waits this long for a task that is not known yet"},
	{API, "chat_stream_wait", OPTION_TYPE_SECONDS, 0, CONFIG_HOLD_MAX_S, "0s",
	 AT(api.chat_stream_wait_s), OPTION_RELOAD, "the same below /chat/stream/"},
	{API, "idle_timeout", OPTION_TYPE_SECONDS, 0, CONFIG_KEEP_MAX_S, "0s",
	 AT(api.idle_timeout_s), OPTION_RELOAD, "a sandbox that is not used for so long is suspended; 0s: none is"},
	{API, "snapshot_retention", OPTION_TYPE_SECONDS, CONFIG_KEEP_MIN_S, CONFIG_KEEP_MAX_S, "7d",
	 AT(api.snapshot_retention_s), OPTION_RELOAD, "a suspended sandbox is kept for so long"},
	{API, "frozen_max", OPTION_TYPE_SECONDS, 0, CONFIG_KEEP_MAX_S, "24h",
	 AT(api.frozen_max_s), OPTION_RELOAD, "a suspended sandbox keeps its processes for so long; 0s: until it is resumed"},
	{API, "frozen_memory_max", OPTION_TYPE_SIZE, 0, CONFIG_TOTAL_MEMORY_MAX, "0",
	 AT(api.frozen_memory_max_bytes), OPTION_RELOAD, "memory of all suspended sandboxes; 0: no bound"},

	{AUDIT, "file_size", OPTION_TYPE_SIZE, CONFIG_AUDIT_MIN_BYTES, CONFIG_AUDIT_MAX_BYTES, "16MiB",
	 AT(api.audit_file_bytes), OPTION_RELOAD, "size of one file of the audit; eight are kept"},

	{STATE, "max_bytes", OPTION_TYPE_SIZE, CONFIG_STORE_MIN_BYTES, CONFIG_STORE_MAX_BYTES, "2GiB",
	 AT(api.store_max_bytes), OPTION_RESTART, "size of the embedded store at most"},

	{SNAPSHOTS, "max_bytes", OPTION_TYPE_SIZE, CONFIG_SNAPSHOT_MIN_BYTES, CONFIG_SNAPSHOT_MAX_BYTES, "2GiB",
	 AT(api.snapshot_max_bytes), OPTION_RELOAD, "content of one snapshot, and size of its file, at most"},
	{SNAPSHOTS, "max_entries", OPTION_TYPE_U32, 1, CONFIG_SNAPSHOT_MAX_ENTRIES, "1000000",
	 AT(api.snapshot_max_entries), OPTION_RELOAD, "files, folders and links of one snapshot at most"},
	{SNAPSHOTS, "organization_bytes", OPTION_TYPE_SIZE, 0, CONFIG_SNAPSHOT_MAX_BYTES, "20GiB",
	 AT(api.snapshot_organization_bytes), OPTION_RELOAD, "snapshots of one organisation together; 0: no bound"},

	{SNAPSHOTS, "encryption", OPTION_TYPE_ENCRYPTION, 0, CONFIG_ENCRYPTION_MAX_ - 1, "available",
	 AT(api.snapshot_encryption), OPTION_RELOAD, "snapshots from now on: off, available to encrypt where there is a key, or required"},
	{SNAPSHOTS, "keys", OPTION_TYPE_SNAPSHOT_KEYS, 0, 0, NULL,
	 AT(api.snapshot_keys), OPTION_RELOAD, "keys to encrypt with, in a file that only root may read"},
	{SNAPSHOTS, "store", OPTION_TYPE_SNAPSHOTS, 0, CONFIG_SNAPSHOTS_MAX_ - 1, "local",
	 AT(api.snapshot_store), OPTION_RELOAD, "where snapshots go: local, the state directory; or s3"},
	{SNAPSHOTS, "s3_endpoint", OPTION_TYPE_S3_URL, 0, 0, NULL,
	 AT(s3.host), OPTION_RELOAD, "object store, as https://s3.example:9000; http on this host's loopback alone"},
	{SNAPSHOTS, "s3_region", OPTION_TYPE_S3_NAME, 0, 0, "us-east-1",
	 AT(s3.region), OPTION_RELOAD, "region that requests are signed for"},
	{SNAPSHOTS, "s3_bucket", OPTION_TYPE_S3_NAME, 0, 0, NULL,
	 AT(s3.bucket), OPTION_RELOAD, "bucket of the snapshots"},
	{SNAPSHOTS, "s3_prefix", OPTION_TYPE_S3_PREFIX, 0, 0, "sandboxes/",
	 AT(s3.prefix), OPTION_RELOAD, "what all keys begin with; nothing else is read, written or deleted"},
	{SNAPSHOTS, "s3_path_style", OPTION_TYPE_BOOL, 0, 1, "yes",
	 AT(s3.path_style), OPTION_RELOAD, "the bucket is in the path; no: before the host's name"},
	{SNAPSHOTS, "s3_credentials", OPTION_TYPE_S3_LOGIN, 0, 0, NULL,
	 AT(s3.credentials), OPTION_RELOAD, "ACCESS-KEY:SECRET-KEY, in a file that only root may read"},

	{STORE, "dsn", OPTION_TYPE_DSN, 0, CONFIG_DSN_BYTES - 1, NULL,
	 AT(api.store_dsn), OPTION_RESTART, "connection string of a PostgreSQL server; unset: the embedded store"},
	{STORE, "password", OPTION_TYPE_SECRET, 0, CONFIG_PASSWORD_BYTES - 1, NULL,
	 AT(api.store_password), OPTION_RESTART, "password for dsn, where that has none"},
	{STORE, "freeze_without_lease", OPTION_TYPE_BOOL, 0, 1, "yes",
	 AT(api.store_freezes), OPTION_RELOAD, "where other hosts share the store: sessions stand still while this one cannot renew its lease"},

	{IDENTITY, "trusted_peers", OPTION_TYPE_IDS, 0, CONFIG_UID_MAX, "0",
	 AT(api.trusted_peer), OPTION_RELOAD, "user ids whose identity headers are believed, at most 16"},
	{IDENTITY, "header_user", OPTION_TYPE_HEADER, 0, 0, "X-Sandbox-User",
	 AT(api.header_user), OPTION_RELOAD, "header with the user"},
	{IDENTITY, "header_workspace", OPTION_TYPE_HEADER, 0, 0, "X-Sandbox-Workspace",
	 AT(api.header_workspace), OPTION_RELOAD, "header with the workspace"},
	{IDENTITY, "header_project", OPTION_TYPE_HEADER, 0, 0, "X-Sandbox-Project",
	 AT(api.header_project), OPTION_RELOAD, "header with the project"},
	{IDENTITY, "header_scopes", OPTION_TYPE_HEADER, 0, 0, "X-Sandbox-Scopes",
	 AT(api.header_scopes), OPTION_RELOAD, "header with the scopes"},

	{ENDPOINTS, "iceberg_rest_uri", OPTION_TYPE_ENDPOINT, 0, 0, NULL,
	 AT(api.endpoint_default[0]), OPTION_RELOAD, "default for callers that give none"},
	{ENDPOINTS, "iceberg_warehouse", OPTION_TYPE_ENDPOINT, 1, 0, NULL,
	 AT(api.endpoint_default[1]), OPTION_RELOAD, "default for callers that give none"},
	{ENDPOINTS, "polaris_base_url", OPTION_TYPE_ENDPOINT, 2, 0, NULL,
	 AT(api.endpoint_default[2]), OPTION_RELOAD, "default for callers that give none"},
	{ENDPOINTS, "alpha_vantage_base_url", OPTION_TYPE_ENDPOINT, 3, 0, NULL,
	 AT(api.endpoint_default[3]), OPTION_RELOAD, "default for callers that give none"},
	{ENDPOINTS, "datahub_gms_url", OPTION_TYPE_ENDPOINT, 4, 0, NULL,
	 AT(api.endpoint_default[4]), OPTION_RELOAD, "default for callers that give none"},
	{ENDPOINTS, "kafka_bootstrap", OPTION_TYPE_ENDPOINT, 5, 0, NULL,
	 AT(api.endpoint_default[5]), OPTION_RELOAD, "default for callers that give none"},

	{ENDPOINT, "production", OPTION_TYPE_RULES, 0, 0, NULL,
	 AT(api.endpoint[0].production), OPTION_RELOAD, "hosts that production really uses: refused by all sessions"},
	{ENDPOINT, "production_buckets", OPTION_TYPE_BUCKETS, 0, 0, NULL,
	 AT(api.endpoint[0].production_buckets), OPTION_RELOAD, "bucket or bucket/prefix that production really uses"},
	{ENDPOINT, "companions", OPTION_TYPE_RULES, 0, 0, NULL,
	 AT(api.endpoint[0].companions), OPTION_RELOAD, "further hosts that clients of the endpoint need"},
	{ENDPOINT, "companion_env", OPTION_TYPE_BOOL, 0, 1, "yes",
	 AT(api.endpoint[0].companion_env), OPTION_RELOAD, "set the variables that client libraries read themselves"},
	{ENDPOINT, "on_production", OPTION_TYPE_REROUTE, 0, 1, "refuse",
	 AT(api.endpoint[0].on_production_reroute), OPTION_RELOAD, "what a session that dials a production host gets: refuse, or reroute to its endpoint"},
	{ENDPOINT, "shared_host", OPTION_TYPE_SHARED, 0, CONFIG_SHARED_MAX_ - 1, "refuse",
	 AT(api.endpoint[0].shared_host), OPTION_RELOAD, "answer for a production host that sandboxes use too: refuse, path or trust_credentials"},
	{ENDPOINT, "shared_paths", OPTION_TYPE_PATHS, 0, 0, NULL,
	 AT(api.endpoint[0].shared_paths), OPTION_RELOAD, "with shared_host = path: host/path that plain HTTP may ask for there"},

	{NETWORK, "component_allow", OPTION_TYPE_RULES, 0, 0, NULL,
	 AT(api.component_allow), OPTION_RELOAD, "hosts that every session of profile component may reach"},
	{NETWORK, "agent_allow", OPTION_TYPE_RULES, 0, 0, NULL,
	 AT(api.agent_allow), OPTION_RELOAD, "hosts that every session of profile agent may reach"},
	{NETWORK, "agent_gateways", OPTION_TYPE_GATEWAYS, 0, 0, NULL,
	 AT(api.agent_gateways), OPTION_RELOAD, "variables with URLs that every session of profile agent has, and whose hosts it may reach"},
	{NETWORK, "allow_private", OPTION_TYPE_NETWORKS, 0, 0, NULL,
	 AT(api.network.n_private), OPTION_RELOAD, "private networks that rules may lead to, as address/prefix"},
	{NETWORK, "host_services", OPTION_TYPE_HOST_SERVICES, 0, 0, NULL,
	 AT(api.network.n_host_services), OPTION_RELOAD, "services of this host that endpoints may name, as name:port, name:port=address:port or name:port=unix:/path"},
	{NETWORK, "bytes_per_second", OPTION_TYPE_SIZE, 0, CONFIG_NET_BYTES_MAX, "0",
	 AT(api.network_limits.bytes_per_s), OPTION_RELOAD, "bytes a second of one session, both directions together; 0: no bound"},
	{NETWORK, "connections", OPTION_TYPE_U32, 1, CONFIG_CONNECTIONS_MAX, "256",
	 AT(api.network_limits.connections), OPTION_RELOAD, "connections of one session at once"},
	{NETWORK, "connects_per_second", OPTION_TYPE_U32, 1, CONFIG_CONNECTS_MAX, "200",
	 AT(api.network_limits.connects_per_s), OPTION_RELOAD, "connections a second of one session"},

	{REDIS, "url", OPTION_TYPE_REDIS, 0, 0, NULL,
	 AT(api.redis), OPTION_RESTART, "server where each session gets a user and keys of its own, as redis://127.0.0.1:6379; unset: none"},
	{REDIS, "prefix", OPTION_TYPE_KEY, 0, 0, "alphaswarm:sandbox",
	 AT(api.redis_root), OPTION_RESTART, "keys of a session are PREFIX:ID:*; of this host alone"},
	{REDIS, "user", OPTION_TYPE_KEY, 0, 0, "default",
	 AT(redis.user), OPTION_RESTART, "user that makes the sessions' users"},
	{REDIS, "password", OPTION_TYPE_SECRET, 0, CONFIG_PASSWORD_BYTES - 1, NULL,
	 AT(redis.password), OPTION_RESTART, "password of that user"},

	{REDIS, "session_keys", OPTION_TYPE_U32, 0, CONFIG_KEYS_MAX, "100000",
	 AT(api.redis_max_keys), OPTION_RELOAD, "keys of one session; 0: no bound"},
	{REDIS, "session_bytes", OPTION_TYPE_SIZE, 0, CONFIG_TOTAL_MEMORY_MAX, "256MiB",
	 AT(api.redis_max_bytes), OPTION_RELOAD, "memory that the keys of one session take in the server; 0: no bound"},

	{PLATFORM, "redis_url", OPTION_TYPE_REDIS_SERVER, 0, 0, NULL,
	 AT(api.platform.redis), OPTION_RESTART, "Redis server where the platform reads task frames, as redis://user:password@127.0.0.1:6379/1; unset: none"},
	{PLATFORM, "redis_password", OPTION_TYPE_SECRET, 0, CONFIG_PASSWORD_BYTES - 1, NULL,
	 AT(api.platform.redis.password), OPTION_RESTART, "password for redis_url, where that has none"},
	{PLATFORM, "frames_prefix", OPTION_TYPE_KEY, 0, 0, "alphaswarm:",
	 AT(api.platform.frames_prefix), OPTION_RELOAD, "frames of a task are published on PREFIXtask:ID"},
	{PLATFORM, "frames_hold", OPTION_TYPE_SECONDS, 0, CONFIG_HOLD_MAX_S, "10s",
	 AT(api.platform.frames_hold_s), OPTION_RELOAD, "frames wait this long for a first subscriber; 0s: they do not"},
	{AIRBYTE, "workspace", OPTION_TYPE_AIRBYTE, 0, CONFIG_AIRBYTE_MAX_ - 1, "client",
	 AT(api.airbyte_workspace), OPTION_RELOAD, "how components that are written from connections log in: client, password or open to a self-managed Airbyte, or cloud"},
	{AIRBYTE, "prefix", OPTION_TYPE_PREFIX, 0, 0, "AIRBYTE_",
	 AT(api.airbyte_prefix), OPTION_RELOAD, "prefix of the variables with the fields of their workspace, which the session has to have"},

	{CELERY, "broker_url", OPTION_TYPE_REDIS_SERVER, 0, 0, NULL,
	 AT(api.celery.broker), OPTION_RESTART, "Redis broker whose queue is served, as redis://user:password@127.0.0.1:6379/0; unset: none"},
	{CELERY, "result_url", OPTION_TYPE_REDIS_SERVER, 0, 0, NULL,
	 AT(api.celery.results), OPTION_RESTART, "Redis server of the results; unset: the broker"},
	{CELERY, "queue", OPTION_TYPE_QUEUE, 0, 0, "sandbox",
	 AT(api.celery.queue), OPTION_RESTART, "queue of this host alone; default and celery are refused but as !default and !celery"},
	{CELERY, "task_name", OPTION_TYPE_TASKS, 0, 0, "execute_sandbox_session",
	 AT(api.celery.task_name), OPTION_RESTART, "names of the task between spaces; the first one is sent"},
	{CELERY, "visibility_timeout", OPTION_TYPE_SECONDS, CONFIG_VISIBILITY_MIN_S, CONFIG_VISIBILITY_MAX_S, "1h",
	 AT(api.celery.visibility_timeout_s), OPTION_RESTART, "messages of the queue that nobody acknowledged for so long are put back; as in the platform's Celery"},
	{CELERY, "prefetch", OPTION_TYPE_U32, 1, CONFIG_PREFETCH_MAX, "32",
	 AT(api.celery.prefetch), OPTION_RELOAD, "messages that are taken and not finished; those that wait for their eta aside"},
	{CELERY, "execution", OPTION_TYPE_EXECUTION, 0, 1, "local",
	 AT(api.celery.executes), OPTION_RELOAD, "where an execute over HTTP runs: local, or celery to put it into the queue"},

	{DOCKER, "socket", OPTION_TYPE_SOCKET, 0, 0, NULL,
	 AT(supervisor.docker.socket), OPTION_RESTART, "Unix socket of a Docker Engine, as /run/docker.sock, that sandboxes may be made by; unset: none"},
	{DOCKER, "image", OPTION_TYPE_IMAGE, 0, 0, NULL,
	 AT(supervisor.docker.image), OPTION_RESTART, "image of every sandbox there"},
	{DOCKER, "allow_in_production", OPTION_TYPE_BOOL, 0, 1, "no",
	 AT(supervisor.docker.in_production), OPTION_RESTART, "use that engine also where environment = production"},

	{REMOTE, "url", OPTION_TYPE_REMOTE_URL, 0, 0, NULL,
	 AT(supervisor.remote.url), OPTION_RESTART, "service elsewhere that sandboxes may be made by, as https://sandboxes.example/v1; unset: none"},
	{REMOTE, "credential_file", OPTION_TYPE_SOCKET, 0, 0, NULL,
	 AT(supervisor.remote.credential_file), OPTION_RESTART, "file of root's alone with the credential that tokens are asked with"},
	{REMOTE, "template", OPTION_TYPE_IMAGE, 0, 0, NULL,
	 AT(supervisor.remote.template), OPTION_RESTART, "template of every sandbox there"},

	{LIMITS, "sessions", OPTION_TYPE_U32, 1, CONFIG_SESSIONS_MAX, "1000",
	 AT(supervisor.max_sessions), OPTION_RELOAD_NEW, "sessions at once"},
	{LIMITS, "memory", OPTION_TYPE_SIZE, 0, CONFIG_TOTAL_MEMORY_MAX, "0",
	 AT(supervisor.max_memory_bytes), OPTION_RELOAD,
	 "sum of the sessions' memory limits; 0: four fifths of the host's memory"},
	{LIMITS, "pids", OPTION_TYPE_U64, PLAN_PIDS_MIN, CONFIG_TOTAL_PIDS_MAX, "1048576",
	 AT(supervisor.max_pids), OPTION_RELOAD, "sum of the sessions' process limits"},
	{LIMITS, "session_memory", OPTION_TYPE_SIZE, PLAN_MEMORY_MIN_BYTES, PLAN_MEMORY_MAX_BYTES, "16GiB",
	 AT(supervisor.session.memory_bytes), OPTION_RELOAD_NEW, "memory of one session at most"},
	{LIMITS, "session_tmpfs", OPTION_TYPE_SIZE, PLAN_TMPFS_MIN_BYTES, PLAN_TMPFS_MAX_BYTES, "8GiB",
	 AT(supervisor.session.tmpfs_bytes), OPTION_RELOAD_NEW, "private folder of one session at most"},
	{LIMITS, "session_inodes", OPTION_TYPE_U64, PLAN_INODES_MIN, PLAN_INODES_MAX, "4000000",
	 AT(supervisor.session.tmpfs_inodes), OPTION_RELOAD_NEW, "files of one session at most"},
	{LIMITS, "session_pids", OPTION_TYPE_U32, PLAN_PIDS_MIN, PLAN_PIDS_MAX, "8192",
	 AT(supervisor.session.max_pids), OPTION_RELOAD_NEW, "processes of one session at most"},
	{LIMITS, "session_files", OPTION_TYPE_U32, PLAN_FILES_MIN, PLAN_FILES_MAX, "16384",
	 AT(supervisor.session.max_files), OPTION_RELOAD_NEW, "open files of one process of a session at most"},
	{LIMITS, "session_cpu", OPTION_TYPE_U32, PLAN_CPU_MIN_PCT, PLAN_CPU_MAX_PCT, "6400",
	 AT(supervisor.session.cpu_pct), OPTION_RELOAD_NEW, "processor time of one session at most; 100: one core"},
	{LIMITS, "session_ptys", OPTION_TYPE_U32, 0, PLAN_PTYS_MAX, "64",
	 AT(supervisor.session.max_ptys), OPTION_RELOAD_NEW, "terminals of one session at most"},

	{OWNER, "sessions", OPTION_TYPE_U32, 0, CONFIG_SESSIONS_MAX, "20",
	 QUOTA(OWNER, sessions), OPTION_RELOAD_NEW, "open sessions of one owner"},
	{OWNER, "jobs", OPTION_TYPE_U32, 0, CONFIG_QUOTA_JOBS_MAX, "20",
	 QUOTA(OWNER, jobs), OPTION_RELOAD, "waiting jobs of one owner"},
	{OWNER, "memory", OPTION_TYPE_SIZE, 0, CONFIG_TOTAL_MEMORY_MAX, "80GiB",
	 QUOTA(OWNER, memory_bytes), OPTION_RELOAD_NEW, "sum of the memory limits of the sessions of one owner; 0: no bound"},
	{OWNER, "stored", OPTION_TYPE_SIZE, 0, CONFIG_TOTAL_MEMORY_MAX, "512MiB",
	 QUOTA(OWNER, stored_bytes), OPTION_RELOAD, "bytes of components in the open sessions, and of kept task frames, of one owner; 0: no bound"},
	{OWNER, "cpu_per_day", OPTION_TYPE_SECONDS, 0, CONFIG_KEEP_MAX_S, "24h",
	 QUOTA(OWNER, cpu_s), OPTION_RELOAD, "processor time of one owner in one day (UTC); 0: no bound"},
	{OWNER, "launches_per_second", OPTION_TYPE_U32, 0, CONFIG_LAUNCH_RATE_MAX, "50",
	 QUOTA(OWNER, launches_per_s), OPTION_RELOAD_NEW, "launches a second of one owner, also of sessions that are rebuilt; 0: no bound"},
	{OWNER, "stored_per_second", OPTION_TYPE_SIZE, 0, CONFIG_QUOTA_RATE_MAX, "32MiB",
	 QUOTA(OWNER, stored_per_s), OPTION_RELOAD, "bytes of components a second of one owner; 0: no bound"},
	{OWNER, "changes_per_second", OPTION_TYPE_U32, 0, CONFIG_CHANGE_RATE_MAX, "100",
	 QUOTA(OWNER, changes_per_s), OPTION_RELOAD, "requests a second of one owner that change something; 0: no bound"},

	{WORKSPACE, "sessions", OPTION_TYPE_U32, 0, CONFIG_SESSIONS_MAX, "50",
	 QUOTA(WORKSPACE, sessions), OPTION_RELOAD_NEW, "open sessions of one workspace"},
	{WORKSPACE, "jobs", OPTION_TYPE_U32, 0, CONFIG_QUOTA_JOBS_MAX, "100",
	 QUOTA(WORKSPACE, jobs), OPTION_RELOAD, "waiting jobs of one workspace"},
	{WORKSPACE, "memory", OPTION_TYPE_SIZE, 0, CONFIG_TOTAL_MEMORY_MAX, "200GiB",
	 QUOTA(WORKSPACE, memory_bytes), OPTION_RELOAD_NEW, "sum of the memory limits of the sessions of one workspace; 0: no bound"},
	{WORKSPACE, "stored", OPTION_TYPE_SIZE, 0, CONFIG_TOTAL_MEMORY_MAX, "1GiB",
	 QUOTA(WORKSPACE, stored_bytes), OPTION_RELOAD, "bytes of components in the open sessions, and of kept task frames, of one workspace; 0: no bound"},
	{WORKSPACE, "cpu_per_day", OPTION_TYPE_SECONDS, 0, CONFIG_KEEP_MAX_S, "96h",
	 QUOTA(WORKSPACE, cpu_s), OPTION_RELOAD, "processor time of one workspace in one day (UTC); 0: no bound"},

	{HOST, "sessions", OPTION_TYPE_U32, 0, CONFIG_SESSIONS_MAX, "500",
	 QUOTA(HOST, sessions), OPTION_RELOAD_NEW, "open sessions of all together"},
	{HOST, "jobs", OPTION_TYPE_U32, 0, CONFIG_QUOTA_JOBS_MAX, "1000",
	 QUOTA(HOST, jobs), OPTION_RELOAD, "waiting jobs of all together"},
	{HOST, "memory", OPTION_TYPE_SIZE, 0, CONFIG_TOTAL_MEMORY_MAX, "0",
	 QUOTA(HOST, memory_bytes), OPTION_RELOAD_NEW, "sum of the memory limits of the sessions of all together; 0: no bound"},
	{HOST, "stored", OPTION_TYPE_SIZE, 0, CONFIG_TOTAL_MEMORY_MAX, "1536MiB",
	 QUOTA(HOST, stored_bytes), OPTION_RELOAD, "bytes of components in the open sessions, and of kept task frames, of all together; 0: no bound"},
	{HOST, "cpu_per_day", OPTION_TYPE_SECONDS, 0, CONFIG_KEEP_MAX_S, "0s",
	 QUOTA(HOST, cpu_s), OPTION_RELOAD, "processor time of all together in one day (UTC); 0: no bound"},
};
/* clang-format on */

static const char *const type_names[OPTION_TYPE_MAX_] = {
	[OPTION_TYPE_U32] = "number",
	[OPTION_TYPE_U64] = "number",
	[OPTION_TYPE_SIZE] = "size",
	[OPTION_TYPE_SECONDS] = "time",
	[OPTION_TYPE_ID] = "id",
	[OPTION_TYPE_BOOL] = "no|yes",
	[OPTION_TYPE_FIELDS] = "refuse|ignore",
	[OPTION_TYPE_NAMES] = "strict|compatible",
	[OPTION_TYPE_FORMAT] = "logfmt|json",
	[OPTION_TYPE_LEVEL] = "error|warning|info|debug",
	[OPTION_TYPE_IDS] = "ids",
	[OPTION_TYPE_HEADER] = "header",
	[OPTION_TYPE_PREFIX] = "prefix",
	[OPTION_TYPE_URL_PREFIX] = "path",
	[OPTION_TYPE_ORIGINS] = "origins",
	[OPTION_TYPE_ENDPOINT] = "text",
	[OPTION_TYPE_REROUTE] = "refuse|reroute",
	[OPTION_TYPE_SHARED] = "refuse|path|trust_credentials",
	[OPTION_TYPE_AIRBYTE] = "client|password|open|cloud",
	[OPTION_TYPE_REDIS] = "url",
	[OPTION_TYPE_REDIS_SERVER] = "url",
	[OPTION_TYPE_KEY] = "text",
	[OPTION_TYPE_QUEUE] = "text",
	[OPTION_TYPE_TASKS] = "names",
	[OPTION_TYPE_EXECUTION] = "local|celery",
	[OPTION_TYPE_ENCRYPTION] = "off|available|required",
	[OPTION_TYPE_PROVIDER] = "native|docker|remote",
	[OPTION_TYPE_ENVIRONMENT] = "production|development",
	[OPTION_TYPE_SOCKET] = "path",
	[OPTION_TYPE_IMAGE] = "name",
	[OPTION_TYPE_SNAPSHOTS] = "local|s3",
	[OPTION_TYPE_REMOTE_URL] = "url",
	[OPTION_TYPE_S3_URL] = "url",
	[OPTION_TYPE_S3_NAME] = "text",
	[OPTION_TYPE_S3_PREFIX] = "text",
	[OPTION_TYPE_S3_LOGIN] = "text",
	[OPTION_TYPE_RULES] = "rules",
	[OPTION_TYPE_BUCKETS] = "buckets",
	[OPTION_TYPE_PATHS] = "paths",
	[OPTION_TYPE_NETWORKS] = "networks",
	[OPTION_TYPE_GATEWAYS] = "names and URLs",
	[OPTION_TYPE_HOST_SERVICES] = "services",
	[OPTION_TYPE_SNAPSHOT_KEYS] = "keys",
	[OPTION_TYPE_SECRET] = "text",
	[OPTION_TYPE_DSN] = "text",
};

bool option_table_endpoint(const char *section, uint32_t *ret_index)
{
	static const char *const names[ENDPOINTS_N] = CONFIG_ENDPOINT_NAMES;

	if (!str_has_prefix(section, ENDPOINT ":"))
		return false;
	*ret_index = 0;
	while (*ret_index < ENDPOINTS_N &&
	       !str_equal(section + strlen(ENDPOINT ":"), names[*ret_index]))
		++*ret_index;
	return *ret_index < ENDPOINTS_N;
}

bool option_table_scope(const char *section, enum quota_scope *ret_scope, const char **ret_name)
{
	static const char *const scopes[] = {
		[QUOTA_SCOPE_OWNER] = OWNER,
		[QUOTA_SCOPE_WORKSPACE] = WORKSPACE,
	};

	for (size_t i = 0; i < ARRAY_SIZE(scopes); i++) {
		size_t length = strlen(scopes[i]);

		if (strncmp(section, scopes[i], length) != 0 || section[length] != ':')
			continue;
		*ret_scope = (enum quota_scope)i;
		*ret_name = section + length + 1;
		return true;
	}
	return false;
}

const struct option_row *option_table_of_tenant(enum quota_scope scope, const char *key)
{
	return option_table_find(scope == QUOTA_SCOPE_OWNER ? OWNER : WORKSPACE, key);
}

const struct option_row *option_table_rows(size_t *ret_n)
{
	*ret_n = ARRAY_SIZE(rows);
	return rows;
}

bool option_table_has_section(const char *section)
{
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		if (str_equal(rows[i].section, section))
			return true;
	}
	return false;
}

const struct option_row *option_table_find(const char *section, const char *key)
{
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		if (str_equal(rows[i].section, section) && str_equal(rows[i].key, key))
			return &rows[i];
	}
	return NULL;
}

#define KEY_MAX 63

static size_t min3(size_t a, size_t b, size_t c)
{
	size_t ab = a < b ? a : b;

	return ab < c ? ab : c;
}

/* Levenshtein distance of two keys, the longer ones cut. */
static size_t distance(const char *a, const char *b)
{
	size_t n = strnlen(a, KEY_MAX);
	size_t m = strnlen(b, KEY_MAX);
	size_t row[KEY_MAX + 1];

	for (size_t j = 0; j <= m; j++)
		row[j] = j;
	for (size_t i = 1; i <= n; i++) {
		size_t diagonal = row[0];

		row[0] = i;
		for (size_t j = 1; j <= m; j++) {
			size_t above = row[j];

			row[j] = min3(above + 1, row[j - 1] + 1,
				      diagonal + (a[i - 1] == b[j - 1] ? 0 : 1));
			diagonal = above;
		}
	}
	return row[m];
}

const char *option_table_nearest(const char *section, const char *key)
{
	const char *nearest = NULL;
	/* More than a third of the letters wrong is another word. */
	size_t best = strnlen(key, KEY_MAX) / 3 + 1;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		size_t far = distance(rows[i].key, key);

		if (str_equal(rows[i].section, section) && far <= best) {
			best = far;
			nearest = rows[i].key;
		}
	}
	return nearest;
}

static void print_range(FILE *stream, const struct option_row *row)
{
	bool is_number = row->type <= OPTION_TYPE_ID || row->type == OPTION_TYPE_IDS;

	if (is_number)
		(void)fprintf(stream, "%" PRIu64 "..%" PRIu64, row->min, row->max);
}

void option_table_print(FILE *stream)
{
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		(void)fprintf(stream, "%s\t%s\t%s\t%s\t", rows[i].section, rows[i].key,
			      type_names[rows[i].type],
			      rows[i].by_default ? rows[i].by_default : "");
		print_range(stream, &rows[i]);
		(void)fprintf(stream, "\t%s\t%s\t%s\n",
			      rows[i].effect == OPTION_RESTART ? "restart" : "reload",
			      rows[i].effect == OPTION_RELOAD_NEW ? "new" : "running", rows[i].doc);
	}
}
