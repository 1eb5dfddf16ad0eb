#include "supervisor/config_check.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>

#include "base/host_service.h"
#include "base/log.h"
#include "base/str.h"

#include "sandboxd/config.h"

#define AT(member)       offsetof(struct config_answer, member)
#define SIZE_OF(member)  sizeof(((struct config_answer *)NULL)->member)
#define NUMBER(member)   AT(member), SIZE_OF(member)
#define UINT32_MAX_VALUE 0xffffffffull

/* In the order of the struct; what is no number or text is below. Names are those of the file. */
/* clang-format off */
static const struct number_rule {
	const char *name;
	size_t offset;
	size_t size;
	uint64_t min;
	uint64_t max;
} numbers[] = {
	{"limits.sessions", NUMBER(supervisor.max_sessions), 1, CONFIG_SESSIONS_MAX},
	{"supervisor.launches_per_second", NUMBER(supervisor.max_launches_per_s), 1, CONFIG_LAUNCH_RATE_MAX},
	{"supervisor.userns_reserve", NUMBER(supervisor.userns_reserve), 0, CONFIG_RESERVE_MAX},
	{"supervisor.strict", NUMBER(supervisor.strict), 0, 1},
	{"supervisor.egress_workers", NUMBER(supervisor.n_egress), 1, CONFIG_EGRESS_MAX},
	{"limits.memory", NUMBER(supervisor.max_memory_bytes), 0, CONFIG_TOTAL_MEMORY_MAX},
	{"limits.pids", NUMBER(supervisor.max_pids), PLAN_PIDS_MIN, CONFIG_TOTAL_PIDS_MAX},
	{"supervisor.control_gid", NUMBER(supervisor.control_gid), 0, UINT32_MAX_VALUE},
	{"supervisor.log_format", NUMBER(supervisor.log_format), 0, LOG_FORMAT_JSON},
	{"limits.session_memory", NUMBER(supervisor.session.memory_bytes), PLAN_MEMORY_MIN_BYTES, PLAN_MEMORY_MAX_BYTES},
	{"limits.session_tmpfs", NUMBER(supervisor.session.tmpfs_bytes), PLAN_TMPFS_MIN_BYTES, PLAN_TMPFS_MAX_BYTES},
	{"limits.session_inodes", NUMBER(supervisor.session.tmpfs_inodes), PLAN_INODES_MIN, PLAN_INODES_MAX},
	{"limits.session_pids", NUMBER(supervisor.session.max_pids), PLAN_PIDS_MIN, PLAN_PIDS_MAX},
	{"limits.session_files", NUMBER(supervisor.session.max_files), PLAN_FILES_MIN, PLAN_FILES_MAX},
	{"limits.session_cpu", NUMBER(supervisor.session.cpu_pct), PLAN_CPU_MIN_PCT, PLAN_CPU_MAX_PCT},
	{"limits.session_ptys", NUMBER(supervisor.session.max_ptys), 0, PLAN_PTYS_MAX},
	{"supervisor.environment", NUMBER(supervisor.environment), 0, 1},
	{"docker.allow_in_production", NUMBER(supervisor.docker.in_production), 0, 1},
	{"api.provider", NUMBER(api.provider), 0, 2},
	{"api.provider_by_variable", NUMBER(api.provider_by_variable), 0, 1},
	{"identity.trusted_peers", NUMBER(api.n_trusted_peers), 0, CONFIG_MAX_PEERS},
	{"endpoint_default_set", NUMBER(api.endpoint_default_set), 0, (1u << ENDPOINTS_N) - 1},
	{"api.unknown_fields", NUMBER(api.unknown_fields_ignore), 0, 1},
	{"api.component_names", NUMBER(api.component_names_compatible), 0, 1},
	{"api.max_sessions", NUMBER(api.max_sessions), 1, CONFIG_SESSIONS_MAX},
	{"api.queue_jobs", NUMBER(api.queue_max_jobs), 1, CONFIG_QUEUE_MAX},
	{"api.frames_keep", NUMBER(api.frames_keep_s), CONFIG_KEEP_MIN_S, CONFIG_KEEP_MAX_S},
	{"api.rows_keep", NUMBER(api.rows_keep_s), CONFIG_KEEP_MIN_S, CONFIG_KEEP_MAX_S},
	{"api.bodies_keep", NUMBER(api.bodies_keep_s), CONFIG_KEEP_MIN_S, CONFIG_KEEP_MAX_S},
	{"api.janitor_interval", NUMBER(api.janitor_interval_s), CONFIG_JANITOR_MIN_S, CONFIG_JANITOR_MAX_S},
	{"api.stream_wait", NUMBER(api.stream_wait_s), 0, CONFIG_HOLD_MAX_S},
	{"api.chat_stream_wait", NUMBER(api.chat_stream_wait_s), 0, CONFIG_HOLD_MAX_S},
	{"api.idle_timeout", NUMBER(api.idle_timeout_s), 0, CONFIG_KEEP_MAX_S},
	{"api.snapshot_retention", NUMBER(api.snapshot_retention_s), CONFIG_KEEP_MIN_S, CONFIG_KEEP_MAX_S},
	{"api.frozen_max", NUMBER(api.frozen_max_s), 0, CONFIG_KEEP_MAX_S},
	{"api.frozen_memory_max", NUMBER(api.frozen_memory_max_bytes), 0, CONFIG_TOTAL_MEMORY_MAX},
	{"audit.file_size", NUMBER(api.audit_file_bytes), CONFIG_AUDIT_MIN_BYTES, CONFIG_AUDIT_MAX_BYTES},
	{"state.max_bytes", NUMBER(api.store_max_bytes), CONFIG_STORE_MIN_BYTES, CONFIG_STORE_MAX_BYTES},
	{"snapshots.max_bytes", NUMBER(api.snapshot_max_bytes), CONFIG_SNAPSHOT_MIN_BYTES, CONFIG_SNAPSHOT_MAX_BYTES},
	{"snapshots.organization_bytes", NUMBER(api.snapshot_organization_bytes), 0, CONFIG_SNAPSHOT_MAX_BYTES},
	{"snapshots.max_entries", NUMBER(api.snapshot_max_entries), 1, CONFIG_SNAPSHOT_MAX_ENTRIES},
	{"snapshots.encryption", NUMBER(api.snapshot_encryption), 0, CONFIG_ENCRYPTION_MAX_ - 1},
	{"snapshots.store", NUMBER(api.snapshot_store), 0, CONFIG_SNAPSHOTS_MAX_ - 1},
	{"snapshots.s3_endpoint", NUMBER(s3.is_plain), 0, 1},
	{"snapshots.s3_path_style", NUMBER(s3.path_style), 0, 1},
	{"snapshots.keys", NUMBER(api.snapshot_keys.n), 0, SNAPSHOT_KEYS_MAX},
	{"owner.sessions", NUMBER(api.quota.limits[QUOTA_SCOPE_OWNER].sessions), 0, CONFIG_SESSIONS_MAX},
	{"owner.jobs", NUMBER(api.quota.limits[QUOTA_SCOPE_OWNER].jobs), 0, CONFIG_QUOTA_JOBS_MAX},
	{"owner.memory", NUMBER(api.quota.limits[QUOTA_SCOPE_OWNER].memory_bytes), 0, CONFIG_TOTAL_MEMORY_MAX},
	{"owner.stored", NUMBER(api.quota.limits[QUOTA_SCOPE_OWNER].stored_bytes), 0, CONFIG_TOTAL_MEMORY_MAX},
	{"owner.cpu_per_day", NUMBER(api.quota.limits[QUOTA_SCOPE_OWNER].cpu_s), 0, CONFIG_KEEP_MAX_S},
	{"owner.launches_per_second", NUMBER(api.quota.limits[QUOTA_SCOPE_OWNER].launches_per_s), 0, CONFIG_LAUNCH_RATE_MAX},
	{"owner.stored_per_second", NUMBER(api.quota.limits[QUOTA_SCOPE_OWNER].stored_per_s), 0, CONFIG_QUOTA_RATE_MAX},
	{"owner.changes_per_second", NUMBER(api.quota.limits[QUOTA_SCOPE_OWNER].changes_per_s), 0, CONFIG_CHANGE_RATE_MAX},
	{"workspace.sessions", NUMBER(api.quota.limits[QUOTA_SCOPE_WORKSPACE].sessions), 0, CONFIG_SESSIONS_MAX},
	{"workspace.jobs", NUMBER(api.quota.limits[QUOTA_SCOPE_WORKSPACE].jobs), 0, CONFIG_QUOTA_JOBS_MAX},
	{"workspace.memory", NUMBER(api.quota.limits[QUOTA_SCOPE_WORKSPACE].memory_bytes), 0, CONFIG_TOTAL_MEMORY_MAX},
	{"workspace.stored", NUMBER(api.quota.limits[QUOTA_SCOPE_WORKSPACE].stored_bytes), 0, CONFIG_TOTAL_MEMORY_MAX},
	{"workspace.cpu_per_day", NUMBER(api.quota.limits[QUOTA_SCOPE_WORKSPACE].cpu_s), 0, CONFIG_KEEP_MAX_S},
	{"host.sessions", NUMBER(api.quota.limits[QUOTA_SCOPE_HOST].sessions), 0, CONFIG_SESSIONS_MAX},
	{"host.jobs", NUMBER(api.quota.limits[QUOTA_SCOPE_HOST].jobs), 0, CONFIG_QUOTA_JOBS_MAX},
	{"host.memory", NUMBER(api.quota.limits[QUOTA_SCOPE_HOST].memory_bytes), 0, CONFIG_TOTAL_MEMORY_MAX},
	{"host.stored", NUMBER(api.quota.limits[QUOTA_SCOPE_HOST].stored_bytes), 0, CONFIG_TOTAL_MEMORY_MAX},
	{"host.cpu_per_day", NUMBER(api.quota.limits[QUOTA_SCOPE_HOST].cpu_s), 0, CONFIG_KEEP_MAX_S},
	{"network.allow_private", NUMBER(supervisor.network.n_private), 0, CONFIG_PRIVATE_MAX},
	{"network.host_services", NUMBER(supervisor.network.n_host_services), 0, CONFIG_HOST_SERVICES_MAX},
	{"network.bytes_per_second", NUMBER(api.network_limits.bytes_per_s), 0, CONFIG_NET_BYTES_MAX},
	{"network.connections", NUMBER(api.network_limits.connections), 1, CONFIG_CONNECTIONS_MAX},
	{"network.connects_per_second", NUMBER(api.network_limits.connects_per_s), 1, CONFIG_CONNECTS_MAX},
	{"endpoint.production", NUMBER(supervisor.network.n_production), 0, CONFIG_PRODUCTION_MAX},
	{"redis.url", NUMBER(api.redis.port), 0, UINT16_MAX},
	{"redis.session_keys", NUMBER(api.redis_max_keys), 0, CONFIG_KEYS_MAX},
	{"redis.session_bytes", NUMBER(api.redis_max_bytes), 0, CONFIG_TOTAL_MEMORY_MAX},
	{"platform.redis_url", NUMBER(api.platform.redis.place.port), 0, UINT16_MAX},
	{"platform.frames_hold", NUMBER(api.platform.frames_hold_s), 0, CONFIG_HOLD_MAX_S},
	{"airbyte.workspace", NUMBER(api.airbyte_workspace), 0, CONFIG_AIRBYTE_MAX_ - 1},
	{"celery.broker_url", NUMBER(api.celery.broker.place.port), 0, UINT16_MAX},
	{"celery.result_url", NUMBER(api.celery.results.place.port), 0, UINT16_MAX},
	{"celery.visibility_timeout", NUMBER(api.celery.visibility_timeout_s), CONFIG_VISIBILITY_MIN_S, CONFIG_VISIBILITY_MAX_S},
	{"celery.prefetch", NUMBER(api.celery.prefetch), 1, CONFIG_PREFETCH_MAX},
	{"store.freeze_without_lease", NUMBER(api.store_freezes), 0, 1},
	{"celery.execution", NUMBER(api.celery.executes), 0, 1},
	{"quota overrides", NUMBER(api.quota.n_overrides), 0, QUOTA_OVERRIDES_MAX},
	{"supervisor.log_level", NUMBER(api.log_level), 0, LOG_LEVEL_MAX_ - 1},
	{"n_name_servers", NUMBER(egress.n_name_servers), 0, CONFIG_MAX_NS},
};

