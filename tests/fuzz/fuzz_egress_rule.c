/*
 * Texts of egress rules. What is taken is a valid rule, and fits the name or the first address that
 * it shows, on its own ports.
 */
#include <string.h>

#include "base/egress_rule.h"
#include "base/err.h"
#include "base/host_name.h"

#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct egress_rule rule;
	char name[HOST_NAME_BYTES];
	char again[HOST_NAME_BYTES];
	uint32_t reason;

	if (host_name_canonical((const char *)data, size, name) == 0) {
		ASSERT(host_name_canonical(name, strlen(name), again) == 0);
		ASSERT(strcmp(name, again) == 0);
	}
	if (egress_rule_parse((const char *)data, size, &rule) < 0)
		return 0;
	ASSERT(egress_rule_valid(&rule));
	if (rule.kind != EGRESS_RULE_SUFFIX)
		ASSERT(egress_rule_match(&rule, 1, rule.name, &rule.network, rule.port[0].first,
					 &reason) == 0);
	ASSERT(egress_rule_match(&rule, 1, "other.invalid", &rule.network, rule.port[0].first,
				 &reason) == EGRESS_NO_RULE ||
	       memcmp(rule.name, "other.invalid", 7) == 0 || strcmp(rule.name, "invalid") == 0);
	return 0;
}
