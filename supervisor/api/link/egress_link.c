#include "supervisor/api/link/egress_link.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/fd.h"
#include "base/list.h"
#include "base/sockmsg.h"

/* Beyond BUSY_WAITING no policy is begun, so that MAX_WAITING cuts none short. */
#define BUSY_WAITING     4096
#define MAX_WAITING      65536
#define MAX_READS_A_TURN 64

struct waiting {
	struct list link;
	struct egress_msg msg;
};

struct egress_link {
	sd_event_source *io;
	const struct egress_link_events *events;
	void *userdata;
	struct list waiting;
	size_t n_waiting;
	int fd;
	bool greeted;
	bool closed;
};

static void drop_waiting(struct egress_link *link)
{
	while (!list_empty(&link->waiting)) {
		struct waiting *waiting = LIST_ENTRY(link->waiting.next, struct waiting, link);

		list_remove(&waiting->link);
		free(waiting);
	}
	link->n_waiting = 0;
}

static void close_link(struct egress_link *link, int error)
{
	if (link->closed)
		return;
	link->closed = true;
	link->io = sd_event_source_disable_unref(link->io);
	drop_waiting(link);
	link->events->closed(link->userdata, error);
}

static int watch(struct egress_link *link)
{
	return sd_event_source_set_io_events(
		link->io, list_empty(&link->waiting) ? EPOLLIN : EPOLLIN | EPOLLOUT);
}

static int flush(struct egress_link *link)
{
	int r = 0;

	while (!list_empty(&link->waiting)) {
		struct waiting *waiting = LIST_ENTRY(link->waiting.next, struct waiting, link);

		r = sockmsg_send(link->fd, &waiting->msg, sizeof(waiting->msg), NULL, 0);
		if (r < 0)
			break;
		list_remove(&waiting->link);
		link->n_waiting--;
		free(waiting);
	}
	if (r < 0 && r != -EAGAIN)
		return r;
	return watch(link);
}

static struct egress_msg message(enum egress_type type, const struct id *session)
{
	struct egress_msg msg = {
		.magic = EGRESS_MAGIC, .version = EGRESS_VERSION, .type = (uint16_t)type};

	if (session)
		memcpy(msg.session, session->bytes, ID_BYTES);
	return msg;
}

static int send_message(struct egress_link *link, const struct egress_msg *msg)
{
	struct waiting *waiting;
	int r;

	if (link->closed)
		return -EPIPE;
	if (list_empty(&link->waiting)) {
		r = sockmsg_send(link->fd, msg, sizeof(*msg), NULL, 0);
		if (r != -EAGAIN)
			return r;
	}
	if (link->n_waiting >= MAX_WAITING)
		return -ENOBUFS;
	waiting = malloc(sizeof(*waiting));
	if (!waiting)
		return -ENOMEM;
	waiting->msg = *msg;
	list_append(&link->waiting, &waiting->link);
	link->n_waiting++;
	return watch(link);
}

static bool text_ends(const char *text, size_t size)
{
	return memchr(text, '\0', size) != NULL;
}

static bool denial_valid(const struct egress_denial *denial)
{
	return denial->channel > 0 && denial->channel < EGRESS_CHANNEL_MAX_ && denial->reason > 0 &&
	       denial->reason < EGRESS_REASON_MAX_ && denial->port <= UINT16_MAX &&
	       text_ends(denial->name, sizeof(denial->name)) &&
	       text_ends(denial->label, sizeof(denial->label)) && denial->address.prefix <= 128;
}

static int take_hello(struct egress_link *link, const struct egress_msg *msg)
{
	if (link->greeted || msg->u.hello.message_bytes != sizeof(*msg))
		return -EPROTO;
	link->greeted = true;
	link->events->ready(link->userdata);
	return 0;
}

