/*
 * Theory. One process per connection of the api worker, blocking and without state: whole messages
 * from standard input to the shim's socket, whole messages back. The shim waits for nobody, and the
 * other end of the streams neither, so a blocked write here always ends.
 *
 * Runs as uid 0 of the container, without a capability. The shim takes one connection at a time,
 * and an engine that was ended leaves the processes that it ran: the first act is therefore to end
 * all others of uid 0, which only such processes and the operator's own are.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <linux/capability.h>

#include "base/fd.h"
#include "base/io.h"
#include "base/sockmsg.h"

#include "jail/contain/contain.h"
#include "sandboxd/contain.h"

#define TRIES     500 /* the shim is about to listen */
#define PAUSE_MS  20
#define IN_INDEX  0
#define OUT_INDEX 1

static int give_up_capabilities(void)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	const struct __user_cap_data_struct none[2] = {{0}, {0}};

	return syscall(SYS_capset, &header, none) < 0 ? -errno : 0;
}

static int connect_shim(int *ret_fd)
{
	static const struct sockaddr_un address = {.sun_family = AF_UNIX,
						   .sun_path = CONTAIN_SOCKET};

	for (int i = 0; i < TRIES; i++) {
		AUTO_CLOSE int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

		if (fd < 0)
			return -errno;
		if (connect(fd, (const struct sockaddr *)&address, sizeof(address)) == 0) {
			*ret_fd = TAKE_FD(fd);
			return 0;
		}
		if (errno != ENOENT && errno != ECONNREFUSED)
			return -errno;
		(void)poll(NULL, 0, PAUSE_MS);
	}
	return -ETIMEDOUT;
}

/* 0, or -errno: the other end is gone. */
static int message_in(int shim_fd)
{
	static uint8_t message[WIRE_FRAME_MAX_BYTES];
	uint32_t size;
	int r;

	r = io_read_exact(STDIN_FILENO, &size, sizeof(size));
	if (r < 0)
		return r;
	if (size == 0 || size > sizeof(message))
		return -EPROTO;
	r = io_read_exact(STDIN_FILENO, message, size);
	return r < 0 ? r : sockmsg_send(shim_fd, message, size, NULL, 0);
}

static int message_out(int shim_fd)
{
	static uint8_t message[CONTAIN_MESSAGE_BYTES];
	ssize_t n =
		sockmsg_recv(shim_fd, message + CONTAIN_HEAD_BYTES, WIRE_FRAME_MAX_BYTES, NULL, 0);
	uint32_t size;

	if (n <= 0)
		return n < 0 ? (int)n : -EPIPE;
	size = (uint32_t)n;
	memcpy(message, &size, sizeof(size));
	return io_write_all(STDOUT_FILENO, message, CONTAIN_HEAD_BYTES + size);
}

int contain_connect(void)
{
	AUTO_CLOSE int shim_fd = -1;
	int r;

	r = give_up_capabilities();
	if (r < 0)
		return EXIT_FAILURE;
	(void)kill(-1, SIGKILL); /* ESRCH: there is none */
	r = connect_shim(&shim_fd);
	while (r >= 0) {
		struct pollfd fds[] = {
			[IN_INDEX] = {.fd = STDIN_FILENO, .events = POLLIN},
			[OUT_INDEX] = {.fd = shim_fd,      .events = POLLIN},
		};

		if (poll(fds, ARRAY_SIZE(fds), -1) < 0)
			break;
		if (fds[OUT_INDEX].revents != 0)
			r = message_out(shim_fd);
		if (r >= 0 && fds[IN_INDEX].revents != 0)
			r = message_in(shim_fd);
	}
	return EXIT_FAILURE;
}
