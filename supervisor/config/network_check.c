#include "supervisor/config/network_check.h"

#include <string.h>

#include "base/egress_rule.h"
#include "base/endpoint_list.h"
#include "base/str.h"

#include "sandboxd/config.h"

static const char *const endpoint_names[ENDPOINTS_N] = CONFIG_ENDPOINT_NAMES;

struct check {
	struct config_answer *answer;
	network_complain *complain;
	void *userdata;
};

static void complain(const struct check *check, size_t endpoint, const char *text)
{
	char section[64];

	IGNORE_RESULT(
		str_format(section, sizeof(section), "endpoint:%s", endpoint_names[endpoint]));
	check->complain(check->userdata, section, text);
}

static enum endpoint_form form_of(size_t endpoint)
{
	static const enum endpoint_form forms[ENDPOINTS_N] = CONFIG_ENDPOINT_FORMS;

	return forms[endpoint];
}

/* Somebody's rule: no production host fits it, or its owner has an answer for that. */
static void check_rule(const struct check *check, const struct egress_rule *rule)
{
	for (size_t i = 0; i < ENDPOINTS_N; i++) {
		const struct endpoint_config *endpoint = &check->answer->api.endpoint[i];

		if (endpoint->shared_host == CONFIG_SHARED_REFUSE &&
		    endpoint_production_has(endpoint->production, rule))
			complain(check, i,
				 "a production host is also a companion or a default of an "
				 "endpoint: say shared_host = path or trust_credentials, or use "
				 "another host");
	}
}

static void check_companions(const struct check *check, size_t index)
{
	const char *at = check->answer->api.endpoint[index].companions;
	const char *entry;
	size_t length;

	while (endpoint_list_next(&at, &entry, &length)) {
		struct egress_rule rule;

		if (egress_rule_parse(entry, length, &rule) == 0)
			check_rule(check, &rule);
	}
}

static void check_bucket(const struct check *check, size_t index, const char *value,
			 const struct endpoint_value *read)
{
	for (size_t i = 0; i < ENDPOINTS_N; i++) {
		const char *at = check->answer->api.endpoint[i].production_buckets;
		const char *entry;
		size_t length;

		while (read->bucket[0] && endpoint_list_next(&at, &entry, &length)) {
			struct endpoint_value production;

			if (endpoint_bucket_parse(entry, length, &production) == 0 &&
			    endpoint_buckets_overlap(read, value + read->prefix_at, &production,
						     entry + production.prefix_at))
				complain(check, index,
					 "its default in [endpoints] is production's bucket");
		}
	}
}

static void check_default(const struct check *check, size_t index)
{
	const struct api_config *api = &check->answer->api;
	const char *value = api->endpoint_default[index];
	struct endpoint_value read;
	const char *problem;
	char text[160];

	if (!(api->endpoint_default_set & 1u << index))
		return;
	problem = endpoint_value_read(form_of(index), value, strlen(value), &read);
	if (problem) {
		IGNORE_RESULT(
			str_format(text, sizeof(text), "%s: %s", endpoint_names[index], problem));
		check->complain(check->userdata, "endpoints", text);
		return;
	}
	check_bucket(check, index, value, &read);
	for (size_t i = 0; i < read.n_targets; i++) {
		struct egress_rule rule;

		if (endpoint_target_rule(&read.target[i], &rule) == 0)
			check_rule(check, &rule);
	}
}

/* The addresses of production are for the kernel, which knows no names. */
static void gather_production(const struct check *check, size_t index)
{
	struct network_config *network = &check->answer->api.network;
	const struct endpoint_config *endpoint = &check->answer->api.endpoint[index];
	const char *at = endpoint->production;
	const char *entry;
	size_t length;

	/* What sandboxes share stays reachable; what is sent there is judged elsewhere. */
	while (endpoint->shared_host == CONFIG_SHARED_REFUSE &&
	       endpoint_list_next(&at, &entry, &length)) {
		struct egress_rule rule;

		if (endpoint_production_parse(entry, length, &rule) < 0 ||
		    rule.kind != EGRESS_RULE_NETWORK)
			continue;
		for (uint32_t i = 0; i < rule.n_ports; i++) {
			if (network->n_production == CONFIG_PRODUCTION_MAX) {
				complain(check, index,
					 "there are more than 64 production addresses");
				return;
			}
			network->production[network->n_production++] = (struct config_production){
				.network = rule.network, .port = rule.port[i]};
		}
	}
}

static size_t count(const char *list)
{
	const char *entry;
	size_t length;
	size_t n = 0;

	while (endpoint_list_next(&list, &entry, &length))
		n++;
	return n;
}

static void complain_over(const struct check *check, size_t n, size_t max, const char *what)
{
	char text[96];

	if (n <= max)
		return;
	IGNORE_RESULT(
		str_format(text, sizeof(text), "%s have %zu entries too many", what, n - max));
	check->complain(check->userdata, "network", text);
}

/* A session whose rules are too many for its egress worker would have none: it is never made. */
static void check_sums(const struct check *check)
{
	const struct api_config *api = &check->answer->api;
	size_t n_component = count(api->component_allow);
	size_t n_agent = count(api->agent_allow) + count(api->agent_gateways);
	size_t n_rules = EGRESS_CALLER_RULES_MAX + (n_agent > n_component ? n_agent : n_component);
	size_t n_paths = 0;

	for (size_t i = 0; i < ENDPOINTS_N; i++) {
		n_rules += form_of(i) == ENDPOINT_FORM_BROKERS ? ENDPOINT_TARGETS_MAX : 1;
		n_rules += count(api->endpoint[i].production) + count(api->endpoint[i].companions);
		n_paths += count(api->endpoint[i].shared_paths);
	}
	n_rules += api->redis.port != 0;
	complain_over(check, n_rules, EGRESS_RULES_MAX,
		      "production, companions and the longer allow");
	complain_over(check, n_paths, EGRESS_PATHS_MAX, "shared_paths");
}

void network_check(struct config_answer *answer, network_complain *complain_to, void *userdata)
{
	const struct check check = {answer, complain_to, userdata};

	for (size_t i = 0; i < ENDPOINTS_N; i++) {
		const struct endpoint_config *endpoint = &answer->api.endpoint[i];

		check_default(&check, i);
		check_companions(&check, i);
		gather_production(&check, i);
		if (endpoint->shared_host == CONFIG_SHARED_PATH && !endpoint->shared_paths[0])
			complain(&check, i, "shared_host = path needs shared_paths");
		if (endpoint->shared_host != CONFIG_SHARED_PATH && endpoint->shared_paths[0])
			complain(&check, i, "shared_paths needs shared_host = path");
	}
	check_sums(&check);
	answer->supervisor.network = answer->api.network;
	answer->egress.network = answer->api.network;
}
