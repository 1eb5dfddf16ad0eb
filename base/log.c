/*
 * One line, one write: a line of at most 1 KiB is atomic on a pipe (PIPE_BUF is 4096), so that the
 * lines of several processes that share standard error never mix. stdio is not used.
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
#include <unistd.h>

#include "base/clock.h"
#include "base/str.h"

#define LINE_BYTES   1024
#define FIELDS_BYTES 640

/* The log target: the one mutable state of this layer (style rule: globals). */
static struct {
	const char *program;
	enum log_level level;
	unsigned int n_lost;
	/* NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables) */
} target = {.program = "sandboxd", .level = LOG_LEVEL_INFO};

static const char *const level_names[] = {
	[LOG_LEVEL_ERROR] = "error",
	[LOG_LEVEL_WARNING] = "warning",
	[LOG_LEVEL_INFO] = "info",
	[LOG_LEVEL_DEBUG] = "debug",
};
_Static_assert(ARRAY_SIZE(level_names) == LOG_LEVEL_MAX_, "one name per level");

void log_init(const char *program, enum log_level level)
{
	target.program = program;
	target.level = level;
}

void log_set_level(enum log_level level)
{
	target.level = level;
}

struct line {
	char text[LINE_BYTES];
	size_t used; /* without the newline, for which one byte stays free */
};

static void line_add(struct line *line, const char *format, ...) PRINTF_LIKE(2, 3);
static void line_add(struct line *line, const char *format, ...)
{
	size_t space = sizeof(line->text) - line->used - 1;
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(line->text + line->used, space, format, args);
	va_end(args);
	if (n > 0)
		line->used += (size_t)n < space ? (size_t)n : space - 1;
}

static void line_add_context(struct line *line, const struct log_context *context)
{
	char id[ID_TEXT_BYTES];
	char request[128];

	if (!context)
		return;
	if (context->session) {
		id_format(context->session, id);
		line_add(line, " session=%s", id);
	}
	if (context->job) {
		id_format(context->job, id);
		line_add(line, " job=%s", id);
	}
	if (context->request) {
		(void)str_escape(request, sizeof(request), context->request,
				 strlen(context->request), false);
		line_add(line, " request=%s", request);
	}
}

void log_write(const char *line, size_t size)
{
	struct pollfd out = {.fd = STDERR_FILENO, .events = POLLOUT};
	int saved_errno = errno;
	char lost[64];
	int n;

	/* A pipe that is ready takes PIPE_BUF bytes. Where poll itself fails (a filter), try. */
	if (poll(&out, 1, 0) == 0) {
		target.n_lost++;
		errno = saved_errno;
		return;
	}
	/* Nobody is left to tell when standard error is gone. */
	if (target.n_lost > 0) {
		n = snprintf(lost, sizeof(lost), "program=%s msg=\"log lines are lost\" n=%u\n",
			     target.program, target.n_lost);
		target.n_lost = 0;
		if (n > 0 && (size_t)n < sizeof(lost))
			(void)!write(STDERR_FILENO, lost, (size_t)n);
	}
	(void)!write(STDERR_FILENO, line, size);
	errno = saved_errno;
}

void log_line(enum log_level level, const struct log_context *context, const char *message,
	      const char *format, ...)
{
	struct line line = {.used = 0};
	char now[CLOCK_ISO_BYTES];
	char fields[FIELDS_BYTES];
	char escaped[FIELDS_BYTES];
	int saved_errno = errno;
	va_list args;

	if (level > target.level)
		return;
	clock_format_iso(clock_realtime(), now);
	line_add(&line, "time=%sZ level=%s program=%s pid=%d msg=\"%s\"", now, level_names[level],
		 target.program, (int)getpid(), message);
	line_add_context(&line, context);
	va_start(args, format);
	(void)vsnprintf(fields, sizeof(fields), format ? format : "", args);
	va_end(args);
	if (str_escape(escaped, sizeof(escaped), fields, strlen(fields), false) > 0)
		line_add(&line, " %s", escaped);
	line.text[line.used++] = '\n';
	log_write(line.text, line.used);
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
