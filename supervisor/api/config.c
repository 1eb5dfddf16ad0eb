#include "supervisor/api/config.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"
#include "base/log.h"
#include "base/str.h"

static bool terminated(const char *text, size_t size)
{
	return memchr(text, '\0', size) != NULL;
}

static bool is_header_name(const char *text)
{
	return terminated(text, CONFIG_TEXT_BYTES) && text[0] != '\0' &&
	       str_only(text, strlen(text), "-");
}

static bool endpoint_lists_end(const struct endpoint_config *endpoint)
{
	return terminated(endpoint->production, CONFIG_LIST_BYTES) &&
	       terminated(endpoint->production_buckets, CONFIG_LIST_BYTES) &&
	       terminated(endpoint->companions, CONFIG_LIST_BYTES) &&
	       terminated(endpoint->shared_paths, CONFIG_LIST_BYTES) &&
	       endpoint->shared_host < CONFIG_SHARED_MAX_;
}

static int check_texts(const struct api_config *config, struct err *err)
{
	const struct text_row {
		const char *text;
		size_t size;
		const char *name;
	} rows[] = {
		{config->agent_gateways,    sizeof(config->agent_gateways),    "agent_gateways"    },
		{config->env_prefix,        sizeof(config->env_prefix),        "environment prefix"},
		{config->stream_url,        sizeof(config->stream_url),        "stream_url"        },
		{config->websocket_origins, sizeof(config->websocket_origins), "websocket_origins" },
		{config->component_allow,   sizeof(config->component_allow),   "component_allow"   },
		{config->agent_allow,       sizeof(config->agent_allow),       "agent_allow"       },
		{config->redis_root,        sizeof(config->redis_root),        "redis prefix"      },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		if (!terminated(rows[i].text, rows[i].size))
			return err_fail(err, -EBADMSG, "config", "%s", rows[i].name);
	return 0;
}

static bool keys_end(const struct snapshot_key_list *keys)
{
	if (keys->n > SNAPSHOT_KEYS_MAX)
		return false;
	for (uint32_t i = 0; i < keys->n; i++)
		if (!terminated(keys->key[i].id, sizeof(keys->key[i].id)) ||
		    !terminated(keys->key[i].name, sizeof(keys->key[i].name)))
			return false;
	return true;
}

static int check_quotas(const struct quota_config *quota, struct err *err)
{
	if (quota->n_overrides > QUOTA_OVERRIDES_MAX)
		return err_fail(err, -EBADMSG, "config", "too many quotas");
	for (uint32_t i = 0; i < quota->n_overrides; i++)
		if (quota->override[i].scope >= QUOTA_SCOPE_HOST ||
		    !terminated(quota->override[i].name, sizeof(quota->override[i].name)))
			return err_fail(err, -EBADMSG, "config", "quota %u", i);
	return 0;
}

int config_check(const struct api_config *config, struct err *err)
{
	const char *names[] = {config->header_user, config->header_workspace,
			       config->header_project, config->header_scopes};
	int r;

	if (config->magic != CONFIG_MAGIC || config->version != CONFIG_VERSION ||
	    config->size != sizeof(*config))
		return err_fail(err, -EBADMSG, "config", "not a configuration of this release");
	if (config->n_trusted_peers > CONFIG_MAX_PEERS)
		return err_fail(err, -EBADMSG, "config", "too many trusted peers");
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (!is_header_name(names[i]))
			return err_fail(err, -EBADMSG, "config", "header name %zu", i);
	r = check_texts(config, err);
	if (r < 0)
		return r;
	if (!str_only(config->env_prefix, strlen(config->env_prefix), "_"))
		return err_fail(err, -EBADMSG, "config", "environment prefix");
	for (size_t i = 0; i < ENDPOINTS_N; i++)
		if (!terminated(config->endpoint_default[i], CONFIG_VALUE_BYTES))
			return err_fail(err, -EBADMSG, "config", "endpoint default %zu", i);
	for (size_t i = 0; i < ENDPOINTS_N; i++)
		if (!endpoint_lists_end(&config->endpoint[i]))
			return err_fail(err, -EBADMSG, "config", "lists of endpoint %zu", i);
	if (config->network.n_private > CONFIG_PRIVATE_MAX ||
	    config->network.n_host_services > CONFIG_HOST_SERVICES_MAX)
		return err_fail(err, -EBADMSG, "config", "network");
	if (config->log_level >= LOG_LEVEL_MAX_)
		return err_fail(err, -EBADMSG, "config", "log level");
	if (!keys_end(&config->snapshot_keys))
		return err_fail(err, -EBADMSG, "config", "keys of snapshots");
	r = check_quotas(&config->quota, err);
	if (r < 0)
		return r;
	if (config->max_sessions == 0)
		return err_fail(err, -EBADMSG, "config", "max_sessions");
	return 0;
}

struct api_config *config_free(struct api_config *config)
{
	if (config)
		explicit_bzero(config, sizeof(*config));
	free(config);
	return NULL;
}

int config_read(int fd, struct api_config **ret_config, struct err *err)
{
	AUTO(config_free) struct api_config *config = NULL;
	struct stat st;
	int r;

	if (lseek(fd, 0, SEEK_SET) < 0)
		return err_fail(err, -errno, "config", "seek");
	if (fstat(fd, &st) < 0)
		return err_fail(err, -errno, "config", "size");
	if (st.st_size != (off_t)sizeof(*config))
		return err_fail(err, -EBADMSG, "config", "%lld bytes", (long long)st.st_size);
	config = malloc(sizeof(*config));
	if (!config)
		return err_fail(err, -ENOMEM, "config", "no memory");
	/* It has secrets: no other copy of them is left. */
	r = io_read_exact(fd, config, sizeof(*config));
	if (r < 0)
		return err_fail(err, r, "config", "read");
	r = config_check(config, err);
	if (r < 0)
		return r;
	*ret_config = TAKE_PTR(config);
	return 0;
}
