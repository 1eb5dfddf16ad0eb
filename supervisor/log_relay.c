/*
 * Theory. Each worker's standard error is a pipe. The supervisor copies complete lines to its own,
 * each with `from=PROGRAM` in front, so that a worker that was taken over cannot write a line that
 * looks like another program's, nor a control character. A line is cut at its buffer. One read a
 * turn and pipe: a worker that floods slows itself down (its pipe fills), not the supervisor.
 */
#include "supervisor/log_relay.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/io.h"
#include "base/log.h"
#include "base/str.h"

static void flush_line(struct log_relay *relay)
{
	char line[64 + sizeof(relay->line) + 1];

	if (relay->used == 0)
		return;
	/* Names of our programs are short. */
	if (str_format(line, 64, "from=%s ", relay->from) < 0)
		line[0] = '\0';
	size_t used = strlen(line);
	memcpy(line + used, relay->line, relay->used);
	used += relay->used;
	line[used++] = '\n';
	relay->used = 0;
	log_write(line, used);
}

void log_relay_feed(struct log_relay *relay, const char *bytes, size_t size)
{
	for (size_t i = 0; i < size; i++) {
		bool printable = bytes[i] >= 0x20 && bytes[i] < 0x7f;

		if (bytes[i] == '\n') {
			flush_line(relay);
			continue;
		}
		if (relay->used < sizeof(relay->line))
			relay->line[relay->used++] = (char)(printable ? bytes[i] : '?');
	}
}

static int on_log(void *userdata, uint32_t events)
{
	struct log_relay *relay = userdata;
	char bytes[4096];
	ssize_t n = io_read(relay->fd, bytes, sizeof(bytes));

	(void)events;
	if (n > 0)
		log_relay_feed(relay, bytes, (size_t)n);
	else if (n != -EAGAIN)
		relay->source = loop_remove(relay->source);
	return 0;
}

int log_relay_start(struct log_relay *relay, struct loop *loop, int fd, const char *from)
{
	int r;

	relay->fd = fd;
	relay->from = from;
	relay->used = 0;
	r = fd_set_nonblock(fd, 1);
	if (r < 0)
		return r;
	return loop_add(loop, fd, EPOLLIN, on_log, relay, &relay->source);
}

void log_relay_done(struct log_relay *relay)
{
	char bytes[4096];
	ssize_t n;

	if (relay->fd < 0)
		return;
	relay->source = loop_remove(relay->source);
	/* At most one pipe's worth, whoever still writes. */
	for (int i = 0; i < 16; i++) {
		n = io_read(relay->fd, bytes, sizeof(bytes));
		if (n <= 0)
			break;
		log_relay_feed(relay, bytes, (size_t)n);
	}
	flush_line(relay);
	relay->fd = fd_close(relay->fd);
}