/* Options that only a start changes. */
static const struct kept_rule {
	const char *name;
	size_t offset;
	size_t size;
} kept[] = {
	{"supervisor.egress_workers", NUMBER(supervisor.n_egress)},
	{"supervisor.environment", NUMBER(supervisor.environment)},
	{"docker.socket", NUMBER(supervisor.docker.socket)},
	{"docker.image", NUMBER(supervisor.docker.image)},
	{"docker.allow_in_production", NUMBER(supervisor.docker.in_production)},
	{"remote.url", NUMBER(supervisor.remote.url)},
	{"remote.credential_file", NUMBER(supervisor.remote.credential_file)},
	{"remote.template", NUMBER(supervisor.remote.template)},
	{"state.max_bytes", NUMBER(api.store_max_bytes)},
	{"store.dsn", NUMBER(api.store_dsn)},
	{"store.password", NUMBER(api.store_password)},
	{"supervisor.control_gid", NUMBER(supervisor.control_gid)},
	{"redis.url", NUMBER(api.redis)},
	{"redis.prefix", NUMBER(api.redis_root)},
	{"redis.user", NUMBER(redis.user)},
	{"redis.password", NUMBER(redis.password)},
	{"platform.redis_url", AT(api.platform.redis), offsetof(struct redis_server, password)},
	{"platform.redis_password", NUMBER(api.platform.redis.password)},
	{"celery.broker_url", NUMBER(api.celery.broker)},
	{"celery.result_url", NUMBER(api.celery.results)},
	{"celery.queue", NUMBER(api.celery.queue)},
	{"celery.task_name", NUMBER(api.celery.task_name)},
	{"celery.visibility_timeout", NUMBER(api.celery.visibility_timeout_s)},
};
/* clang-format on */

