#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/egress_rule.h"
#include "base/endpoint_list.h"
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
	return egress_rule_reroutes(rule) ? "reroute" : "refuse";
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
	bool shown = str_equal(rule->label, "allow") || str_equal(rule->label, "profile") ||
		     str_has_prefix(rule->label, "gateway:");
	json_t *described = json_pack("{s:s, s:s, s:o, s:o}", "label", rule->label, "action",
				      action_of(rule), "host", shown ? host_of(rule) : json_null(),
				      "ports", shown ? ports_of(rule) : json_null());

	if (described && counters)
		(void)json_object_set_new(described, "counters", counters_of(counters));
	return described;
}

static json_t *endpoint_names(uint32_t set)
{
	json_t *names = json_array();

	for (size_t i = 0; i < ENDPOINTS_N; i++)
		if (set & 1u << i)
			(void)json_array_append_new(names, json_string(endpoint_name(i)));
	return names;
}

static json_t *limits_describe(const struct egress_policy *limits)
{
	return json_pack("{s:I, s:I, s:I}", "connections", (json_int_t)limits->max_connections,
			 "connects_per_second", (json_int_t)limits->max_connects_per_s,
			 "bytes_per_second", (json_int_t)limits->max_bytes_per_s);
}

json_t *policy_describe(const struct net_policy *policy, const struct egress_counters *counters)
{
	json_t *rules = json_array();

	for (size_t i = 0; i < policy->n_rules; i++)
		(void)json_array_append_new(
			rules, rule_describe(&policy->rule[i], counters ? &counters[i] : NULL));
	return json_pack("{s:o, s:o, s:o}", "rules", rules, "production_reachable_by_credentials",
			 endpoint_names(policy->by_credentials), "limits",
			 limits_describe(&policy->limits));
}

/* Of its production hosts the kernel, which compares addresses, knows none. */
static bool is_known_by_name_only(const struct endpoint_config *endpoint)
{
	const char *at = endpoint->production;
	const char *entry;
	size_t length;
	bool has_name = false;

	while (endpoint_list_next(&at, &entry, &length)) {
		struct egress_rule rule;

		if (endpoint_production_parse(entry, length, &rule) < 0)
			continue;
		if (rule.kind == EGRESS_RULE_NETWORK)
			return false;
		has_name = true;
	}
	return has_name;
}

json_t *production_describe(const struct api_config *config)
{
	uint32_t by_name = 0;
	uint32_t by_credentials = 0;

	for (size_t i = 0; i < ENDPOINTS_N; i++) {
		const struct endpoint_config *endpoint = &config->endpoint[i];

		if (endpoint->shared_host == CONFIG_SHARED_TRUST_CREDENTIALS)
			by_credentials |= 1u << i;
		else if (endpoint->shared_host == CONFIG_SHARED_REFUSE &&
			 is_known_by_name_only(endpoint))
			by_name |= 1u << i;
	}
	return json_pack("{s:o, s:o}", "known_by_name_only", endpoint_names(by_name),
			 "reachable_by_credentials", endpoint_names(by_credentials));
}
