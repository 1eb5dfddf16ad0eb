/*
 * One line, one write: what is at most PIPE_BUF (4096) is atomic on a pipe, so that the lines of
 * several processes that share standard error never mix. stdio is not used.
 *
 * Nobody waits for the reader of the log: a terminal that was stopped, or a pipe that nobody
 * empties, would stop the supervisor with all sessions. Such lines are lost, and the next one that
 * gets through is preceded by their number.
 */
#include "base/log.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log_record.h"
#include "base/str.h"

/* The log target: the one mutable state of this layer (style rule: globals). */
static struct {
	const char *program;
	enum log_level level;
	enum log_format format;
	int journal_fd;
	const char *request;
	unsigned int n_lost;
	/* NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables) */
} target = {.program = "sandboxd", .level = LOG_LEVEL_INFO, .journal_fd = -1};

static const char *const level_names[] = {
	[LOG_LEVEL_ERROR] = "error",
	[LOG_LEVEL_WARNING] = "warning",
	[LOG_LEVEL_INFO] = "info",
	[LOG_LEVEL_DEBUG] = "debug",
};
_Static_assert(ARRAY_SIZE(level_names) == LOG_LEVEL_MAX_, "one name per level");

const char *log_level_name(uint32_t level)
{
	return level_names[level < LOG_LEVEL_MAX_ ? level : LOG_LEVEL_ERROR];
}

int log_level_parse(const char *text)
{
	for (int level = 0; text && level < LOG_LEVEL_MAX_; level++)
		if (str_equal(text, level_names[level]))
			return level;
	return -EINVAL;
}

void log_init(const char *program, enum log_level level)
{
	target.program = program;
	target.level = level;
}

void log_set_level(enum log_level level)
{
	target.level = level;
}

void log_set_format(enum log_format format)
{
	target.format = format;
}

void log_set_journal(int fd)
{
	target.journal_fd = fd;
}

void log_set_request(const char *request)
{
	target.request = request;
}

bool log_is_text(void)
{
	return target.journal_fd < 0 && target.format == LOG_FORMAT_LOGFMT;
}

static void tell_lost(void)
{
	char lost[128];
	int n;

	n = snprintf(lost, sizeof(lost),
		     target.format == LOG_FORMAT_JSON
			     ? "{\"program\":\"%s\",\"msg\":\"log lines are lost\",\"n\":%u}\n"
			     : "program=%s msg=\"log lines are lost\" n=%u\n",
		     target.program, target.n_lost);
	target.n_lost = 0;
	if (n > 0 && (size_t)n < sizeof(lost))
		(void)!write(STDERR_FILENO, lost, (size_t)n);
}

void log_write(const char *line, size_t size)
{
	struct pollfd out = {.fd = STDERR_FILENO, .events = POLLOUT};
	int saved_errno = errno;

	/* A pipe that is ready takes PIPE_BUF bytes. Where poll itself fails (a filter), try. */
	if (poll(&out, 1, 0) == 0) {
		target.n_lost++;
		errno = saved_errno;
		return;
	}
	/* Nobody is left to tell when standard error is gone. */
	if (target.n_lost > 0)
		tell_lost();
	(void)!write(STDERR_FILENO, line, size);
	errno = saved_errno;
}

static bool send_to_journal(const struct log_record *record, const char *program)
{
	char datagram[LOG_JSON_BYTES];
	size_t size;

	if (target.journal_fd < 0)
		return false;
	size = log_record_journal(datagram, record, program);
	return send(target.journal_fd, datagram, size, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0;
}

void log_write_record(const struct log_record *record, const char *from)
{
	const char *program = from ? from : target.program;
	char line[LOG_JSON_BYTES];
	int saved_errno = errno;

	/* What the journal does not take, its stream does: that is our standard error. */
	if (target.format == LOG_FORMAT_RECORD)
		log_write((const char *)record, sizeof(*record));
	else if (send_to_journal(record, program))
		errno = saved_errno;
	else if (target.format == LOG_FORMAT_JSON)
		log_write(line, log_record_json(line, record, program));
	else
		log_write(line, log_record_text(line, record, program, from));
	errno = saved_errno;
}

static void set_context(struct log_record *record, const struct log_context *context)
{
	const char *request = context && context->request ? context->request : target.request;

	if (context && context->session)
		id_format(context->session, record->session);
	if (context && context->job)
		id_format(context->job, record->job);
	if (request)
		(void)str_escape(record->request, sizeof(record->request), request, strlen(request),
				 false);
}

void log_line(enum log_level level, const struct log_context *context, const char *message,
	      const char *format, ...)
{
	struct log_record record = {.magic = LOG_RECORD_MAGIC, .level = (uint32_t)level};
	char fields[LOG_RECORD_FIELD_BYTES];
	int saved_errno = errno;
	va_list args;

	if (level > target.level)
		return;
	record.time_us = clock_realtime();
	record.pid = (int32_t)getpid();
	(void)snprintf(record.message, sizeof(record.message), "%s", message);
	set_context(&record, context);
	va_start(args, format);
	(void)vsnprintf(fields, sizeof(fields), format ? format : "", args);
	va_end(args);
	log_record_set_fields(&record, fields);
	log_write_record(&record, NULL);
	errno = saved_errno;
}

void log_err(enum log_level level, const struct log_context *context, const char *message,
	     const struct err *err)
{
	struct err copy = *err;

	err_sanitize(&copy);
	/* A quote inside would end the quoted value. */
	for (char *at = copy.text; *at; at++)
		if (*at == '"')
			*at = '\'';
	log_line(level, context, message, "step=%s errno=%d error=\"%s\"",
		 copy.step[0] ? copy.step : "-", copy.error_number, copy.text);
}
