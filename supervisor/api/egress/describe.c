#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/str.h"

#include "supervisor/api/egress/policy.h"
#include "supervisor/api/session/endpoint.h"

static json_t *ports_of(const struct egress_rule *rule)
{
	char text[EGRESS_PORTS_MAX * sizeof("65535-65535,")] = "";

	for (uint32_t i = 0; i < rule->n_ports && i < EGRESS_PORTS_MAX; i++) {
		const struct egress_port_range *port = &rule->port[i];
		size_t used = strlen(text);

		IGNORE_RESULT(str_format(text + used, sizeof(text) - used,
					 port->first == port->last ? "%s%u" : "%s%u-%u",
					 used > 0 ? "," : "", port->first, port->last));
	}
	return json_string(text);
}

/* The host of a rule that the caller or the operator gave for all to see. */
static json_t *host_of(const struct egress_rule *rule)
{
	char address[INET6_ADDRSTRLEN];
	char text[EGRESS_NAME_BYTES + 8];

	if (rule->kind != EGRESS_RULE_NETWORK)
		IGNORE_RESULT(str_format(text, sizeof(text), "%s%s",
					 rule->kind == EGRESS_RULE_SUFFIX ? "*." : "", rule->name));
	else if (inet_ntop((int)rule->network.family, rule->network.bytes, address,
			   sizeof(address)))
		IGNORE_RESULT(
			str_format(text, sizeof(text), "%s/%u", address, rule->network.prefix));
	else
		return json_null();
	return json_string(text);
}

static const char *action_of(const struct egress_rule *rule)
{
	if (!(rule->flags & EGRESS_PRODUCTION))
		return rule->flags & EGRESS_PATHS ? "allow_paths" : "allow";
	return rule->reroute_name[0] != '\0' || rule->reroute.family != 0 ? "reroute" : "refuse";
}

static json_t *counters_of(const struct egress_counters *counters)
{
	return json_pack("{s:I, s:I, s:I, s:I, s:I}", "open", (json_int_t)counters->open,
			 "connections", (json_int_t)counters->connections, "denials",
			 (json_int_t)counters->denials, "bytes_out",
			 (json_int_t)counters->bytes_out, "bytes_in",
			 (json_int_t)counters->bytes_in);
}

static json_t *rule_describe(const struct egress_rule *rule, const struct egress_counters *counters)
{
	bool shown = str_equal(rule->label, "allow") || str_equal(rule->label, "profile");
	json_t *described = json_pack("{s:s, s:s, s:o, s:o}", "label", rule->label, "action",
				      action_of(rule), "host", shown ? host_of(rule) : json_null(),
				      "ports", shown ? ports_of(rule) : json_null());

	if (described && counters)
		(void)json_object_set_new(described, "counters", counters_of(counters));
	return described;
}

json_t *policy_describe(const struct net_policy *policy, const struct egress_counters *counters)
{
	json_t *rules = json_array();
	json_t *by_credentials = json_array();

	for (size_t i = 0; i < policy->n_rules; i++)
		(void)json_array_append_new(
			rules, rule_describe(&policy->rule[i], counters ? &counters[i] : NULL));
	for (size_t i = 0; i < ENDPOINTS_N; i++)
		if (policy->by_credentials & 1u << i)
			(void)json_array_append_new(by_credentials, json_string(endpoint_name(i)));
	return json_pack("{s:o, s:o}", "rules", rules, "production_reachable_by_credentials",
			 by_credentials);
}
