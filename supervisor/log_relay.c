/*
 * Theory. Each worker's standard error is a pipe. Our own programs write records of a fixed size,
 * which get the form of the service's log here; what libraries and dying programs write is text,
 * and becomes lines. Both carry the name of the program that the pipe belongs to, so that a worker
 * that was taken over cannot write a line that looks like another program's, nor a control
 * character. A line is cut at its buffer. One read a turn and pipe: a worker that floods slows
 * itself down (its pipe fills), not the supervisor.
 */
#include "supervisor/log_relay.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/log.h"
#include "base/str.h"

static void flush_text(struct log_relay *relay)
{
	char line[64 + sizeof(relay->in.line) + 1];
	size_t used;

	/* Names of our programs are short. */
	if (str_format(line, 64, "from=%s ", relay->from) < 0)
		line[0] = '\0';
	used = strlen(line);
	memcpy(line + used, relay->in.line, relay->used);
	used += relay->used;
	line[used++] = '\n';
	log_write(line, used);
}

/* Text in a log that is not text: the line is the message, as much of it as fits. */
static void flush_as_record(struct log_relay *relay)
{
	struct log_record record = {
		.magic = LOG_RECORD_MAGIC,
		.level = LOG_LEVEL_ERROR,
		.time_us = clock_realtime(),
	};
	size_t n =
		relay->used < sizeof(record.message) - 1 ? relay->used : sizeof(record.message) - 1;

	memcpy(record.message, relay->in.line, n);
	log_record_sanitize(&record);
	log_write_record(&record, relay->from);
}

static void flush_line(struct log_relay *relay)
{
	if (relay->used == 0)
		return;
	if (log_is_text())
		flush_text(relay);
	else
		flush_as_record(relay);
	relay->used = 0;
}

static void flush_record(struct log_relay *relay)
{
	struct log_record record = relay->in.record;

	relay->used = 0;
	if (record.magic != LOG_RECORD_MAGIC)
		return;
	record.time_us = clock_realtime(); /* its own clock is what it says it is */
	log_record_sanitize(&record);
	log_write_record(&record, relay->from);
}

static bool in_record(const struct log_relay *relay)
{
	const uint32_t magic = LOG_RECORD_MAGIC;

	return relay->used > 0 && memcmp(&relay->in.line[0], &magic, 1) == 0;
}

void log_relay_feed(struct log_relay *relay, const char *bytes, size_t size)
{
	const uint32_t magic = LOG_RECORD_MAGIC;

	for (size_t i = 0; i < size; i++) {
		bool printable = bytes[i] >= 0x20 && bytes[i] < 0x7f;
		bool begins = relay->used == 0 && memcmp(&bytes[i], &magic, 1) == 0;

		if (begins || in_record(relay)) {
			relay->in.line[relay->used++] = bytes[i];
			if (relay->used == sizeof(relay->in.record))
				flush_record(relay);
			continue;
		}
		if (bytes[i] == '\n') {
			flush_line(relay);
			continue;
		}
		if (relay->used < sizeof(relay->in.line))
			relay->in.line[relay->used++] = (char)(printable ? bytes[i] : '?');
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
	if (!in_record(relay)) /* a part of one is no word */
		flush_line(relay);
	relay->used = 0;
	relay->fd = fd_close(relay->fd);
}
