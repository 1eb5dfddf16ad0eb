#include "supervisor/api/egress/admit.h"

#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>

#include "base/egress_rule.h"
#include "base/endpoint_list.h"
#include "base/net_class.h"
#include "base/str.h"

#include "supervisor/api/egress/policy.h"

enum problem {
	PROBLEM_PRODUCTION,
	PROBLEM_BUCKET,
	PROBLEM_SHARED,
	PROBLEM_HOST,
	PROBLEM_PRIVATE,
	PROBLEM_ADDRESS,
	PROBLEM_RULE,
	PROBLEM_RULE_PRODUCTION,
	PROBLEM_RULE_HOST,
	PROBLEM_RULE_PRIVATE,
	PROBLEM_RULE_ADDRESS,
	PROBLEM_MAX_,
};

static const char *const problems[PROBLEM_MAX_] = {
	[PROBLEM_PRODUCTION] = "Value names a production host",
	[PROBLEM_BUCKET] = "Value names production's bucket",
	[PROBLEM_SHARED] = "Value names a host that production shares, and wants https of it",
	[PROBLEM_HOST] = "Value names a service of this host that its host_services do not list",
	[PROBLEM_PRIVATE] = "Value is a private address outside allow_private",
	[PROBLEM_ADDRESS] = "Value is an address that no session may reach",
	[PROBLEM_RULE] = "is no host with ports, such as a.example:443",
	[PROBLEM_RULE_HOST] = "names this host, whose services only endpoints reach",
	[PROBLEM_RULE_PRIVATE] = "is a private address outside allow_private",
	[PROBLEM_RULE_ADDRESS] = "is an address that no session may reach",
	[PROBLEM_RULE_PRODUCTION] = "names a production host",
};

const struct config_host_service *admit_host_service(const struct network_config *network,
						     const struct endpoint_target *target)
{
	for (uint32_t i = 0; i < network->n_host_services; i++)
		if (network->host_service[i].name_port == target->port &&
		    str_equal(network->host_service[i].name, target->host))
			return &network->host_service[i];
	return NULL;
}

bool admit_is_loopback(const struct endpoint_target *target)
{
	struct egress_address address;

	if (target->kind == ENDPOINT_HOST_NAME)
		return str_equal(target->host, "localhost") ||
		       str_has_suffix(target->host, ".localhost");
	return egress_address_parse(target->host, strlen(target->host), &address) == 0 &&
	       net_class_of(&address) == NET_CLASS_LOOPBACK;
}

/* What loopback is called inside: no name server knows it. */
static bool is_host_name(const char *name)
{
	return str_equal(name, EGRESS_HOST_NAME) || str_has_suffix(name, "." EGRESS_HOST_NAME);
}

static bool is_private_allowed(const struct network_config *network,
			       const struct egress_address *address)
{
	for (uint32_t i = 0; i < network->n_private; i++)
		if (net_address_within(address, &network->private_network[i]))
			return true;
	return false;
}

/* PROBLEM_MAX_: none. */
static enum problem address_problem(const struct network_config *network,
				    const struct egress_address *address)
{
	switch (net_class_of(address)) {
	case NET_CLASS_PUBLIC:
		return PROBLEM_MAX_;
	case NET_CLASS_PRIVATE:
		return is_private_allowed(network, address) ? PROBLEM_MAX_ : PROBLEM_PRIVATE;
	case NET_CLASS_LOOPBACK:
		return PROBLEM_HOST;
	case NET_CLASS_LINK_LOCAL:
	case NET_CLASS_METADATA:
	case NET_CLASS_RESERVED:
	case NET_CLASS_MAX_:
		break;
	}
	return PROBLEM_ADDRESS;
}

/* A single address; a network may have some that can be reached. */
static bool is_one_address(const struct egress_rule *rule)
{
	return rule->kind == EGRESS_RULE_NETWORK &&
	       rule->network.prefix == (rule->network.family == AF_INET ? 32 : 128);
}

