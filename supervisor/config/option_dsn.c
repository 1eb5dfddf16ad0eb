#include "supervisor/config/option_dsn.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "base/dsn.h"
#include "base/host_name.h"
#include "base/str.h"

#include "supervisor/config/option_redis.h"

#define WORD_BYTES 512 /* of one option or one host, decoded */

/* What is wanted where it is not so; no byte of the value is in it. */
#define WANTS_ESCAPES "two hexadecimal digits other than 00 behind each '%', which itself is %25"
#define WANTS_HOSTS                                                                                \
	"as hosts up to 8 names or addresses, with ports from 1 to 65535; in a password '@', ':' " \
	"and '/' are %40, %3A and %2F"
#define WANTS_HOST "a host's name or address: it reaches no Unix socket"
#define WANTS_OPTIONS                                                                              \
	"behind '?' option=value as libpq knows them, between '&', with addresses as hostaddr"
#define WANTS_FILES "no file but authorities in " DSN_CERTIFICATES

/* One host without its port. */
static bool is_host(const char *text, size_t length)
{
	char host[WORD_BYTES];
	char name[HOST_NAME_BYTES];

	return option_redis_decode(text, length, host, sizeof(host)) == 0 &&
	       (dsn_is_address(host) || host_name_canonical(host, strlen(host), name) == 0);
}

/* Behind the colon; NULL: there is none. */
static bool is_port(const char *colon, const char *end)
{
	char port[8];

	return !colon ||
	       (str_copy_n(port, sizeof(port), colon + 1, (size_t)(end - colon) - 1) >= 0 &&
		dsn_option_is_taken("port", port));
}

/* host[:port],… or [address][:port],… */
static bool are_hosts(const char *text, size_t length)
{
	size_t n = 0;

	for (const char *end = text + length; text <= end; n++) {
		size_t entry = strcspn(text, ",/?");
		const char *close = *text == '[' ? memchr(text, ']', entry) : NULL;
		const char *colon = memchr(close ? close : text, ':',
					   entry - (close ? (size_t)(close - text) : 0));
		size_t host = colon ? (size_t)(colon - text) : entry;

		if (text + entry > end || !is_port(colon, text + entry) ||
		    !(close ? is_host(text + 1, (size_t)(close - text) - 1) : is_host(text, host)))
			return false;
		text += entry + 1;
	}
	return n <= DSN_HOSTS_MAX;
}

/* option=value of the query; NULL, or what is wanted. */
static const char *option_wanted(const char *text, size_t length, bool *has_host)
{
	const char *equals = memchr(text, '=', length);
	const char *end = text + length;
	char keyword[WORD_BYTES];
	char value[WORD_BYTES];
	bool is_plain;

	if (!equals || memchr(equals + 1, '=', (size_t)(end - equals) - 1) ||
	    option_redis_decode(text, (size_t)(equals - text), keyword, sizeof(keyword)) < 0)
		return WANTS_OPTIONS;
	is_plain = option_redis_decode(equals + 1, (size_t)(end - equals) - 1, value,
				       sizeof(value)) == 0;
	if (dsn_option_is_refused(keyword))
		return WANTS_FILES;
	if (!dsn_option_is_taken(keyword, is_plain ? value : NULL))
		return WANTS_OPTIONS;
	if (str_equal(keyword, "sslrootcert"))
		return dsn_certificate_is_taken(value) ? NULL : WANTS_FILES;
	if (str_equal(keyword, "hostaddr") && !dsn_are_addresses(value))
		return WANTS_OPTIONS;
	if (!str_equal(keyword, "host") && !str_equal(keyword, "hostaddr"))
		return NULL;
	*has_host = true;
	return value[0] == '/' ? WANTS_HOST : NULL;
}

static const char *options_wanted(const char *query, bool *has_host)
{
	const char *wanted = NULL;
	size_t length;

	for (const char *at = query; !wanted && *at; at += length + (at[length] == '&')) {
		length = strcspn(at, "&");
		wanted = option_wanted(at, length, has_host);
	}
	return wanted;
}

/* Those that libpq decodes: two hexadecimal digits, and no NUL. */
static bool are_escapes(const char *text)
{
	for (const char *at = strchr(text, '%'); at; at = strchr(at + 1, '%'))
		if (!isxdigit((unsigned char)at[1]) || !isxdigit((unsigned char)at[2]) ||
		    (at[1] == '0' && at[2] == '0'))
			return false;
	return true;
}

const char *option_dsn_wanted(const struct option_row *row, const char *value, const char *form)
{
	const char *at = dsn_behind_scheme(value);
	const char *wanted = NULL;
	const char *query;
	bool has_host;
	size_t length;

	if (!at || strlen(value) > row->max)
		return form;
	for (const char *c = value; *c; c++)
		if (*c <= 0x20 || *c >= 0x7f)
			return form;
	if (!are_escapes(at))
		return WANTS_ESCAPES;
	at += strlen("://");
	/* The login ends, for libpq, at the first '@' before a slash, whatever stands between. */
	length = strcspn(at, "@/");
	if (at[length] == '@')
		at += length + 1;
	length = strcspn(at, "/?");
	query = strchr(at, '?');
	has_host = length > 0;
	if (has_host && !are_hosts(at, length))
		return WANTS_HOSTS;
	wanted = options_wanted(query ? query + 1 : "", &has_host);
	return wanted || has_host ? wanted : WANTS_HOST;
}

int option_dsn_set(const struct option_row *row, const char *value, struct config_answer *answer)
{
	if (option_dsn_wanted(row, value, ""))
		return -EINVAL;
	memset((char *)answer + row->offset, 0, row->max + 1);
	memcpy((char *)answer + row->offset, value, strlen(value));
	return 0;
}
