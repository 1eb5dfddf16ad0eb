#include "supervisor/config/option_value.h"

#include <errno.h>
#include <string.h>

#include "base/host_service.h"
#include "base/log.h"
#include "base/num.h"
#include "base/str.h"

#include "supervisor/config/option_dsn.h"
#include "supervisor/config/option_list.h"
#include "supervisor/config/option_redis.h"
#include "supervisor/config/option_remote.h"
#include "supervisor/config/option_s3.h"

#define CHOICE_WORDS 4

static void *field_of(const struct option_row *row, struct config_answer *answer)
{
	return (uint8_t *)answer + row->offset;
}

static int set_u32(const struct option_row *row, const char *value, struct config_answer *answer)
{
	uint32_t number;
	int r = num_parse_u32(value, (uint32_t)row->min, (uint32_t)row->max, &number);

	if (r < 0)
		return r;
	memcpy(field_of(row, answer), &number, sizeof(number));
	return 0;
}

static int set_u64(const struct option_row *row, const char *value, struct config_answer *answer)
{
	uint64_t number;
	int r = num_parse_u64(value, row->min, row->max, &number);

	if (r < 0)
		return r;
	memcpy(field_of(row, answer), &number, sizeof(number));
	return 0;
}

static int set_size(const struct option_row *row, const char *value, struct config_answer *answer)
{
	uint64_t bytes;
	int r = num_parse_size(value, row->max, &bytes);

	if (r < 0)
		return r;
	if (bytes < row->min)
		return -ERANGE;
	memcpy(field_of(row, answer), &bytes, sizeof(bytes));
	return 0;
}

static int set_seconds(const struct option_row *row, const char *value,
		       struct config_answer *answer)
{
	uint64_t seconds;
	uint32_t narrow;
	int r = num_parse_seconds(value, row->max, &seconds);

	if (r < 0)
		return r;
	if (seconds < row->min)
		return -ERANGE;
	narrow = (uint32_t)seconds; /* row->max fits */
	memcpy(field_of(row, answer), &narrow, sizeof(narrow));
	return 0;
}

static int set_choice(const struct option_row *row, const char *value, struct config_answer *answer)
{
	static const struct {
		enum option_type type;
		const char *word[CHOICE_WORDS];
	} choices[] = {
		{OPTION_TYPE_BOOL,        {"no", "yes"}                          },
		{OPTION_TYPE_FIELDS,      {"refuse", "ignore"}                   },
		{OPTION_TYPE_NAMES,       {"strict", "compatible"}               },
		{OPTION_TYPE_FORMAT,      {"logfmt", "json"}                     },
		{OPTION_TYPE_REROUTE,     {"refuse", "reroute"}                  },
		{OPTION_TYPE_SHARED,      {"refuse", "path", "trust_credentials"}},
		{OPTION_TYPE_AIRBYTE,     {"client", "password", "open", "cloud"}},
		{OPTION_TYPE_EXECUTION,   {"local", "celery"}                    },
		{OPTION_TYPE_ENCRYPTION,  {"off", "available", "required"}       },
		{OPTION_TYPE_PROVIDER,    {"native", "docker", "remote"}         },
		{OPTION_TYPE_ENVIRONMENT, {"production", "development"}          },
		{OPTION_TYPE_SNAPSHOTS,   {"local", "s3"}                        },
	};

	for (size_t i = 0; i < ARRAY_SIZE(choices); i++) {
		for (uint32_t j = 0; j < CHOICE_WORDS && choices[i].word[j]; j++) {
			if (row->type == choices[i].type && str_equal(value, choices[i].word[j])) {
				memcpy(field_of(row, answer), &j, sizeof(j));
				return 0;
			}
		}
	}
	return -EINVAL;
}

static int set_level(const struct option_row *row, const char *value, struct config_answer *answer)
{
	int level = log_level_parse(value);
	uint32_t number = (uint32_t)level;

	if (level < 0)
		return level;
	memcpy(field_of(row, answer), &number, sizeof(number));
	return 0;
}

