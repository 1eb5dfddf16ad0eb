/*
 * What comes to a session's listener: whether it may go on at all is decided here, and what may not
 * is recorded and reset.
 */
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/egress_rule.h"
#include "base/net_class.h"

#include "supervisor/egress/relay.h"

#define ACCEPTS_PER_TURN 32
#define CONNECTIONS_MAX  256u /* of one session, where its policy says nothing */
#define CONNECTS_PER_S   200u
/* After as many at once. What they cost, here and in the kernel's softirqs and RCU callbacks, is in
 * no session's share of the processors: without a rate it would be most of what the host does. */
#define REFUSALS_PER_S   500u

static bool address_of(const struct sockaddr_storage *from, struct egress_address *ret,
		       uint32_t *ret_port)
{
	const struct sockaddr_in *v4 = (const void *)from;
	const struct sockaddr_in6 *v6 = (const void *)from;

	memset(ret, 0, sizeof(*ret));
	if (from->ss_family == AF_INET) {
		memcpy(ret->bytes, &v4->sin_addr, 4);
		*ret_port = ntohs(v4->sin_port);
	} else if (from->ss_family == AF_INET6) {
		bool mapped = IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr);

		/* The listener is of both families: IPv4 comes mapped. */
		memcpy(ret->bytes, v6->sin6_addr.s6_addr + (mapped ? 12 : 0), mapped ? 4 : 16);
		ret->family = mapped ? AF_INET : AF_INET6;
		ret->prefix = mapped ? 32 : 128;
		*ret_port = ntohs(v6->sin6_port);
		return true;
	} else {
		return false;
	}
	ret->family = AF_INET;
	ret->prefix = 32;
	return true;
}

/* For one connection more, also among the descriptors that all sessions share. */
static bool has_room(const struct session *session)
{
	uint32_t max = session->policy ? session->policy->limits.max_connections : 0;

	if (max == 0)
		max = CONNECTIONS_MAX;
	return session->n_connections < max &&
	       session->egress->n_connections < session->egress->max_connections;
}

static uint32_t judge(struct session *session, struct dialled *dialled)
{
	const struct policy *policy = session->policy;
	const char *name = names_find(&session->names, &dialled->address);
	const struct egress_rule *rule;
	uint32_t rate = CONNECTS_PER_S;
	uint32_t reason;

	dialled->rule = EGRESS_NO_RULE;
	if (name)
		memcpy(dialled->name, name, strlen(name) + 1);
	else if (names_is_synthetic(&dialled->address))
		return EGRESS_REASON_NAME; /* one that nobody has asked for */
	dialled->rule =
		policy_match(policy, dialled->name, &dialled->address, dialled->port, &reason);
	if (dialled->rule == EGRESS_NO_RULE)
		return reason;
	rule = &policy->rules[dialled->rule];
	if (rule->flags & EGRESS_PRODUCTION && !egress_rule_reroutes(rule))
		return EGRESS_REASON_PRODUCTION;
	if (policy->limits.max_connects_per_s)
		rate = policy->limits.max_connects_per_s;
	if (!has_room(session) ||
	    bucket_fill(&session->connects, rate, rate, clock_boottime()) == 0)
		return EGRESS_REASON_LIMIT;
	session->connects.left--;
	return 0;
}

/* Whether it may go on. */
static bool take_connection(struct session *session, int fd, const struct sockaddr_storage *from)
{
	struct dialled dialled = {0};
	union socket_address local = {0};
	socklen_t size = sizeof(local);
	struct egress_address source;
	uint32_t reason;

	if (getsockname(fd, &local.any, &size) < 0 ||
	    !address_of(&local.storage, &dialled.address, &dialled.port) ||
	    !address_of(from, &source, &dialled.source_port)) {
		relay_close_by_reset(fd);
		return false;
	}
	/* The resolver's own address is the one of loopback that is steered to us. */
	if (net_class_of(&dialled.address) == NET_CLASS_LOOPBACK && dialled.port == DNS_PORT) {
		if (has_room(session))
			stub_accept(session, fd);
		else
			relay_close_by_reset(fd);
		return false; /* a question, or none */
	}
	reason = judge(session, &dialled);
	if (reason != 0) {
		const struct denial denial = {
			.channel = EGRESS_CHANNEL_TCP,
			.reason = reason,
			.rule = dialled.rule,
			.name = dialled.name,
			.address = &dialled.address,
			.port = dialled.port,
			.source_port = dialled.source_port,
		};

		denials_add(session, &denial);
		relay_close_by_reset(fd);
		return false;
	}
	relay_open(session, fd, &dialled);
	return true;
}

int relay_on_connection(void *userdata, uint32_t events)
{
	struct session *session = userdata;

	(void)events;
	for (int i = 0; i < ACCEPTS_PER_TURN; i++) {
		union socket_address from = {0};
		socklen_t size = sizeof(from);
		int fd;

		if (bucket_fill(&session->refusals, REFUSALS_PER_S, REFUSALS_PER_S,
				clock_boottime()) == 0)
			return intake_rest(session->egress, &session->listener);
		fd = accept4(session->listener.fd, &from.any, &size, SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (fd < 0) {
			/* Else EAGAIN, or a client that has gone. max_connections is below the
			 * descriptors that there are, so it is the host's that ran out, or
			 * another's in this process: not looked at again in each turn. */
			if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS ||
			    errno == ENOMEM)
				return intake_rest(session->egress, &session->listener);
			return 0;
		}
		if (!take_connection(session, fd, &from.storage))
			session->refusals.left--;
	}
	return 0;
}