static const struct text_rule {
	const char *name;
	size_t offset;
	size_t size;
} texts[] = {
	{"identity.header_user",      NUMBER(api.header_user)                  },
	{"identity.header_workspace", NUMBER(api.header_workspace)             },
	{"identity.header_project",   NUMBER(api.header_project)               },
	{"identity.header_scopes",    NUMBER(api.header_scopes)                },
	{"api.env_prefix",            NUMBER(api.env_prefix)                   },
	{"api.stream_url",            NUMBER(api.stream_url)                   },
	{"api.websocket_origins",     NUMBER(api.websocket_origins)            },
	{"docker.socket",             NUMBER(supervisor.docker.socket)         },
	{"docker.image",              NUMBER(supervisor.docker.image)          },
	{"remote.url",                NUMBER(supervisor.remote.url)            },
	{"remote.credential_file",    NUMBER(supervisor.remote.credential_file)},
	{"remote.template",           NUMBER(supervisor.remote.template)       },
	{"store.dsn",                 NUMBER(api.store_dsn)                    },
	{"store.password",            NUMBER(api.store_password)               },
	{"snapshots.s3_endpoint",     NUMBER(s3.host)                          },
	{"snapshots.s3_region",       NUMBER(s3.region)                        },
	{"snapshots.s3_bucket",       NUMBER(s3.bucket)                        },
	{"snapshots.s3_prefix",       NUMBER(s3.prefix)                        },
	{"snapshots.s3_credentials",  NUMBER(s3.credentials)                   },
	{"redis.prefix",              NUMBER(api.redis_root)                   },
	{"redis.user",                NUMBER(redis.user)                       },
	{"redis.password",            NUMBER(redis.password)                   },
	{"platform.redis_url",        NUMBER(api.platform.redis.database)      },
	{"platform.redis_url",        NUMBER(api.platform.redis.user)          },
	{"platform.redis_url",        NUMBER(api.platform.redis.url_password)  },
	{"platform.redis_password",   NUMBER(api.platform.redis.password)      },
	{"platform.frames_prefix",    NUMBER(api.platform.frames_prefix)       },
	{"airbyte.prefix",            NUMBER(api.airbyte_prefix)               },
	{"celery.broker_url",         NUMBER(api.celery.broker.database)       },
	{"celery.broker_url",         NUMBER(api.celery.broker.user)           },
	{"celery.broker_url",         NUMBER(api.celery.broker.url_password)   },
	{"celery.result_url",         NUMBER(api.celery.results.database)      },
	{"celery.result_url",         NUMBER(api.celery.results.user)          },
	{"celery.result_url",         NUMBER(api.celery.results.url_password)  },
	{"celery.queue",              NUMBER(api.celery.queue)                 },
	{"celery.task_name",          NUMBER(api.celery.task_name)             },
};

