#include "supervisor/egress/relay.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "supervisor/egress/inspect.h"

#define IDLE_DEFAULT    (USEC_PER_SEC * 3600)
#define CHECK_TIMEOUT   (30 * USEC_PER_SEC) /* for the first bytes that are looked at */
#define CLOSING_TIMEOUT (2 * USEC_PER_SEC)
#define REFILL          (20 * USEC_PER_MS)
#define HTTP_PORT       80
#define TLS_PORT        443

/* Directions, as bits: an event of one socket is for one of them, and a look at the other would be
 * a system call for nothing. */
#define SIDE_OUT 1u
#define SIDE_IN  2u
#define SIDES    (SIDE_OUT | SIDE_IN)

void relay_close_by_reset(int fd)
{
	const struct linger now = {.l_onoff = 1, .l_linger = 0};

	(void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
	(void)fd_close(fd);
}

void relay_conn_init(struct conn_base *base, struct session *session, int client_fd,
		     void (*free_conn)(struct conn_base *base))
{
	base->session = session;
	base->client_fd = client_fd;
	base->free = free_conn;
	list_append(&session->connections, &base->link);
	session->n_connections++;
	session->egress->n_connections++;
}

void relay_conn_done(struct conn_base *base)
{
	list_remove(&base->link);
	base->session->n_connections--;
	base->session->egress->n_connections--;
	base->client_fd = fd_close(base->client_fd);
}

void relay_close_all(struct session *session)
{
	while (!list_empty(&session->connections)) {
		struct conn_base *base =
			LIST_ENTRY(session->connections.next, struct conn_base, link);

		base->free(base);
	}
}

const struct egress_rule *relay_rule(const struct conn *conn)
{
	return &conn->base.session->policy->rules[conn->rule];
}

static struct policy_counters *counters(const struct conn *conn)
{
	return &conn->base.session->policy->counters[conn->rule];
}

static void conn_free(struct conn_base *base)
{
	struct conn *conn = LIST_ENTRY(base, struct conn, base);
	struct session *session = base->session;
	struct egress *egress = session->egress;

	dial_stop(conn);
	conn->client = loop_remove(conn->client);
	conn->timer = loop_remove(conn->timer);
	list_remove(&conn->paused_link);
	pump_stop(&conn->out, &egress->pipes, &session->n_pipes);
	pump_stop(&conn->in, &egress->pipes, &session->n_pipes);
	if (session->policy && conn->rule < session->policy->n_rules)
		counters(conn)->open--;
	relay_conn_done(base);
	free(conn->http);
	free(conn);
}

/* Both sides see a reset. */
static void conn_reset(struct conn *conn)
{
	const struct linger now = {.l_onoff = 1, .l_linger = 0};

	(void)setsockopt(conn->base.client_fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
	if (conn->connected)
		(void)setsockopt(conn->upstream_fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
	conn_free(&conn->base);
}

static void deny(const struct conn *conn, enum egress_channel channel, uint32_t reason,
		 uint32_t rule)
{
	const struct denial denial = {
		.channel = channel,
		.reason = reason,
		.rule = rule,
		.name = conn->name,
		.address = &conn->dialled,
		.port = conn->port,
		.source_port = conn->source_port,
	};

	denials_add(conn->base.session, &denial);
}

void relay_refuse(struct conn *conn, enum egress_channel channel, uint32_t reason, uint32_t rule)
{
	deny(conn, channel, reason, rule);
	conn_reset(conn);
}

/* Our own answer is sent; the connection stays until the client has read it (a close with unread
 * bytes of its would be a reset that overtakes the answer). */
static int say(struct conn *conn, const char *farewell)
{
	dial_stop(conn);
	list_remove(&conn->paused_link);
	conn->connected = false;
	conn->closing = true;
	pump_stop(&conn->in, &conn->base.session->egress->pipes, &conn->base.session->n_pipes);
	IGNORE_RESULT(send(conn->base.client_fd, farewell, strlen(farewell),
			   MSG_DONTWAIT | MSG_NOSIGNAL));
	(void)shutdown(conn->base.client_fd, SHUT_WR);
	loop_timer_set(conn->timer, clock_add(clock_boottime(), CLOSING_TIMEOUT));
	return loop_set_events(conn->client, EPOLLIN);
}

static void drain_closing(struct conn *conn)
{
	char rest[4096];
	ssize_t n = recv(conn->base.client_fd, rest, sizeof(rest), MSG_DONTWAIT);

	if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
		conn_free(&conn->base);
}

static int update_events(struct conn *conn)
{
	struct session *session = conn->base.session;
	uint32_t client = 0;
	uint32_t upstream = 0;
	int r;

	if (conn->out.state == PUMP_WANT_READ)
		client |= EPOLLIN;
	if (conn->in.state == PUMP_WANT_WRITE)
		client |= EPOLLOUT;
	if (conn->in.state == PUMP_WANT_READ)
		upstream |= EPOLLIN;
	if (conn->out.state == PUMP_WANT_WRITE)
		upstream |= EPOLLOUT;
	if (conn->out.state != PUMP_WANT_BUDGET && conn->in.state != PUMP_WANT_BUDGET) {
		list_remove(&conn->paused_link);
	} else if (list_empty(&conn->paused_link)) {
		/* Who comes later does not make the first wait longer. */
		if (list_empty(&session->paused))
			loop_timer_set(session->refill, clock_add(clock_boottime(), REFILL));
		list_append(&session->paused, &conn->paused_link);
	}
	r = loop_set_events(conn->client, client);
	if (r == 0 && conn->connected)
		r = loop_set_events(conn->upstream, upstream);
	return r;
}

/* Those that wait for it come first. */
static uint64_t budget_of(struct session *session)
{
	uint64_t rate = session->policy->limits.max_bytes_per_s;

	if (rate == 0)
		return UINT64_MAX;
	if (session->is_refilling)
		return session->bytes.left;
	return list_empty(&session->paused)
		       ? bucket_fill(&session->bytes, rate, rate, clock_boottime())
		       : 0;
}

static void count_bytes(struct conn *conn, uint64_t out, uint64_t in, uint64_t taken)
{
	struct session *session = conn->base.session;
	struct policy_counters *of_rule = counters(conn);

	session->total.bytes_out += out;
	session->total.bytes_in += in;
	of_rule->bytes_out += out;
	of_rule->bytes_in += in;
	if (session->policy->limits.max_bytes_per_s)
		session->bytes.left -= taken < session->bytes.left ? taken : session->bytes.left;
	if (out + in > 0)
		conn->active_at = clock_boottime();
}

/* The directions of `sides` as far as they go. 0; 1: we answer ourselves; -errno of a socket. */
static int move_bytes(struct conn *conn, uint32_t sides, bool *ret_fatal)
{
	struct session *session = conn->base.session;
	struct pipe_pool *pipes = &session->egress->pipes;
	const uint64_t most = budget_of(session);
	uint64_t budget = most;
	uint64_t in = 0;
	uint64_t out = 0;
	int r = 0;

	*ret_fatal = false;
	if (conn->http && sides & SIDE_OUT) {
		r = http_flow_run(conn, &budget, &out, ret_fatal);
	} else if (conn->connected && sides & SIDE_OUT) {
		r = pump_run(&conn->out, pipes, &session->n_pipes, conn->base.client_fd,
			     conn->upstream_fd, &budget);
		out = most - budget;
	}
	if (r == 0 && conn->connected && sides & SIDE_IN) {
		in = budget;
		if (http_flow_answer(conn))
			r = pump_run(&conn->in, pipes, &session->n_pipes, conn->upstream_fd,
				     conn->base.client_fd, &budget);
		else
			conn->in.state = PUMP_WANT_READ;
		in -= budget;
		/* What the answer allowed may already be here. */
		if (r == 0 && conn->http && conn->out.state == PUMP_WANT_NOTHING)
			r = http_flow_run(conn, &budget, &out, ret_fatal);
	}
	count_bytes(conn, out, in, most - budget);
	return r;
}

/* As a loop callback: negative ends the worker. The connection may be gone afterwards. */
static int conn_run(struct conn *conn, uint32_t sides)
{
	bool fatal;
	int r;

	r = move_bytes(conn, sides, &fatal);
	if (fatal)
		return r;
	if (r == 1)
		return say(conn, conn->http->farewell);
	if (r < 0) {
		conn_reset(conn);
		return 0;
	}
	if (conn->in.state == PUMP_DONE && conn->http && conn->http->farewell)
		return say(conn, conn->http->farewell);
	if (conn->in.state == PUMP_DONE && conn->out.state == PUMP_DONE) {
		conn_free(&conn->base);
		return 0;
	}
	return update_events(conn);
}

static usec_t idle_span(const struct conn *conn)
{
	uint32_t seconds = conn->base.session->policy->limits.idle_timeout_s;

	return seconds ? seconds * USEC_PER_SEC : IDLE_DEFAULT;
}

/* Dialled and checked: bytes may go. */
static int begin(struct conn *conn)
{
	usec_t span = conn->http ? CHECK_TIMEOUT : idle_span(conn);

	conn->active_at = clock_boottime();
	loop_timer_set(conn->timer, clock_add(conn->active_at, span));
	return conn_run(conn, SIDES);
}

/* What an event of one socket is for: `reading` of it, `writing` to it. A hang-up is for both. */
static uint32_t sides_of(uint32_t events, uint32_t reading, uint32_t writing)
{
	if (events & (EPOLLERR | EPOLLHUP))
		return SIDES;
	return (events & EPOLLIN ? reading : 0) | (events & EPOLLOUT ? writing : 0);
}

int relay_on_upstream(void *userdata, uint32_t events)
{
	struct conn *conn = userdata;

	return conn_run(conn, sides_of(events, SIDE_IN, SIDE_OUT));
}

int relay_connected(struct conn *conn)
{
	conn->connected = true;
	if (conn->checked)
		return begin(conn);
	loop_timer_set(conn->timer, clock_add(clock_boottime(), CHECK_TIMEOUT));
	return loop_set_events(conn->upstream, 0);
}

/* The hello stays in the socket's buffer: whatever was looked at is what goes on. */
static int check_hello(struct conn *conn)
{
	static uint8_t data[TLS_HELLO_MAX];
	struct inspect_answer found;
	const struct tls_hello *hello = &found.u.tls;
	int more;
	ssize_t n;
	int r;

	n = recv(conn->base.client_fd, data, sizeof(data), MSG_PEEK | MSG_DONTWAIT);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	if (n <= 0 || (size_t)n == conn->peeked) {
		/* It ended before it had said anything whole. */
		conn_reset(conn);
		return 0;
	}
	conn->peeked = (size_t)n;
	r = inspect(conn->base.session->egress->inspector_fd, INSPECT_TLS, data, (size_t)n, &found);
	if (r < 0)
		return r;
	if (hello->verdict == TLS_MORE) {
		/* Not woken again by what was seen. */
		more = (int)n + 1;
		(void)setsockopt(conn->base.client_fd, SOL_SOCKET, SO_RCVLOWAT, &more,
				 sizeof(more));
		return 0;
	}
	if (hello->verdict == TLS_BAD ||
	    (hello->verdict == TLS_NAME && strcmp(hello->name, conn->name) != 0)) {
		relay_refuse(conn, EGRESS_CHANNEL_TLS,
			     hello->verdict == TLS_BAD ? EGRESS_REASON_PROTOCOL : EGRESS_REASON_SNI,
			     conn->rule);
		return 0;
	}
	more = 1;
	(void)setsockopt(conn->base.client_fd, SOL_SOCKET, SO_RCVLOWAT, &more, sizeof(more));
	conn->checked = true;
	if (conn->connected)
		return begin(conn);
	return loop_set_events(conn->client, 0);
}

static int on_client(void *userdata, uint32_t events)
{
	struct conn *conn = userdata;

	if (conn->closing) {
		drain_closing(conn);
		return 0;
	}
	return conn->checked ? conn_run(conn, sides_of(events, SIDE_OUT, SIDE_IN))
			     : check_hello(conn);
}

static int on_timer(void *userdata, uint32_t events)
{
	struct conn *conn = userdata;
	usec_t now = clock_boottime();

	(void)events;
	if (conn->closing) {
		conn_free(&conn->base);
	} else if (!conn->connected) {
		dial_on_timeout(conn);
	} else if (!conn->checked || (conn->http && conn->http->n_requests == 0)) {
		relay_refuse(conn, conn->http ? EGRESS_CHANNEL_HTTP : EGRESS_CHANNEL_TLS,
			     EGRESS_REASON_PROTOCOL, conn->rule);
	} else if (now - conn->active_at >= idle_span(conn)) {
		conn_reset(conn);
	} else {
		loop_timer_set(conn->timer, clock_add(conn->active_at, idle_span(conn)));
	}
	return 0;
}

int relay_on_refill(void *userdata, uint32_t events)
{
	struct session *session = userdata;
	size_t n = 0;
	int r = 0;

	(void)events;
	/* Once each, while there is something to take: one that wants more comes back at the end of
	 * the list, and those behind it are the first of the next turn. */
	LIST_FOR_EACH (link, &session->paused)
		n++;
	if (n > 0 && session->policy->limits.max_bytes_per_s > 0)
		(void)bucket_fill(&session->bytes, session->policy->limits.max_bytes_per_s,
				  session->policy->limits.max_bytes_per_s, clock_boottime());
	session->is_refilling = true;
	for (; r == 0 && n > 0 && !list_empty(&session->paused) && budget_of(session) > 0; n--) {
		struct conn *conn = LIST_ENTRY(session->paused.next, struct conn, paused_link);

		list_remove(&conn->paused_link);
		r = conn_run(conn, SIDES);
	}
	session->is_refilling = false;
	if (!list_empty(&session->paused))
		loop_timer_set(session->refill, clock_add(clock_boottime(), REFILL));
	return r;
}

static int watch_conn(struct conn *conn)
{
	struct loop *loop = conn->base.session->egress->loop;
	int r;

	r = loop_add_timer(loop, clock_add(clock_boottime(), CHECK_TIMEOUT), on_timer, conn,
			   &conn->timer);
	if (r == 0)
		r = loop_add(loop, conn->base.client_fd, !conn->checked || conn->http ? EPOLLIN : 0,
			     on_client, conn, &conn->client);
	return r;
}

/* Which checks the rule asks for. An address that was dialled has no name to compare with. */
static int choose_checks(struct conn *conn)
{
	const struct egress_rule *rule = relay_rule(conn);
	bool is_named = conn->name[0] != '\0';

	conn->checked = !(is_named && conn->port == TLS_PORT &&
			  !(rule->flags & (EGRESS_NO_SNI_CHECK | EGRESS_PATHS)));
	if (!(rule->flags & EGRESS_PATHS) &&
	    !(is_named && conn->port == HTTP_PORT && !(rule->flags & EGRESS_NO_HOST_CHECK)))
		return 0;
	conn->http = calloc(1, sizeof(*conn->http));
	return conn->http ? 0 : -ENOMEM;
}

void relay_open(struct session *session, int fd, const struct dialled *dialled)
{
	const int on = 1;
	struct conn *conn = calloc(1, sizeof(*conn));

	if (!conn) {
		relay_close_by_reset(fd);
		return;
	}
	relay_conn_init(&conn->base, session, fd, conn_free);
	conn->upstream_fd = -1;
	conn->out = conn->in = PUMP_NULL;
	list_init(&conn->paused_link);
	list_init(&conn->dial.service_link);
	conn->rule = dialled->rule;
	conn->port = dialled->port;
	conn->source_port = dialled->source_port;
	conn->dialled = dialled->address;
	memcpy(conn->name, dialled->name, sizeof(conn->name));
	counters(conn)->open++;
	counters(conn)->connections++;
	session->total.connections++;
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	if (choose_checks(conn) < 0 || watch_conn(conn) < 0) {
		conn_reset(conn);
		return;
	}
	dial_start(conn);
}

static void recheck(struct conn *conn, const struct policy *old)
{
	const struct policy *policy = conn->base.session->policy;
	uint32_t old_rule = conn->rule;
	uint32_t reason;
	uint32_t rule = policy_match(policy, conn->name, &conn->dialled, conn->port, &reason);

	if (rule != EGRESS_NO_RULE && policy_same_terms(old, old_rule, policy, rule)) {
		conn->rule = rule;
		counters(conn)->open++;
		if (dial_is_permitted(conn, &rule))
			return;
	} else {
		conn->rule = rule = EGRESS_NO_RULE;
	}
	relay_refuse(conn, EGRESS_CHANNEL_TCP, EGRESS_REASON_REMOVED, rule);
}

void relay_policy_changed(struct session *session, const struct policy *old)
{
	LIST_FOR_EACH_SAFE (link, following, &session->connections) {
		struct conn_base *base = LIST_ENTRY(link, struct conn_base, link);

		if (base->free == conn_free)
			recheck(LIST_ENTRY(base, struct conn, base), old);
	}
}
