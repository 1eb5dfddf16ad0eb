#include "base/egress_rule.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

#include "base/host_name.h"
#include "base/net_class.h"
#include "base/num.h"
#include "base/str.h"

_Static_assert(HOST_NAME_BYTES == EGRESS_NAME_BYTES, "one bound of names");

#define PORTS_TEXT_BYTES 96
#define NUMBER_BYTES     8

int egress_address_parse(const char *text, size_t length, struct egress_address *ret)
{
	struct egress_address address = {0};
	char copy[INET6_ADDRSTRLEN];
	char again[INET6_ADDRSTRLEN];

	if (memchr(text, '\0', length) || str_copy_n(copy, sizeof(copy), text, length) < 0)
		return -EINVAL;
	address.family = strchr(copy, ':') ? AF_INET6 : AF_INET;
	address.prefix = address.family == AF_INET ? 32 : 128;
	if (inet_pton((int)address.family, copy, address.bytes) != 1)
		return -EINVAL;
	/* inet_pton takes many spellings of one IPv6 address: only the usual one is an address. */
	if (!inet_ntop((int)address.family, address.bytes, again, sizeof(again)) ||
	    strcmp(copy, again) != 0)
		return -EINVAL;
	*ret = address;
	return 0;
}

static int parse_number(const char *text, size_t length, uint32_t min, uint32_t max,
			uint32_t *ret_value)
{
	char copy[NUMBER_BYTES];

	if (str_copy_n(copy, sizeof(copy), text, length) < 0 || strlen(copy) != length)
		return -EINVAL;
	return num_parse_u32(copy, min, max, ret_value) < 0 ? -EINVAL : 0;
}

/* "443" or "8000-8100". */
static int parse_range(const char *text, size_t length, struct egress_port_range *ret)
{
	const char *dash = memchr(text, '-', length);
	size_t head = dash ? (size_t)(dash - text) : length;
	uint32_t first, last;
	int r;

	r = parse_number(text, head, 1, UINT16_MAX, &first);
	if (r < 0)
		return r;
	last = first;
	if (dash)
		r = parse_number(dash + 1, length - head - 1, first, UINT16_MAX, &last);
	if (r < 0)
		return r;
	*ret = (struct egress_port_range){(uint16_t)first, (uint16_t)last};
	return 0;
}

static int parse_ports(const char *text, size_t length, struct egress_rule *rule)
{
	const char *end = text + length;

	if (length > PORTS_TEXT_BYTES)
		return -EINVAL;
	for (const char *at = text;; at++) {
		const char *comma = memchr(at, ',', (size_t)(end - at));
		const char *stop = comma ? comma : end;
		int r;

		if (rule->n_ports == EGRESS_PORTS_MAX)
			return -EINVAL;
		r = parse_range(at, (size_t)(stop - at), &rule->port[rule->n_ports]);
		if (r < 0)
			return r;
		rule->n_ports++;
		if (!comma)
			return 0;
		at = comma;
	}
}

static bool has_bits_behind_prefix(const struct egress_address *network)
{
	for (uint32_t bit = network->prefix; bit < (network->family == AF_INET ? 32u : 128u); bit++)
		if (network->bytes[bit / 8] & 0x80u >> bit % 8)
			return true;
	return false;
}

/* "/8" or nothing behind an address; *ret_used: how much of it. */
static int parse_prefix(const char *text, size_t length, struct egress_address *network,
			size_t *ret_used)
{
	size_t digits = 0;
	uint32_t prefix;
	int r;

	*ret_used = 0;
	if (length == 0 || text[0] != '/')
		return 0;
	while (digits + 1 < length && text[digits + 1] >= '0' && text[digits + 1] <= '9')
		digits++;
	/* A prefix of 0 is every address: not a network that anybody means. */
	r = parse_number(text + 1, digits, 1, network->prefix, &prefix);
	if (r < 0)
		return r;
	network->prefix = prefix;
	*ret_used = digits + 1;
	return has_bits_behind_prefix(network) ? -EINVAL : 0;
}

/* An address, bracketed where it is IPv6, with its prefix. -EINVAL: none. */
static int parse_network(const char *text, size_t length, struct egress_rule *rule,
			 size_t *ret_used)
{
	bool bracketed = length > 0 && text[0] == '[';
	size_t begin = bracketed ? 1 : 0;
	size_t size = 0;
	size_t used;
	int r;

	while (begin + size < length && !strchr(bracketed ? "]" : ":/", text[begin + size]))
		size++;
	r = egress_address_parse(text + begin, size, &rule->network);
	if (r < 0)
		return r;
	if (bracketed != (rule->network.family == AF_INET6) ||
	    (bracketed && begin + size == length))
		return -EINVAL;
	*ret_used = begin + size + (bracketed ? 1 : 0);
	r = parse_prefix(text + *ret_used, length - *ret_used, &rule->network, &used);
	if (r < 0)
		return r;
	*ret_used += used;
	rule->kind = EGRESS_RULE_NETWORK;
	return 0;
}

static int parse_name(const char *text, size_t length, struct egress_rule *rule, size_t *ret_used)
{
	const char *colon = memchr(text, ':', length);
	size_t size = colon ? (size_t)(colon - text) : length;
	bool is_suffix = size > 2 && memcmp(text, "*.", 2) == 0;
	size_t skip = is_suffix ? 2 : 0;
	int r;

	r = host_name_canonical(text + skip, size - skip, rule->name);
	if (r < 0)
		return r;
	/* "*.com" is no list of names. */
	if (is_suffix && !strchr(rule->name, '.'))
		return -EINVAL;
	rule->kind = is_suffix ? EGRESS_RULE_SUFFIX : EGRESS_RULE_NAME;
	*ret_used = size;
	return 0;
}

