#include "supervisor/api/link/supervisor_client.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/launch.h"
#include "base/list.h"
#include "base/sockmsg.h"
#include "base/str.h"

#define MAX_OUTSTANDING  4096
#define MAX_READS_A_TURN 64

struct pending {
	struct list link;   /* in client->pending, oldest first */
	struct list unsent; /* in client->unsent, or alone */
	struct launch_msg msg;
	usec_t since;
	usec_t deadline;
	supervisor_answer callback;
	void *userdata;
};

struct supervisor_client {
	sd_event_source *io;
	sd_event_source *timer;
	struct list pending;
	struct list unsent;
	const struct supervisor_client_events *events;
	void *userdata;
	uint32_t last_serial;
	uint32_t n_pending;
	int fd;
	bool closed;
};

static void finish(struct supervisor_client *client, struct pending *pending,
		   const struct launch_msg *answer, int fd)
{
	list_remove(&pending->link);
	list_remove(&pending->unsent);
	client->n_pending--;
	pending->callback(pending->userdata, answer, fd);
	free(pending);
}

static void close_client(struct supervisor_client *client, int error)
{
	if (client->closed)
		return;
	client->closed = true;
	client->io = sd_event_source_disable_unref(client->io);
	while (!list_empty(&client->pending))
		finish(client, LIST_ENTRY(client->pending.next, struct pending, link), NULL, -1);
	client->events->closed(client->userdata, error);
}

static struct pending *find_pending(struct supervisor_client *client, uint32_t serial)
{
	LIST_FOR_EACH (entry, &client->pending) {
		struct pending *pending = LIST_ENTRY(entry, struct pending, link);

		if (pending->msg.serial == serial)
			return pending;
	}
	return NULL;
}

/* 0, or -EPROTO: the connection cannot be trusted any further. The descriptor is consumed. */
static int handle_message(struct supervisor_client *client, const struct launch_msg *msg, int fd)
{
	AUTO_CLOSE int owned_fd = fd;
	struct pending *pending;
	struct id session;

	memcpy(session.bytes, msg->session, ID_BYTES);
	if (msg->type == LAUNCH_EVENT_GONE) {
		client->events->gone(client->userdata, &session, &msg->u.gone);
		return 0;
	}
	if (msg->type == LAUNCH_EVENT_FACTS) {
		if (client->events->facts)
			client->events->facts(client->userdata, &msg->u.facts);
		return 0;
	}
	if (msg->type == LAUNCH_EVENT_CONFIG) {
		client->events->config(client->userdata, &msg->u.config, TAKE_FD(owned_fd));
		return 0;
	}
	if (msg->type == LAUNCH_EVENT_LINK) {
		if (owned_fd < 0)
			return -EPROTO;
		if (client->events->egress_link)
			client->events->egress_link(client->userdata, msg->u.link.egress,
						    TAKE_FD(owned_fd));
		return 0;
	}
	pending = find_pending(client, msg->serial);
	if (!pending)
		return 0; /* its deadline passed; a descriptor that came with it is closed */
	if (msg->type != pending->msg.type + 1)
		return -EPROTO;
	if (msg->type == LAUNCH_ADOPT + 1 && msg->more) {
		pending->callback(pending->userdata, msg, TAKE_FD(owned_fd));
		return 0;
	}
	finish(client, pending, msg, TAKE_FD(owned_fd));
	return 0;
}

static int receive(struct supervisor_client *client)
{
	for (unsigned int i = 0; i < MAX_READS_A_TURN && !client->closed; i++) {
		struct launch_msg msg;
		int fd = -1;
		ssize_t n;
		int r;

		n = sockmsg_recv(client->fd, &msg, sizeof(msg), &fd, 1);
		if (n == -EAGAIN)
			return 0;
		if (n <= 0)
			return n == 0 ? -EPIPE : (int)n;
		r = launch_check(&msg, (size_t)n, 1);
		if (r < 0) {
			(void)fd_close(fd);
			return r;
		}
		r = handle_message(client, &msg, fd);
		if (r < 0)
			return r;
	}
	return 0;
}

static int send_waiting(struct supervisor_client *client)
{
	int r;

	while (!list_empty(&client->unsent)) {
		struct pending *pending = LIST_ENTRY(client->unsent.next, struct pending, unsent);

		r = sockmsg_send(client->fd, &pending->msg, sizeof(pending->msg), NULL, 0);
		if (r == -EAGAIN)
			return sd_event_source_set_io_events(client->io, EPOLLIN | EPOLLOUT);
		if (r < 0)
			return r;
		list_remove(&pending->unsent);
	}
	return sd_event_source_set_io_events(client->io, EPOLLIN);
}

static int on_io(sd_event_source *source, int fd, uint32_t revents, void *userdata)
{
	struct supervisor_client *client = userdata;
	int r = 0;

	(void)source;
	(void)fd;
	if (revents & (EPOLLIN | EPOLLHUP | EPOLLERR))
		r = receive(client);
	if (r >= 0 && !client->closed && (revents & EPOLLOUT))
		r = send_waiting(client);
	if (r < 0)
		close_client(client, r);
	return 0;
}

