/*
 * The session's resolver. Nothing is forwarded: whether a name has an address is the policy's
 * answer, and the address says nothing about it. A wildcard's name is resolved when it is dialled,
 * never when it is asked for (D2).
 */
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "supervisor/egress/inspect.h"
#include "supervisor/egress/relay.h"
#include "supervisor/egress/worker.h"

#define PACKETS_PER_TURN    32
#define QUESTIONS_PER_S     500
#define QUESTIONS_BURST     1000
#define CONNECTION_DEADLINE (5 * USEC_PER_SEC)
#define LENGTH_BYTES        2

static void deny(struct session *session, const char *name, uint32_t rule, uint32_t reason)
{
	const struct denial denial = {
		.channel = EGRESS_CHANNEL_DNS,
		.reason = reason,
		.rule = rule,
		.name = name,
	};

	denials_add(session, &denial);
}

/* 0: the name may be known inside, by *ret_rule; or the reason why not. */
static uint32_t judge(struct session *session, const char *name, uint32_t *ret_rule)
{
	const struct policy *policy = session->policy;
	const struct egress_address none = {0};
	const struct egress_rule *rule;
	uint32_t reason;
	int r = 0;

	*ret_rule = EGRESS_NO_RULE;
	if (name[0] == '\0')
		return EGRESS_REASON_NAME;
	*ret_rule = policy_match(policy, name, &none, 0, &reason);
	if (*ret_rule == EGRESS_NO_RULE)
		return reason;
	/* A production name has an address too: the dial is what is refused, with a record that
	 * names the endpoint and the port, or what is sent elsewhere. */
	rule = &policy->rules[*ret_rule];
	if (rule->kind == EGRESS_RULE_SUFFIX && !names_has(&session->names, name))
		r = names_check_below(&session->names, name, rule->name, clock_boottime());
	if (r < 0)
		return r == -EMSGSIZE ? EGRESS_REASON_LABELS : EGRESS_REASON_LIMIT;
	return 0;
}

/* Size of the reply, 0 for none; -errno ends the worker. */
static int answer(struct session *session, const uint8_t *packet, size_t size, uint8_t *reply)
{
	struct inspect_answer found;
	const struct dns_question *question = &found.u.dns;
	uint8_t address[4];
	uint32_t rule, reason;
	int r;

	r = inspect(session->egress->inspector_fd, INSPECT_DNS, packet, size, &found);
	if (r < 0)
		return r;
	if (question->kind == DNS_KIND_DROP)
		return 0;
	if (question->kind == DNS_KIND_FORMAT)
		return (int)dns_reply(packet, size, question->bytes, DNS_RCODE_FORMAT, NULL, reply);
	reason = judge(session, question->name, &rule);
	if (reason == 0 && question->kind == DNS_KIND_ADDRESS) {
		r = names_add(&session->names, &session->id, question->name, address);
		if (r == 0) {
			session->total.dns_answers++;
			session->policy->counters[rule].dns_answers++;
			return (int)dns_reply(packet, size, question->bytes, DNS_RCODE_NONE,
					      address, reply);
		}
		reason = EGRESS_REASON_LIMIT;
	}
	if (reason == 0 && question->kind == DNS_KIND_NODATA)
		return (int)dns_reply(packet, size, question->bytes, DNS_RCODE_NONE, NULL, reply);
	/* Another type of a name that is allowed. */
	deny(session, question->name, rule, reason ? reason : EGRESS_REASON_NAME);
	return (int)dns_reply(packet, size, question->bytes, DNS_RCODE_REFUSED, NULL, reply);
}

static bool within_rate(struct session *session)
{
	if (bucket_fill(&session->questions, QUESTIONS_PER_S, QUESTIONS_BURST, clock_boottime()) ==
	    0)
		return false;
	session->questions.left--;
	return true;
}

