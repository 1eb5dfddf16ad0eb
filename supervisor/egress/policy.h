/*
 * What one session may reach: taken rule by rule as it arrives, used as a whole (egress.h). Pure.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/auto.h"

#include "sandboxd/egress.h"

struct policy_counters {
	uint64_t connections;
	uint64_t denials;
	uint64_t bytes_out;
	uint64_t bytes_in;
	uint64_t dns_answers;
	uint32_t open;
};

struct policy {
	uint32_t generation;
	uint32_t n_rules; /* so far */
	uint32_t n_paths;
	int error; /* negative errno of the first thing wrong; the rest is then only counted */
	struct egress_policy limits;
	struct egress_rule *rules;        /* owned; limits.n_rules of them */
	struct policy_counters *counters; /* owned; one for each */
	struct egress_path *paths;        /* owned */
};

/* -EINVAL: too many rules. */
MUST_USE int policy_new(uint32_t generation, const struct egress_policy *limits,
			struct policy **ret_policy);
struct policy *policy_free(struct policy *policy); /* accepts NULL, returns NULL */
DEFINE_AUTO(struct policy *, policy_free);
/* Both remember what is wrong for policy_end. */
void policy_add_rule(struct policy *policy, const struct egress_rule *rule);
void policy_add_path(struct policy *policy, const struct egress_path *path);
/* 0: complete and valid; or the first -errno. */
MUST_USE int policy_end(struct policy *policy);

/* The rule for what is dialled or asked for; policy may be NULL: nothing. As egress_rule_match. */
uint32_t policy_match(const struct policy *policy, const char *name,
		      const struct egress_address *address, uint32_t port, uint32_t *ret_reason);
/* The path rule of HTTP: host canonical ("": none), path with one reading ("": none). rule_name:
 * what stands for an empty host in the rule's list. */
bool policy_permits_path(const struct policy *policy, uint32_t rule, const char *rule_name,
			 const char *host, const char *path);
/* Whether a connection made by `rule` of `old` goes on unchanged by `rule` of `policy`. */
bool policy_same_terms(const struct policy *old, uint32_t old_rule, const struct policy *policy,
		       uint32_t rule);
