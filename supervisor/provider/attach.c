/*
 * Theory. libcurl 7.88 has no upgrade of a connection, so these few lines do without it: one fixed
 * request, and the head of its answer. What is behind that must not be taken out of the socket, so
 * the head is looked at before it is read (MSG_PEEK).
 */
#include "supervisor/provider/attach.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/str.h"

#include "supervisor/provider/attach_head.h"

#define TIMEOUT (30 * USEC_PER_SEC)

struct attach {
	struct loop *loop;
	struct loop_source *source;
	struct loop_source *timer;
	int fd;
	struct attach_head head;
	attach_done done;
	void *userdata;
};

static struct attach *attach_free(struct attach *attach)
{
	attach->source = loop_remove(attach->source);
	attach->timer = loop_remove(attach->timer);
	attach->fd = fd_close(attach->fd);
	free(attach);
	return NULL;
}

struct attach *attach_cancel(struct attach *attach)
{
	return attach ? attach_free(attach) : NULL;
}

static void finish(struct attach *attach, int fd)
{
	attach_done done = attach->done;
	void *userdata = attach->userdata;

	(void)attach_free(attach);
	done(userdata, fd);
}

static int on_answer(void *userdata, uint32_t events)
{
	struct attach *attach = userdata;
	char data[1024];
	size_t taken = 0;
	ssize_t n;
	int r;

	(void)events;
	n = recv(attach->fd, data, sizeof(data), MSG_PEEK);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return 0;
	if (n <= 0) {
		finish(attach, n < 0 ? -errno : -EPIPE);
		return 0;
	}
	r = attach_head_take(&attach->head, data, (size_t)n, &taken);
	/* They are there, so they come at once and whole. */
	if (recv(attach->fd, data, taken, 0) != (ssize_t)taken)
		r = -EIO;
	if (r == 0)
		return 0;
	if (r > 0) {
		attach->source = loop_remove(attach->source);
		r = TAKE_FD(attach->fd);
	}
	finish(attach, r);
	return 0;
}

static int on_timer(void *userdata, uint32_t events)
{
	(void)events;
	finish(userdata, -ETIMEDOUT);
	return 0;
}

static int connect_to(const char *socket_path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	const void *at = &address; /* a cast would be a pun to the compiler */
	AUTO_CLOSE int fd = -1;
	int r;

	r = str_copy(address.sun_path, sizeof(address.sun_path), socket_path);
	if (r < 0)
		return r;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	/* A full backlog is an error, not a wait. */
	if (fd < 0 || connect(fd, at, sizeof(address)) < 0)
		return -errno;
	return TAKE_FD(fd);
}

static int send_request(int fd, const char *exec)
{
	static const char body[] = "{\"Detach\":false,\"Tty\":false}";
	char request[512];
	int r;

	r = str_format(request, sizeof(request),
		       "POST /exec/%s/start HTTP/1.1\r\n"
		       "Host: engine\r\n"
		       "Content-Type: application/json\r\n"
		       "Connection: Upgrade\r\n"
		       "Upgrade: tcp\r\n"
		       "Content-Length: %zu\r\n\r\n%s",
		       exec, strlen(body), body);
	if (r < 0)
		return r;
	/* A new socket has room for it. */
	return send(fd, request, strlen(request), MSG_NOSIGNAL) == (ssize_t)strlen(request) ? 0
											    : -EIO;
}

int attach_start(struct loop *loop, const char *socket_path, const char *exec, attach_done done,
		 void *userdata, struct attach **ret_attach)
{
	struct attach *attach = calloc(1, sizeof(*attach));
	int r;

	if (!attach)
		return -ENOMEM;
	*attach = (struct attach){.loop = loop, .done = done, .userdata = userdata};
	attach->fd = connect_to(socket_path);
	r = attach->fd < 0 ? attach->fd : send_request(attach->fd, exec);
	if (r == 0)
		r = loop_add(loop, attach->fd, EPOLLIN, on_answer, attach, &attach->source);
	if (r == 0)
		r = loop_add_timer(loop, clock_add(clock_boottime(), TIMEOUT), on_timer, attach,
				   &attach->timer);
	if (r < 0) {
		(void)attach_free(attach);
		return r;
	}
	*ret_attach = attach;
	return 0;
}
