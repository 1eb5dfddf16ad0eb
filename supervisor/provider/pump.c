/*
 * Theory. The handle is read while the tether has room for what it says, and the stream while the
 * handle takes what it brought: what is on the way is bounded, and who does not read makes the
 * other side wait. A stream that breaks, or says nonsense, is given up; the tether goes on with the
 * next one. It is over where the far end has forgotten what it had, or where streams that say
 * something break before its hello again and again. One that says nothing is as one that was
 * refused: its owner knows how long to try.
 */
#include "supervisor/provider/pump.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>

#include "base/fd.h"
#include "base/sockmsg.h"
#include "base/tether.h"

#include "supervisor/provider/unwrap.h"

#define IN_BYTES     16384
#define MAX_MOVES    32 /* in one turn */
#define MAX_IN_A_ROW 8  /* streams that said something and not hello */

struct pump {
	struct loop *loop;
	const struct pump_events *events;
	void *userdata;
	int handle_fd;
	int stream_fd; /* or -1 */
	struct loop_source *handle_source;
	struct loop_source *stream_source;
	bool has_ended;
	bool is_wrapped;
	bool has_said; /* this stream, something */
	unsigned int n_in_vain;
	struct tether tether;
	struct unwrap unwrap;
	/* From the stream: bytes at in_at..in_bytes are not taken apart yet. */
	size_t in_at;
	size_t in_bytes;
	uint8_t in[IN_BYTES];
	uint8_t message[WIRE_FRAME_MAX_BYTES];
};

/* What a move came to; a negative value is the handle's -errno, and the end. */
enum {
	PUMP_WAITS,
	PUMP_MOVED,
	PUMP_LOST, /* the stream */
};

static int read_handle(struct pump *pump)
{
	ssize_t n;

	if (!tether_may_put(&pump->tether))
		return PUMP_WAITS;
	n = sockmsg_recv(pump->handle_fd, pump->message, sizeof(pump->message), NULL, 0);
	if (n == -EAGAIN)
		return PUMP_WAITS;
	if (n <= 0)
		return n < 0 ? (int)n : -EPIPE;
	return tether_put(&pump->tether, pump->message, (size_t)n) < 0 ? -EPROTO : PUMP_MOVED;
}

static int write_stream(struct pump *pump)
{
	const void *data;
	size_t size = tether_pending(&pump->tether, &data);
	ssize_t n;

	if (size == 0)
		return PUMP_WAITS;
	n = send(pump->stream_fd, data, size, MSG_NOSIGNAL);
	if (n < 0)
		return errno == EAGAIN ? PUMP_WAITS : PUMP_LOST;
	tether_wrote(&pump->tether, (size_t)n);
	return PUMP_MOVED;
}

/* PUMP_MOVED with *ret_n bytes. */
static int receive(const struct pump *pump, void *data, size_t size, ssize_t *ret_n)
{
	*ret_n = recv(pump->stream_fd, data, size, 0);
	if (*ret_n < 0)
		return errno == EAGAIN ? PUMP_WAITS : PUMP_LOST;
	return *ret_n == 0 ? PUMP_LOST : PUMP_MOVED;
}

static int read_stream(struct pump *pump)
{
	void *space;
	size_t room = tether_space(&pump->tether, &space);
	size_t n_out;
	ssize_t n;
	int r;

	if (!pump->is_wrapped) {
		r = receive(pump, space, room, &n);
		if (r == PUMP_MOVED) {
			pump->has_said = true;
			tether_read(&pump->tether, (size_t)n);
		}
		return r;
	}
	if (pump->in_at == pump->in_bytes) {
		r = receive(pump, pump->in, sizeof(pump->in), &n);
		if (r != PUMP_MOVED)
			return r;
		pump->in_at = 0;
		pump->in_bytes = (size_t)n;
	}
	n = unwrap_take(&pump->unwrap, pump->in + pump->in_at, pump->in_bytes - pump->in_at, space,
			room, &n_out);
	pump->has_said = pump->has_said || n < 0 || n_out > 0;
	if (n < 0)
		return PUMP_LOST;
	pump->in_at += (size_t)n;
	tether_read(&pump->tether, n_out);
	return PUMP_MOVED;
}

static int write_handle(struct pump *pump)
{
	const void *message;
	size_t size;
	int found = tether_next(&pump->tether, &message, &size);
	int r;

	if (pump->tether.is_greeted)
		pump->n_in_vain = 0;
	if (found == TETHER_NOTHING)
		return read_stream(pump);
	if (found != TETHER_MESSAGE)
		return found == -ESTALE ? found : PUMP_LOST;
	r = sockmsg_send(pump->handle_fd, message, size, NULL, 0);
	if (r < 0)
		return r == -EAGAIN ? PUMP_WAITS : r;
	tether_took(&pump->tether);
	return PUMP_MOVED;
}