static const struct frame_rule {
	const char *name;
	size_t magic;
	size_t version;
	size_t size;
	uint32_t bytes;
} frames[] = {
	{"answer",     AT(magic),            AT(version),            AT(size),            sizeof(struct config_answer)},
	{"supervisor", AT(supervisor.magic), AT(supervisor.version), AT(supervisor.size),
	 sizeof(struct supervisor_config)									     },
	{"api",        AT(api.magic),        AT(api.version),        AT(api.size),        sizeof(struct api_config)   },
	{"egress",     AT(egress.magic),     AT(egress.version),     AT(egress.size),
	 sizeof(struct egress_config)										 },
};

/* Copied out, so that no rule depends on the alignment of a member. */
static uint64_t number_at(const struct config_answer *answer, size_t offset, size_t size)
{
	const uint8_t *at = (const uint8_t *)answer + offset;
	uint64_t wide;
	uint32_t narrow;
	uint16_t half;

	switch (size) {
	case sizeof(wide):
		memcpy(&wide, at, sizeof(wide));
		return wide;
	case sizeof(narrow):
		memcpy(&narrow, at, sizeof(narrow));
		return narrow;
	default:
		memcpy(&half, at, sizeof(half));
		return half;
	}
}

static bool text_ends(const void *text, size_t size)
{
	return memchr(text, '\0', size) != NULL;
}

