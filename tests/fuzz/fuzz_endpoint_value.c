/*
 * Values of endpoints: the first byte chooses the form, the rest is the value. What is taken names
 * hosts in the one form that reads as itself, and holds no user information.
 */
#include <string.h>

#include "base/endpoint_value.h"
#include "base/err.h"
#include "base/str.h"

#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct endpoint_value value;
	const char *text = (const char *)data + 1;

	if (size < 1)
		return 0;
	if (endpoint_value_read((enum endpoint_form)(data[0] % 3), text, size - 1, &value))
		return 0;
	ASSERT(value.n_targets <= ENDPOINT_TARGETS_MAX);
	ASSERT(value.prefix_at <= size - 1);
	ASSERT(str_only(value.bucket, strlen(value.bucket), ".-_"));
	for (size_t i = 0; i < value.n_targets; i++) {
		const struct endpoint_target *target = &value.target[i];
		struct endpoint_target again;

		ASSERT(target->port > 0);
		ASSERT(str_only(target->host, strlen(target->host), ".-_:"));
		ASSERT(endpoint_host_read(target->host, strlen(target->host), &again));
		ASSERT(str_equal(target->host, again.host) && target->kind == again.kind);
	}
	return 0;
}
