/*
 * What decides, in an egress worker that always says yes: the linker puts these in the place of the
 * real ones. What a session of it still cannot reach is what the kernel's second line refuses.
 */
#include <string.h>
#include <sys/socket.h>

#include "base/egress_rule.h"
#include "base/net_class.h"

uint32_t __wrap_egress_rule_match(const struct egress_rule *rules, size_t n, const char *name,
				  const struct egress_address *address, uint32_t port,
				  uint32_t *ret_reason);
uint32_t __wrap_egress_rule_production(const struct egress_rule *rules, size_t n,
				       const struct egress_address *address, uint32_t port);
enum net_class __wrap_net_class_of(const struct egress_address *address);
enum net_class __real_net_class_of(const struct egress_address *address);

/* A connection has a rule: the first one that neither refuses nor leads elsewhere. */
uint32_t __wrap_egress_rule_match(const struct egress_rule *rules, size_t n, const char *name,
				  const struct egress_address *address, uint32_t port,
				  uint32_t *ret_reason)
{
	(void)name;
	(void)address;
	(void)port;
	*ret_reason = EGRESS_REASON_RULE;
	for (size_t i = 0; i < n; i++)
		if (!(rules[i].flags & EGRESS_PRODUCTION) && !rules[i].reroute_name[0] &&
		    !rules[i].reroute.family)
			return (uint32_t)i;
	return EGRESS_NO_RULE;
}

uint32_t __wrap_egress_rule_production(const struct egress_rule *rules, size_t n,
				       const struct egress_address *address, uint32_t port)
{
	(void)rules;
	(void)n;
	(void)address;
	(void)port;
	return EGRESS_NO_RULE;
}

/* The session's resolver stays what it is: the relay knows it by its class. */
enum net_class __wrap_net_class_of(const struct egress_address *address)
{
	static const uint8_t resolver[] = {127, 0, 0, 53};

	if (address->family == AF_INET && memcmp(address->bytes, resolver, sizeof(resolver)) == 0)
		return __real_net_class_of(address);
	return NET_CLASS_PUBLIC;
}
