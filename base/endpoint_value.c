#include "base/endpoint_value.h"

#include <string.h>
#include <sys/socket.h>
#include <uriparser/Uri.h>

#include "base/egress_rule.h"
#include "base/host_name.h"
#include "base/num.h"
#include "base/str.h"

#include "sandboxd/limits.h"

enum problem {
	PROBLEM_USERINFO,
	PROBLEM_HOST,
	PROBLEM_PORT,
	PROBLEM_SCHEME,
	PROBLEM_FRAGMENT,
	PROBLEM_BUCKET,
	PROBLEM_PATH,
	PROBLEM_WAREHOUSE,
	PROBLEM_URL,
	PROBLEM_URI,
	PROBLEM_MANY,
	PROBLEM_BROKERS,
	PROBLEM_LONG,
	PROBLEM_UTF8,
	PROBLEM_CONTROL,
	PROBLEM_SPACES,
	PROBLEM_MAX_,
};

_Static_assert(ENDPOINT_HOST_BYTES == HOST_NAME_BYTES, "one bound of names");

static const char *const problems[PROBLEM_MAX_] = {
	[PROBLEM_USERINFO] = "Value must not contain user information",
	[PROBLEM_HOST] = "Value has no valid host",
	[PROBLEM_PORT] = "Value has no valid port",
	[PROBLEM_SCHEME] = "Value must begin with http:// or https://",
	[PROBLEM_FRAGMENT] = "Value must not contain a fragment",
	[PROBLEM_BUCKET] = "Value has no valid bucket",
	[PROBLEM_PATH] = "Value must not contain '.', '..' or '%' in its path",
	[PROBLEM_WAREHOUSE] = "Value must be a path, s3://bucket/prefix or file:///path",
	[PROBLEM_URL] = "Value is not a valid URL",
	[PROBLEM_URI] = "Value is neither a path nor a valid URI",
	[PROBLEM_MANY] = "Value has more than 16 brokers",
	[PROBLEM_BROKERS] = "Value must be host:port, several between commas",
	[PROBLEM_LONG] = "Value is too long",
	[PROBLEM_UTF8] = "Value is not valid UTF-8",
	[PROBLEM_CONTROL] = "Value must not contain control characters",
	[PROBLEM_SPACES] = "Value must not contain spaces",
};

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

bool endpoint_host_read(const char *text, size_t length, struct endpoint_target *target)
{
	struct egress_address address;

	if (egress_address_parse(text, length, &address) == 0) {
		memcpy(target->host, text, length);
		target->host[length] = '\0';
		target->kind = address.family == AF_INET ? ENDPOINT_HOST_IPV4 : ENDPOINT_HOST_IPV6;
		return true;
	}
	target->kind = ENDPOINT_HOST_NAME;
	return host_name_canonical(text, length, target->host) == 0;
}

static bool read_port(const char *text, size_t length, uint16_t *ret_port)
{
	char digits[6];
	uint32_t port;

	if (str_copy_n(digits, sizeof(digits), text, length) < 0 ||
	    num_parse_u32(digits, 1, UINT16_MAX, &port) < 0)
		return false;
	*ret_port = (uint16_t)port;
	return true;
}

static size_t range_length(const UriTextRangeA *range)
{
	return range->first ? (size_t)(range->afterLast - range->first) : 0;
}

static bool range_is(const UriTextRangeA *range, const char *text)
{
	return range_length(range) == strlen(text) &&
	       strncasecmp(range->first, text, strlen(text)) == 0;
}

static const char *host_and_port(const UriUriA *uri, const char *value, struct endpoint_value *ret)
{
	struct endpoint_target *target = &ret->target[0];
	uint16_t bracket = uri->hostData.ip6 ? 1 : 0;

	if (uri->userInfo.first)
		return problems[PROBLEM_USERINFO];
	if (uri->hostData.ipFuture.first ||
	    !endpoint_host_read(uri->hostText.first, range_length(&uri->hostText), target))
		return problems[PROBLEM_HOST];
	target->port = ret->tls ? 443 : 80;
	if (uri->portText.first &&
	    !read_port(uri->portText.first, range_length(&uri->portText), &target->port))
		return problems[PROBLEM_PORT];
	target->at = (uint16_t)(uri->hostText.first - value - bracket);
	target->length = (uint16_t)(range_length(&uri->hostText) + (size_t)bracket * 2);
	ret->n_targets = 1;
	return NULL;
}

static const char *read_url(const UriUriA *uri, const char *value, struct endpoint_value *ret)
{
	ret->tls = range_is(&uri->scheme, "https");
	if ((!ret->tls && !range_is(&uri->scheme, "http")) || !uri->hostText.first)
		return problems[PROBLEM_SCHEME];
	if (uri->fragment.first)
		return problems[PROBLEM_FRAGMENT];
	return host_and_port(uri, value, ret);
}

/* What a server or a client may take out of a path would make two readings of it. */
static bool path_is_plain(const UriUriA *uri)
{
	for (const UriPathSegmentA *at = uri->pathHead; at; at = at->next) {
		if (range_is(&at->text, ".") || range_is(&at->text, "..") ||
		    (at->text.first && memchr(at->text.first, '%', range_length(&at->text))))
			return false;
	}
	return true;
}

static const char *read_bucket(const UriUriA *uri, const char *value, const char *end,
			       struct endpoint_value *ret)
{
	size_t length = range_length(&uri->hostText);
	struct endpoint_target bucket;

