/*
 * Theory. One request whose body and whose answer's body are both chunked and have no end: a stream
 * both ways, through whatever carries HTTP, with TLS where the service has it. Its user has one end
 * of a socket pair; the other is read where libcurl asks for more of the request's body, and
 * written with what comes. Where there is nothing, or no room, libcurl is told to pause, and the
 * loop watches our end until there is: what is on the way is bounded by the sockets.
 *
 * The end of either body is the stream's. The user is told from the loop, never from inside of
 * libcurl, which takes no new request there.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/fd.h"

#include "supervisor/provider/http_state.h"

#define STATUS_OK 200

struct stream {
	struct http_transfer transfer;
	int near_fd; /* ours */
	int user_fd; /* until it is handed over */
	struct loop_source *source;
	struct loop_source *timer; /* the answer has begun, or does not */
	int status;                /* 0: it has not */
	bool is_over;              /* its answer's body is */
	int paused;                /* CURLPAUSE_ bits */
	http_streams done;
	void *userdata;
	size_t n_left; /* of what came, for our end */
	uint8_t left[CURL_MAX_WRITE_SIZE];
};

static struct stream *stream_free(struct stream *stream)
{
	http_transfer_done(&stream->transfer);
	stream->source = loop_remove(stream->source);
	stream->timer = loop_remove(stream->timer);
	stream->near_fd = fd_close(stream->near_fd);
	stream->user_fd = fd_close(stream->user_fd);
	free(stream);
	return NULL;
}

/* Our end is watched for what libcurl waits for, and for its hang-up. */
static void watch(struct stream *stream)
{
	uint32_t events = (stream->paused & CURLPAUSE_SEND ? (uint32_t)EPOLLIN : 0) |
			  (stream->n_left > 0 ? (uint32_t)EPOLLOUT : 0);

	/* It cannot fail for one that is watched. */
	IGNORE_RESULT(loop_set_events(stream->source, events));
}

static size_t on_read(char *data, size_t size, size_t n, void *userdata)
{
	struct stream *stream = userdata;
	ssize_t got = recv(stream->near_fd, data, size * n, 0);

	if (got > 0)
		return (size_t)got;
	if (got == 0 || errno != EAGAIN)
		return CURL_READFUNC_ABORT;
	stream->paused |= CURLPAUSE_SEND;
	watch(stream);
	return CURL_READFUNC_PAUSE;
}

/* 0, or -errno: the user is gone. */
static int write_left(struct stream *stream)
{
	ssize_t n = send(stream->near_fd, stream->left, stream->n_left, MSG_NOSIGNAL);

	if (n < 0)
		return errno == EAGAIN ? 0 : -errno;
	stream->n_left -= (size_t)n;
	memmove(stream->left, stream->left + n, stream->n_left);
	return 0;
}

static size_t on_write(char *data, size_t size, size_t n, void *userdata)
{
	struct stream *stream = userdata;
	int r;

	if (stream->n_left > 0) {
		stream->paused |= CURLPAUSE_RECV;
		return CURL_WRITEFUNC_PAUSE;
	}
	/* It says itself that it never comes with more. */
	if (stream->status != STATUS_OK || size * n > sizeof(stream->left))
		return 0;
	memcpy(stream->left, data, size * n);
	stream->n_left = size * n;
	r = write_left(stream);
	watch(stream);
	return r < 0 ? 0 : size * n;
}

/* The empty line is the end of a head. */
static size_t on_header(const char *data, size_t size, size_t n, void *userdata)
{
	struct stream *stream = userdata;
	long status = 0;

	if (data[0] != '\r' && data[0] != '\n')
		return size * n;
	(void)curl_easy_getinfo(stream->transfer.easy, CURLINFO_RESPONSE_CODE, &status);
	if (status >= STATUS_OK && stream->status == 0) {
		stream->status = (int)status;
		loop_timer_set(stream->timer, clock_boottime());
	}
	return size * n;
}

/* fd < 0: it is over with that. */
static void tell(struct stream *stream, int status, int fd)
{
	http_streams done = stream->done;
	void *userdata = stream->userdata;

	stream->done = NULL;
	if (fd < 0)
		(void)stream_free(stream);
	done(userdata, status, fd);
}

