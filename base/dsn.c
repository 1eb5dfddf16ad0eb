#include "base/dsn.h"

#include <arpa/inet.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <strings.h>

#include "base/auto.h"
#include "base/num.h"
#include "base/str.h"

const char *dsn_behind_scheme(const char *dsn)
{
	static const char *const schemes[] = {"postgresql", "postgres"};

	for (size_t i = 0; i < ARRAY_SIZE(schemes); i++) {
		const char *at = dsn + strlen(schemes[i]);

		if (!str_has_prefix(dsn, schemes[i]))
			continue;
		if (*at == '+')
			at += 1 + strspn(at + 1, "abcdefghijklmnopqrstuvwxyz0123456789_");
		if (str_has_prefix(at, "://"))
			return at;
	}
	return NULL;
}

bool dsn_option_is_refused(const char *keyword)
{
	static const char *const refused[] = {"service", "servicefile", "sslkey",
					      "sslcert", "sslcrl",      "sslcrldir"};

	for (size_t i = 0; i < ARRAY_SIZE(refused); i++)
		if (str_equal(refused[i], keyword))
			return true;
	return false;
}

bool dsn_certificate_is_taken(const char *path)
{
	return str_has_prefix(path, DSN_CERTIFICATES) && !strstr(path, "/.");
}

/* Ports between commas, each of which may be empty. */
static bool are_ports(const char *ports)
{
	char port[8];
	size_t length;
	uint32_t number;

	for (const char *at = ports;; at += length + 1) {
		length = strcspn(at, ",");
		if (length > 0 && (str_copy_n(port, sizeof(port), at, length) < 0 ||
				   num_parse_u32(port, 1, UINT16_MAX, &number) < 0))
			return false;
		if (at[length] == '\0')
			return true;
	}
}

static bool is_one_of(const char *words, const char *value)
{
	char word[40];

	return !strchr(value, ' ') && str_format(word, sizeof(word), " %s ", value) >= 0 &&
	       strstr(words, word);
}

/* In any case, or "": none. */
static bool is_protocol(const char *value)
{
	static const char *const protocols[] = {"", "TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3"};

	for (size_t i = 0; i < ARRAY_SIZE(protocols); i++)
		if (strcasecmp(value, protocols[i]) == 0)
			return true;
	return false;
}

bool dsn_option_is_taken(const char *keyword, const char *value)
{
	/* Those of libpq 15, and `ssl`, which is one of the query alone. */
	static const struct {
		const char *keyword;
		enum {
			DSN_TEXT,
			DSN_PLAIN,
			DSN_PORTS,
			DSN_INTEGER,
			DSN_TLS,
			DSN_WORDS,
		} kind;
		const char *words;
	} rows[] = {
		{"application_name",          DSN_TEXT,    NULL                                                  },
		{"channel_binding",           DSN_WORDS,   " disable prefer require "                            },
		{"client_encoding",           DSN_TEXT,    NULL						  },
		{"connect_timeout",           DSN_INTEGER, NULL                                                  },
		{"dbname",                    DSN_TEXT,    NULL						  },
		{"fallback_application_name", DSN_TEXT,    NULL                                                  },
		{"gssencmode",                DSN_TEXT,    NULL						  },
		{"gsslib",                    DSN_TEXT,    NULL						  },
		{"host",                      DSN_PLAIN,   NULL						  },
		{"hostaddr",                  DSN_PLAIN,   NULL						  },
		{"keepalives",                DSN_TEXT,    NULL						  },
		{"keepalives_count",          DSN_TEXT,    NULL                                                  },
		{"keepalives_idle",           DSN_TEXT,    NULL						  },
		{"keepalives_interval",       DSN_TEXT,    NULL                                                  },
		{"krbsrvname",                DSN_TEXT,    NULL						  },
		{"options",                   DSN_TEXT,    NULL						  },
		{"passfile",                  DSN_TEXT,    NULL						  },
		{"password",                  DSN_TEXT,    NULL						  },
		{"port",                      DSN_PORTS,   NULL						  },
		{"replication",               DSN_TEXT,    NULL						  },
		{"requirepeer",               DSN_TEXT,    NULL						  },
		{"service",                   DSN_TEXT,    NULL						  },
		{"ssl",                       DSN_WORDS,   " true "					      },
		{"ssl_max_protocol_version",  DSN_TLS,     NULL                                                  },
		{"ssl_min_protocol_version",  DSN_TLS,     NULL                                                  },
		{"sslcert",                   DSN_TEXT,    NULL						  },
		{"sslcompression",            DSN_TEXT,    NULL						  },
		{"sslcrl",                    DSN_TEXT,    NULL						  },
		{"sslcrldir",                 DSN_TEXT,    NULL						  },
		{"sslkey",                    DSN_TEXT,    NULL						  },
		{"sslmode",                   DSN_WORDS,   " disable allow prefer require verify-ca verify-full "},
		{"sslpassword",               DSN_TEXT,    NULL						  },
		{"sslrootcert",               DSN_PLAIN,   NULL						  },
		{"sslsni",                    DSN_TEXT,    NULL						  },
		{"target_session_attrs",      DSN_WORDS,
		 " any read-write read-only primary standby prefer-standby "                                     },
		{"tcp_user_timeout",          DSN_TEXT,    NULL                                                  },
		{"user",                      DSN_TEXT,    NULL						  },
	};
	int32_t number;
	size_t i = 0;

	while (i < ARRAY_SIZE(rows) && !str_equal(rows[i].keyword, keyword))
		i++;
	if (i == ARRAY_SIZE(rows) || (!value && rows[i].kind != DSN_TEXT))
		return false;
	switch (rows[i].kind) {
	case DSN_TEXT:
	case DSN_PLAIN:
		break;
	case DSN_PORTS:
		return are_ports(value);
	case DSN_INTEGER:
		return num_parse_i32(value, INT32_MIN, INT32_MAX, &number) == 0;
	case DSN_TLS:
		return is_protocol(value);
	case DSN_WORDS:
		return is_one_of(rows[i].words, value);
	}
	return true;
}

bool dsn_is_address(const char *host)
{
	struct in6_addr address;

	return inet_pton(AF_INET, host, &address) == 1 || inet_pton(AF_INET6, host, &address) == 1;
}

bool dsn_are_addresses(const char *hosts)
{
	char host[INET6_ADDRSTRLEN];
	size_t length;

	for (const char *at = hosts;; at += length + 1) {
		length = strcspn(at, ",");
		if (str_copy_n(host, sizeof(host), at, length) < 0 || !dsn_is_address(host))
			return false;
		if (at[length] == '\0')
			return true;
	}
}