	if (uri->userInfo.first)
		return problems[PROBLEM_USERINFO];
	if (uri->portText.first || uri->query.first || uri->fragment.first ||
	    length >= sizeof(ret->bucket) || uri->hostData.ip6 || uri->hostData.ipFuture.first ||
	    !endpoint_host_read(uri->hostText.first, length, &bucket) ||
	    strncmp(bucket.host, uri->hostText.first, length) != 0)
		return problems[PROBLEM_BUCKET];
	if (!path_is_plain(uri))
		return problems[PROBLEM_PATH];
	memcpy(ret->bucket, uri->hostText.first, length);
	ret->bucket[length] = '\0';
	ret->prefix_at = (size_t)(uri->hostText.afterLast - value);
	if (uri->hostText.afterLast < end && *uri->hostText.afterLast == '/')
		ret->prefix_at++;
	return NULL;
}

static const char *read_warehouse(const UriUriA *uri, const char *value, const char *end,
				  struct endpoint_value *ret)
{
	if (range_is(&uri->scheme, "s3") && uri->hostText.first)
		return read_bucket(uri, value, end, ret);
	/* file:///path: the authority is there and empty. */
	if (range_is(&uri->scheme, "file") && uri->hostText.first &&
	    range_length(&uri->hostText) == 0 && !uri->portText.first && !uri->userInfo.first)
		return NULL;
	return problems[PROBLEM_WAREHOUSE];
}

static const char *read_uri(enum endpoint_form form, const char *value, size_t length,
			    struct endpoint_value *ret)
{
	const char *problem;
	UriUriA uri;

	if (uriParseSingleUriExA(&uri, value, value + length, NULL) != URI_SUCCESS)
		return form == ENDPOINT_FORM_URL ? problems[PROBLEM_URL] : problems[PROBLEM_URI];
	problem = form == ENDPOINT_FORM_URL ? read_url(&uri, value, ret)
					    : read_warehouse(&uri, value, value + length, ret);
	uriFreeUriMembersA(&uri);
	return problem;
}

/* host:port or [v6]:port */
static bool read_broker(const char *text, size_t length, struct endpoint_target *target)
{
	const char *colon = memrchr(text, ':', length);
	size_t host = colon ? (size_t)(colon - text) : 0;
	bool brackets = host > 2 && text[0] == '[' && text[host - 1] == ']';

	if (!colon || !read_port(colon + 1, length - host - 1, &target->port))
		return false;
	if (!endpoint_host_read(brackets ? text + 1 : text, brackets ? host - 2 : host, target))
		return false;
	return brackets == (target->kind == ENDPOINT_HOST_IPV6);
}

static const char *read_brokers(const char *value, size_t length, struct endpoint_value *ret)
{
	const char *begin = value;
	const char *end = value + length;

	if (memchr(value, '@', length))
		return problems[PROBLEM_USERINFO];
	while (value < end) {
		const char *comma = memchr(value, ',', (size_t)(end - value));
		size_t n = (size_t)((comma ? comma : end) - value);

		if (ret->n_targets == ENDPOINT_TARGETS_MAX)
			return problems[PROBLEM_MANY];
		if (!read_broker(value, n, &ret->target[ret->n_targets]))
			return problems[PROBLEM_BROKERS];
		ret->target[ret->n_targets].at = (uint16_t)(value - begin);
		ret->target[ret->n_targets].length =
			(uint16_t)((const char *)memrchr(value, ':', n) - value);
		ret->n_targets++;
		if (comma && comma + 1 == end)
			return problems[PROBLEM_BROKERS];
		value += n + 1;
	}
	return NULL;
}

/* [A-Za-z][A-Za-z0-9+.-]*: before any slash. */
static bool has_scheme(const char *value, size_t length)
{
	const char *colon = memchr(value, ':', length);
	size_t n = colon ? (size_t)(colon - value) : 0;

	return n > 0 && !is_digit(value[0]) && str_only(value, n, "+.-");
}

static const char *read_text(const char *value, size_t length, bool spaces)
{
	if (length >= ENDPOINT_VALUE_MAX_BYTES)
		return problems[PROBLEM_LONG];
	if (!str_utf8_valid(value, length))
		return problems[PROBLEM_UTF8];
	for (size_t i = 0; i < length; i++) {
		unsigned char c = (unsigned char)value[i];

		/* C1 controls are two bytes in UTF-8. */
		if (c < 0x20 || c == 0x7f ||
		    (c == 0xc2 && i + 1 < length && (unsigned char)value[i + 1] < 0xa0))
			return problems[PROBLEM_CONTROL];
		if (c == ' ' && !spaces)
			return problems[PROBLEM_SPACES];
	}
	return NULL;
}

const char *endpoint_value_read(enum endpoint_form form, const char *value, size_t length,
				struct endpoint_value *ret_value)
{
	const char *problem = read_text(value, length, form == ENDPOINT_FORM_WAREHOUSE);

	memset(ret_value, 0, sizeof(*ret_value));
	if (problem || length == 0)
		return problem;
	if (form == ENDPOINT_FORM_BROKERS)
		return read_brokers(value, length, ret_value);
	if (form == ENDPOINT_FORM_WAREHOUSE && !has_scheme(value, length))
		return NULL;
	return read_uri(form, value, length, ret_value);
}