/* The limits of one tenant, each by the rule of the same limit of its scope. */
static int check_limits(const struct config_answer *answer, uint32_t i, struct err *err)
{
	size_t scope = AT(api.quota.limits) +
		       answer->api.quota.override[i].scope * sizeof(struct quota_limits);
	size_t ours = AT(api.quota.override) + i * sizeof(struct quota_override) +
		      offsetof(struct quota_override, limits);

	for (size_t k = 0; k < ARRAY_SIZE(numbers); k++) {
		const struct number_rule *rule = &numbers[k];
		uint64_t value;

		if (rule->offset < scope || rule->offset - scope >= sizeof(struct quota_limits))
			continue;
		value = number_at(answer, ours + (rule->offset - scope), rule->size);
		if (value < rule->min || value > rule->max)
			return err_fail(err, -EINVAL, "config",
					"quota of a tenant is out of range: number %u", i);
	}
	return 0;
}

/* Called when their number is known to be right. */
static int check_overrides(const struct config_answer *answer, struct err *err)
{
	int r = 0;

	for (uint32_t i = 0; r == 0 && i < answer->api.quota.n_overrides; i++) {
		const struct quota_override *override = &answer->api.quota.override[i];

		if (override->scope >= QUOTA_SCOPE_HOST || override->name[0] == '\0' ||
		    !text_ends(override->name, sizeof(override->name)))
			return err_fail(err, -EINVAL, "config", "quota of a tenant: number %u", i);
		r = check_limits(answer, i, err);
	}
	return r;
}

