#include "supervisor/config/option_s3.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "base/host_name.h"
#include "base/num.h"
#include "base/str.h"

#define HTTPS "https://"
#define HTTP  "http://"

static bool is_loopback(const char *host)
{
	return str_equal(host, "localhost") || str_equal(host, "127.0.0.1") ||
	       str_equal(host, "[::1]");
}

/* [address of version 6], address of version 4, or a name. */
static bool is_host(const char *host)
{
	size_t length = strlen(host);
	char text[HOST_NAME_BYTES];
	struct in6_addr v6;
	struct in_addr v4;

	if (host[0] == '[')
		return length > 2 && host[length - 1] == ']' &&
		       str_copy_n(text, sizeof(text), host + 1, length - 2) >= 0 &&
		       inet_pton(AF_INET6, text, &v6) == 1;
	if (strspn(host, "0123456789.") == length)
		return inet_pton(AF_INET, host, &v4) == 1;
	return host_name_canonical(host, length, text) >= 0;
}

int option_s3_check_place(const char *place, size_t length, bool is_plain)
{
	char host[S3_HOST_BYTES];
	const char *port;
	uint32_t number;

	port = memrchr(place, ':', length);
	if (port && memchr(port, ']', length - (size_t)(port - place)))
		port = NULL;
	if (port) {
		char digits[8];

		if (str_copy_n(digits, sizeof(digits), port + 1,
			       length - (size_t)(port - place) - 1) < 0 ||
		    num_parse_u32(digits, 1, UINT16_MAX, &number) < 0)
			return -EINVAL;
	}
	if (str_copy_n(host, sizeof(host), place, port ? (size_t)(port - place) : length) < 0 ||
	    !is_host(host) || (is_plain && !is_loopback(host)))
		return -EINVAL;
	return 0;
}

int option_s3_set_url(const struct option_row *row, const char *value, struct config_answer *answer)
{
	bool is_plain = str_has_prefix(value, HTTP);
	const char *place = value + strlen(is_plain ? HTTP : HTTPS);
	size_t length;

	(void)row;
	if (!is_plain && !str_has_prefix(value, HTTPS))
		return -EINVAL;
	length = strlen(place);
	if (length > 0 && place[length - 1] == '/')
		length--;
	if (option_s3_check_place(place, length, is_plain) < 0)
		return -EINVAL;
	memset(answer->s3.host, 0, sizeof(answer->s3.host));
	if (str_copy_n(answer->s3.host, sizeof(answer->s3.host), place, length) < 0)
		return -EINVAL;
	answer->s3.is_plain = is_plain;
	return 0;
}

static int set_text(const struct option_row *row, const char *value, const char *extra,
		    struct config_answer *answer)
{
	size_t length = strlen(value);
	char *to = (char *)answer + row->offset;

	if (length == 0 || length >= S3_NAME_BYTES || !str_only(value, length, extra))
		return -EINVAL;
	memset(to, 0, S3_NAME_BYTES);
	return str_copy(to, S3_NAME_BYTES, value);
}

int option_s3_set_name(const struct option_row *row, const char *value,
		       struct config_answer *answer)
{
	return set_text(row, value, "._-", answer);
}

int option_s3_set_prefix(const struct option_row *row, const char *value,
			 struct config_answer *answer)
{
	if (value[0] == '/' || !str_has_suffix(value, "/") || strstr(value, "..") ||
	    strstr(value, "//"))
		return -EINVAL;
	return set_text(row, value, "/._-", answer);
}

int option_s3_set_login(const struct option_row *row, const char *value,
			struct config_answer *answer)
{
	size_t length = strlen(value);
	const char *colon = strchr(value, ':');

	(void)row;
	if (!colon || colon == value || colon[1] == '\0' ||
	    length >= sizeof(answer->s3.credentials))
		return -EINVAL;
	for (size_t i = 0; i < length; i++)
		if (value[i] <= 0x20 || value[i] >= 0x7f)
			return -EINVAL;
	memset(answer->s3.credentials, 0, sizeof(answer->s3.credentials));
	return str_copy(answer->s3.credentials, sizeof(answer->s3.credentials), value);
}