int egress_rule_parse(const char *text, size_t length, struct egress_rule *ret_rule)
{
	struct egress_rule rule = {0};
	size_t used = 0;
	int r;

	r = parse_network(text, length, &rule, &used);
	if (r < 0) {
		rule.network = (struct egress_address){0};
		r = parse_name(text, length, &rule, &used);
	}
	if (r < 0)
		return r;
	if (used == length) {
		rule.port[0] = (struct egress_port_range){80, 80};
		rule.port[1] = (struct egress_port_range){443, 443};
		rule.n_ports = 2;
	} else if (text[used] != ':') {
		return -EINVAL;
	} else {
		r = parse_ports(text + used + 1, length - used - 1, &rule);
		if (r < 0)
			return r;
	}
	*ret_rule = rule;
	return 0;
}

static bool is_canonical(const char *name, size_t bytes)
{
	char again[HOST_NAME_BYTES];
	size_t length = strnlen(name, bytes);

	return length < bytes && host_name_canonical(name, length, again) == 0 &&
	       strcmp(name, again) == 0;
}

static bool network_valid(const struct egress_address *network)
{
	if (network->family != AF_INET && network->family != AF_INET6)
		return false;
	return network->prefix <= (network->family == AF_INET ? 32u : 128u) &&
	       !has_bits_behind_prefix(network);
}

static bool reroute_valid(const struct egress_rule *rule)
{
	if (rule->reroute_port > UINT16_MAX)
		return false;
	if (rule->reroute_service != 0 &&
	    (rule->reroute_name[0] != '\0' || rule->reroute.family != 0))
		return false;
	if (rule->reroute_name[0] != '\0' &&
	    !is_canonical(rule->reroute_name, sizeof(rule->reroute_name)))
		return false;
	return rule->reroute.family == 0 || network_valid(&rule->reroute);
}

bool egress_rule_valid(const struct egress_rule *rule)
{
	if (rule->n_ports == 0 || rule->n_ports > EGRESS_PORTS_MAX ||
	    rule->n_paths > EGRESS_PATHS_MAX ||
	    (rule->flags & ~(uint32_t)EGRESS_RULE_FLAGS_ALL_) != 0 ||
	    strnlen(rule->label, sizeof(rule->label)) == sizeof(rule->label))
		return false;
	for (uint32_t i = 0; i < rule->n_ports; i++)
		if (rule->port[i].first == 0 || rule->port[i].first > rule->port[i].last)
			return false;
	if (!reroute_valid(rule))
		return false;
	if (rule->kind == EGRESS_RULE_NETWORK)
		return network_valid(&rule->network);
	return (rule->kind == EGRESS_RULE_NAME || rule->kind == EGRESS_RULE_SUFFIX) &&
	       is_canonical(rule->name, sizeof(rule->name));
}

static bool is_below(const char *name, const char *suffix)
{
	size_t length = strlen(name);
	size_t tail = strlen(suffix);

	return length > tail + 1 && name[length - tail - 1] == '.' &&
	       strcmp(name + length - tail, suffix) == 0;
}

static bool fits_target(const struct egress_rule *rule, const char *name,
			const struct egress_address *address)
{
	switch (rule->kind) {
	case EGRESS_RULE_NAME:
		return name[0] != '\0' && strcmp(rule->name, name) == 0;
	case EGRESS_RULE_SUFFIX:
		return name[0] != '\0' && is_below(name, rule->name);
	case EGRESS_RULE_NETWORK:
		return name[0] == '\0' && net_address_within(address, &rule->network) != 0;
	default: /* came from outside and was refused by egress_rule_valid */
		return false;
	}
}

static bool fits_port(const struct egress_rule *rule, uint32_t port)
{
	if (port == 0)
		return true;
	for (uint32_t i = 0; i < rule->n_ports; i++)
		if (port >= rule->port[i].first && port <= rule->port[i].last)
			return true;
	return false;
}

uint32_t egress_rule_match(const struct egress_rule *rules, size_t n, const char *name,
			   const struct egress_address *address, uint32_t port,
			   uint32_t *ret_reason)
{
	uint32_t reason = EGRESS_REASON_RULE;
	uint32_t found = EGRESS_NO_RULE;

	for (size_t i = 0; i < n; i++) {
		bool is_production = rules[i].flags & EGRESS_PRODUCTION;

		if ((found != EGRESS_NO_RULE && !is_production) ||
		    !fits_target(&rules[i], name, address))
			continue;
		if (!fits_port(&rules[i], port)) {
			reason = EGRESS_REASON_PORT;
			continue;
		}
		found = (uint32_t)i;
		if (is_production)
			break;
	}
	*ret_reason = reason;
	return found;
}

uint32_t egress_rule_production(const struct egress_rule *rules, size_t n,
				const struct egress_address *address, uint32_t port)
{
	for (size_t i = 0; i < n; i++)
		if (rules[i].flags & EGRESS_PRODUCTION && rules[i].kind == EGRESS_RULE_NETWORK &&
		    fits_target(&rules[i], "", address) && fits_port(&rules[i], port))
			return (uint32_t)i;
	return EGRESS_NO_RULE;
}
