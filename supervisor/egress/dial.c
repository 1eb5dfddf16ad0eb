/*
 * Theory. The addresses of a name, IPv6 and IPv4 in turns, are tried as RFC 8305 says: the next one
 * a quarter of a second after the one before, or at once where that failed, and what is under way
 * goes on beside it. The first that answers is taken. How many sockets this needs is bounded, for
 * one connection and for all; beyond that the oldest attempt makes room.
 */
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
#define LOOPBACK_MTU    65535               /* 65536, less what IPv4 cannot say */
#define NEXT_ADDRESS    (250 * USEC_PER_MS) /* before the next is tried beside it (RFC 8305) */

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

/* The way to it is the loopback interface, told by its MTU, which no other has. */
static bool is_over_loopback(const struct egress_address *address, uint32_t port)
{
	AUTO_CLOSE int fd = datagram_socket(address->family);
	union socket_address remote;
	socklen_t size = socket_address_of(address, port, &remote);
	bool is_v4 = address->family == AF_INET;
	int mtu = 0;
	socklen_t bytes = sizeof(mtu);

	return fd >= 0 && connect(fd, &remote.any, size) == 0 &&
	       getsockopt(fd, is_v4 ? IPPROTO_IP : IPPROTO_IPV6, is_v4 ? IP_MTU : IPV6_MTU, &mtu,
			  &bytes) == 0 &&
	       mtu >= LOOPBACK_MTU;
}

/* One of this host's addresses. To the second of a network the kernel takes the first as the
 * source; but it can be bound, which says nothing only on a host where every address can
 * (ip_nonlocal_bind): there the way to it decides. Where no call says anything, the connection will
 * not come about. */
