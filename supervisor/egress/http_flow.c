#include "supervisor/egress/http_flow.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "supervisor/egress/inspect.h"
#include "supervisor/egress/relay.h"

#define ANSWER(status, text)                                                                       \
	"HTTP/1.1 " status "\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n" text "\n"

/* What one connection may cost in a turn, where a round trip to the inspector is COST_ASKED and a
 * head that is known costs COST_KNOWN: then the others have theirs. */
#define COST_OF_TURN 64u
#define COST_ASKED   16u
#define COST_KNOWN   1u
#define ROUNDS       8

static const char bad_request[] =
	ANSWER("400 Bad Request", "sandbox: this request is not one that can be checked");
static const char forbidden[] =
	ANSWER("403 Forbidden", "sandbox: this session may not reach that path");
static const char misdirected[] =
	ANSWER("421 Misdirected Request", "sandbox: Host is not the name that was dialled");

static void refuse(struct conn *conn, uint32_t reason, const char *farewell)
{
	const struct denial denial = {
		.channel = EGRESS_CHANNEL_HTTP,
		.reason = reason,
		.rule = conn->rule,
		.name = conn->name,
		.address = &conn->dialled,
		.port = conn->port,
		.source_port = conn->source_port,
	};

	denials_add(conn->base.session, &denial);
	conn->http->phase = HTTP_PHASE_REFUSED;
	conn->http->farewell = farewell;
}

/* What Host must say: the name, or the address, that was dialled. */
static void expected_host(const struct conn *conn, char host[HOST_NAME_BYTES])
{
	host[0] = '\0';
	if (conn->name[0])
		memcpy(host, conn->name, HOST_NAME_BYTES);
	else if (!inet_ntop((int)conn->dialled.family, conn->dialled.bytes, host, HOST_NAME_BYTES))
		host[0] = '\0';
}

/* 0, or the reason of the refusal. */
static uint32_t judge(const struct conn *conn, const struct http_head *head)
{
	const struct policy *policy = conn->base.session->policy;
	char host[HOST_NAME_BYTES];

	expected_host(conn, host);
	if (head->port != 0 && head->port != conn->port)
		return EGRESS_REASON_HOST;
	if (!(relay_rule(conn)->flags & EGRESS_PATHS))
		return strcmp(head->host, host) == 0 ? 0 : EGRESS_REASON_HOST;
	if (head->indirect ||
	    !policy_permits_path(policy, conn->rule, host, head->host, head->path))
		return EGRESS_REASON_PATH;
	return 0;
}

static void begin_body(struct http_flow *flow, const struct http_head *head)
{
	bool has_body = head->body == HTTP_BODY_CHUNKED || head->body_bytes > 0;

	flow->approved += head->head_bytes;
	flow->body_left = head->body_bytes;
	flow->after_body = HTTP_PHASE_HEAD;
	flow->phase = head->body == HTTP_BODY_CHUNKED ? HTTP_PHASE_CHUNK_FIRST : HTTP_PHASE_BODY;
	if (head->upgrade == HTTP_UPGRADE_NONE)
		return;
	/* Only the first request of a connection can become a WebSocket, as its answer is then the
	 * first thing that the server says. Any other switch would end the checks: the server does
	 * not see that it was asked for. */
	if (head->upgrade == HTTP_UPGRADE_WEBSOCKET && flow->n_requests == 1 && !has_body)
		flow->phase = HTTP_PHASE_SWITCHING;
	else
		memcpy(flow->data + flow->approved - head->head_bytes + head->upgrade_at, "X-Asked",
		       HTTP_UPGRADE_NAME);
}

static bool pay(uint32_t *left, uint32_t cost)
{
	if (*left < cost)
		return false;
	*left -= cost;
	return true;
}

static bool is_known(const struct http_flow *flow)
{
	size_t bytes = flow->known.head.head_bytes;

	return bytes > 0 && bytes <= flow->used - flow->approved &&
	       memcmp(flow->data + flow->approved, flow->known.text, bytes) == 0;
}

static void keep_known(struct http_flow *flow, const struct http_head *head)
{
	flow->known.head.head_bytes = 0;
	if (head->head_bytes > sizeof(flow->known.text) || head->upgrade != HTTP_UPGRADE_NONE)
		return;
	flow->known.head = *head;
	memcpy(flow->known.text, flow->data + flow->approved, head->head_bytes);
}

