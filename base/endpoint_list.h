/*
 * What the configuration says about endpoints, entry by entry: lists between spaces of rules,
 * buckets and paths, and whether two of them can mean the same place.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/auto.h"
#include "base/endpoint_value.h"

#include "sandboxd/egress.h"

/* The entry at *at, which moves behind it. False: there is none. */
bool endpoint_list_next(const char **at, const char **ret_entry, size_t *ret_length);

/* As egress_rule_parse, but a host without a port is meant with all its ports: production is
 * refused as a whole. 0 or -EINVAL. */
MUST_USE int endpoint_production_parse(const char *text, size_t length,
				       struct egress_rule *ret_rule);
/* Does the rule fit a host in such a list too? What is no rule fits none. */
bool endpoint_production_has(const char *list, const struct egress_rule *rule);
/* host/path: on that host, that path and what is below it. The path has one reading: no empty or
 * dot segment, no escape. Fills host and prefix; the rest is 0. 0 or -EINVAL. */
MUST_USE int endpoint_path_parse(const char *text, size_t length, struct egress_path *ret_path);
/* bucket[/prefix] as s3:// takes it; the prefix is at value->prefix_at of `text`. 0 or -EINVAL. */
MUST_USE int endpoint_bucket_parse(const char *text, size_t length, struct endpoint_value *value);
/* One of the two is, or lies in, the other. Both texts are of an s3:// value that was taken. */
bool endpoint_buckets_overlap(const struct endpoint_value *a, const char *a_prefix,
			      const struct endpoint_value *b, const char *b_prefix);

/* NAME=URL: a variable that commands get, and what it makes them dial, which is not this host. 0 or
 * -EINVAL. */
struct gateway {
	char name[65];
	struct endpoint_target target;
};
MUST_USE int gateway_parse(const char *text, size_t length, struct gateway *ret_gateway);

/* The rule for what an endpoint dials. */
MUST_USE int endpoint_target_rule(const struct endpoint_target *target,
				  struct egress_rule *ret_rule);
/* Some name or address, at some port, fits both. */
bool egress_rules_overlap(const struct egress_rule *a, const struct egress_rule *b);
