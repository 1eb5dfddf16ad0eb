/*
 * Theory. Each direction holds one message and reads no further before it is gone: what is on the
 * way is bounded, and who does not read makes the other side wait. Each end is watched for what its
 * direction lacks, never for what it cannot use.
 */
#include "supervisor/provider/pump.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/fd.h"
#include "base/sockmsg.h"

#include "supervisor/provider/unwrap.h"

#define IN_BYTES  16384
#define MAX_MOVES 32 /* in one turn */

struct pump {
	struct loop *loop;
	pump_ended ended;
	void *userdata;
	int handle_fd;
	int stream_fd;
	struct loop_source *handle_source;
	struct loop_source *stream_source;
	bool has_ended;
	/* To the shim: bytes at out_at..out_bytes are not written yet. */
	size_t out_at;
	size_t out_bytes;
	uint8_t out[CONTAIN_MESSAGE_BYTES];
	/* From the shim: bytes at in_at..in_bytes are not taken apart yet. */
	size_t in_at;
	size_t in_bytes;
	uint8_t in[IN_BYTES];
	struct unwrap unwrap;
};

/* 1: something moved; 0: it waits; -errno. */
static int move_out(struct pump *pump)
{
	ssize_t n;

	if (pump->out_at == pump->out_bytes) {
		uint32_t size;

		n = sockmsg_recv(pump->handle_fd, pump->out + CONTAIN_HEAD_BYTES,
				 WIRE_FRAME_MAX_BYTES, NULL, 0);
		if (n == -EAGAIN)
			return 0;
		if (n <= 0)
			return n < 0 ? (int)n : -EPIPE;
		size = (uint32_t)n;
		memcpy(pump->out, &size, sizeof(size));
		pump->out_at = 0;
		pump->out_bytes = CONTAIN_HEAD_BYTES + size;
	}
	n = send(pump->stream_fd, pump->out + pump->out_at, pump->out_bytes - pump->out_at,
		 MSG_NOSIGNAL);
	if (n < 0)
		return errno == EAGAIN ? 0 : -errno;
	pump->out_at += (size_t)n;
	return 1;
}

static int read_stream(struct pump *pump)
{
	ssize_t n = recv(pump->stream_fd, pump->in, sizeof(pump->in), 0);

	if (n < 0)
		return errno == EAGAIN ? 0 : -errno;
	if (n == 0)
		return -EPIPE;
	pump->in_at = 0;
	pump->in_bytes = (size_t)n;
	return 1;
}

static int move_in(struct pump *pump)
{
	size_t size;
	const uint8_t *message = unwrap_message(&pump->unwrap, &size);
	ssize_t n;
	int r;

	if (message) {
		r = sockmsg_send(pump->handle_fd, message, size, NULL, 0);
		if (r < 0)
			return r == -EAGAIN ? 0 : r;
		unwrap_next(&pump->unwrap);
		return 1;
	}
	if (pump->in_at == pump->in_bytes)
		return read_stream(pump);
	n = unwrap_take(&pump->unwrap, pump->in + pump->in_at, pump->in_bytes - pump->in_at);
	if (n < 0)
		return (int)n;
	pump->in_at += (size_t)n;
	return 1;
}

static int set_events(struct pump *pump)
{
	bool out_waits = pump->out_at < pump->out_bytes;
	size_t size;
	bool in_waits = unwrap_message(&pump->unwrap, &size) != NULL;
	int r;

	r = loop_set_events(pump->handle_source,
			    (out_waits ? 0u : EPOLLIN) | (in_waits ? EPOLLOUT : 0u));
	if (r == 0)
		r = loop_set_events(pump->stream_source,
				    (in_waits ? 0u : EPOLLIN) | (out_waits ? EPOLLOUT : 0u));
	return r;
}

static void end(struct pump *pump)
{
	if (pump->has_ended)
		return;
	pump->has_ended = true;
	pump->handle_source = loop_remove(pump->handle_source);
	pump->stream_source = loop_remove(pump->stream_source);
	pump->ended(pump->userdata);
}

static int on_ready(void *userdata, uint32_t events)
{
	struct pump *pump = userdata;
	int in = 1;
	int out = 1;

	(void)events;
	if (pump->stream_fd < 0) {
		/* Only a hang-up is watched for: nobody reads the handle any more. */
		end(pump);
		return 0;
	}
	/* What was read and not taken apart yet raises no event. */
	for (int i = 0; in >= 0 && out >= 0 && in + out > 0 &&
			(i < MAX_MOVES || (in > 0 && pump->in_at < pump->in_bytes));
	     i++) {
		out = move_out(pump);
		in = move_in(pump);
	}
	if (in < 0 || out < 0 || set_events(pump) < 0)
		end(pump);
	return 0;
}

int pump_new(struct loop *loop, int handle_fd, pump_ended ended, void *userdata,
	     struct pump **ret_pump)
{
	struct pump *pump = calloc(1, sizeof(*pump));
	int r;

	if (!pump)
		return -ENOMEM;
	pump->loop = loop;
	pump->ended = ended;
	pump->userdata = userdata;
	pump->handle_fd = handle_fd;
	pump->stream_fd = -1;
	r = loop_add(loop, handle_fd, EPOLLRDHUP, on_ready, pump, &pump->handle_source);
	if (r < 0) {
		free(pump);
		return r;
	}
	*ret_pump = pump;
	return 0;
}

int pump_connect(struct pump *pump, int stream_fd)
{
	int r;

	pump->stream_fd = stream_fd;
	r = loop_add(pump->loop, stream_fd, EPOLLIN, on_ready, pump, &pump->stream_source);
	return r < 0 ? r : loop_set_events(pump->handle_source, EPOLLIN);
}

struct pump *pump_free(struct pump *pump)
{
	if (!pump)
		return NULL;
	pump->handle_source = loop_remove(pump->handle_source);
	pump->stream_source = loop_remove(pump->stream_source);
	pump->handle_fd = fd_close(pump->handle_fd);
	pump->stream_fd = fd_close(pump->stream_fd);
	free(pump);
	return NULL;
}

bool pump_is_connected(const struct pump *pump)
{
	return pump->stream_fd >= 0;
}
