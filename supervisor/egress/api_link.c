/*
 * The connection with the api worker (egress.h). A policy is put together in session.incoming and
 * takes effect at its END; one that is wrong leaves the session with nothing.
 */
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/log.h"
#include "base/plant.h"
#include "base/sockmsg.h"

#include "supervisor/egress/worker.h"

#define QUEUE_MAX         65536u
#define MESSAGES_PER_TURN 256

struct out_message {
	struct list link;
	struct egress_msg msg;
};

static void drop_queue(struct api_link *api)
{
	while (!list_empty(&api->queue)) {
		struct out_message *out = LIST_ENTRY(api->queue.next, struct out_message, link);

		list_remove(&out->link);
		free(out);
	}
	api->n_queued = 0;
}

void api_link_close(struct egress *egress)
{
	egress->api.source = loop_remove(egress->api.source);
	egress->api.fd = fd_close(egress->api.fd);
	egress->api.greeted = false;
	drop_queue(&egress->api);
}

static void stamp(struct egress_msg *msg)
{
	msg->magic = EGRESS_MAGIC;
	msg->version = EGRESS_VERSION;
}

bool api_link_try(struct egress *egress, const struct egress_msg *msg)
{
	struct egress_msg copy = *msg;

	if (egress->api.fd < 0 || !list_empty(&egress->api.queue))
		return false;
	stamp(&copy);
	return sockmsg_send(egress->api.fd, &copy, sizeof(copy), NULL, 0) == 0;
}

void api_link_send(struct egress *egress, const struct egress_msg *msg)
{
	struct api_link *api = &egress->api;
	struct out_message *out;

	if (api->fd < 0 || api_link_try(egress, msg))
		return;
	out = api->n_queued < QUEUE_MAX ? calloc(1, sizeof(*out)) : NULL;
	if (!out || loop_set_events(api->source, EPOLLIN | EPOLLOUT) < 0) {
		free(out);
		/* The api worker would wait for ever: a new connection begins anew. */
		log_line(LOG_LEVEL_ERROR, NULL, "connection to the api worker given up",
			 "queued=%u", api->n_queued);
		api_link_close(egress);
		return;
	}
	out->msg = *msg;
	stamp(&out->msg);
	list_append(&api->queue, &out->link);
	api->n_queued++;
}

static int flush(struct api_link *api)
{
	while (!list_empty(&api->queue)) {
		struct out_message *out = LIST_ENTRY(api->queue.next, struct out_message, link);
		int r = sockmsg_send(api->fd, &out->msg, sizeof(out->msg), NULL, 0);

		if (r < 0)
			return r == -EAGAIN ? 0 : r;
		list_remove(&out->link);
		free(out);
		api->n_queued--;
	}
	return loop_set_events(api->source, EPOLLIN);
}

static void acknowledge(struct egress *egress, const struct egress_msg *msg, int error)
{
	struct egress_msg ack = {.type = EGRESS_ACK, .generation = msg->generation};

	memcpy(ack.session, msg->session, ID_BYTES);
	ack.error = (uint32_t)-error;
	api_link_send(egress, &ack);
}

static int on_policy(struct egress *egress, struct session *session, const struct egress_msg *msg)
{
	(void)egress;
	session->incoming = policy_free(session->incoming);
	return policy_new(msg->generation, &msg->u.policy, &session->incoming);
}

static int on_rule(struct egress *egress, struct session *session, const struct egress_msg *msg)
{
	(void)egress;
	if (session->incoming)
		policy_add_rule(session->incoming, &msg->u.rule);
	return 0;
}

static int on_path(struct egress *egress, struct session *session, const struct egress_msg *msg)
{
	(void)egress;
	if (session->incoming)
		policy_add_path(session->incoming, &msg->u.path);
	return 0;
}

static int on_end(struct egress *egress, struct session *session, const struct egress_msg *msg)
{
	AUTO(policy_free) struct policy *policy = TAKE_PTR(session->incoming);
	int r = -EINVAL; /* no BEGIN, or a BEGIN that was refused */

	if (policy)
		r = policy->generation == msg->generation ? policy_end(policy) : -EPROTO;
	if (planted("policy-nak"))
		r = -ENOMEM;
	sessions_set_policy(session, r == 0 ? TAKE_PTR(policy) : NULL);
	acknowledge(egress, msg, r);
	return 0;
}

static int on_forget(struct egress *egress, struct session *session, const struct egress_msg *msg)
{
	(void)egress;
	(void)msg;
	sessions_set_policy(session, NULL);
	/* The supervisor says when its sockets are of no use any more. */
	if (session->listener.fd < 0)
		sessions_free(session);
	return 0;
}

