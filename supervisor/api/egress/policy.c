#include "supervisor/api/egress/policy.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/egress_rule.h"
#include "base/endpoint_list.h"
#include "base/host_service.h"
#include "base/net_class.h"
#include "base/str.h"

#include "supervisor/api/egress/admit.h"
#include "supervisor/api/session/endpoint.h"

struct making {
	const struct policy_input *input;
	struct net_policy *policy;
	struct endpoint_value value[ENDPOINTS_N]; /* n_targets 0 where it cannot be read */
};

void policy_done(struct net_policy *policy)
{
	free(policy->rule);
	free(policy->path);
	*policy = NET_POLICY_NULL;
}

static struct egress_rule *add_rule(struct net_policy *policy, const struct egress_rule *rule,
				    const char *label, const char *name)
{
	struct egress_rule *added;

	if (policy->n_rules == policy->n_rules_allocated) {
		size_t n = policy->n_rules_allocated + 16;
		struct egress_rule *grown = reallocarray(policy->rule, n, sizeof(*grown));

		if (!grown)
			return NULL;
		policy->rule = grown;
		policy->n_rules_allocated = n;
	}
	added = &policy->rule[policy->n_rules];
	*added = *rule;
	added->index = (uint32_t)policy->n_rules;
	if (str_format(added->label, sizeof(added->label), "%s%s%s", label, name[0] ? ":" : "",
		       name) < 0)
		return NULL; /* every name fits */
	policy->n_rules++;
	return added;
}

static int add_path(struct net_policy *policy, uint32_t rule, struct egress_path path)
{
	if (policy->n_paths == policy->n_paths_allocated) {
		size_t n = policy->n_paths_allocated + 16;
		struct egress_path *grown = reallocarray(policy->path, n, sizeof(*grown));

		if (!grown)
			return -ENOMEM;
		policy->path = grown;
		policy->n_paths_allocated = n;
	}
	path.rule = rule;
	policy->path[policy->n_paths++] = path;
	return 0;
}

static uint32_t private_flag(const struct making *making)
{
	return making->input->config->network.n_private > 0 ? EGRESS_ALLOW_PRIVATE : 0;
}

/* Some sandbox's own rule fits that production host too. */
static bool is_shared(const struct making *making, const struct egress_rule *production)
{
	for (size_t i = 0; i < ENDPOINTS_N; i++) {
		const char *at = making->input->config->endpoint[i].companions;
		struct egress_rule rule;
		const char *entry;
		size_t length;

		while (endpoint_list_next(&at, &entry, &length))
			if (egress_rule_parse(entry, length, &rule) == 0 &&
			    egress_rules_overlap(production, &rule))
				return true;
		for (size_t k = 0; k < making->value[i].n_targets; k++)
			if (endpoint_target_rule(&making->value[i].target[k], &rule) == 0 &&
			    egress_rules_overlap(production, &rule))
				return true;
	}
	return false;
}

static void set_service(const struct config_host_service *service, struct egress_rule *rule)
{
	rule->flags |= EGRESS_HOST_SERVICE;
	rule->reroute_port = service->port;
	if (service->path[0] != '\0')
		rule->reroute_service = host_service_id(service);
	else
		rule->reroute = service->address;
}

/* To the first host of the endpoint, on its port. */
static int set_reroute(const struct making *making, size_t index, struct egress_rule *rule)
{
	const struct endpoint_target *target = &making->value[index].target[0];
	const struct config_host_service *service;

	if (!making->input->config->endpoint[index].on_production_reroute ||
	    making->value[index].n_targets == 0)
		return 0;
	service = admit_host_service(&making->input->config->network, target);
	rule->reroute_port = target->port;
	rule->flags |= private_flag(making);
	if (service) {
		set_service(service, rule);
		return 0;
	}
	if (target->kind == ENDPOINT_HOST_NAME)
		return str_copy(rule->reroute_name, sizeof(rule->reroute_name), target->host);
	return egress_address_parse(target->host, strlen(target->host), &rule->reroute);
}

static int add_production(struct making *making, size_t index)
{
	const struct endpoint_config *endpoint = &making->input->config->endpoint[index];
	const char *at = endpoint->production;
	const char *entry;
	size_t length;
	int r;

	while (endpoint_list_next(&at, &entry, &length)) {
		struct egress_rule rule;

		if (endpoint_production_parse(entry, length, &rule) < 0)
			continue; /* the reader of the configuration took it */
		if (endpoint->shared_host != CONFIG_SHARED_REFUSE && is_shared(making, &rule))
			continue;
		rule.flags = EGRESS_PRODUCTION;
		r = set_reroute(making, index, &rule);
		if (r < 0)
			return r;
		if (!add_rule(making->policy, &rule, "endpoint", endpoint_name(index)))
			return -ENOMEM;
	}
	return 0;
}

