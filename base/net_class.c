#include "base/net_class.h"

#include <string.h>
#include <sys/socket.h>

#include "base/auto.h"

#define ROW(family_, bits, class_)                                                                 \
	.network.family = (family_), .network.prefix = (bits), .net_class = NET_CLASS_##class_
#define GROUP(group) (group) >> 8, (group)&0xff
#define V4(a, b, c, d, bits, class_)                                                               \
	{                                                                                          \
		.network.bytes = {a, b, c, d}, ROW(AF_INET, bits, class_)                          \
	}
/* The first four groups of an IPv6 address; or its first two and the last. */
#define V6(a, b, c, d, bits, class_)                                                               \
	{                                                                                          \
		.network.bytes = {GROUP(a), GROUP(b), GROUP(c), GROUP(d)},                         \
		ROW(AF_INET6, bits, class_)                                                        \
	}
#define V6_HOST(a, b, last, class_)                                                                \
	{                                                                                          \
		.network.bytes = {GROUP(a), GROUP(b), [14] = GROUP(last)},                         \
		ROW(AF_INET6, 128, class_)                                                         \
	}

/* IANA's special-purpose registries (RFC 6890 and its updates), and where clouds keep secrets. */
static const struct net_class_row rows[] = {
	V4(0, 0, 0, 0, 8, LOOPBACK), /* "this host": Linux connects to itself */
	V4(10, 0, 0, 0, 8, PRIVATE),
	V4(100, 64, 0, 0, 10, PRIVATE),       /* RFC 6598 */
	V4(100, 100, 100, 200, 32, METADATA), /* Alibaba */
	V4(127, 0, 0, 0, 8, LOOPBACK),
	V4(168, 63, 129, 16, 32, METADATA), /* Azure's wire server */
	V4(169, 254, 0, 0, 16, LINK_LOCAL),
	V4(169, 254, 169, 254, 32, METADATA),
	V4(169, 254, 170, 2, 32, METADATA),  /* ECS */
	V4(169, 254, 170, 23, 32, METADATA), /* EKS */
	V4(172, 16, 0, 0, 12, PRIVATE),
	V4(192, 0, 0, 0, 24, RESERVED),
	V4(192, 0, 0, 192, 32, METADATA), /* Oracle */
	V4(192, 0, 2, 0, 24, RESERVED),   /* documentation */
	V4(192, 88, 99, 0, 24, RESERVED), /* 6to4 relays */
	V4(192, 168, 0, 0, 16, PRIVATE),
	V4(198, 18, 0, 0, 15, RESERVED),   /* benchmark; our synthetic addresses */
	V4(198, 51, 100, 0, 24, RESERVED), /* documentation */
	V4(203, 0, 113, 0, 24, RESERVED),  /* documentation */
	V4(224, 0, 0, 0, 4, RESERVED),     /* multicast */
	V4(240, 0, 0, 0, 4, RESERVED),     /* and 255.255.255.255 */
	/* Whole IPv6: mapped and compatible forms, NAT64 (64:ff9b::/96, 64:ff9b:1::/48), multicast,
	 * site-local, segment routing and what is unassigned lie outside 2000::/3. */
	V6(0, 0, 0, 0, 0, RESERVED),
	V6_HOST(0, 0, 0, LOOPBACK), /* :: connects to itself */
	V6_HOST(0, 0, 1, LOOPBACK),
	V6(0x2000, 0, 0, 0, 3, PUBLIC),
	V6(0x2001, 0, 0, 0, 23, RESERVED),     /* Teredo, benchmark, ORCHID, ... */
	V6(0x2001, 0xdb8, 0, 0, 32, RESERVED), /* documentation */
	V6(0x2002, 0, 0, 0, 16, RESERVED),     /* 6to4: holds an IPv4 address */
	V6(0x3fff, 0, 0, 0, 20, RESERVED),     /* documentation */
	V6(0xfc00, 0, 0, 0, 7, PRIVATE),
	V6(0xfd00, 0xec2, 0, 0, 32, METADATA),  /* AWS: fd00:ec2::254, ::23, ::123 */
	V6_HOST(0xfd00, 0x42, 0x42, METADATA),  /* Scaleway */
	V6_HOST(0xfd20, 0xce, 0x254, METADATA), /* Google */
	V6(0xfe80, 0, 0, 0, 10, LINK_LOCAL),
};

const struct net_class_row *net_class_table(size_t *ret_n)
{
	*ret_n = ARRAY_SIZE(rows);
	return rows;
}

int net_address_within(const struct egress_address *address, const struct egress_address *network)
{
	size_t whole = network->prefix / 8;
	unsigned int rest = network->prefix % 8;
	unsigned int mask = 0xff00u >> rest & 0xffu;

	if (address->family != network->family ||
	    memcmp(address->bytes, network->bytes, whole) != 0)
		return 0;
	return rest == 0 || ((address->bytes[whole] ^ network->bytes[whole]) & mask) == 0;
}

enum net_class net_class_of(const struct egress_address *address)
{
	enum net_class found = NET_CLASS_RESERVED;
	int longest = -1;

	if (address->family == AF_INET)
		found = NET_CLASS_PUBLIC;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		if ((int)rows[i].network.prefix <= longest ||
		    !net_address_within(address, &rows[i].network))
			continue;
		longest = (int)rows[i].network.prefix;
		found = rows[i].net_class;
	}
	return found;
}

uint32_t net_class_reason(enum net_class net_class)
{
	static const uint32_t reasons[NET_CLASS_MAX_] = {
		[NET_CLASS_PUBLIC] = 0,
		[NET_CLASS_LOOPBACK] = EGRESS_REASON_LOOPBACK,
		[NET_CLASS_PRIVATE] = EGRESS_REASON_PRIVATE,
		[NET_CLASS_LINK_LOCAL] = EGRESS_REASON_LINK_LOCAL,
		[NET_CLASS_METADATA] = EGRESS_REASON_METADATA,
		[NET_CLASS_RESERVED] = EGRESS_REASON_RESERVED,
	};

	return net_class < NET_CLASS_MAX_ ? reasons[net_class] : EGRESS_REASON_RESERVED;
}
