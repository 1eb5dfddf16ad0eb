/*
 * What kind of address: the ranges that no name may lead a session to (D7). One table for the
 * egress worker's check and for the kernel's second line.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "sandboxd/egress.h"

enum net_class {
	NET_CLASS_PUBLIC,
	NET_CLASS_LOOPBACK, /* and "this host": 0.0.0.0/8, :: */
	NET_CLASS_PRIVATE,  /* RFC 1918, shared (CGNAT), unique local: a rule may opt in */
	NET_CLASS_LINK_LOCAL,
	NET_CLASS_METADATA, /* of the clouds, wherever they put it */
	NET_CLASS_RESERVED, /* multicast, broadcast, documentation, benchmark, the forms that hold
			       an IPv4 address, and what nobody has assigned */
	NET_CLASS_MAX_,
};

struct net_class_row {
	struct egress_address network; /* bits behind the prefix are 0 */
	enum net_class net_class;
};

/* The longest prefix that fits decides. A family other than the two is RESERVED; for IPv6 what no
 * row names is RESERVED too. */
enum net_class net_class_of(const struct egress_address *address);
/* All rows, for a map of prefixes; *ret_n of them. IPv6 begins with ::/0, RESERVED. */
const struct net_class_row *net_class_table(size_t *ret_n);
/* EGRESS_REASON_X of a class that is refused; 0 for PUBLIC. */
uint32_t net_class_reason(enum net_class net_class);

/* bits: `network`'s first `prefix` ones. */
int net_address_within(const struct egress_address *address, const struct egress_address *network);