static bool is_own_address(const struct egress_address *address, uint32_t port)
{
	static const struct egress_address nobodys[] = {
		{.family = AF_INET,  .bytes = {192, 0, 2, 1}             },
		{.family = AF_INET6, .bytes = {0x20, 0x01, 0x0d, 0xb8, 1}},
	};

	if (is_own_source(address, port))
		return true;
	if (!can_bind(address))
		return false;
	return !can_bind(&nobodys[address->family == AF_INET6]) || is_over_loopback(address, port);
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

/* The production rule that one of the names on the way fits; EGRESS_NO_RULE: none. An alias of
 * production is production, wherever its addresses are listed or not. */
static uint32_t production_of_chain(const struct conn *conn)
{
	const struct policy *policy = conn->base.session->policy;

	for (const char *at = conn->dial.chain; at && *at; at += strlen(at) + 1) {
		uint32_t reason;
		uint32_t rule = policy_match(policy, at, &conn->dialled, conn->dial.port, &reason);

		if (rule != EGRESS_NO_RULE && policy->rules[rule].flags & EGRESS_PRODUCTION)
			return rule;
	}
	return EGRESS_NO_RULE;
}

/* false: no memory. */
static bool keep_chain(struct dial *dial, const char *chain)
{
	const char *end = chain;

	if (!chain)
		return true;
	while (*end)
		end += strlen(end) + 1;
	dial->chain = malloc((size_t)(end - chain) + 1);
	if (!dial->chain)
		return false;
	memcpy(dial->chain, chain, (size_t)(end - chain) + 1);
	return true;
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

static int on_attempt(void *userdata, uint32_t events);

static void end_attempt(struct dial_attempt *attempt)
{
	struct conn *conn = attempt->conn;

	if (!attempt->source)
		return;
	attempt->source = loop_remove(attempt->source);
	attempt->fd = fd_close(attempt->fd);
	conn->dial.n_attempts--;
	conn->base.session->egress->n_attempts--;
}

/* NULL: there is none. */
static struct dial_attempt *oldest_attempt(struct dial *dial)
{
	struct dial_attempt *oldest = NULL;

	for (size_t i = 0; i < DIAL_ATTEMPTS; i++)
		if (dial->attempt[i].source && (!oldest || dial->attempt[i].index < oldest->index))
			oldest = &dial->attempt[i];
	return oldest;
}

/* A free place; the oldest attempt makes room where there is none. */
static struct dial_attempt *take_place(struct dial *dial)
{
	struct dial_attempt *oldest = oldest_attempt(dial);

	for (size_t i = 0; i < DIAL_ATTEMPTS; i++)
		if (!dial->attempt[i].source)
			return &dial->attempt[i];
	end_attempt(oldest);
	return oldest;
}

static int try_address(struct conn *conn, uint32_t index)
{
	const int on = 1;
	struct egress *egress = conn->base.session->egress;
	const struct egress_address *address = &conn->dial.address[index];
	struct dial_attempt *attempt = take_place(&conn->dial);
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
	*attempt = (struct dial_attempt){.conn = conn, .fd = -1, .index = index};
	r = loop_add(egress->loop, fd, EPOLLOUT, on_attempt, attempt, &attempt->source);
	if (r < 0)
		return r;
	attempt->fd = TAKE_FD(fd);
	conn->dial.n_attempts++;
	egress->n_attempts++;
	return 0;
}

/* The next address that can be tried; error_number: of the one before. */
static void try_next(struct conn *conn, int error_number)
{
	struct dial *dial = &conn->dial;
	usec_t again = clock_add(clock_boottime(), NEXT_ADDRESS);

	while (dial->next < dial->n) {
		int r = try_address(conn, dial->next++);

		if (r == 0)
			break;
		error_number = -r;
	}
	if (dial->n_attempts == 0)
		relay_refuse(conn, EGRESS_CHANNEL_TCP, reason_of(error_number), conn->rule);
	else
		loop_timer_set(conn->timer, dial->next < dial->n && again < dial->deadline
						    ? again
						    : dial->deadline);
}

/* The first that answers is upstream; the others are closed. */
static int win(struct dial_attempt *attempt)
{
	struct conn *conn = attempt->conn;
	struct dial *dial = &conn->dial;
	struct loop *loop = conn->base.session->egress->loop;
	const struct egress_address address = dial->address[attempt->index];
	int fd;

	/* The same socket, watched by another callback. */
	attempt->source = loop_remove(attempt->source);
	dial->n_attempts--;
	conn->base.session->egress->n_attempts--;
	fd = TAKE_FD(attempt->fd);
	for (size_t i = 0; i < DIAL_ATTEMPTS; i++)
		end_attempt(&dial->attempt[i]);
	dial->address[0] = address;
	dial->n = dial->next = 1;
	conn->upstream_fd = fd;
	if (loop_add(loop, fd, EPOLLOUT, relay_on_upstream, conn, &conn->upstream) < 0) {
		relay_refuse(conn, EGRESS_CHANNEL_TCP, EGRESS_REASON_CONNECT, conn->rule);
		return 0;
	}
	return relay_connected(conn);
}

static int on_attempt(void *userdata, uint32_t events)
{
	struct dial_attempt *attempt = userdata;
	struct conn *conn = attempt->conn;
	int error_number = 0;
	socklen_t size = sizeof(error_number);

	(void)events;
	if (getsockopt(attempt->fd, SOL_SOCKET, SO_ERROR, &error_number, &size) < 0)
		error_number = errno;
	if (error_number == 0)
		return win(attempt);
	end_attempt(attempt);
	/* Not after its time: one that fails calls for the next at once. */
	try_next(conn, error_number);
	return 0;
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
	if (conn->dial.n == 0) {
		relay_refuse(conn, EGRESS_CHANNEL_TCP, reason, rule);
		return;
	}
	conn->dial.deadline = clock_add(clock_boottime(), connect_span(conn));
	try_next(conn, 0);
}

static void on_answer(void *userdata, const struct resolver_answer *answer)
{
	struct conn *conn = userdata;
	uint32_t production = EGRESS_NO_RULE;
	bool kept = keep_chain(&conn->dial, answer->chain);

	conn->dial.resolving = false;
	if (kept)
		production = production_of_chain(conn);
	if (production != EGRESS_NO_RULE)
		relay_refuse(conn, EGRESS_CHANNEL_TCP, EGRESS_REASON_PRODUCTION, production);
	else
		dial_addresses(conn, answer->address, kept ? answer->n : 0);
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
	if (rule->reroute_service != 0) {
		dial->deadline = clock_add(clock_boottime(), connect_span(conn));
		loop_timer_set(conn->timer, dial->deadline);
		service_dial(conn);
		return;
	}
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
	if (r < 0)
		answer = (struct resolver_answer){.n = 0};
	if (r != 0)
		on_answer(conn, &answer);
}

void dial_on_timeout(struct conn *conn)
{
	struct dial *dial = &conn->dial;

	if (dial->resolving) {
		relay_refuse(conn, EGRESS_CHANNEL_TCP, EGRESS_REASON_RESOLVE, conn->rule);
	} else if (clock_boottime() >= dial->deadline) {
		relay_refuse(conn, EGRESS_CHANNEL_TCP, EGRESS_REASON_CONNECT, conn->rule);
	} else {
		/* Too many of all connections: the one under way makes room for the next. */
		if (conn->base.session->egress->n_attempts >= DIAL_RACING_MAX &&
		    dial->next < dial->n)
			end_attempt(oldest_attempt(dial));
		try_next(conn, ETIMEDOUT);
	}
}

bool dial_is_permitted(const struct conn *conn, uint32_t *ret_rule)
{
	const struct dial *dial = &conn->dial;

	*ret_rule = production_of_chain(conn);
	if (*ret_rule != EGRESS_NO_RULE)
		return false;
	for (uint32_t i = 0; i < dial->n; i++)
		if (judge(conn, &dial->address[i], ret_rule) != 0)
			return false;
	return true;
}

void dial_stop(struct conn *conn)
{
	if (conn->dial.resolving)
		resolver_cancel(&conn->dial.query);
	conn->dial.resolving = false;
	list_remove(&conn->dial.service_link);
	for (size_t i = 0; i < DIAL_ATTEMPTS; i++)
		end_attempt(&conn->dial.attempt[i]);
	conn->upstream = loop_remove(conn->upstream);
	conn->upstream_fd = fd_close(conn->upstream_fd);
	free(conn->dial.chain);
	conn->dial.chain = NULL;
}
