/*
 * Every option of the configuration file: one row each, which parsing, defaults, complaints and the
 * documentation share.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/auto.h"

#include "sandboxd/worker.h"

enum option_type {
	OPTION_TYPE_U32,
	OPTION_TYPE_U64,
	OPTION_TYPE_SIZE,         /* bytes with a unit, into 64 bits */
	OPTION_TYPE_SECONDS,      /* with a unit, into 32 bits */
	OPTION_TYPE_ID,           /* a number; unset: UINT32_MAX */
	OPTION_TYPE_BOOL,         /* no, yes */
	OPTION_TYPE_FIELDS,       /* refuse, ignore */
	OPTION_TYPE_NAMES,        /* strict, compatible */
	OPTION_TYPE_FORMAT,       /* logfmt, json */
	OPTION_TYPE_LEVEL,        /* error, warning, info, debug */
	OPTION_TYPE_IDS,          /* numbers between spaces, into trusted_peer[] */
	OPTION_TYPE_HEADER,       /* name of an HTTP header */
	OPTION_TYPE_PREFIX,       /* of environment variables */
	OPTION_TYPE_URL_PREFIX,   /* absolute path that ends in a slash */
	OPTION_TYPE_ORIGINS,      /* scheme://host[:port] between spaces, or `*` */
	OPTION_TYPE_ENDPOINT,     /* printable, without spaces; row.min is the index */
	OPTION_TYPE_SECRET,       /* printable, never shown; row.max is the longest */
	OPTION_TYPE_DSN,          /* postgresql://…; never shown; row.max is the longest */
	OPTION_TYPE_REROUTE,      /* refuse, reroute */
	OPTION_TYPE_SHARED,       /* refuse, path, trust_credentials */
	OPTION_TYPE_AIRBYTE,      /* client, password, open, cloud */
	OPTION_TYPE_REDIS,        /* redis://address:port */
	OPTION_TYPE_REDIS_SERVER, /* the same with credentials and a database; never shown */
	OPTION_TYPE_KEY,          /* letters, digits and :._- */
	OPTION_TYPE_QUEUE,        /* the same; of the platform's own only with a ! before it */
	OPTION_TYPE_TASKS,        /* dotted names between spaces, into celery.task_name */
	OPTION_TYPE_EXECUTION,    /* local, celery */
	OPTION_TYPE_ENCRYPTION,   /* off, available, required */
	OPTION_TYPE_PROVIDER,     /* native, docker, remote */
	OPTION_TYPE_ENVIRONMENT,  /* production, development */
	OPTION_TYPE_SOCKET,       /* absolute path of a Unix socket or a file */
	OPTION_TYPE_IMAGE,        /* name of an image, as an engine takes it */
	OPTION_TYPE_SNAPSHOTS,    /* local, s3 */
	OPTION_TYPE_REMOTE_URL,   /* https://host[:port][/path]; never shown */
	OPTION_TYPE_S3_URL,       /* https://host[:port] */
	OPTION_TYPE_S3_NAME,      /* of a region or a bucket */
	OPTION_TYPE_S3_PREFIX,    /* folders, with a slash at the end */
	OPTION_TYPE_S3_LOGIN,     /* ACCESS-KEY:SECRET-KEY; never shown */
	/* Lists between spaces, appended to: such an option may come more than once in a file. */
	OPTION_TYPE_RULES,         /* of egress_rule.h */
	OPTION_TYPE_BUCKETS,       /* bucket[/prefix] */
	OPTION_TYPE_PATHS,         /* host/path */
	OPTION_TYPE_NETWORKS,      /* address/prefix, into api.network */
	OPTION_TYPE_GATEWAYS,      /* NAME=URL */
	OPTION_TYPE_HOST_SERVICES, /* name:port[=address:port], into api.network */
	OPTION_TYPE_SNAPSHOT_KEYS, /* organisation=id:key, into api.snapshot_keys */
	OPTION_TYPE_MAX_,
};

static inline bool option_type_is_list(enum option_type type)
{
	return type >= OPTION_TYPE_RULES;
}

enum option_effect {
	OPTION_RESTART,    /* of the service */
	OPTION_RELOAD,     /* SIGHUP; also for sessions that run */
	OPTION_RELOAD_NEW, /* SIGHUP; for sessions made after it */
};

struct option_row {
	const char *section;
	const char *key;
	enum option_type type;
	uint64_t min; /* numbers */
	uint64_t max;
	const char *by_default; /* in the file's own form; NULL: unset */
	size_t offset;          /* in struct config_answer */
	enum option_effect effect;
	const char *doc;
};

const struct option_row *option_table_rows(size_t *ret_n);
bool option_table_has_section(const char *section);
/* NULL: no such option. */
const struct option_row *option_table_find(const char *section, const char *key);
/* "owner:NAME" or "workspace:NAME": the quota of one tenant. ret_name points into section. */
bool option_table_scope(const char *section, enum quota_scope *ret_scope, const char **ret_name);
/* The option of this key for the scope's tenants, or NULL. Its offset is that of the default. */
const struct option_row *option_table_of_tenant(enum quota_scope scope, const char *key);
/* "endpoint:NAME": the options of one endpoint; their rows are those of section "endpoint". */
bool option_table_endpoint(const char *section, uint32_t *ret_index);
/* The key of this section that is closest to a misspelt one, or NULL when none is near. */
const char *option_table_nearest(const char *section, const char *key);
/* Tab separated: section, key, type, default, range, reload or restart, new or running sessions,
 * text. */
void option_table_print(FILE *stream);
