#include "supervisor/egress/policy.h"

#include <errno.h>
#include <string.h>

#include "base/egress_rule.h"
#include "base/host_name.h"

int policy_new(uint32_t generation, const struct egress_policy *limits, struct policy **ret_policy)
{
	AUTO(policy_free) struct policy *policy = calloc(1, sizeof(*policy));

	if (!policy)
		return -ENOMEM;
	if (limits->n_rules > EGRESS_RULES_MAX)
		return -EINVAL;
	policy->generation = generation;
	policy->limits = *limits;
	if (limits->n_rules > 0) {
		policy->rules = calloc(limits->n_rules, sizeof(*policy->rules));
		policy->counters = calloc(limits->n_rules, sizeof(*policy->counters));
		if (!policy->rules || !policy->counters)
			return -ENOMEM;
	}
	*ret_policy = TAKE_PTR(policy);
	return 0;
}

struct policy *policy_free(struct policy *policy)
{
	if (!policy)
		return NULL;
	free(policy->rules);
	free(policy->counters);
	free(policy->paths);
	free(policy);
	return NULL;
}

void policy_add_rule(struct policy *policy, const struct egress_rule *rule)
{
	if (policy->error < 0)
		return;
	if (policy->n_rules >= policy->limits.n_rules || rule->index != policy->n_rules ||
	    !egress_rule_valid(rule)) {
		policy->error = -EINVAL;
		return;
	}
	policy->rules[policy->n_rules++] = *rule;
}

/* As http_head.h gives one: absolute, and nothing that has two readings. */
static bool path_valid(const struct egress_path *path)
{
	size_t length = strnlen(path->prefix, sizeof(path->prefix));
	char name[HOST_NAME_BYTES];
	struct egress_address address;
	size_t host = strnlen(path->host, sizeof(path->host));

	if (length == sizeof(path->prefix) || path->prefix[0] != '/' ||
	    host == sizeof(path->host) || strstr(path->prefix, "/../") ||
	    strstr(path->prefix, "/./") || strstr(path->prefix, "//") ||
	    strpbrk(path->prefix, "%\\;?#"))
		return false;
	return host == 0 || egress_address_parse(path->host, host, &address) == 0 ||
	       (host_name_canonical(path->host, host, name) == 0 && strcmp(name, path->host) == 0);
}

void policy_add_path(struct policy *policy, const struct egress_path *path)
{
	struct egress_path *paths;
	uint32_t n_of_rule = 0;

	if (policy->error < 0)
		return;
	for (uint32_t i = 0; i < policy->n_paths; i++)
		n_of_rule += policy->paths[i].rule == path->rule;
	policy->error = -EINVAL;
	if (path->rule >= policy->n_rules || n_of_rule == EGRESS_PATHS_MAX || !path_valid(path))
		return;
	paths = reallocarray(policy->paths, policy->n_paths + 1, sizeof(*paths));
	if (!paths) {
		policy->error = -ENOMEM;
		return;
	}
	policy->paths = paths;
	policy->paths[policy->n_paths++] = *path;
	policy->error = 0;
}

int policy_end(struct policy *policy)
{
	uint32_t n_paths = 0;

	for (uint32_t i = 0; i < policy->n_rules; i++)
		n_paths += policy->rules[i].n_paths;
	if (policy->error == 0 &&
	    (policy->n_rules != policy->limits.n_rules || n_paths != policy->n_paths))
		policy->error = -EINVAL;
	return policy->error;
}

uint32_t policy_match(const struct policy *policy, const char *name,
		      const struct egress_address *address, uint32_t port, uint32_t *ret_reason)
{
	return egress_rule_match(policy ? policy->rules : NULL, policy ? policy->n_rules : 0, name,
				 address, port, ret_reason);
}

static bool is_at_or_below(const char *path, const char *prefix)
{
	size_t length = strlen(prefix);

	if (strncmp(path, prefix, length) != 0)
		return false;
	return path[length] == '\0' || path[length] == '/' || prefix[length - 1] == '/';
}

bool policy_permits_path(const struct policy *policy, uint32_t rule, const char *rule_name,
			 const char *host, const char *path)
{
	if (host[0] == '\0' || path[0] == '\0')
		return false;
	for (uint32_t i = 0; i < policy->n_paths; i++) {
		const struct egress_path *row = &policy->paths[i];

		if (row->rule == rule && strcmp(row->host[0] ? row->host : rule_name, host) == 0 &&
		    is_at_or_below(path, row->prefix))
			return true;
	}
	return false;
}

bool policy_same_terms(const struct policy *old, uint32_t old_rule, const struct policy *policy,
		       uint32_t rule)
{
	const struct egress_rule *a, *b;

	if (!old || old_rule >= old->n_rules || rule >= policy->n_rules)
		return false;
	a = &old->rules[old_rule];
	b = &policy->rules[rule];
	return a->flags == b->flags && a->reroute_service == b->reroute_service &&
	       a->reroute_port == b->reroute_port &&
	       strcmp(a->reroute_name, b->reroute_name) == 0 &&
	       memcmp(&a->reroute, &b->reroute, sizeof(a->reroute)) == 0;
}
