/*
 * Theory. Three rules, the same for IPv4 and IPv6, decide where a packet of the session may go:
 *
 *   to loopback (127.0.0.0/8, ::1): there, any protocol
 *   TCP: the table in which every address is local, so that a connection to anywhere arrives in
 *        this very namespace, where sklookup.c hands it to the egress worker's listener
 *   the rest: prohibited, which the sending call says at once (EACCES); without this rule an
 *        unconnected UDP socket would send into the void and its program wait
 *
 * With IPv4 that table must be the kernel's own local one, which is where it looks whether a source
 * address may be used: else the resets of connections that nobody takes could not be sent, and
 * programs would wait here too. So its rule, which is the first and of all protocols, goes.
 *
 * There is no interface but lo: whatever is wrong with a rule, no packet has a way out.
 *
 * Raw netlink: this runs in the child, which allocates nothing.
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <linux/fib_rules.h>
#include <linux/rtnetlink.h>

#include "base/io.h"

#include "sandboxd/kernel.h"
#include "sandboxd/limits.h"
#include "supervisor/netns.h"

#define TABLE_ANY_LOCAL   100 /* IPv6 */
#define LOOPBACK_NET      0x7f000000u
#define LOOPBACK_PREFIX   8
#define PRIORITY_FIRST    0u
#define PRIORITY_LOOPBACK 50u
#define PRIORITY_TCP      100u
#define PRIORITY_THE_REST 200u
#define INDEX_LO          1 /* in every network namespace */
/* Of what TCP hands to lo at once, below what lo takes (GSO_MAX_SIZE): between a session and the
 * egress worker a stream costs the session's processors a third less than with 64 KiB. */
#define SEGMENTS_BYTES    393216u

/* Messages that are sent as one and acknowledged one by one. */
struct batch {
	_Alignas(NLMSG_ALIGNTO) char bytes[1024];
	size_t used;
	uint32_t n;
};

static uint8_t table_of(uint8_t family)
{
	return family == AF_INET ? RT_TABLE_LOCAL : TABLE_ANY_LOCAL;
}

static struct nlmsghdr *begin(struct batch *batch, uint16_t type, const void *body, size_t bytes)
{
	struct nlmsghdr *head = (void *)(batch->bytes + batch->used);
	bool makes = type != RTM_DELRULE && type != RTM_SETLINK;

	*head = (struct nlmsghdr){
		.nlmsg_len = (uint32_t)NLMSG_SPACE(bytes),
		.nlmsg_type = type,
		.nlmsg_flags = (uint16_t)(NLM_F_REQUEST | NLM_F_ACK |
					  (makes ? NLM_F_CREATE | NLM_F_EXCL : 0)),
		.nlmsg_seq = ++batch->n,
	};
	memcpy(NLMSG_DATA(head), body, bytes);
	batch->used += head->nlmsg_len;
	return head;
}

static void add(struct batch *batch, struct nlmsghdr *head, uint16_t type, const void *value,
		size_t bytes)
{
	struct rtattr *attribute = (void *)(batch->bytes + batch->used);
	size_t space = RTA_SPACE(bytes);

	attribute->rta_type = type;
	attribute->rta_len = (uint16_t)RTA_LENGTH(bytes);
	memcpy(RTA_DATA(attribute), value, bytes);
	head->nlmsg_len += (uint32_t)space;
	batch->used += space;
}

static void add_segments(struct batch *batch)
{
	const struct ifinfomsg body = {.ifi_family = AF_UNSPEC, .ifi_index = INDEX_LO};
	const uint32_t bytes = SEGMENTS_BYTES;
	struct nlmsghdr *head = begin(batch, RTM_SETLINK, &body, sizeof(body));

	add(batch, head, KERNEL_IFLA_GSO_IPV4_MAX_SIZE, &bytes, sizeof(bytes));
}

static void add_address(struct batch *batch)
{
	const struct ifaddrmsg body = {
		.ifa_family = AF_INET,
		.ifa_prefixlen = 32,
		.ifa_scope = RT_SCOPE_HOST,
		.ifa_index = INDEX_LO,
	};
	const uint32_t address = htonl(SESSION_ADDRESS);
	struct nlmsghdr *head = begin(batch, RTM_NEWADDR, &body, sizeof(body));

	add(batch, head, IFA_LOCAL, &address, sizeof(address));
}