static int set_ids(const struct option_row *row, const char *value, struct config_answer *answer)
{
	uint32_t ids[CONFIG_MAX_PEERS] = {0};
	uint32_t n = 0;
	size_t length;

	for (; value[0]; value += length) {
		char word[16];

		value += strspn(value, " \t");
		length = strcspn(value, " \t");
		if (length == 0)
			break;
		if (n == CONFIG_MAX_PEERS || str_copy_n(word, sizeof(word), value, length) < 0)
			return -EINVAL;
		if (num_parse_u32(word, (uint32_t)row->min, (uint32_t)row->max, &ids[n]) < 0)
			return -EINVAL;
		n++;
	}
	memcpy(answer->api.trusted_peer, ids, sizeof(ids));
	answer->api.n_trusted_peers = n;
	return 0;
}

static int set_text(const struct option_row *row, const char *value, struct config_answer *answer)
{
	size_t length = strlen(value);

	if (length == 0 || length >= CONFIG_TEXT_BYTES)
		return -EINVAL;
	memset(field_of(row, answer), 0, CONFIG_TEXT_BYTES);
	memcpy(field_of(row, answer), value, length);
	return 0;
}

static int set_header(const struct option_row *row, const char *value, struct config_answer *answer)
{
	/* `_` is left out: many servers take it for `-`, so such a name could be forged. */
	if (!str_only(value, strlen(value), "-"))
		return -EINVAL;
	return set_text(row, value, answer);
}