/* What the flow's next head is goes into flow->known where it fits, else into *space. 0 with *ret;
 * 1: not whole yet, or refused; -errno. */
static int read_head(struct conn *conn, uint32_t *left, struct inspect_answer *space,
		     const struct http_head **ret)
{
	struct http_flow *flow = conn->http;
	int r;

	*ret = &flow->known.head;
	if (is_known(flow) && pay(left, COST_KNOWN))
		return 0;
	if (!pay(left, COST_ASKED))
		return 1;
	r = inspect(conn->base.session->egress->inspector_fd, INSPECT_HTTP_HEAD,
		    flow->data + flow->approved, flow->used - flow->approved, space);
	if (r < 0)
		return r;
	*ret = &space->u.http;
	if (space->u.http.verdict == HTTP_BAD)
		refuse(conn, EGRESS_REASON_PROTOCOL, bad_request);
	if (space->u.http.verdict != HTTP_OK)
		return 1;
	keep_known(flow, &space->u.http);
	return 0;
}

static int approve_head(struct conn *conn, uint32_t *left)
{
	struct http_flow *flow = conn->http;
	struct inspect_answer space;
	const struct http_head *head;
	uint32_t reason;
	int r;

	r = read_head(conn, left, &space, &head);
	if (r != 0)
		return r < 0 ? r : 0;
	reason = judge(conn, head);
	if (reason != 0) {
		refuse(conn, reason, reason == EGRESS_REASON_HOST ? misdirected : forbidden);
		return 0;
	}
	flow->n_requests++;
	begin_body(flow, head);
	return 1;
}

static int approve_chunk(struct conn *conn, uint32_t *left)
{
	struct http_flow *flow = conn->http;
	bool is_first = flow->phase == HTTP_PHASE_CHUNK_FIRST;
	size_t size = flow->used - flow->approved;
	struct inspect_answer found;
	int r;

	if (!pay(left, COST_ASKED))
		return 0;
	/* The longest head of a chunk is far shorter. */
	r = inspect(conn->base.session->egress->inspector_fd,
		    is_first ? INSPECT_HTTP_CHUNK : INSPECT_HTTP_CHUNK_NEXT,
		    flow->data + flow->approved, size < 64 ? size : 64, &found);
	if (r < 0)
		return r;
	if (found.u.chunk.verdict == HTTP_MORE)
		return 0;
	if (found.u.chunk.verdict == HTTP_BAD) {
		refuse(conn, EGRESS_REASON_PROTOCOL, bad_request);
		return 0;
	}
	flow->approved += found.u.chunk.head_bytes;
	flow->body_left = found.u.chunk.bytes;
	flow->after_body = HTTP_PHASE_CHUNK_NEXT;
	flow->phase = found.u.chunk.is_last ? HTTP_PHASE_HEAD : HTTP_PHASE_BODY;
	return 1;
}

/* The next bytes are for the inspector. */
static bool wants_inspection(const struct http_flow *flow)
{
	return flow->used > flow->approved &&
	       (flow->phase == HTTP_PHASE_HEAD || flow->phase == HTTP_PHASE_CHUNK_FIRST ||
		flow->phase == HTTP_PHASE_CHUNK_NEXT);
}

static int approve_next(struct conn *conn, uint32_t *left)
{
	if (!wants_inspection(conn->http))
		return 0;
	return conn->http->phase == HTTP_PHASE_HEAD ? approve_head(conn, left)
						    : approve_chunk(conn, left);
}

/* 1: something was approved, or the phase has changed; 0: not without more bytes, or not in this
 * turn; -errno. */
static int approve_some(struct conn *conn, uint32_t *left)
{
	struct http_flow *flow = conn->http;
	size_t more = flow->used - flow->approved;

	switch (flow->phase) {
	case HTTP_PHASE_HEAD:
	case HTTP_PHASE_CHUNK_FIRST:
	case HTTP_PHASE_CHUNK_NEXT:
		return approve_next(conn, left);
	case HTTP_PHASE_BODY:
		if (flow->body_left == 0) {
			flow->phase = flow->after_body;
			return 1;
		}
		if (more > flow->body_left)
			more = (size_t)flow->body_left;
		flow->approved += more;
		flow->body_left -= more;
		return more > 0;
	case HTTP_PHASE_OPAQUE:
		flow->approved = flow->used;
		return 0;
	case HTTP_PHASE_SWITCHING:
	case HTTP_PHASE_REFUSED:
		break;
	}
	return 0;
}