static int on_timer(void *userdata, uint32_t events)
{
	struct stream *stream = userdata;

	(void)events;
	if (stream->is_over && !stream->done)
		(void)stream_free(stream);
	else if (stream->is_over)
		tell(stream, -EIO, -1);
	else if (stream->status == STATUS_OK)
		tell(stream, STATUS_OK, TAKE_FD(stream->user_fd));
	else
		tell(stream, stream->status == 0 ? -ETIMEDOUT : stream->status, -1);
	return 0;
}

/* A transfer whose sending is paused does not end for libcurl where the answer does. */
static void on_reads_no_more(struct http_transfer *transfer)
{
	struct stream *stream = (struct stream *)(void *)transfer; /* its first member */

	if (stream->status != STATUS_OK || stream->paused & CURLPAUSE_RECV)
		return;
	stream->is_over = true;
	loop_timer_set(stream->timer, clock_boottime());
}

static void on_ended(struct http_transfer *transfer, CURLcode code, int status)
{
	struct stream *stream = (struct stream *)(void *)transfer; /* its first member */

	(void)code;
	if (!stream->done)
		(void)stream_free(stream); /* the user sees the end of its socket */
	else
		tell(stream,
		     stream->status > STATUS_OK ? stream->status
		     : status < 0               ? status
						: -EIO,
		     -1);
}

static int on_near(void *userdata, uint32_t events)
{
	struct stream *stream = userdata;
	struct http *http = stream->transfer.http;
	int paused = stream->paused;

	/* What the user has said before it left is of no use without an answer. */
	if (events & (EPOLLHUP | EPOLLERR) || (stream->n_left > 0 && write_left(stream) < 0)) {
		(void)stream_free(stream);
		return 0;
	}
	if (events & EPOLLIN)
		stream->paused &= ~CURLPAUSE_SEND;
	if (stream->n_left == 0)
		stream->paused &= ~CURLPAUSE_RECV;
	watch(stream);
	if (stream->paused == paused)
		return 0;
	/* It may come with more at once, and pause again. */
	(void)curl_easy_pause(stream->transfer.easy, stream->paused);
	http_go_on(http);
	return 0;
}

static int open_near(struct stream *stream, usec_t timeout)
{
	struct loop *loop = stream->transfer.http->options.loop;
	int fds[2];
	int r;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) < 0)
		return -errno;
	stream->near_fd = fds[0];
	stream->user_fd = fds[1];
	r = loop_add(loop, stream->near_fd, 0, on_near, stream, &stream->source);
	return r < 0 ? r
		     : loop_add_timer(loop, clock_add(clock_boottime(), timeout), on_timer, stream,
				      &stream->timer);
}

static int begin(struct stream *stream)
{
	CURL *easy = stream->transfer.easy;
	CURLcode r = curl_easy_setopt(easy, CURLOPT_POST, 1L);

	r |= curl_easy_setopt(easy, CURLOPT_READFUNCTION, on_read);
	r |= curl_easy_setopt(easy, CURLOPT_READDATA, stream);
	r |= curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_write);
	r |= curl_easy_setopt(easy, CURLOPT_WRITEDATA, stream);
	r |= curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_header);
	r |= curl_easy_setopt(easy, CURLOPT_HEADERDATA, stream);
	return r == CURLE_OK ? http_transfer_begin(&stream->transfer) : -ENOMEM;
}

int http_stream(struct http *http, const struct http_request *request, http_streams done,
		void *userdata)
{
	static const char *const headers[] = {"Content-Type: application/octet-stream",
					      "Transfer-Encoding: chunked", "Expect:"};
	struct stream *stream = calloc(1, sizeof(*stream));
	int r;

	if (!stream)
		return -ENOMEM;
	stream->transfer = (struct http_transfer){
		.http = http, .ended = on_ended, .reads_no_more = on_reads_no_more};
	stream->near_fd = stream->user_fd = -1;
	stream->done = done;
	stream->userdata = userdata;
	r = http_transfer_new(&stream->transfer, request, headers, ARRAY_SIZE(headers));
	if (r == 0)
		r = open_near(stream, request->timeout);
	if (r == 0)
		r = begin(stream);
	if (r < 0)
		(void)stream_free(stream);
	return r;
}