static int (*const moves[])(struct pump *) = {read_handle, write_stream, write_handle};

/* Of what it lacks each end is watched for, never for what it cannot use. */
static int set_events(struct pump *pump)
{
	const void *data;
	size_t size;
	bool reads = tether_may_put(&pump->tether);
	int found = tether_next(&pump->tether, &data, &size);
	bool has_message = found == TETHER_MESSAGE;
	bool writes = tether_pending(&pump->tether, &data) > 0;
	int r;

	if (found < 0)
		return PUMP_LOST;
	r = loop_set_events(pump->handle_source,
			    (reads ? EPOLLIN : 0u) | (has_message ? EPOLLOUT : 0u));
	if (r == 0)
		r = loop_set_events(pump->stream_source,
				    (has_message ? 0u : EPOLLIN) | (writes ? EPOLLOUT : 0u));
	return r;
}

static void drop_stream(struct pump *pump)
{
	pump->stream_source = loop_remove(pump->stream_source);
	pump->stream_fd = fd_close(pump->stream_fd);
}

static void end(struct pump *pump)
{
	if (pump->has_ended)
		return;
	pump->has_ended = true;
	pump->handle_source = loop_remove(pump->handle_source);
	drop_stream(pump);
	pump->events->ended(pump->userdata);
}

static void lose(struct pump *pump)
{
	drop_stream(pump);
	if (pump->has_said)
		pump->n_in_vain++;
	if (pump->n_in_vain > MAX_IN_A_ROW || loop_set_events(pump->handle_source, EPOLLRDHUP) < 0)
		end(pump);
	else
		pump->events->lost(pump->userdata, pump->has_said);
}

/* All that can move, for so long. PUMP_WAITS, or what stopped it. */
static int move_all(struct pump *pump)
{
	bool moved = true;

	for (int i = 0; moved && (i < MAX_MOVES || pump->in_at < pump->in_bytes); i++) {
		moved = false;
		for (size_t k = 0; k < ARRAY_SIZE(moves); k++) {
			int r = moves[k](pump);

			if (r < 0 || r == PUMP_LOST)
				return r;
			moved = moved || r == PUMP_MOVED;
		}
	}
	return PUMP_WAITS;
}

static int on_ready(void *userdata, uint32_t events)
{
	struct pump *pump = userdata;
	int r;

	if (pump->has_ended)
		return 0;
	if (pump->stream_fd < 0) {
		/* Only a hang-up is watched for: nobody reads the handle any more. Another event
		 * may be left of the turn in which the stream was lost. */
		if (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR))
			end(pump);
		return 0;
	}
	r = move_all(pump);
	if (r == PUMP_WAITS)
		r = set_events(pump);
	if (r < 0)
		end(pump);
	else if (r == PUMP_LOST)
		lose(pump);
	return 0;
}

int pump_new(struct loop *loop, int handle_fd, bool is_wrapped, const struct pump_events *events,
	     void *userdata, struct pump **ret_pump)
{
	struct pump *pump = calloc(1, sizeof(*pump));
	uint64_t name;
	int r;

	if (!pump)
		return -ENOMEM;
	pump->loop = loop;
	pump->events = events;
	pump->userdata = userdata;
	pump->handle_fd = handle_fd;
	pump->stream_fd = -1;
	pump->is_wrapped = is_wrapped;
	r = getrandom(&name, sizeof(name), 0) == (ssize_t)sizeof(name) ? 0 : -EIO;
	if (r == 0)
		r = tether_init(&pump->tether, name | 1);
	if (r == 0)
		r = loop_add(loop, handle_fd, EPOLLRDHUP, on_ready, pump, &pump->handle_source);
	if (r < 0) {
		tether_done(&pump->tether);
		free(pump);
		return r;
	}
	*ret_pump = pump;
	return 0;
}

int pump_connect(struct pump *pump, int stream_fd)
{
	int r;

	drop_stream(pump);
	pump->stream_fd = stream_fd;
	pump->unwrap = (struct unwrap){0};
	pump->in_at = pump->in_bytes = 0;
	pump->has_said = false;
	tether_stream(&pump->tether);
	/* Writable at once: the hello. */
	r = loop_add(pump->loop, stream_fd, EPOLLIN | EPOLLOUT, on_ready, pump,
		     &pump->stream_source);
	return r < 0 ? r : loop_set_events(pump->handle_source, EPOLLIN);
}

struct pump *pump_free(struct pump *pump)
{
	if (!pump)
		return NULL;
	pump->handle_source = loop_remove(pump->handle_source);
	drop_stream(pump);
	pump->handle_fd = fd_close(pump->handle_fd);
	tether_done(&pump->tether);
	free(pump);
	return NULL;
}

bool pump_is_connected(const struct pump *pump)
{
	return pump->stream_fd >= 0;
}