static void add_any_local(struct batch *batch, uint8_t family)
{
	const struct rtmsg body = {
		.rtm_family = family,
		.rtm_table = table_of(family),
		.rtm_protocol = RTPROT_STATIC,
		.rtm_scope = RT_SCOPE_HOST,
		.rtm_type = RTN_LOCAL,
	};
	const uint32_t index = INDEX_LO;
	const uint32_t source = htonl(SESSION_ADDRESS);
	struct nlmsghdr *head = begin(batch, RTM_NEWROUTE, &body, sizeof(body));

	add(batch, head, RTA_OIF, &index, sizeof(index));
	/* Else the source is the destination, and a connection may meet itself. IPv6 takes ::1. */
	if (family == AF_INET)
		add(batch, head, RTA_PREFSRC, &source, sizeof(source));
}

/* IPv4: loopback is only a part of the local table now. With IPv6 the kernel's rule says the same.
 */
static void add_loopback_rules(struct batch *batch)
{
	const struct fib_rule_hdr old = {
		.family = AF_INET,
		.table = RT_TABLE_LOCAL,
		.action = FR_ACT_TO_TBL,
	};
	const struct fib_rule_hdr loopback = {
		.family = AF_INET,
		.dst_len = LOOPBACK_PREFIX,
		.table = RT_TABLE_LOCAL,
		.action = FR_ACT_TO_TBL,
	};
	const uint32_t net = htonl(LOOPBACK_NET);
	const uint32_t priorities[] = {PRIORITY_LOOPBACK, PRIORITY_FIRST};
	struct nlmsghdr *head = begin(batch, RTM_NEWRULE, &loopback, sizeof(loopback));

	add(batch, head, FRA_PRIORITY, &priorities[0], sizeof(priorities[0]));
	add(batch, head, FRA_DST, &net, sizeof(net));
	head = begin(batch, RTM_DELRULE, &old, sizeof(old));
	add(batch, head, FRA_PRIORITY, &priorities[1], sizeof(priorities[1]));
}

static void add_tcp_rule(struct batch *batch, uint8_t family)
{
	const struct fib_rule_hdr body = {
		.family = family,
		.table = table_of(family),
		.action = FR_ACT_TO_TBL,
	};
	const uint32_t priority = PRIORITY_TCP;
	const uint8_t protocol = IPPROTO_TCP;
	struct nlmsghdr *head = begin(batch, RTM_NEWRULE, &body, sizeof(body));

	add(batch, head, FRA_PRIORITY, &priority, sizeof(priority));
	add(batch, head, FRA_IP_PROTO, &protocol, sizeof(protocol));
}

static void add_last_rule(struct batch *batch, uint8_t family)
{
	const struct fib_rule_hdr body = {.family = family, .action = FR_ACT_PROHIBIT};
	const uint32_t priority = PRIORITY_THE_REST;
	struct nlmsghdr *head = begin(batch, RTM_NEWRULE, &body, sizeof(body));

	add(batch, head, FRA_PRIORITY, &priority, sizeof(priority));
}

/* 0 when all are acknowledged, or the first refusal. */
static int take_answers(int fd, uint32_t n)
{
	_Alignas(NLMSG_ALIGNTO) char answers[2048];

	while (n > 0) {
		ssize_t size = recv(fd, answers, sizeof(answers), 0);
		if (size < 0)
			return -errno;
		unsigned int left = (unsigned int)size;
		for (struct nlmsghdr *head = (void *)answers; NLMSG_OK(head, left);
		     head = NLMSG_NEXT(head, left)) {
			const struct nlmsgerr *answer = NLMSG_DATA(head);
			if (head->nlmsg_type != NLMSG_ERROR || n == 0)
				return -EPROTO;
			if (answer->error < 0)
				return answer->error;
			n--;
		}
	}
	return 0;
}

/* A host whose settings are inherited (net.core.devconf_inherit_init_net) may have it off. Written
 * only then: a write takes the lock of all network configuration. */
static int enable_ipv6(void)
{
	static const char file[] = "/proc/sys/net/ipv6/conf/lo/disable_ipv6";
	char value[8];

	ssize_t n = io_read_at(AT_FDCWD, file, value, sizeof(value));
	if (n < 0)
		return (int)n;
	return value[0] == '0' ? 0 : io_write_at(AT_FDCWD, file, "0");
}

int netns_routes(bool ipv6)
{
	const uint8_t families[] = {AF_INET, AF_INET6};
	struct batch batch = {.used = 0};
	AUTO_CLOSE int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);

	if (fd < 0)
		return -errno;
	int r = ipv6 ? enable_ipv6() : 0;
	if (r < 0)
		return r;
	add_segments(&batch);
	add_address(&batch);
	add_loopback_rules(&batch);
	for (size_t i = 0; i < (ipv6 ? 2u : 1u); i++) {
		add_any_local(&batch, families[i]);
		add_tcp_rule(&batch, families[i]);
		add_last_rule(&batch, families[i]);
	}
	if (send(fd, batch.bytes, batch.used, 0) < 0)
		return -errno;
	return take_answers(fd, batch.n);
}
