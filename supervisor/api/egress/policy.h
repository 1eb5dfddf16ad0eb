/*
 * What a session may reach: the rules for its egress worker (sandboxd/egress.h), from the
 * configuration, the endpoints in force and what its owner asked for. Pure.
 *
 * Order: production first (it goes before every other rule anyway), then endpoints, their
 * companions, the caller's own rules, the profile's, the Redis server.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/auto.h"

#include "sandboxd/egress.h"
#include "sandboxd/worker.h"

/* What loopback is called inside, where localhost is the session's own: an endpoint that names a
 * service of this host is given to programs under this name. */
#define EGRESS_HOST_NAME "host.sandbox.internal"

/* A URL's host for that address, as programs inside dial it: EGRESS_HOST_NAME for loopback. */
#define POLICY_HOST_BYTES 64
void policy_redis_host(const struct redis_place *place, char text[POLICY_HOST_BYTES]);

struct policy_input {
	const struct api_config *config;
	const char *value[ENDPOINTS_N]; /* in force; "": none */
	char *const *allow;             /* the caller's rules */
	size_t n_allow;
	const char *profile_allow;       /* a list of the configuration */
	const char *gateways;            /* the same, of gateway_parse(); or NULL */
	const struct redis_place *redis; /* where the session has a user; NULL: nowhere */
};

struct net_policy {
	struct egress_rule *rule; /* owned */
	struct egress_path *path; /* owned; .rule is an index of `rule`, ascending */
	size_t n_rules;
	size_t n_paths;
	size_t n_rules_allocated;
	size_t n_paths_allocated;
	struct egress_policy limits; /* n_rules is the link's */
	uint32_t by_credentials; /* bit per endpoint: only the session's credentials keep it from
				    that production */
};
#define NET_POLICY_NULL ((struct net_policy){0})

/* 0, -ENOMEM, or -E2BIG: more than EGRESS_RULES_MAX rules or EGRESS_PATHS_MAX paths. */
MUST_USE int policy_make(const struct policy_input *input, struct net_policy *ret_policy);
void policy_done(struct net_policy *policy);

/* The rule whose host this is, for words that must not hold it: the label of an endpoint or a
 * companion; NULL: nobody's secret. */
const char *policy_label_of(const struct net_policy *policy, const char *name,
			    const struct egress_address *address);

/* {rules: [{label, rule?, ports, ...}], ...}: what is told of it. No endpoint's or companion's
 * host. counters: one a rule, or NULL. A new reference, or NULL without memory. */
json_t *policy_describe(const struct net_policy *policy, const struct egress_counters *counters);

/* {known_by_name_only: [endpoint], reachable_by_credentials: [endpoint]}: where something else than
 * a rule and the kernel's list of addresses has to keep sessions from production. A new reference,
 * or NULL without memory. */
json_t *production_describe(const struct api_config *config);

/* The value of an endpoint as a program inside gets it: where it names a loopback service of this
 * host, under EGRESS_HOST_NAME. NULL: as it is. The caller frees it; -ENOMEM. */
MUST_USE int policy_injected(const struct network_config *network, size_t endpoint,
			     const char *value, char **ret_value);
