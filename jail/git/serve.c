/*
 * Theory. git thinks that it has a server on the other end of a socket: what it gets first is the
 * advertisement. Each request of protocol version 2 ends with a flush and stands for itself, so
 * each is one POST. A push is one list of updates, a flush, and the pack up to the end of git's
 * side; it is looked at before anything is sent, since a hook, or whatever else holds the socket,
 * may have written it: one ref is changed, the one that the caller named, and the server is told
 * nothing beside.
 */
#include "jail/git/serve.h"

#include <errno.h>
#include <string.h>

#include "base/io.h"

#include "jail/git/pkt.h"

#define REQUEST_MAX_BYTES ((size_t)32 * 1024 * 1024)
/* A pack that is no larger goes with its length, as not every server takes chunks. */
#define PACK_WHOLE_BYTES  ((size_t)1024 * 1024)

static int out_of(int r)
{
	if (r == -ENOMEM)
		return http_say(GIT_EXIT_REQUEST, "out of memory");
	return http_say(GIT_EXIT_PROTOCOL, "what git asks is not understood");
}

/* Lines up to a flush, which is among them. 1; 0: git has no more; -errno. `lines` may be empty but
 * for the flush. */
static int read_lines(int fd, struct buf *lines)
{
	enum pkt_kind kind;
	size_t size;
	uint8_t *line;
	int r;

	for (;;) {
		r = buf_reserve(lines, PKT_MAX_BYTES);
		if (r < 0)
			return r;
		line = lines->data + lines->size;
		r = io_read_exact(fd, line, PKT_HEAD_BYTES);
		/* Reset: git has left and not read all that the server has. Its status says why. */
		if (r < 0)
			return (r == -EPIPE || r == -ECONNRESET) && lines->size == 0 ? 0 : r;
		if (!pkt_head(line, &kind, &size))
			return -EBADMSG;
		r = io_read_exact(fd, line + PKT_HEAD_BYTES, size);
		if (r < 0)
			return r;
		lines->size += PKT_HEAD_BYTES + size;
		if (kind == PKT_FLUSH)
			return 1;
	}
}

static int serve_fetch(struct http *http, int git_fd)
{
	struct buf lines = BUF_NULL(REQUEST_MAX_BYTES);
	int code = 0;
	int r;

	while (code == 0) {
		buf_reset(&lines);
		r = read_lines(git_fd, &lines);
		if (r < 0)
			code = out_of(r);
		if (r <= 0 || lines.size == PKT_HEAD_BYTES)
			break;
		code = http_exchange(http, &lines, -1, git_fd);
	}
	buf_done(&lines);
	return code;
}

/* Every update is of that ref, and nothing else is asked for. */
static bool may_push(const struct buf *lines, const char *ref)
{
	size_t at = 0;
	enum pkt_kind kind;
	size_t size;

	while (at + PKT_HEAD_BYTES <= lines->size && pkt_head(lines->data + at, &kind, &size)) {
		const uint8_t *data = lines->data + at + PKT_HEAD_BYTES;

		if (kind == PKT_FLUSH)
			return true;
		if (kind != PKT_DATA ||
		    (!pkt_is_shallow(data, size) && !pkt_updates(data, size, ref, strlen(ref))))
			return false;
		at += PKT_HEAD_BYTES + size;
	}
	return false;
}

/* 1: that was all of it; 0: there is more; -errno. */
static int read_pack(int fd, struct buf *head)
{
	size_t end = head->size + PACK_WHOLE_BYTES;
	ssize_t n;
	int r;

	while (head->size < end) {
		r = buf_reserve(head, PKT_MAX_BYTES);
		if (r < 0)
			return r;
		n = io_read(fd, head->data + head->size, PKT_MAX_BYTES);
		if (n <= 0)
			return n < 0 ? (int)n : 1;
		head->size += (size_t)n;
	}
	return 0;
}

static int serve_push(struct http *http, const struct http_request *request, int git_fd)
{
	struct buf head = BUF_NULL(REQUEST_MAX_BYTES);
	int code = 0;
	int r = read_lines(git_fd, &head);

	if (r > 0 && head.size > PKT_HEAD_BYTES) {
		if (!may_push(&head, request->ref))
			code = http_say(GIT_EXIT_REF, "the push would do more than change its ref");
		else
			r = read_pack(git_fd, &head);
		if (code == 0 && r >= 0)
			code = http_exchange(http, &head, r > 0 ? -1 : git_fd, git_fd);
	}
	buf_done(&head);
	return code == 0 && r < 0 ? out_of(r) : code;
}

static int advertise(struct http *http, const struct http_request *request, int git_fd)
{
	struct buf body = BUF_NULL(0);
	int code = http_advertisement(http, &body);
	size_t skip;

	if (code == 0) {
		skip = pkt_service_bytes(body.data, body.size, http_service_name(request->service));
		if (request->service == GIT_SERVICE_FETCH &&
		    !pkt_is_version_2(body.data + skip, body.size - skip))
			code = http_say(GIT_EXIT_PROTOCOL,
					"the server does not speak version 2 of git's protocol");
		/* Where git has left, its own status says why. */
		else
			IGNORE_RESULT(io_write_all(git_fd, body.data + skip, body.size - skip));
	}
	buf_done(&body);
	return code;
}

int serve(const struct http_request *request, int git_fd)
{
	struct http *http = NULL;
	int code = http_open(request, &http);

	if (code == 0)
		code = advertise(http, request, git_fd);
	if (code == 0)
		code = request->service == GIT_SERVICE_FETCH ? serve_fetch(http, git_fd)
							     : serve_push(http, request, git_fd);
	http = http_close(http);
	return code;
}