int stub_on_question(void *userdata, uint32_t events)
{
	struct session *session = userdata;
	uint8_t packet[DNS_PACKET_MAX + 1];
	uint8_t reply[DNS_REPLY_MAX];

	(void)events;
	for (int i = 0; i < PACKETS_PER_TURN; i++) {
		union socket_address from;
		socklen_t from_bytes = sizeof(from);
		ssize_t n;
		int size;

		/* They wait in the socket, which drops what it has no room for. */
		if (bucket_fill(&session->questions, QUESTIONS_PER_S, QUESTIONS_BURST,
				clock_boottime()) == 0)
			return intake_rest(session->egress, &session->resolver);
		n = recvfrom(session->resolver.fd, packet, sizeof(packet), MSG_DONTWAIT, &from.any,
			     &from_bytes);
		if (n < 0)
			return 0; /* EAGAIN, or an error that an earlier reply met */
		session->questions.left--;
		if ((size_t)n > DNS_PACKET_MAX)
			continue;
		size = answer(session, packet, (size_t)n, reply);
		if (size < 0)
			return size;
		/* A reply that is not taken is asked for again. */
		if (size > 0)
			IGNORE_RESULT(sendto(session->resolver.fd, reply, (size_t)size,
					     MSG_DONTWAIT | MSG_NOSIGNAL, &from.any, from_bytes));
	}
	return 0;
}

/* One question over TCP, then the end. */
struct stub_connection {
	struct conn_base base; /* first: counted and closed with the session's connections */
	struct loop_source *source;
	struct loop_source *timer;
	size_t used;
	uint8_t data[LENGTH_BYTES + DNS_PACKET_MAX];
};

static void connection_free(struct conn_base *base)
{
	struct stub_connection *connection = LIST_ENTRY(base, struct stub_connection, base);

	connection->source = loop_remove(connection->source);
	connection->timer = loop_remove(connection->timer);
	relay_conn_done(base);
	free(connection);
}

static int on_deadline(void *userdata, uint32_t events)
{
	struct stub_connection *connection = userdata;

	(void)events;
	connection_free(&connection->base);
	return 0;
}

static int on_bytes(void *userdata, uint32_t events)
{
	struct stub_connection *connection = userdata;
	struct session *session = connection->base.session;
	uint8_t reply[LENGTH_BYTES + DNS_REPLY_MAX];
	size_t want = LENGTH_BYTES;
	ssize_t n;
	int size;

	(void)events;
	n = recv(connection->base.client_fd, connection->data + connection->used,
		 sizeof(connection->data) - connection->used, MSG_DONTWAIT);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	connection->used += n > 0 ? (size_t)n : 0;
	if (connection->used >= LENGTH_BYTES)
		want += (size_t)connection->data[0] << 8 | connection->data[1];
	if (n > 0 && connection->used < want && want <= sizeof(connection->data))
		return 0;
	if (connection->used == want && within_rate(session)) {
		size = answer(session, connection->data + LENGTH_BYTES, want - LENGTH_BYTES,
			      reply + LENGTH_BYTES);
		if (size < 0)
			return size;
		reply[0] = (uint8_t)(size >> 8);
		reply[1] = (uint8_t)size;
		/* A new connection's buffer takes it. */
		if (size > 0)
			IGNORE_RESULT(send(connection->base.client_fd, reply,
					   LENGTH_BYTES + (size_t)size,
					   MSG_DONTWAIT | MSG_NOSIGNAL));
	}
	connection_free(&connection->base);
	return 0;
}

void stub_accept(struct session *session, int fd)
{
	struct loop *loop = session->egress->loop;
	struct stub_connection *connection = calloc(1, sizeof(*connection));

	if (!connection) {
		(void)fd_close(fd);
		return;
	}
	relay_conn_init(&connection->base, session, fd, connection_free);
	if (loop_add(loop, fd, EPOLLIN, on_bytes, connection, &connection->source) < 0 ||
	    loop_add_timer(loop, clock_add(clock_boottime(), CONNECTION_DEADLINE), on_deadline,
			   connection, &connection->timer) < 0)
		connection_free(&connection->base);
}