static int take(struct egress_link *link, const struct egress_msg *msg, size_t size)
{
	struct id session;

	if (size != sizeof(*msg) || msg->magic != EGRESS_MAGIC || msg->version != EGRESS_VERSION)
		return -EPROTO;
	memcpy(session.bytes, msg->session, ID_BYTES);
	if (msg->type == EGRESS_HELLO)
		return take_hello(link, msg);
	if (!link->greeted)
		return -EPROTO;
	switch (msg->type) {
	case EGRESS_ACK:
		link->events->acked(link->userdata, &session, msg->generation, (int)msg->error);
		return 0;
	case EGRESS_DENIAL:
		if (!denial_valid(&msg->u.denial))
			return -EPROTO;
		link->events->denied(link->userdata, &session, &msg->u.denial);
		return 0;
	case EGRESS_COUNTERS:
		link->events->counted(link->userdata, msg->serial, &msg->u.counters, msg->more != 0,
				      (int)msg->error);
		return 0;
	default:
		return -EPROTO;
	}
}

static int on_io(sd_event_source *source, int fd, uint32_t revents, void *userdata)
{
	struct egress_link *link = userdata;
	int r = 0;

	(void)source;
	if (revents & EPOLLOUT) {
		r = flush(link);
		if (r >= 0 && list_empty(&link->waiting))
			link->events->drained(link->userdata);
	}
	for (size_t i = 0; r >= 0 && !link->closed && i < MAX_READS_A_TURN; i++) {
		struct egress_msg msg;
		ssize_t n = sockmsg_recv(fd, &msg, sizeof(msg), NULL, 0);

		if (n == -EAGAIN)
			return 0;
		r = n < 0 ? (int)n : n == 0 ? -ECONNRESET : take(link, &msg, (size_t)n);
	}
	if (r < 0)
		close_link(link, r);
	return 0;
}

int egress_link_new(sd_event *event, int fd, const struct egress_link_events *events,
		    void *userdata, struct egress_link **ret_link)
{
	struct egress_link *link = calloc(1, sizeof(*link));
	struct egress_msg hello = message(EGRESS_HELLO, NULL);
	int r;

	if (!link) {
		(void)fd_close(fd);
		return -ENOMEM;
	}
	link->fd = fd;
	link->events = events;
	link->userdata = userdata;
	list_init(&link->waiting);
	r = sd_event_add_io(event, &link->io, fd, EPOLLIN, on_io, link);
	hello.u.hello.message_bytes = sizeof(hello);
	if (r >= 0)
		r = send_message(link, &hello);
	if (r < 0) {
		(void)egress_link_free(link);
		return r;
	}
	*ret_link = link;
	return 0;
}

struct egress_link *egress_link_free(struct egress_link *link)
{
	if (!link)
		return NULL;
	link->io = sd_event_source_disable_unref(link->io);
	drop_waiting(link);
	(void)fd_close(link->fd);
	free(link);
	return NULL;
}

bool egress_link_ready(const struct egress_link *link)
{
	return link && link->greeted && !link->closed;
}

bool egress_link_is_busy(const struct egress_link *link)
{
	return link->n_waiting >= BUSY_WAITING;
}

int egress_link_policy(struct egress_link *link, const struct id *session, uint32_t generation,
		       const struct net_policy *policy)
{
	struct egress_msg msg = message(EGRESS_POLICY, session);
	size_t path = 0;
	int r;

	msg.generation = generation;
	msg.u.policy = policy->limits;
	msg.u.policy.n_rules = (uint32_t)policy->n_rules;
	r = send_message(link, &msg);
	for (size_t i = 0; r >= 0 && i < policy->n_rules; i++) {
		msg.type = EGRESS_RULE;
		msg.u.rule = policy->rule[i];
		r = send_message(link, &msg);
		for (; r >= 0 && path < policy->n_paths && policy->path[path].rule == i; path++) {
			memset(&msg.u, 0, sizeof(msg.u));
			msg.type = EGRESS_PATH;
			msg.u.path = policy->path[path];
			r = send_message(link, &msg);
		}
	}
	memset(&msg.u, 0, sizeof(msg.u));
	msg.type = EGRESS_END;
	return r < 0 ? r : send_message(link, &msg);
}

void egress_link_forget(struct egress_link *link, const struct id *session)
{
	struct egress_msg msg = message(EGRESS_FORGET, session);
	int r = send_message(link, &msg);

	if (r < 0)
		close_link(link, r);
}

int egress_link_count(struct egress_link *link, const struct id *session, uint32_t serial)
{
	struct egress_msg msg = message(EGRESS_COUNT, session);

	msg.serial = serial;
	return send_message(link, &msg);
}
