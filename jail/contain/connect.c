/*
 * Theory. One process per stream of the engine, blocking and without state: bytes from standard
 * input to the relay, bytes back. A newer one takes the relay from it.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/io.h"

#include "jail/contain/contain.h"
#include "sandboxd/contain.h"

#define PIECE_BYTES 65536
#define IN_INDEX    0
#define OUT_INDEX   1

/* 0, or -errno: one of the two ends is gone. */
static int move(int from_fd, int to_fd)
{
	static uint8_t piece[PIECE_BYTES];
	ssize_t n = read(from_fd, piece, sizeof(piece));

	if (n <= 0)
		return n < 0 ? -errno : -EPIPE;
	return io_write_all(to_fd, piece, (size_t)n);
}

int contain_connect(void)
{
	AUTO_CLOSE int relay_fd = -1;
	int r = contain_drop_capabilities();

	if (r >= 0)
		r = contain_dial(CONTAIN_RELAY, SOCK_STREAM, &relay_fd);
	while (r >= 0) {
		struct pollfd fds[] = {
			[IN_INDEX] = {.fd = STDIN_FILENO, .events = POLLIN},
			[OUT_INDEX] = {.fd = relay_fd,     .events = POLLIN},
		};

		if (poll(fds, ARRAY_SIZE(fds), -1) < 0)
			break;
		if (fds[OUT_INDEX].revents != 0)
			r = move(relay_fd, STDOUT_FILENO);
		if (r >= 0 && fds[IN_INDEX].revents != 0)
			r = move(STDIN_FILENO, relay_fd);
	}
	return EXIT_FAILURE;
}