/* As check_overrides. */
static int check_keys(const struct snapshot_key_list *keys, struct err *err)
{
	for (uint32_t i = 0; i < keys->n; i++) {
		const struct snapshot_key_config *key = &keys->key[i];

		if (key->scope >= QUOTA_SCOPE_MAX_ || key->id[0] == '\0' ||
		    !text_ends(key->id, sizeof(key->id)) ||
		    !text_ends(key->name, sizeof(key->name)) ||
		    (key->name[0] == '\0') != (key->scope == QUOTA_SCOPE_HOST))
			return err_fail(err, -EINVAL, "config", "key of snapshots: number %u", i);
	}
	return 0;
}

static bool address_valid(const struct egress_address *address)
{
	return (address->family == AF_INET && address->prefix >= 1 && address->prefix <= 32) ||
	       (address->family == AF_INET6 && address->prefix >= 1 && address->prefix <= 128);
}

static bool place_valid(const struct redis_place *place)
{
	return place->port == 0 || address_valid(&place->address);
}

/* Without an address it is looked up by its name. */
static bool server_valid(const struct redis_server *server)
{
	if (!text_ends(server->name, sizeof(server->name)))
		return false;
	return place_valid(&server->place) ||
	       (server->name[0] != '\0' && server->place.address.family == 0);
}

/* At an address or a socket. */
static bool is_somewhere(const struct config_host_service *service)
{
	if (!text_ends(service->path, sizeof(service->path)))
		return false;
	if (service->path[0] == '\0')
		return address_valid(&service->address);
	return service->address.family == 0 &&
	       host_service_path_valid(service->path, strlen(service->path));
}

/* Its socket is a path of this host, and it is wanted where it is. */
static bool engine_valid(const struct supervisor_config *config)
{
	const struct engine_config *docker = &config->docker;

	if (docker->socket[0] == '\0')
		return true;
	return host_service_path_valid(docker->socket, strlen(docker->socket)) &&
	       docker->image[0] != '\0' && (config->environment != 0 || docker->in_production != 0);
}

/* As engine_valid; and there is one of the two. */
static bool remote_valid(const struct supervisor_config *config)
{
	const struct remote_config *remote = &config->remote;

	if (remote->url[0] == '\0')
		return true;
	return host_service_path_valid(remote->credential_file, strlen(remote->credential_file)) &&
	       remote->template[0] != '\0' && config->docker.socket[0] == '\0' &&
	       (config->environment != 0 || str_has_prefix(remote->url, "https://"));
}

/* Called when the counts are known to be right. */
static int check_network(const struct network_config *network, struct err *err)
{
	bool valid = true;

	for (uint32_t i = 0; i < network->n_private; i++)
		valid = valid && address_valid(&network->private_network[i]);
	for (uint32_t i = 0; i < network->n_production; i++)
		valid = valid && address_valid(&network->production[i].network) &&
			network->production[i].port.first <= network->production[i].port.last;
	for (uint32_t i = 0; i < network->n_host_services; i++) {
		const struct config_host_service *service = &network->host_service[i];

		valid = valid && is_somewhere(service) &&
			text_ends(service->name, sizeof(service->name)) && service->port >= 1 &&
			service->port <= UINT16_MAX && service->name_port >= 1 &&
			service->name_port <= UINT16_MAX;
	}
	return valid ? 0 : err_fail(err, -EINVAL, "config", "an address of the network is wrong");
}

