#include "supervisor/api/session/endpoint.h"

#include <string.h>

#include "base/err.h"
#include "base/str.h"

enum endpoint_form {
	FORM_URL,     /* [scheme://]host[:port][/path] */
	FORM_PATH,    /* a path or a URI */
	FORM_BROKERS, /* host:port[,host:port...] */
};

static const struct {
	const char *name;
	const char *variable;
	const char *closed;
	enum endpoint_form form;
} endpoints[] = {
	{"iceberg_rest_uri",       "ICEBERG_REST_URI",       "",                 FORM_URL    },
	{"iceberg_warehouse",      "ICEBERG_WAREHOUSE",      "/session/iceberg", FORM_PATH   },
	{"polaris_base_url",       "POLARIS_BASE_URL",       "",                 FORM_URL    },
	{"alpha_vantage_base_url", "ALPHA_VANTAGE_BASE_URL",
	 "https://example.invalid/sandbox/alphavantage",                         FORM_URL    },
	{"datahub_gms_url",        "DATAHUB_GMS_URL",        "",                 FORM_URL    },
	{"kafka_bootstrap",        "KAFKA_BOOTSTRAP",        "",                 FORM_BROKERS},
};
_Static_assert(ARRAY_SIZE(endpoints) == ENDPOINTS_N, "the six names");

static const char *const source_text[] = {
	[ENDPOINT_SOURCE_CALLER] = "caller",
	[ENDPOINT_SOURCE_OPERATOR] = "operator",
	[ENDPOINT_SOURCE_CLOSED] = "closed",
};
_Static_assert(ARRAY_SIZE(source_text) == ENDPOINT_SOURCE_MAX_, "one text per source");

const char *endpoint_name(size_t index)
{
	ASSERT(index < ENDPOINTS_N);
	return endpoints[index].name;
}

const char *endpoint_variable(size_t index)
{
	ASSERT(index < ENDPOINTS_N);
	return endpoints[index].variable;
}

const char *endpoint_closed_value(size_t index)
{
	ASSERT(index < ENDPOINTS_N);
	return endpoints[index].closed;
}

const char *endpoint_source_text(enum endpoint_source source)
{
	ASSERT((size_t)source < ARRAY_SIZE(source_text));
	return source_text[source];
}

int endpoint_index(const char *name, size_t length)
{
	for (size_t i = 0; i < ENDPOINTS_N; i++)
		if (strlen(endpoints[i].name) == length &&
		    memcmp(endpoints[i].name, name, length) == 0)
			return (int)i;
	return -1;
}

/* User information can stand only in the authority: between "//" (or the start) and the first of
 * "/?#". A secret in a URL ends in logs and process lists, so it is refused. */
static bool has_userinfo(const char *value, size_t length)
{
	const char *from = memmem(value, length, "//", 2);
	const char *end = value + length;

	from = from ? from + 2 : value;
	for (const char *p = from; p < end; p++) {
		if (*p == '@')
			return true;
		if (*p == '/' || *p == '?' || *p == '#')
			return false;
	}
	return false;
}

const char *endpoint_value_problem(size_t index, const char *value, size_t length)
{
	ASSERT(index < ENDPOINTS_N);
	if (length >= ENDPOINT_VALUE_MAX_BYTES)
		return "Value is too long";
	if (!str_utf8_valid(value, length))
		return "Value is not valid UTF-8";
	for (size_t i = 0; i < length; i++) {
		unsigned char c = (unsigned char)value[i];

		if (c < 0x20 || c == 0x7f)
			return "Value must not contain control characters";
		if (c == ' ' && endpoints[index].form != FORM_PATH)
			return "Value must not contain spaces";
		/* C1 controls are two bytes in UTF-8. */
		if (c == 0xc2 && i + 1 < length && (unsigned char)value[i + 1] < 0xa0)
			return "Value must not contain control characters";
	}
	if (endpoints[index].form == FORM_PATH && !memmem(value, length, "://", 3))
		return NULL;
	if (endpoints[index].form == FORM_BROKERS ? memchr(value, '@', length) != NULL
						  : has_userinfo(value, length))
		return "Value must not contain user information";
	return NULL;
}
