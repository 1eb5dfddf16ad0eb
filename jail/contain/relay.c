/*
 * Theory. The streams that an engine gives break, and what runs in the container does not. So
 * between the two stands this process, which lives as long as the shim: it has the shim's one
 * connection and the tether (base/tether.h) to sandboxd-provider, and carries whole messages.
 * Streams come and go: each is a connection of `sandbox-contain connect`, and the newest counts.
 *
 * A caller of another name is another api worker's: it gets a connection of its own, and the former
 * one ends, as the shim serves one at a time.
 *
 * Runs as uid 0 of the container, without a capability. The shim waits for nobody, so a blocked
 * write to it always ends; what it says while there is no stream is kept until the tether is full,
 * and then waits in the shim.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/sockmsg.h"
#include "base/tether.h"

#include "jail/contain/contain.h"
#include "sandboxd/contain.h"

struct relay {
	int listen_fd;
	int stream_fd; /* or -1 */
	int shim_fd;   /* or -1 */
	struct tether tether;
};

static void take_stream(struct relay *relay)
{
	int fd = accept4(relay->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	if (fd < 0)
		return;
	(void)fd_close(relay->stream_fd);
	relay->stream_fd = fd;
	tether_stream(&relay->tether);
}

static void lose_stream(struct relay *relay)
{
	relay->stream_fd = fd_close(relay->stream_fd);
}

/* 0, or -errno of the shim's side: the end. */
static int take_messages(struct relay *relay)
{
	const void *message;
	size_t size;
	int found;
	int r = 0;

	while (r >= 0 && (found = tether_next(&relay->tether, &message, &size)) > 0) {
		if (found == TETHER_BEGUN) {
			relay->shim_fd = fd_close(relay->shim_fd);
			r = contain_dial(CONTAIN_SOCKET, SOCK_SEQPACKET, &relay->shim_fd);
			continue;
		}
		if (relay->shim_fd < 0)
			return -ENOTCONN;
		r = sockmsg_send(relay->shim_fd, message, size, NULL, 0);
		tether_took(&relay->tether);
	}
	if (r >= 0 && found < 0)
		lose_stream(relay);
	return r < 0 ? r : 0;
}

static int read_stream(struct relay *relay)
{
	void *space;
	size_t room = tether_space(&relay->tether, &space);
	ssize_t n = recv(relay->stream_fd, space, room, 0);

	if (n < 0 && errno == EAGAIN)
		return 0;
	if (n <= 0) {
		lose_stream(relay);
		return 0;
	}
	tether_read(&relay->tether, (size_t)n);
	return take_messages(relay);
}

static void write_stream(struct relay *relay)
{
	const void *data;
	size_t size = tether_pending(&relay->tether, &data);
	ssize_t n = size > 0 ? send(relay->stream_fd, data, size, MSG_NOSIGNAL) : 0;

	if (n >= 0)
		tether_wrote(&relay->tether, (size_t)n);
	else if (errno != EAGAIN)
		lose_stream(relay);
}

static int read_shim(struct relay *relay)
{
	static uint8_t message[WIRE_FRAME_MAX_BYTES];
	ssize_t n = sockmsg_recv(relay->shim_fd, message, sizeof(message), NULL, 0);

	if (n <= 0)
		return n < 0 ? (int)n : -EPIPE;
	return tether_put(&relay->tether, message, (size_t)n);
}

static int turn(struct relay *relay)
{
	const void *data;
	bool has_stream = relay->stream_fd >= 0;
	bool writes = has_stream && tether_pending(&relay->tether, &data) > 0;
	bool reads_shim = relay->shim_fd >= 0 && tether_may_put(&relay->tether);
	struct pollfd fds[] = {
		{.fd = relay->listen_fd,                 .events = POLLIN                                  },
		{.fd = relay->stream_fd,                 .events = (short)(POLLIN | (writes ? POLLOUT : 0))},
		{.fd = reads_shim ? relay->shim_fd : -1, .events = POLLIN                                  },
	};
	int r = 0;

	if (poll(fds, ARRAY_SIZE(fds), -1) < 0)
		return errno == EINTR ? 0 : -errno;
	if (fds[2].revents != 0)
		r = read_shim(relay);
	if (r >= 0 && (fds[1].revents & ~POLLOUT) != 0)
		r = read_stream(relay);
	if (r >= 0 && relay->stream_fd >= 0)
		write_stream(relay);
	if (r >= 0 && fds[0].revents != 0)
		take_stream(relay);
	return r;
}

int contain_relay(int listen_fd)
{
	struct relay relay = {.listen_fd = listen_fd, .stream_fd = -1, .shim_fd = -1};
	int r = tether_init(&relay.tether, 0);

	while (r >= 0)
		r = turn(&relay);
	return EXIT_FAILURE;
}