static void send_counters(struct egress *egress, const struct egress_msg *ask, uint32_t rule,
			  const struct policy_counters *counters, uint64_t untold)
{
	struct egress_msg msg = {
		.type = EGRESS_COUNTERS,
		.serial = ask->serial,
		.more = rule != EGRESS_NO_RULE,
	};
	struct egress_counters *u = &msg.u.counters;

	memcpy(msg.session, ask->session, ID_BYTES);
	u->rule = rule;
	u->open = counters->open;
	u->connections = counters->connections;
	u->denials = counters->denials;
	u->bytes_out = counters->bytes_out;
	u->bytes_in = counters->bytes_in;
	u->dns_answers = counters->dns_answers;
	u->untold = untold;
	api_link_send(egress, &msg);
}

static int on_count(struct egress *egress, struct session *session, const struct egress_msg *msg)
{
	const struct policy *policy = session->policy;

	for (uint32_t i = 0; policy && i < policy->n_rules; i++)
		send_counters(egress, msg, i, &policy->counters[i], 0);
	session->total.open = session->n_connections;
	send_counters(egress, msg, EGRESS_NO_RULE, &session->total, session->denials.untold);
	return 0;
}

static const struct api_message {
	uint32_t type;
	bool makes_session;
	int (*handle)(struct egress *egress, struct session *session, const struct egress_msg *msg);
} messages[] = {
	{EGRESS_POLICY, true,  on_policy},
        {EGRESS_RULE,   false, on_rule  },
	{EGRESS_PATH,   false, on_path  },
        {EGRESS_END,    false, on_end   },
	{EGRESS_FORGET, false, on_forget},
        {EGRESS_COUNT,  false, on_count },
};

static void not_known(struct egress *egress, const struct egress_msg *msg)
{
	struct egress_msg answer = {
		.type = EGRESS_COUNTERS,
		.serial = msg->serial,
		.error = ENOENT,
	};

	if (msg->type == EGRESS_END)
		acknowledge(egress, msg, -ENOENT);
	if (msg->type != EGRESS_COUNT)
		return;
	memcpy(answer.session, msg->session, ID_BYTES);
	answer.u.counters.rule = EGRESS_NO_RULE;
	api_link_send(egress, &answer);
}

static int dispatch(struct egress *egress, const struct egress_msg *msg)
{
	for (size_t i = 0; i < ARRAY_SIZE(messages); i++) {
		struct session *session;
		struct id id;

		if (messages[i].type != msg->type)
			continue;
		memcpy(id.bytes, msg->session, ID_BYTES);
		session = messages[i].makes_session ? sessions_get(egress, &id)
						    : sessions_find(egress, &id);
		if (session)
			return messages[i].handle(egress, session, msg);
		not_known(egress, msg);
		return messages[i].makes_session ? -ENOMEM : 0;
	}
	return -EPROTO;
}

/* 1: taken; 0: none there; -errno: the connection is of no use. */
static int take(struct egress *egress)
{
	struct egress_msg msg;
	ssize_t n = sockmsg_recv(egress->api.fd, &msg, sizeof(msg), NULL, 0);
	int r;

	if (n == -EAGAIN)
		return 0;
	if (n <= 0)
		return n == 0 ? -ECONNRESET : (int)n;
	if (n != (ssize_t)sizeof(msg) || msg.magic != EGRESS_MAGIC || msg.version != EGRESS_VERSION)
		return -EPROTO;
	if (!egress->api.greeted) {
		if (msg.type != EGRESS_HELLO || msg.u.hello.message_bytes != sizeof(msg))
			return -EPROTO;
		egress->api.greeted = true;
		return 1;
	}
	r = dispatch(egress, &msg);
	/* A policy that cannot be taken is told at its END; without memory the rest is the same. */
	return r == -EPROTO ? r : 1;
}

static int on_link(void *userdata, uint32_t events)
{
	struct egress *egress = userdata;
	int r = 1;

	if (events & EPOLLOUT)
		r = flush(&egress->api) < 0 ? -EPIPE : 1;
	for (int i = 0; r > 0 && i < MESSAGES_PER_TURN && egress->api.fd >= 0; i++)
		r = take(egress);
	if (r < 0) {
		/* Sessions go on with what they have; the next connection brings everything. */
		if (r != -ECONNRESET)
			log_line(LOG_LEVEL_ERROR, NULL, "connection to the api worker lost",
				 "errno=%d", -r);
		api_link_close(egress);
	}
	return 0;
}

int api_link_open(struct egress *egress, int fd)
{
	struct egress_msg hello = {.type = EGRESS_HELLO};
	int r;

	api_link_close(egress);
	sessions_drop_unopened(egress);
	r = loop_add(egress->loop, fd, EPOLLIN, on_link, egress, &egress->api.source);
	if (r < 0) {
		(void)fd_close(fd);
		return r;
	}
	egress->api.fd = fd;
	hello.u.hello.message_bytes = sizeof(hello);
	api_link_send(egress, &hello);
	return 0;
}