static int set_prefix(const struct option_row *row, const char *value, struct config_answer *answer)
{
	size_t length = strlen(value);

	if (strspn(value, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") != length ||
	    strspn(value, "0123456789") != 0)
		return -EINVAL;
	return set_text(row, value, answer);
}

static int set_url_prefix(const struct option_row *row, const char *value,
			  struct config_answer *answer)
{
	size_t length = strlen(value);

	if (value[0] != '/' || value[length - 1] != '/' || !str_only(value, length, "/._-~"))
		return -EINVAL;
	return set_text(row, value, answer);
}

static int set_endpoint(const struct option_row *row, const char *value,
			struct config_answer *answer)
{
	size_t length = strlen(value);

	if (length >= CONFIG_VALUE_BYTES)
		return -EINVAL;
	for (size_t i = 0; i < length; i++) {
		if (value[i] <= 0x20 || value[i] >= 0x7f)
			return -EINVAL;
	}
	memset(field_of(row, answer), 0, CONFIG_VALUE_BYTES);
	memcpy(field_of(row, answer), value, length);
	answer->api.endpoint_default_set |= 1u << row->min;
	return 0;
}

static int set_secret(const struct option_row *row, const char *value, struct config_answer *answer)
{
	size_t length = strlen(value);

	if (length > row->max)
		return -EINVAL;
	for (size_t i = 0; i < length; i++) {
		if (value[i] < 0x20 || value[i] >= 0x7f)
			return -EINVAL;
	}
	memset(field_of(row, answer), 0, row->max + 1);
	memcpy(field_of(row, answer), value, length);
	return 0;
}

static int set_key(const struct option_row *row, const char *value, struct config_answer *answer)
{
	if (!str_only(value, strlen(value), ":._-"))
		return -EINVAL;
	return set_text(row, value, answer);
}

/* Whoever takes from the platform's own queue takes its other tasks as well. */
static int set_queue(const struct option_row *row, const char *value, struct config_answer *answer)
{
	if (str_equal(value, "default") || str_equal(value, "celery"))
		return -EINVAL;
	return set_key(row, value[0] == '!' ? value + 1 : value, answer);
}

static int set_tasks(const struct option_row *row, const char *value, struct config_answer *answer)
{
	size_t length = strlen(value);

	if (length == 0 || length >= CONFIG_ORIGINS_BYTES || value[0] == ' ' ||
	    !str_only(value, length, "._- "))
		return -EINVAL;
	memset(field_of(row, answer), 0, CONFIG_ORIGINS_BYTES);
	memcpy(field_of(row, answer), value, length);
	return 0;
}

static int set_socket(const struct option_row *row, const char *value, struct config_answer *answer)
{
	size_t length = strlen(value);

	if (!host_service_path_valid(value, length))
		return -EINVAL;
	memset(field_of(row, answer), 0, CONFIG_SOCKET_BYTES);
	memcpy(field_of(row, answer), value, length);
	return 0;
}

static int set_image(const struct option_row *row, const char *value, struct config_answer *answer)
{
	size_t length = strlen(value);

	if (length == 0 || length >= CONFIG_ORIGINS_BYTES || !str_only(value, 1, "") ||
	    !str_only(value, length, "._-/:@"))
		return -EINVAL;
	memset(field_of(row, answer), 0, CONFIG_ORIGINS_BYTES);
	memcpy(field_of(row, answer), value, length);
	return 0;
}

static bool is_origin(const char *word, size_t length)
{
	const char *authority = memmem(word, length, "://", 3);
	size_t scheme = authority ? (size_t)(authority - word) : 0;

	if (length == 1 && word[0] == '*')
		return true;
	return scheme > 0 && scheme + 3 < length && str_only(word, scheme, "+-.") &&
	       str_only(word + scheme + 3, length - scheme - 3, "-.:[]");
}

static int set_origins(const struct option_row *row, const char *value,
		       struct config_answer *answer)
{
	size_t length;

	if (strlen(value) >= CONFIG_ORIGINS_BYTES)
		return -EINVAL;
	for (const char *at = value; *at; at += length + strspn(at + length, " ")) {
		length = strcspn(at, " ");
		if (!is_origin(at, length))
			return -EINVAL;
	}
	memset(field_of(row, answer), 0, CONFIG_ORIGINS_BYTES);
	memcpy(field_of(row, answer), value, strlen(value));
	return 0;
}

static const struct value_kind {
	int (*set)(const struct option_row *row, const char *value, struct config_answer *answer);
	const char *wanted;
	const char *unit; /* of the range, in a complaint; NULL: none */
} kinds[OPTION_TYPE_MAX_] = {
	[OPTION_TYPE_U32] = {set_u32,                 "a number",								    ""        },
	[OPTION_TYPE_U64] = {set_u64,                 "a number",								    ""        },
	[OPTION_TYPE_SIZE] = {set_size,                "a size such as 512MiB or 4GiB,",                                              " bytes"  },
	[OPTION_TYPE_SECONDS] = {set_seconds,             "a time such as 90s, 15min or 24h,",                                           " seconds"},
	[OPTION_TYPE_ID] = {set_u32,                 "one numeric id",							      NULL      },
	[OPTION_TYPE_BOOL] = {set_choice,              "yes or no",								   NULL      },
	[OPTION_TYPE_FIELDS] = {set_choice,              "refuse or ignore",                                                            NULL      },
	[OPTION_TYPE_NAMES] = {set_choice,              "strict or compatible",                                                        NULL      },
	[OPTION_TYPE_LEVEL] = {set_level,               "error, warning, info or debug",                                               NULL      },
	[OPTION_TYPE_FORMAT] = {set_choice,              "logfmt or json",							      NULL      },
	[OPTION_TYPE_IDS] = {set_ids,                 "numeric ids between spaces, at most 16",                                      NULL      },
	[OPTION_TYPE_HEADER] = {set_header,              "letters, digits and -, at most 63",                                           NULL      },
	[OPTION_TYPE_PREFIX] = {set_prefix,              "upper-case letters, digits and _, at most 63",                                NULL      },
	[OPTION_TYPE_URL_PREFIX] = {set_url_prefix,          "a path from / to /, at most 63",                                              NULL      },
	[OPTION_TYPE_ORIGINS] = {set_origins,
                             "origins such as https://data.example between spaces, or *",                                            NULL      },
	[OPTION_TYPE_ENDPOINT] = {set_endpoint,            "printable text without spaces",                                               NULL      },
	[OPTION_TYPE_REROUTE] = {set_choice,              "refuse or reroute",                                                           NULL      },
	[OPTION_TYPE_SHARED] = {set_choice,              "refuse, path or trust_credentials",                                           NULL      },
	[OPTION_TYPE_AIRBYTE] = {set_choice,              "client, password, open or cloud",                                             NULL      },
	[OPTION_TYPE_REDIS] = {option_redis_set_place,
                             "redis://address:port or redis://localhost:port",                                                       NULL      },
	[OPTION_TYPE_REDIS_SERVER] =
		{option_redis_set_server,
			     "redis://user:password@host:port/database or rediss:// likewise, percent-encoded",
			     NULL													      },
	[OPTION_TYPE_KEY] = {set_key,                 "letters, digits and :._-, at most 63",                                        NULL      },
	[OPTION_TYPE_QUEUE] =
		{set_queue,
			     "a queue of its own: letters, digits and :._-, at most 63; !default forces that one",
			     NULL													      },
	[OPTION_TYPE_TASKS] =
		{set_tasks,
			     "names such as package.tasks.execute_sandbox_session between spaces, 255 bytes in all",
			     NULL													      },
	[OPTION_TYPE_EXECUTION] = {set_choice,              "local or celery",                                                             NULL      },
	[OPTION_TYPE_ENCRYPTION] = {set_choice,              "off, available or required",                                                  NULL      },
	[OPTION_TYPE_PROVIDER] = {set_choice,              "native, docker or remote",                                                    NULL      },
	[OPTION_TYPE_ENVIRONMENT] = {set_choice,              "production or development",                                                   NULL      },
	[OPTION_TYPE_SOCKET] = {set_socket,              "an absolute path without . and .., at most 107 bytes",
                             NULL													      },
	[OPTION_TYPE_IMAGE] = {set_image,
                             "a name such as registry.example/sandbox:1, at most 255 bytes",					 NULL      },
	[OPTION_TYPE_SNAPSHOTS] = {set_choice,              "local or s3",								 NULL      },
	[OPTION_TYPE_REMOTE_URL] =
		{option_remote_set_url,
			     "https://host:port/path, or http:// at localhost, 127.0.0.1 or [::1], at most 255 bytes",
			     NULL													      },
	[OPTION_TYPE_S3_URL] =
		{option_s3_set_url,
			     "https://host or https://host:port, or http:// at localhost, 127.0.0.1 or [::1]",
			     NULL													      },
	[OPTION_TYPE_S3_NAME] = {option_s3_set_name,      "letters, digits and ._-, at most 63",                                         NULL      },
	[OPTION_TYPE_S3_PREFIX] =
		{option_s3_set_prefix,
			     "letters, digits and /._-, at most 63, with a / at the end and none at the beginning",
			     NULL													      },
	[OPTION_TYPE_S3_LOGIN] = {option_s3_set_login,     "ACCESS-KEY:SECRET-KEY",                                                       NULL      },
	[OPTION_TYPE_SNAPSHOT_KEYS] =
		{option_list_set,
			     "*=ID:KEY, workspace:NAME=ID:KEY or owner:NAME=ID:KEY, each id once, KEY 64 hexadecimal digits",
			     NULL													      },
	[OPTION_TYPE_RULES] =
		{option_list_set,
			     "hosts such as a.example:443, *.b.example:9092 or 10.0.0.0/8:5432 between spaces, 2047 bytes in all",
			     NULL													      },
	[OPTION_TYPE_BUCKETS] = {option_list_set,
                             "bucket or bucket/prefix between spaces, 2047 bytes in all",                                            NULL      },
	[OPTION_TYPE_PATHS] = {option_list_set,         "host/path between spaces, 2047 bytes in all",
                             NULL													      },
	[OPTION_TYPE_NETWORKS] = {option_list_set,
                             "private networks such as 10.1.0.0/16 between spaces, at most 32",				      NULL      },
	[OPTION_TYPE_GATEWAYS] = {option_list_set,
                             "NAME=https://host/path between spaces, 2047 bytes in all",                                             NULL      },
	[OPTION_TYPE_HOST_SERVICES] =
		{option_list_set,
			     "localhost:8181, name:80=10.1.2.3:81 or name:80=unix:/path between spaces, at most 16",
			     NULL													      },
	[OPTION_TYPE_DSN] =
		{option_dsn_set,
			     "postgresql://user:password@host:port/database, as libpq takes it, with files of /etc/ssl/certs alone",
			     NULL													      },
	[OPTION_TYPE_SECRET] = {set_secret,              "printable text",							      NULL      },
};

int option_value_set(const struct option_row *row, const char *value, struct config_answer *answer,
		     const char **ret_wanted)
{
	if (kinds[row->type].set(row, value, answer) < 0) {
		*ret_wanted = kinds[row->type].wanted;
		if (row->type == OPTION_TYPE_DSN)
			*ret_wanted = option_dsn_wanted(row, value, *ret_wanted);
		return -EINVAL;
	}
	return 0;
}

const char *option_value_unit(const struct option_row *row)
{
	return kinds[row->type].unit;
}

void option_value_unset(const struct option_row *row, struct config_answer *answer)
{
	const uint32_t no_id = UINT32_MAX;

	if (row->type == OPTION_TYPE_ID)
		memcpy(field_of(row, answer), &no_id, sizeof(no_id));
	if (option_type_is_list(row->type))
		option_list_clear(row, answer);
}
