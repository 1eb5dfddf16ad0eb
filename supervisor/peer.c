/*
 * Theory. The other end is one of our workers, and may be a worker that was taken over: a message
 * is of the one size, checked by launch_check, without descriptors; everything else ends the
 * connection. While answers wait in the queue no request is read, so a worker that does not read
 * cannot make the supervisor hold more than the events of its sessions, which max_queued bounds.
 *
 * Ending: whoever finds a reason calls peer_break from wherever it is. That shuts the socket down,
 * and the loop's next look at it (hang-up) raises `lost`, always from the same place with nothing
 * of the peer in use on the stack.
 */
#include "supervisor/peer.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/fd.h"
#include "base/launch.h"
#include "base/log.h"
#include "base/sockmsg.h"

struct peer_message {
	struct list link;
	int fds[SOCKMSG_MAX_FDS];
	size_t n_fds;
	struct launch_msg msg;
};

static void close_fds(int *fds, size_t n_fds)
{
	for (size_t i = 0; i < n_fds; i++)
		fds[i] = fd_close(fds[i]);
}

static struct peer_message *message_free(struct peer_message *message)
{
	close_fds(message->fds, message->n_fds);
	free(message);
	return NULL;
}

static void end(struct peer *peer, enum log_level level, const char *why)
{
	if (peer->broken)
		return;
	peer->broken = true;
	log_line(level, NULL, "connection to a worker ends", "worker=%s why=\"%s\"", peer->name,
		 why);
	/* ENOTCONN: the other end was first. */
	(void)shutdown(peer->fd, SHUT_RDWR);
}

void peer_break(struct peer *peer, const char *why)
{
	end(peer, LOG_LEVEL_ERROR, why);
}

static void watch(struct peer *peer)
{
	uint32_t events = list_empty(&peer->queue) ? EPOLLIN : EPOLLOUT;

	if (peer->source && loop_set_events(peer->source, events) < 0)
		peer_break(peer, "epoll");
}

static void flush_queue(struct peer *peer)
{
	while (!list_empty(&peer->queue)) {
		struct peer_message *message =
			LIST_ENTRY(peer->queue.next, struct peer_message, link);
		int r = sockmsg_send(peer->fd, &message->msg, sizeof(message->msg), message->fds,
				     message->n_fds);

		if (r == -EAGAIN)
			return;
		if (r < 0) {
			peer_break(peer, "send");
			return;
		}
		list_remove(&message->link);
		peer->n_queued--;
		(void)message_free(message);
	}
	watch(peer);
	if (peer->events->drained)
		peer->events->drained(peer);
}

/* 0: it waits, with the descriptors; 1: it was sent and they are still the caller's, as after
 * -errno. */
static int send_or_queue(struct peer *peer, const struct launch_msg *msg, const int *fds,
			 size_t n_fds)
{
	struct peer_message *message;
	int r;

	if (list_empty(&peer->queue)) {
		r = sockmsg_send(peer->fd, msg, sizeof(*msg), fds, n_fds);
		if (r != -EAGAIN)
			return r == 0 ? 1 : r;
	}
	if (peer->n_queued >= peer->max_queued)
		return -ENOBUFS;
	message = malloc(sizeof(*message));
	if (!message)
		return -ENOMEM;
	message->msg = *msg;
	message->n_fds = n_fds;
	for (size_t i = 0; i < n_fds; i++)
		message->fds[i] = fds[i];
	list_append(&peer->queue, &message->link);
	peer->n_queued++;
	watch(peer);
	return 0;
}

void peer_send_fds(struct peer *peer, const struct launch_msg *msg, int *fds, size_t n_fds)
{
	int r = -EPIPE;

	ASSERT(n_fds <= SOCKMSG_MAX_FDS);
	if (!peer->broken) {
		r = send_or_queue(peer, msg, fds, n_fds);
		if (r < 0)
			peer_break(peer, r == -ENOBUFS  ? "it does not read its answers"
					 : r == -ENOMEM ? "no memory"
							: "send");
	}
	if (r != 0)
		close_fds(fds, n_fds);
}

void peer_send(struct peer *peer, const struct launch_msg *msg, int fd)
{
	peer_send_fds(peer, msg, &fd, fd >= 0 ? 1 : 0);
}

static void receive(struct peer *peer)
{
	struct launch_msg msg;
	ssize_t n = sockmsg_recv(peer->fd, &msg, sizeof(msg), NULL, 0);

	if (n == -EAGAIN)
		return;
	/* ECONNRESET: it closed with answers unread. */
	if (n == 0 || n == -ECONNRESET) {
		end(peer, LOG_LEVEL_DEBUG, "closed by the worker");
		return;
	}
	if (n < 0 || launch_check(&msg, (size_t)n, 0) < 0) {
		peer_break(peer, "not a request");
		return;
	}
	if (peer->events->request(peer, &msg) < 0)
		peer_break(peer, "request not permitted");
}

static int on_socket(void *userdata, uint32_t events)
{
	struct peer *peer = userdata;

	if (!peer->broken && (events & EPOLLOUT))
		flush_queue(peer);
	if (!peer->broken && (events & EPOLLIN))
		receive(peer);
	if (!peer->broken && !(events & (EPOLLIN | EPOLLOUT)))
		end(peer, LOG_LEVEL_DEBUG, "closed by the worker");
	if (peer->broken) {
		peer->source = loop_remove(peer->source);
		peer->events->lost(peer);
	}
	return 0;
}

int peer_open(struct peer *peer, struct loop *loop, int socket_fd, const char *name,
	      const struct peer_events *events, void *userdata)
{
	int r;

	*peer = (struct peer){
		.loop = loop,
		.events = events,
		.userdata = userdata,
		.name = name,
		.fd = socket_fd,
		.max_queued = 64,
	};
	list_init(&peer->queue);
	sockmsg_refuse_fds(socket_fd);
	r = loop_add(loop, socket_fd, EPOLLIN, on_socket, peer, &peer->source);
	if (r < 0) {
		peer->fd = -1;
		return r;
	}
	return 0;
}

void peer_done(struct peer *peer)
{
	if (peer->fd < 0)
		return;
	peer->source = loop_remove(peer->source);
	LIST_FOR_EACH_SAFE (link, following, &peer->queue)
		(void)message_free(LIST_ENTRY(link, struct peer_message, link));
	list_init(&peer->queue);
	peer->n_queued = 0;
	sockmsg_drain(peer->fd);
	peer->fd = fd_close(peer->fd);
}
