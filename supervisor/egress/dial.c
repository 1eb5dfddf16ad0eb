#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/egress_rule.h"
#include "base/net_class.h"

#include "supervisor/egress/relay.h"

#define CONNECT_TIMEOUT (10 * USEC_PER_SEC)
#define NEXT_ADDRESS    (USEC_PER_SEC) /* for one of several, before the next is tried */

static int datagram_socket(uint32_t family)
{
	return socket((int)family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

static bool can_bind(const struct egress_address *address)
{
	AUTO_CLOSE int fd = datagram_socket(address->family);
	union socket_address local;
	socklen_t size = socket_address_of(address, 0, &local);

	return fd >= 0 && bind(fd, &local.any, size) == 0;
}

/* The kernel chooses it as the source to itself. No packet is sent. */
static bool is_own_source(const struct egress_address *address, uint32_t port)
{
	AUTO_CLOSE int fd = datagram_socket(address->family);
	union socket_address remote, local = {0};
	socklen_t size = socket_address_of(address, port, &remote);

	if (fd < 0 || connect(fd, &remote.any, size) < 0 || getsockname(fd, &local.any, &size) < 0)
		return false;
	return address->family == AF_INET ? memcmp(&local.v4.sin_addr, address->bytes, 4) == 0
					  : memcmp(&local.v6.sin6_addr, address->bytes, 16) == 0;
}

/* One of this host's addresses. To the second of a network the kernel takes the first as the
 * source; but it can be bound, which says nothing only on a host where every address can
 * (ip_nonlocal_bind). Where neither call says anything, the connection will not come about. */
static bool is_own_address(const struct egress_address *address, uint32_t port)
{
	static const struct egress_address nobodys[] = {
		{.family = AF_INET,  .bytes = {192, 0, 2, 1}             },
		{.family = AF_INET6, .bytes = {0x20, 0x01, 0x0d, 0xb8, 1}},
	};

	return is_own_source(address, port) ||
	       (can_bind(address) && !can_bind(&nobodys[address->family == AF_INET6]));
}

/* 0, or why this address is not connected to. */
static uint32_t judge(const struct conn *conn, const struct egress_address *address,
		      uint32_t *ret_rule)
{
	const struct policy *policy = conn->base.session->policy;
	const struct egress_rule *rule = relay_rule(conn);
	enum net_class net_class = net_class_of(address);
	uint32_t production;

	*ret_rule = conn->rule;
	/* An address of this host that the operator listed, and that the rule itself names. */
	if (rule->flags & EGRESS_HOST_SERVICE && rule->reroute.family == address->family &&
	    memcmp(rule->reroute.bytes, address->bytes, sizeof(address->bytes)) == 0)
		return 0;
	if (net_class != NET_CLASS_PUBLIC &&
	    !(net_class == NET_CLASS_PRIVATE && rule->flags & EGRESS_ALLOW_PRIVATE))
		return net_class_reason(net_class);
	/* The second line lets it through for our resolver, whatever networks are listed. */
	if (net_class == NET_CLASS_PRIVATE && conn->dial.port == DNS_PORT &&
	    resolver_has_server(conn->base.session->egress->resolver, address))
		return EGRESS_REASON_PRIVATE;
	production =
		egress_rule_production(policy->rules, policy->n_rules, address, conn->dial.port);
	if (production != EGRESS_NO_RULE) {
		*ret_rule = production;
		return EGRESS_REASON_PRODUCTION;
	}
	return is_own_address(address, conn->dial.port) ? EGRESS_REASON_LOOPBACK : 0;
}

static usec_t connect_span(const struct conn *conn)
{
	uint32_t ms = conn->base.session->policy->limits.connect_timeout_ms;

	return ms ? ms * USEC_PER_MS : CONNECT_TIMEOUT;
}

static uint32_t reason_of(int error_number)
{
	return error_number == EPERM || error_number == EACCES ? EGRESS_REASON_GUARD
							       : EGRESS_REASON_CONNECT;
}

static int try_address(struct conn *conn, const struct egress_address *address)
{
	const int on = 1;
	union socket_address remote;
	socklen_t size = socket_address_of(address, conn->dial.port, &remote);
	AUTO_CLOSE int fd =
		socket((int)address->family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int r;

	if (fd < 0)
		return -errno;
	/* The session's own segments decide when something is sent. */
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	if (connect(fd, &remote.any, size) < 0 && errno != EINPROGRESS)
		return -errno;
	r = loop_add(conn->base.session->egress->loop, fd, EPOLLOUT, relay_on_upstream, conn,
		     &conn->upstream);
	if (r < 0)
		return r;
	conn->upstream_fd = TAKE_FD(fd);
	return 0;
}

/* The next address that answers; error_number: of the one before. */
static void try_next(struct conn *conn, int error_number)
{
	struct dial *dial = &conn->dial;

	while (dial->next < dial->n) {
		bool is_last = dial->next + 1 == dial->n;
		int r = try_address(conn, &dial->address[dial->next++]);

		if (r == 0) {
			loop_timer_set(conn->timer,
				       clock_add(clock_boottime(),
						 is_last ? connect_span(conn) : NEXT_ADDRESS));
			return;
		}
		error_number = -r;
	}
	relay_refuse(conn, EGRESS_CHANNEL_TCP, reason_of(error_number), conn->rule);
}

static void give_up_address(struct conn *conn)
{
	conn->upstream = loop_remove(conn->upstream);
	conn->upstream_fd = fd_close(conn->upstream_fd);
}

/* Only what may be connected to is kept; what was refused decides the record where nothing is. */
static void dial_addresses(struct conn *conn, const struct egress_address *address, uint32_t n)
{
	uint32_t reason = EGRESS_REASON_RESOLVE;
	uint32_t rule = conn->rule;

	for (uint32_t i = 0; i < n; i++) {
		uint32_t of_rule;
		uint32_t bad = judge(conn, &address[i], &of_rule);

		if (bad == 0) {
			conn->dial.address[conn->dial.n++] = address[i];
		} else {
			reason = bad;
			rule = of_rule;
		}
	}
	if (conn->dial.n == 0)
		relay_refuse(conn, EGRESS_CHANNEL_TCP, reason, rule);
	else
		try_next(conn, 0);
}

static void on_answer(void *userdata, const struct resolver_answer *answer)
{
	struct conn *conn = userdata;

	conn->dial.resolving = false;
	dial_addresses(conn, answer->address, answer->n);
}

void dial_start(struct conn *conn)
{
	const struct egress_rule *rule = relay_rule(conn);
	struct dial *dial = &conn->dial;
	const char *name = conn->name;
	struct egress_address address = conn->dialled;
	struct resolver_answer answer;
	int r;

	dial->port = rule->reroute_port ? rule->reroute_port : conn->port;
	if (rule->reroute_name[0]) {
		name = rule->reroute_name;
	} else if (rule->reroute.family) {
		name = "";
		address = rule->reroute;
	}
	if (name[0] == '\0') {
		dial_addresses(conn, &address, 1);
		return;
	}
	loop_timer_set(conn->timer, clock_add(clock_boottime(), connect_span(conn)));
	dial->query = (struct resolver_query){.done = on_answer, .userdata = conn};
	list_init(&dial->query.link);
	dial->resolving = true;
	r = resolver_ask(conn->base.session->egress->resolver, name, &dial->query, &answer);
	if (r == 0)
		return;
	dial->resolving = false;
	dial_addresses(conn, answer.address, r < 0 ? 0 : answer.n);
}

bool dial_on_writable(struct conn *conn)
{
	int error_number = 0;
	socklen_t size = sizeof(error_number);

	if (getsockopt(conn->upstream_fd, SOL_SOCKET, SO_ERROR, &error_number, &size) < 0)
		error_number = errno;
	if (error_number == 0)
		return true;
	give_up_address(conn);
	try_next(conn, error_number);
	return false;
}

void dial_on_timeout(struct conn *conn)
{
	if (conn->dial.resolving) {
		relay_refuse(conn, EGRESS_CHANNEL_TCP, EGRESS_REASON_RESOLVE, conn->rule);
		return;
	}
	give_up_address(conn);
	try_next(conn, ETIMEDOUT);
}

bool dial_is_permitted(const struct conn *conn, uint32_t *ret_rule)
{
	const struct dial *dial = &conn->dial;

	for (uint32_t i = dial->next > 0 ? dial->next - 1 : 0; i < dial->n; i++)
		if (judge(conn, &dial->address[i], ret_rule) != 0)
			return false;
	return true;
}

void dial_stop(struct conn *conn)
{
	if (conn->dial.resolving)
		resolver_cancel(&conn->dial.query);
	conn->dial.resolving = false;
	give_up_address(conn);
}