/* 0: something went; 1: not now; -errno. */
static int send_approved(struct conn *conn, uint64_t *moved)
{
	struct http_flow *flow = conn->http;
	ssize_t n;

	conn->out.state = PUMP_WANT_WRITE;
	if (!conn->connected)
		return 1;
	n = send(conn->upstream_fd, flow->data, flow->approved, MSG_DONTWAIT | MSG_NOSIGNAL);
	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 1 : -errno;
	memmove(flow->data, flow->data + n, flow->used - (size_t)n);
	flow->used -= (size_t)n;
	flow->approved -= (size_t)n;
	*moved += (uint64_t)n;
	return 0;
}

/* 0: something came, or its end; 1: not now; -errno. */
static int read_client(struct conn *conn, uint64_t *budget)
{
	struct http_flow *flow = conn->http;
	size_t most = sizeof(flow->data) - flow->used;
	ssize_t n;

	if (*budget == 0) {
		conn->out.state = PUMP_WANT_BUDGET;
		return 1;
	}
	conn->out.state = PUMP_WANT_READ;
	if (*budget < most)
		most = (size_t)*budget;
	n = recv(conn->base.client_fd, flow->data + flow->used, most, MSG_DONTWAIT);
	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 1 : -errno;
	*budget -= (uint64_t)n;
	flow->eof = n == 0;
	flow->drained = (size_t)n < most;
	flow->used += (size_t)n;
	return 0;
}

/* All that was approved has gone. 1: the connection waits or has ended. */
static int go_on(struct conn *conn, uint64_t *budget)
{
	struct http_flow *flow = conn->http;

	if (flow->phase == HTTP_PHASE_REFUSED && flow->n_requests == 0)
		return 1;
	if (flow->phase == HTTP_PHASE_REFUSED || flow->eof) {
		/* The answers to the requests before come first, then ours. */
		conn->in.hold_end = flow->farewell != NULL;
		conn->out.state = PUMP_DONE;
		if (conn->connected)
			(void)shutdown(conn->upstream_fd, SHUT_WR);
		return 1;
	}
	if (flow->phase == HTTP_PHASE_SWITCHING) {
		conn->out.state = PUMP_WANT_NOTHING;
		return 1;
	}
	if (flow->drained) {
		conn->out.state = PUMP_WANT_READ; /* epoll tells of what comes */
		return 1;
	}
	return read_client(conn, budget);
}

int http_flow_run(struct conn *conn, uint64_t *budget, uint64_t *moved, bool *ret_fatal)
{
	struct http_flow *flow = conn->http;
	uint32_t left = COST_OF_TURN;
	int r = 0;

	*ret_fatal = false;
	flow->drained = false;
	if (conn->out.state == PUMP_DONE)
		return 0;
	for (int i = 0; r == 0 && i < ROUNDS; i++) {
		do {
			r = approve_some(conn, &left);
		} while (r > 0);
		if (r < 0) {
			*ret_fatal = true;
			return r;
		}
		if (flow->approved > 0)
			r = send_approved(conn, moved);
		else if (left < COST_ASKED && wants_inspection(flow))
			break;
		else
			r = go_on(conn, budget);
	}
	/* The turn is over, and there may be bytes here that no event of the client's will tell of:
	 * upstream can be written to, which brings us back. */
	if (r == 0)
		conn->out.state = PUMP_WANT_WRITE;
	if (r < 0)
		return r;
	return flow->phase == HTTP_PHASE_REFUSED && flow->n_requests == 0;
}

bool http_flow_answer(struct conn *conn)
{
	static const char agreed[] = "HTTP/1.1 101 ";
	struct http_flow *flow = conn->http;
	char head[sizeof(agreed) - 1];
	ssize_t n;

	if (!flow || flow->phase != HTTP_PHASE_SWITCHING)
		return true;
	n = recv(conn->upstream_fd, head, sizeof(head), MSG_PEEK | MSG_DONTWAIT);
	if (n < 0)
		return errno != EAGAIN && errno != EINTR; /* an error: the pump meets it, too */
	/* A server that says less than a status line agrees to nothing. */
	flow->phase = n == (ssize_t)sizeof(head) && memcmp(head, agreed, sizeof(head)) == 0
			      ? HTTP_PHASE_OPAQUE
			      : HTTP_PHASE_HEAD;
	return true;
}
