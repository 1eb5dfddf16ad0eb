#include "ctl/prompt.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <termios.h>

#include "base/fd.h"
#include "base/io.h"

/* Signals are blocked and come through a descriptor: an interrupt is seen here, and the modes are
 * restored. 0 or -EINTR. */
static int await_line(struct client *client, int fd)
{
	struct pollfd fds[] = {
		{.fd = fd,                .events = POLLIN},
		{.fd = client->signal_fd, .events = POLLIN},
	};

	while (poll(fds, ARRAY_SIZE(fds), -1) < 0)
		if (errno != EINTR)
			return -errno;
	return fds[1].revents && client_signal_came(client) ? -EINTR : 0;
}

static int read_line(struct client *client, int fd, char *ret_line, size_t line_bytes)
{
	ssize_t n;
	int r = await_line(client, fd);

	if (r < 0)
		return r;
	/* The terminal gives one line at a time. */
	n = io_read(fd, ret_line, line_bytes);
	if (n < 0)
		return (int)n;
	if (n > 0 && ret_line[n - 1] == '\n')
		n--;
	else if (n == (ssize_t)line_bytes)
		return -EMSGSIZE;
	ret_line[n] = '\0';
	return n > 0 ? 0 : -ENODATA;
}

int prompt_line(struct client *client, const char *question, bool is_secret, char *ret_line,
		size_t line_bytes)
{
	AUTO_CLOSE int fd = open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC);
	struct termios before;
	struct termios modes;
	int r;

	if (fd < 0 || tcgetattr(fd, &before) < 0)
		return -ENXIO;
	modes = before;
	modes.c_lflag |= ICANON | ECHONL;
	if (is_secret)
		modes.c_lflag &= ~(tcflag_t)ECHO;
	/* What was typed before the question is no answer to it. */
	if (tcsetattr(fd, TCSAFLUSH, &modes) < 0)
		return -errno;
	r = io_write_all(fd, question, strlen(question));
	if (r >= 0)
		r = read_line(client, fd, ret_line, line_bytes);
	/* The rest of a line that was too long is no command of the shell behind us. */
	(void)tcsetattr(fd, TCSAFLUSH, &before);
	return r;
}
