/*
 * Rules of where a session may connect to: their text, and which one fits.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/auto.h"

#include "sandboxd/egress.h"

/*
 * "host", "host:443", "host:80,8000-8100", "*.suffix:9092", "192.0.2.7:53", "10.0.0.0/8:5432",
 * "[2001:db8::1]:443", "[2001:db8::]/32". Without a port: 80 and 443. Names become canonical;
 * addresses are taken in their one usual form only, and a network has no bits behind its prefix.
 * Fills kind, name or network, and the ports of *ret_rule; the rest is 0. 0 or -EINVAL, and then
 * *ret_rule is untouched: a text that is not understood allows nothing.
 */
MUST_USE int egress_rule_parse(const char *text, size_t length, struct egress_rule *ret_rule);

/* "192.0.2.7" or "2001:db8::1" in their usual form (inet_ntop's), without brackets. prefix becomes
 * that of one address. 0 or -EINVAL. */
MUST_USE int egress_address_parse(const char *text, size_t length, struct egress_address *ret);

/* One that came from another process: kinds, counts and ranges, canonical name, known flags. */
bool egress_rule_valid(const struct egress_rule *rule);

/* It leads to another place than was dialled. */
static inline bool egress_rule_reroutes(const struct egress_rule *rule)
{
	return rule->reroute_name[0] != '\0' || rule->reroute.family != 0 ||
	       rule->reroute_service != 0;
}

/*
 * The rule for what was dialled: a canonical name, or (name "") an address. Rules of production
 * come first, then the first that fits; name rules never fit an address and the other way round.
 * EGRESS_NO_RULE: none, and *ret_reason says EGRESS_REASON_RULE, or _PORT where only the port is
 * missing. port 0: any, for a question about the name alone.
 */
uint32_t egress_rule_match(const struct egress_rule *rules, size_t n, const char *name,
			   const struct egress_address *address, uint32_t port,
			   uint32_t *ret_reason);

/* The production rule that names this address; EGRESS_NO_RULE: none. For what a name led to. */
uint32_t egress_rule_production(const struct egress_rule *rules, size_t n,
				const struct egress_address *address, uint32_t port);
