#include "supervisor/config/option_redis.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "base/host_name.h"
#include "base/num.h"
#include "base/str.h"

#include "supervisor/config/option_list.h"

#define SCHEME        "redis://"
#define TLS_SCHEME    "rediss://"
#define DATABASES_MAX 65535

int option_redis_set_place(const struct option_row *row, const char *value,
			   struct config_answer *answer)
{
	const char *place = value + strlen(SCHEME);
	size_t length;

	if (!str_has_prefix(value, SCHEME))
		return -EINVAL;
	length = strlen(place);
	/* Its own address, and the first of its databases. */
	if (str_has_suffix(place, "/0"))
		length -= strlen("/0");
	return option_list_place(place, length,
				 (struct redis_place *)(void *)((char *)answer + row->offset));
}

int option_redis_decode(const char *text, size_t length, char *ret_text, size_t ret_bytes)
{
	size_t used = 0;

	for (size_t i = 0; i < length; i++) {
		int c = (unsigned char)text[i];

		if (c == '%' && length - i > 2) {
			int high = str_hex_digit(text[i + 1]);
			int low = str_hex_digit(text[i + 2]);

			c = high < 0 || low < 0 ? -1 : high * 16 + low;
			i += 2;
		} else if (c == '%') {
			return -EINVAL;
		}
		if (c <= 0x20 || c >= 0x7f || used + 1 >= ret_bytes)
			return -EINVAL;
		ret_text[used++] = (char)c;
	}
	ret_text[used] = '\0';
	return 0;
}

/* user:password, :password */
static int set_login(const char *text, size_t length, struct redis_server *server)
{
	const char *colon = memchr(text, ':', length);
	size_t user = colon ? (size_t)(colon - text) : length;
	int r = option_redis_decode(text, user, server->user, sizeof(server->user));

	if (r < 0 || !colon || user + 1 == length)
		return r;
	return option_redis_decode(colon + 1, length - user - 1, server->url_password,
				   sizeof(server->url_password));
}

/* Celery wants this option in a URL with TLS; any other value would be less than we do. */
static bool is_query_taken(const char *query, bool tls)
{
	return query[0] == '\0' || (tls && (str_equal(query, "?ssl_cert_reqs=required") ||
					    str_equal(query, "?ssl_cert_reqs=CERT_REQUIRED")));
}

static int set_database(const char *path, struct redis_server *server)
{
	size_t length = strcspn(path, "?");
	char text[8];
	uint32_t number = 0;

	if (!is_query_taken(path + length, server->tls) ||
	    str_copy_n(text, sizeof(text), path, length) < 0 ||
	    (text[0] && num_parse_u32(text, 0, DATABASES_MAX, &number) < 0))
		return -EINVAL;
	server->database[0] = '\0';
	return number == 0 ? 0
			   : str_format(server->database, sizeof(server->database), "%u", number);
}

/* address:port or name:port */
static int set_host(const char *text, size_t length, struct redis_server *server)
{
	const char *colon = memrchr(text, ':', length);
	size_t host = colon ? (size_t)(colon - text) : length;
	char port[8];

	server->name[0] = '\0';
	if (!colon || str_copy_n(port, sizeof(port), colon + 1, length - host - 1) < 0)
		return -EINVAL;
	/* localhost is both. */
	if (host_name_canonical(text, host, server->name) < 0)
		return option_list_place(text, length, &server->place);
	if (option_list_place(text, length, &server->place) == 0)
		return 0;
	server->place = (struct redis_place){0};
	return num_parse_u32(port, 1, UINT16_MAX, &server->place.port);
}

int option_redis_set_server(const struct option_row *row, const char *value,
			    struct config_answer *answer)
{
	struct redis_server *server = (void *)((char *)answer + row->offset);
	const char *place;
	const char *at;
	size_t length;
	int r = 0;

	server->tls = str_has_prefix(value, TLS_SCHEME);
	if (!server->tls && !str_has_prefix(value, SCHEME))
		return -EINVAL;
	place = value + strlen(server->tls ? TLS_SCHEME : SCHEME);
	/* Of an earlier file: another server's. */
	server->user[0] = server->url_password[0] = '\0';
	at = strrchr(place, '@');
	if (at)
		r = set_login(place, (size_t)(at - place), server);
	place = at ? at + 1 : place;
	length = strcspn(place, "/?");
	if (r == 0)
		r = set_database(place + length + (place[length] == '/'), server);
	return r < 0 ? r : set_host(place, length, server);
}