static void arm_timer(struct supervisor_client *client)
{
	usec_t first = USEC_NEVER;

	LIST_FOR_EACH (entry, &client->pending) {
		const struct pending *pending = LIST_ENTRY(entry, struct pending, link);

		if (pending->deadline < first)
			first = pending->deadline;
	}
	(void)sd_event_source_set_time(client->timer, first);
	(void)sd_event_source_set_enabled(client->timer,
					  first == USEC_NEVER ? SD_EVENT_OFF : SD_EVENT_ONESHOT);
}

static int on_timer(sd_event_source *source, uint64_t at, void *userdata)
{
	struct supervisor_client *client = userdata;
	usec_t now = clock_boottime();

	(void)source;
	(void)at;
	LIST_FOR_EACH_SAFE (entry, following, &client->pending) {
		struct pending *pending = LIST_ENTRY(entry, struct pending, link);

		if (pending->deadline <= now)
			finish(client, pending, NULL, -1);
	}
	arm_timer(client);
	return 0;
}

int supervisor_client_new(sd_event *event, int fd, const struct supervisor_client_events *events,
			  void *userdata, struct supervisor_client **ret_client)
{
	struct supervisor_client *client;
	int r;

	client = calloc(1, sizeof(*client));
	if (!client)
		return -ENOMEM;
	client->fd = fd;
	client->events = events;
	client->userdata = userdata;
	list_init(&client->pending);
	list_init(&client->unsent);
	r = fd_set_nonblock(fd, 1);
	if (r >= 0)
		r = sd_event_add_io(event, &client->io, fd, EPOLLIN, on_io, client);
	if (r >= 0)
		r = sd_event_add_time(event, &client->timer, CLOCK_BOOTTIME, USEC_NEVER,
				      USEC_PER_MS, on_timer, client);
	if (r < 0) {
		client->fd = -1; /* stays the caller's */
		(void)supervisor_client_free(client);
		return r;
	}
	*ret_client = client;
	return 0;
}

struct supervisor_client *supervisor_client_free(struct supervisor_client *client)
{
	if (!client)
		return NULL;
	client->closed = true;
	client->io = sd_event_source_disable_unref(client->io);
	client->timer = sd_event_source_disable_unref(client->timer);
	while (!list_empty(&client->pending))
		finish(client, LIST_ENTRY(client->pending.next, struct pending, link), NULL, -1);
	client->fd = fd_close(client->fd);
	free(client);
	return NULL;
}

static struct launch_msg message_of(const struct supervisor_request *request, uint32_t serial)
{
	static const uint8_t no_session[ID_BYTES];
	struct launch_msg msg = launch_message(
		request->type, serial, request->session ? request->session->bytes : no_session);

	if (request->plan)
		msg.u.plan = *request->plan;
	if (request->secrets)
		msg.u.start.secrets = *request->secrets;
	if (request->request_id)
		IGNORE_RESULT(str_copy(msg.u.start.request, sizeof(msg.u.start.request),
				       request->request_id));
	if (request->template)
		IGNORE_RESULT(str_copy(msg.u.start.template, sizeof(msg.u.start.template),
				       request->template));
	if (request->type == LAUNCH_HELLO) {
		msg.u.hello.magic = LAUNCH_MAGIC;
		msg.u.hello.version = LAUNCH_VERSION;
		msg.u.hello.message_bytes = sizeof(struct launch_msg);
	}
	if (request->type == LAUNCH_LOG_LEVEL)
		msg.u.level.level = request->level;
	if (request->type == LAUNCH_LINK)
		msg.u.link.egress = request->egress;
	if (request->type == LAUNCH_LEASE)
		msg.u.lease.until = request->lease_until;
	if (request->redis)
		msg.u.redis = *request->redis;
	return msg;
}

int supervisor_client_request(struct supervisor_client *client,
			      const struct supervisor_request *request, supervisor_answer callback,
			      void *userdata)
{
	struct pending *pending;
	int r;

	ASSERT((request->type == LAUNCH_START) == (request->plan != NULL));
	if (client->closed)
		return -EPIPE;
	if (client->n_pending >= MAX_OUTSTANDING)
		return -ENOBUFS;
	pending = calloc(1, sizeof(*pending));
	if (!pending)
		return -ENOMEM;
	client->last_serial++;
	pending->msg = message_of(request, client->last_serial);
	pending->since = clock_boottime();
	pending->deadline = clock_add(pending->since, request->timeout);
	pending->callback = callback;
	pending->userdata = userdata;
	list_append(&client->pending, &pending->link);
	list_append(&client->unsent, &pending->unsent);
	client->n_pending++;
	r = send_waiting(client);
	if (r < 0) {
		/* The end of the connection itself is noticed by the loop. */
		list_remove(&pending->link);
		list_remove(&pending->unsent);
		client->n_pending--;
		free(pending);
		return r;
	}
	arm_timer(client);
	return 0;
}

bool supervisor_client_is_gone(const struct supervisor_client *client)
{
	struct pollfd fd = {.fd = client->fd, .events = POLLRDHUP};

	return client->closed || poll(&fd, 1, 0) > 0;
}

usec_t supervisor_client_waits_since(const struct supervisor_client *client)
{
	LIST_FOR_EACH (entry, &client->pending) {
		const struct pending *pending = LIST_ENTRY(entry, struct pending, link);

		/* The end of a session may have to wait for the kernel, Redis for its server. */
		if (pending->msg.type != LAUNCH_KILL && pending->msg.type != LAUNCH_REDIS)
			return pending->since;
	}
	return USEC_NEVER;
}