static int add_shared_paths(struct net_policy *policy, const struct endpoint_config *endpoint,
			    struct egress_rule *rule)
{
	const char *at = endpoint->shared_paths;
	struct egress_path path;
	const char *entry;
	size_t length;

	rule->flags |= EGRESS_PATHS;
	while (endpoint_list_next(&at, &entry, &length)) {
		if (endpoint_path_parse(entry, length, &path) < 0)
			continue; /* the reader of the configuration took it */
		if (rule->n_paths == EGRESS_PATHS_MAX)
			return -E2BIG;
		if (add_path(policy, rule->index, path) < 0)
			return -ENOMEM;
		rule->n_paths++;
	}
	return 0;
}

/* A rule of ours to a host that production has too: the operator's answer decides. */
static int bind_shared(struct making *making, struct egress_rule *rule)
{
	for (size_t i = 0; i < ENDPOINTS_N; i++) {
		const struct endpoint_config *endpoint = &making->input->config->endpoint[i];
		const char *at = endpoint->production;
		bool shared = false;
		struct egress_rule production;
		const char *entry;
		size_t length;
		int r;

		while (endpoint->shared_host != CONFIG_SHARED_REFUSE && !shared &&
		       endpoint_list_next(&at, &entry, &length))
			shared = endpoint_production_parse(entry, length, &production) == 0 &&
				 egress_rules_overlap(&production, rule);
		if (!shared)
			continue;
		if (endpoint->shared_host == CONFIG_SHARED_TRUST_CREDENTIALS) {
			making->policy->by_credentials |= 1u << i;
			continue;
		}
		r = add_shared_paths(making->policy, endpoint, rule);
		if (r < 0)
			return r;
	}
	return 0;
}

static int add_own(struct making *making, struct egress_rule *rule, const char *label,
		   const char *name)
{
	struct egress_rule *added;

	rule->flags |= private_flag(making);
	added = add_rule(making->policy, rule, label, name);
	return added ? bind_shared(making, added) : -ENOMEM;
}

static int add_target(struct making *making, size_t index, const struct endpoint_target *target)
{
	const struct config_host_service *service =
		admit_host_service(&making->input->config->network, target);
	struct endpoint_target dialled = *target;
	struct egress_rule rule;
	int r;

	if (service && admit_is_loopback(target)) {
		dialled.kind = ENDPOINT_HOST_NAME;
		r = str_copy(dialled.host, sizeof(dialled.host), EGRESS_HOST_NAME);
		if (r < 0)
			return r;
	} else if (admit_is_loopback(target)) {
		return 0; /* of an older row: nothing to allow */
	}
	r = endpoint_target_rule(&dialled, &rule);
	if (r < 0)
		return 0; /* of an older row */
	if (service)
		set_service(service, &rule);
	return add_own(making, &rule, "endpoint", endpoint_name(index));
}

/* What was taken by another release and is no rule for this one allows nothing. */
static int add_text(struct making *making, const char *text, size_t length, const char *label,
		    const char *name)
{
	struct egress_rule rule;

	if (egress_rule_parse(text, length, &rule) < 0)
		return 0;
	return add_own(making, &rule, label, name);
}

static int add_list(struct making *making, const char *list, const char *label, const char *name)
{
	const char *entry;
	size_t length;
	int r = 0;

	while (r == 0 && endpoint_list_next(&list, &entry, &length))
		r = add_text(making, entry, length, label, name);
	return r;
}

static int add_endpoint(struct making *making, size_t index)
{
	const struct endpoint_value *value = &making->value[index];
	int r = 0;

	for (size_t i = 0; r == 0 && i < value->n_targets; i++)
		r = add_target(making, index, &value->target[i]);
	if (r < 0 || (value->n_targets == 0 && value->bucket[0] == '\0'))
		return r;
	return add_list(making, making->input->config->endpoint[index].companions, "companion",
			endpoint_name(index));
}

static int add_gateways(struct making *making)
{
	const char *list = making->input->gateways;
	struct egress_rule rule;
	struct gateway gateway;
	const char *entry;
	size_t length;
	int r = 0;

	while (r == 0 && list && endpoint_list_next(&list, &entry, &length)) {
		if (gateway_parse(entry, length, &gateway) < 0 ||
		    endpoint_target_rule(&gateway.target, &rule) < 0)
			continue; /* not for this release */
		r = add_own(making, &rule, "gateway", gateway.name);
	}
	return r;
}

/* Exactly that server, wherever it is: the operator named it. */
static int add_redis(struct making *making)
{
	const struct redis_place *place = making->input->redis;
	uint16_t port = (uint16_t)place->port;
	struct egress_rule rule = {
		.kind = EGRESS_RULE_NETWORK,
		.flags = EGRESS_HOST_SERVICE,
		.n_ports = 1,
		.port = {{port, port}},
		.network = place->address,
		.reroute = place->address,
		.reroute_port = place->port,
	};

	if (net_class_of(&place->address) == NET_CLASS_LOOPBACK) {
		rule.kind = EGRESS_RULE_NAME;
		rule.network = (struct egress_address){0};
		IGNORE_RESULT(str_copy(rule.name, sizeof(rule.name), EGRESS_HOST_NAME));
	}
	return add_rule(making->policy, &rule, "redis", "") ? 0 : -ENOMEM;
}

