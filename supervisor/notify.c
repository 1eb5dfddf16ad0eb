#include "supervisor/notify.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

static const char *socket_path(void)
{
	/* One thread and nobody calls setenv. NOLINTNEXTLINE(concurrency-mt-unsafe) */
	const char *path = getenv("NOTIFY_SOCKET");

	return path && path[0] ? path : NULL;
}

bool notify_is_wanted(void)
{
	return socket_path() != NULL;
}

int notify_open(struct notify *notify, int keeper_fd, struct err *err)
{
	AUTO_CLOSE int fd = -1;
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	const char *path = socket_path();
	socklen_t size;
	size_t length;

	if (keeper_fd >= 0) {
		fd = fd_dup(keeper_fd, 3);
		if (fd < 0)
			return err_fail(err, fd, "notify", "keeper's socket");
		notify->fd = TAKE_FD(fd);
		return 0;
	}
	if (!path)
		return 0;
	length = strlen(path);
	if ((path[0] != '/' && path[0] != '@') || length >= sizeof(address.sun_path))
		return err_fail(err, -EINVAL, "notify", "NOTIFY_SOCKET is no usable address");
	memcpy(address.sun_path, path, length);
	if (path[0] == '@')
		address.sun_path[0] = '\0'; /* abstract: as systemd writes it */
	size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length);
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return err_fail(err, -errno, "notify", "socket");
	if (connect(fd, &address, size) < 0)
		return err_fail(err, -errno, "notify", "connect to NOTIFY_SOCKET");
	notify->fd = TAKE_FD(fd);
	return 0;
}

int notify_send(const struct notify *notify, const char *text)
{
	if (notify->fd < 0)
		return 0;
	if (send(notify->fd, text, strlen(text), MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
		return -errno;
	return 0;
}

void notify_done(struct notify *notify)
{
	notify->fd = fd_close(notify->fd);
}