/* As check_network. */
static int check_name_servers(const struct egress_config *egress, struct err *err)
{
	for (uint32_t i = 0; i < egress->n_name_servers; i++) {
		if (!address_valid(&egress->name_server[i]))
			return err_fail(err, -EINVAL, "config", "the address of a name server");
	}
	return 0;
}

int config_check(const struct config_answer *answer, size_t size, struct err *err)
{
	int r;

	if (size != sizeof(*answer))
		return err_fail(err, -EINVAL, "config", "the answer has a wrong size");
	for (size_t i = 0; i < ARRAY_SIZE(frames); i++) {
		if (number_at(answer, frames[i].magic, 4) != CONFIG_MAGIC ||
		    number_at(answer, frames[i].version, 2) != CONFIG_VERSION ||
		    number_at(answer, frames[i].size, 4) != frames[i].bytes)
			return err_fail(err, -EINVAL, "config", "%s: magic, version or size",
					frames[i].name);
	}
	for (size_t i = 0; i < ARRAY_SIZE(numbers); i++) {
		uint64_t value = number_at(answer, numbers[i].offset, numbers[i].size);

		if (value < numbers[i].min || value > numbers[i].max)
			return err_fail(err, -EINVAL, "config", "%s is out of range",
					numbers[i].name);
	}
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		if (!text_ends((const uint8_t *)answer + texts[i].offset, texts[i].size))
			return err_fail(err, -EINVAL, "config", "%s is not terminated",
					texts[i].name);
	}
	for (size_t i = 0; i < ENDPOINTS_N; i++) {
		if (!text_ends(answer->api.endpoint_default[i],
			       sizeof(answer->api.endpoint_default[i])))
			return err_fail(err, -EINVAL, "config", "endpoint %zu is not terminated",
					i);
	}
	if (!place_valid(&answer->api.redis) || !server_valid(&answer->api.platform.redis) ||
	    !server_valid(&answer->api.celery.broker) || !server_valid(&answer->api.celery.results))
		return err_fail(err, -EINVAL, "config", "the address of a Redis server");
	if (!engine_valid(&answer->supervisor))
		return err_fail(err, -EINVAL, "config", "the engine of docker");
	if (!remote_valid(&answer->supervisor))
		return err_fail(err, -EINVAL, "config", "the service of remote");
	r = check_network(&answer->supervisor.network, err);
	if (r == 0)
		r = check_name_servers(&answer->egress, err);
	/* What the workers get is what was checked. */
	if (r == 0 && (memcmp(&answer->supervisor.network, &answer->api.network,
			      sizeof(answer->api.network)) != 0 ||
		       memcmp(&answer->supervisor.network, &answer->egress.network,
			      sizeof(answer->egress.network)) != 0))
		return err_fail(err, -EINVAL, "config", "the workers' networks differ");
	if (r == 0)
		r = check_overrides(answer, err);
	return r < 0 ? r : check_keys(&answer->api.snapshot_keys, err);
}

void config_keep(const struct config_answer *in_force, struct config_answer *answer,
		 char *ret_names, size_t names_bytes)
{
	size_t used = 0;

	ret_names[0] = '\0';
	for (size_t i = 0; i < ARRAY_SIZE(kept); i++) {
		const uint8_t *from = (const uint8_t *)in_force + kept[i].offset;
		uint8_t *to = (uint8_t *)answer + kept[i].offset;

		if (memcmp(to, from, kept[i].size) == 0)
			continue;
		memcpy(to, from, kept[i].size);
		if (str_format(ret_names + used, names_bytes - used, "%s%s", used ? " " : "",
			       kept[i].name) == 0)
			used += strlen(ret_names + used);
	}
}

bool config_is_kept(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(kept); i++) {
		if (str_equal(kept[i].name, name))
			return true;
	}
	return false;
}
