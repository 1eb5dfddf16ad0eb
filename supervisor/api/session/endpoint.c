#include "supervisor/api/session/endpoint.h"

#include <string.h>

#include "base/err.h"
#include "base/str.h"

static const struct {
	const char *name;
	const char *variable;
	const char *closed;
	enum endpoint_form form;
} endpoints[] = {
	{"iceberg_rest_uri",       "ICEBERG_REST_URI",       "",                 ENDPOINT_FORM_URL      },
	{"iceberg_warehouse",      "ICEBERG_WAREHOUSE",      "/session/iceberg", ENDPOINT_FORM_WAREHOUSE},
	{"polaris_base_url",       "POLARIS_BASE_URL",       "",                 ENDPOINT_FORM_URL      },
	{"alpha_vantage_base_url", "ALPHA_VANTAGE_BASE_URL",
	 "https://example.invalid/sandbox/alphavantage",                         ENDPOINT_FORM_URL      },
	{"datahub_gms_url",        "DATAHUB_GMS_URL",        "",                 ENDPOINT_FORM_URL      },
	{"kafka_bootstrap",        "KAFKA_BOOTSTRAP",        "",                 ENDPOINT_FORM_BROKERS  },
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

const char *endpoint_value_problem(size_t index, const char *value, size_t length)
{
	struct endpoint_value read;

	ASSERT(index < ENDPOINTS_N);
	return endpoint_value_read(endpoints[index].form, value, length, &read);
}

const char *endpoint_read(size_t index, const char *value, struct endpoint_value *ret_value)
{
	ASSERT(index < ENDPOINTS_N);
	return endpoint_value_read(endpoints[index].form, value, strlen(value), ret_value);
}