static int make(struct making *making)
{
	const struct policy_input *input = making->input;
	int r = 0;

	for (size_t i = 0; r == 0 && i < ENDPOINTS_N; i++)
		r = add_production(making, i);
	for (size_t i = 0; r == 0 && i < ENDPOINTS_N; i++)
		r = add_endpoint(making, i);
	for (size_t i = 0; r == 0 && i < input->n_allow; i++)
		r = add_text(making, input->allow[i], strlen(input->allow[i]), "allow", "");
	if (r == 0)
		r = add_list(making, input->profile_allow, "profile", "");
	if (r == 0)
		r = add_gateways(making);
	if (r == 0 && input->redis)
		r = add_redis(making);
	if (r == 0 && making->policy->n_rules > EGRESS_RULES_MAX)
		r = -E2BIG;
	return r;
}

int policy_make(const struct policy_input *input, struct net_policy *ret_policy)
{
	AUTO_FREE struct making *making = calloc(1, sizeof(*making)); /* big for a stack */
	const struct network_limits *limits = &input->config->network_limits;
	struct net_policy policy = NET_POLICY_NULL;
	int r;

	if (!making)
		return -ENOMEM;
	making->input = input;
	making->policy = &policy;
	policy.limits = (struct egress_policy){
		.max_connections = limits->connections,
		.max_connects_per_s = limits->connects_per_s,
		.max_bytes_per_s = limits->bytes_per_s,
	};
	for (size_t i = 0; i < ENDPOINTS_N; i++)
		if (endpoint_read(i, input->value[i], &making->value[i]))
			making->value[i] = (struct endpoint_value){0};
	r = make(making);
	if (r < 0)
		policy_done(&policy);
	else
		*ret_policy = policy;
	return r;
}

static bool is_secret(const struct egress_rule *rule)
{
	return str_has_prefix(rule->label, "endpoint:") ||
	       str_has_prefix(rule->label, "companion:");
}

const char *policy_label_of(const struct net_policy *policy, const char *name,
			    const struct egress_address *address)
{
	struct egress_rule dialled = {.n_ports = 1, .port = {{1, UINT16_MAX}}};

	if (name[0] != '\0') {
		dialled.kind = EGRESS_RULE_NAME;
		if (str_copy(dialled.name, sizeof(dialled.name), name) < 0)
			return NULL;
	} else {
		dialled.kind = EGRESS_RULE_NETWORK;
		dialled.network = *address;
	}
	for (size_t i = 0; i < policy->n_rules; i++)
		if (is_secret(&policy->rule[i]) && !(policy->rule[i].flags & EGRESS_PRODUCTION) &&
		    egress_rules_overlap(&policy->rule[i], &dialled))
			return policy->rule[i].label;
	return NULL;
}

void policy_redis_host(const struct redis_place *place, char text[POLICY_HOST_BYTES])
{
	char address[INET6_ADDRSTRLEN] = "";
	bool is_v6 = place->address.family == AF_INET6;

	if (net_class_of(&place->address) == NET_CLASS_LOOPBACK) {
		IGNORE_RESULT(str_copy(text, POLICY_HOST_BYTES, EGRESS_HOST_NAME));
		return;
	}
	(void)inet_ntop((int)place->address.family, place->address.bytes, address, sizeof(address));
	IGNORE_RESULT(str_format(text, POLICY_HOST_BYTES, "%s%s%s", is_v6 ? "[" : "", address,
				 is_v6 ? "]" : ""));
}

int policy_injected(const struct network_config *network, size_t endpoint, const char *value,
		    char **ret_value)
{
	struct endpoint_value read;
	char *injected = NULL;

	*ret_value = NULL;
	if (endpoint_read(endpoint, value, &read))
		return 0;
	/* From behind, so that the places of those before stay. */
	for (size_t i = read.n_targets; i-- > 0;) {
		const struct endpoint_target *target = &read.target[i];
		const char *from = injected ? injected : value;
		size_t size = strlen(from) + sizeof(EGRESS_HOST_NAME);
		char *grown;

		if (!admit_is_loopback(target) || !admit_host_service(network, target))
			continue;
		grown = malloc(size);
		if (!grown ||
		    str_format(grown, size, "%.*s%s%s", (int)target->at, from, EGRESS_HOST_NAME,
			       from + target->at + target->length) < 0) {
			free(grown);
			free(injected);
			return -ENOMEM;
		}
		free(injected);
		injected = grown;
	}
	*ret_value = injected;
	return 0;
}
