#include "supervisor/egress/pump.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#define ROUNDS      4 /* then the others have a turn */
#define COPY_BYTES  65536u
/* Who had less than this has most likely no more: epoll says so if not, which costs no more than
 * the call that would find nothing. */
#define SHORT_BYTES 16384u

static int pool_take(struct pipe_pool *pool, uint32_t *n_session, int ret_pipe[2])
{
	if (*n_session >= PUMP_SESSION_MAX || pool->n_out >= PUMP_POOL_MAX)
		return -EAGAIN;
	if (pool->n_kept > 0) {
		pool->n_kept--;
		ret_pipe[0] = pool->kept[pool->n_kept][0];
		ret_pipe[1] = pool->kept[pool->n_kept][1];
	} else {
		if (pipe2(ret_pipe, O_CLOEXEC | O_NONBLOCK) < 0)
			return -errno;
		/* A smaller one works too. */
		(void)fcntl(ret_pipe[1], F_SETPIPE_SZ, PUMP_PIPE_BYTES);
	}
	pool->n_out++;
	(*n_session)++;
	return 0;
}

/* One that holds bytes is never used again: they are some session's. */
void pump_stop(struct pump *pump, struct pipe_pool *pool, uint32_t *n_session)
{
	if (pump->pipe[0] < 0)
		return;
	pool->n_out--;
	(*n_session)--;
	if (pump->held == 0 && pool->n_kept < PUMP_POOL_KEPT) {
		pool->kept[pool->n_kept][0] = TAKE_FD(pump->pipe[0]);
		pool->kept[pool->n_kept][1] = TAKE_FD(pump->pipe[1]);
		pool->n_kept++;
	}
	pump->pipe[0] = fd_close(pump->pipe[0]);
	pump->pipe[1] = fd_close(pump->pipe[1]);
	pump->held = 0;
}

void pipe_pool_done(struct pipe_pool *pool)
{
	while (pool->n_kept > 0) {
		pool->n_kept--;
		(void)fd_close(pool->kept[pool->n_kept][0]);
		(void)fd_close(pool->kept[pool->n_kept][1]);
	}
}

/* Without a pipe: only what the receiver has taken leaves the sender's socket, so nothing is held.
 * 0: something went, or eof has changed; 1: not now. */
static int copy_some(struct pump *pump, int from, int to, uint64_t *budget)
{
	static uint8_t data[COPY_BYTES];
	size_t most = *budget < sizeof(data) ? (size_t)*budget : sizeof(data);
	ssize_t n = recv(from, data, most, MSG_PEEK | MSG_DONTWAIT);
	ssize_t sent;

	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 1 : -errno;
	pump->eof = n == 0;
	if (n == 0)
		return 0;
	sent = send(to, data, (size_t)n, MSG_DONTWAIT | MSG_NOSIGNAL);
	if (sent < 0) {
		pump->state = PUMP_WANT_WRITE;
		return errno == EAGAIN || errno == EINTR ? 1 : -errno;
	}
	*budget -= (uint64_t)sent;
	/* TCP could drop it unread (tcp(7), MSG_TRUNC), a Unix socket cannot. */
	return recv(from, data, (size_t)sent, MSG_DONTWAIT) == sent ? 0 : -EIO;
}

/* From the socket into the empty pipe, or to `to` itself. 0: something has changed; 1: not now. */
static int fill(struct pump *pump, struct pipe_pool *pool, uint32_t *n_session, int from, int to,
		uint64_t *budget)
{
	size_t most = *budget < PUMP_PIPE_BYTES ? (size_t)*budget : PUMP_PIPE_BYTES;
	ssize_t n;

	if (most == 0) {
		pump->state = PUMP_WANT_BUDGET;
		return 1;
	}
	if (pump->pipe[0] < 0 && pool_take(pool, n_session, pump->pipe) < 0)
		return copy_some(pump, from, to, budget);
	n = splice(from, NULL, pump->pipe[1], NULL, most, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
	if (n < 0) {
		pump->state = PUMP_WANT_READ;
		return errno == EAGAIN || errno == EINTR ? 1 : -errno;
	}
	pump->eof = n == 0;
	pump->held = (size_t)n;
	*budget -= (uint64_t)n;
	return 0;
}

static int drain(struct pump *pump, int to)
{
	ssize_t n = splice(pump->pipe[0], NULL, to, NULL, pump->held,
			   SPLICE_F_MOVE | SPLICE_F_NONBLOCK);

	if (n < 0) {
		pump->state = PUMP_WANT_WRITE;
		return errno == EAGAIN || errno == EINTR ? 1 : -errno;
	}
	pump->held -= (size_t)n;
	return 0;
}

int pump_run(struct pump *pump, struct pipe_pool *pool, uint32_t *n_session, int from, int to,
	     uint64_t *budget)
{
	bool is_short = false;
	int r = 0;

	if (pump->state == PUMP_DONE)
		return 0;
	pump->state = PUMP_WANT_READ;
	for (int i = 0; r == 0 && i < ROUNDS && !pump->eof && !is_short; i++) {
		uint64_t before = *budget;

		if (pump->held == 0)
			r = fill(pump, pool, n_session, from, to, budget);
		while (r == 0 && pump->held > 0)
			r = drain(pump, to);
		is_short = before - *budget < SHORT_BYTES;
	}
	if (pump->held == 0)
		pump_stop(pump, pool, n_session);
	if (r < 0 || pump->held > 0 || !pump->eof)
		return r < 0 ? r : 0;
	pump->state = PUMP_DONE;
	/* ENOTCONN: the other side has ended as well. */
	if (!pump->hold_end)
		(void)shutdown(to, SHUT_WR);
	return 0;
}