/* The endpoint whose production host it may be. */
static const struct endpoint_config *production_of(const struct api_config *config,
						   const struct egress_rule *rule)
{
	for (size_t i = 0; i < ENDPOINTS_N; i++)
		if (endpoint_production_has(config->endpoint[i].production, rule))
			return &config->endpoint[i];
	return NULL;
}

static bool is_production_bucket(const struct api_config *config, const char *value,
				 const struct endpoint_value *read)
{
	for (size_t i = 0; i < ENDPOINTS_N && read->bucket[0]; i++) {
		const char *at = config->endpoint[i].production_buckets;
		const char *entry;
		size_t length;

		while (endpoint_list_next(&at, &entry, &length)) {
			struct endpoint_value production;

			if (endpoint_bucket_parse(entry, length, &production) == 0 &&
			    endpoint_buckets_overlap(read, value + read->prefix_at, &production,
						     entry + production.prefix_at))
				return true;
		}
	}
	return false;
}

static const char *target_problem(const struct api_config *config, bool tls,
				  const struct endpoint_target *target)
{
	const struct endpoint_config *production;
	enum problem problem;
	struct egress_rule rule;

	if (admit_host_service(&config->network, target))
		return NULL;
	if (admit_is_loopback(target) || is_host_name(target->host))
		return problems[PROBLEM_HOST];
	if (endpoint_target_rule(target, &rule) < 0)
		return problems[PROBLEM_ADDRESS];
	production = production_of(config, &rule);
	if (production && production->shared_host == CONFIG_SHARED_REFUSE)
		return problems[PROBLEM_PRODUCTION];
	if (production && production->shared_host == CONFIG_SHARED_PATH && tls)
		return problems[PROBLEM_SHARED];
	problem = rule.kind == EGRESS_RULE_NETWORK
			  ? address_problem(&config->network, &rule.network)
			  : PROBLEM_MAX_;
	return problem == PROBLEM_MAX_ ? NULL : problems[problem];
}

const char *admit_endpoint(const struct api_config *config, const char *value,
			   const struct endpoint_value *read)
{
	const char *problem = NULL;

	for (size_t i = 0; i < read->n_targets && !problem; i++)
		problem = target_problem(config, read->tls, &read->target[i]);
	if (!problem && is_production_bucket(config, value, read))
		problem = problems[PROBLEM_BUCKET];
	return problem;
}

static const char *rule_address_problem(const struct network_config *network,
					const struct egress_rule *rule)
{
	static const enum problem of_rule[PROBLEM_MAX_] = {
		[PROBLEM_PRIVATE] = PROBLEM_RULE_PRIVATE,
		[PROBLEM_HOST] = PROBLEM_RULE_HOST,
		[PROBLEM_ADDRESS] = PROBLEM_RULE_ADDRESS,
	};
	enum problem problem =
		is_one_address(rule) ? address_problem(network, &rule->network) : PROBLEM_MAX_;

	return problem == PROBLEM_MAX_ ? NULL : problems[of_rule[problem]];
}

const char *admit_rule(const struct api_config *config, const char *text, size_t length)
{
	const struct endpoint_config *production;
	const char *address_text;
	struct egress_rule rule;

	if (length > ADMIT_RULE_MAX_BYTES || egress_rule_parse(text, length, &rule) < 0)
		return problems[PROBLEM_RULE];
	if (rule.kind == EGRESS_RULE_NAME &&
	    (str_equal(rule.name, "localhost") || str_has_suffix(rule.name, ".localhost") ||
	     is_host_name(rule.name)))
		return problems[PROBLEM_RULE_HOST];
	address_text = rule_address_problem(&config->network, &rule);
	production = production_of(config, &rule);
	/* What lies under a wildcard or in a network is refused when it is dialled; but a host that
	 * is shared has no such rule. */
	if (production && (rule.kind == EGRESS_RULE_NAME || is_one_address(&rule) ||
			   production->shared_host != CONFIG_SHARED_REFUSE))
		return problems[PROBLEM_RULE_PRODUCTION];
	return address_text;
}
