/*
 * Structured log lines on standard error, or in the journal; the caller that handles an error logs
 * it once.
 * Values are escaped; a line is at most 1 KiB. No secrets, no endpoint values, no session bytes
 * unescaped.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/auto.h"
#include "base/err.h"
#include "base/id.h"

enum log_level {
	LOG_LEVEL_ERROR,
	LOG_LEVEL_WARNING,
	LOG_LEVEL_INFO,
	LOG_LEVEL_DEBUG,
	LOG_LEVEL_MAX_
};

enum log_format {
	LOG_FORMAT_LOGFMT,
	LOG_FORMAT_JSON,   /* one object a line */
	LOG_FORMAT_RECORD, /* of a worker: struct log_record, for the supervisor's relay */
	LOG_FORMAT_MAX_
};

struct log_record;

struct log_context {
	const struct id *session; /* or NULL */
	const struct id *job;     /* or NULL */
	const char *request;      /* request id, or NULL */
};

/* "error", "warning", "info", "debug". */
const char *log_level_name(uint32_t level); /* an unknown one is an error's */
int log_level_parse(const char *text);      /* or -EINVAL; accepts NULL */
/* program: a constant, kept by pointer. */
void log_init(const char *program, enum log_level level);
void log_set_level(enum log_level level);
void log_set_format(enum log_format format);
/* A connected socket of the journal, which stays the caller's; -1: none. */
void log_set_journal(int fd);
/* The request on whose behalf lines are written that name none themselves; kept by pointer. NULL:
 * none. */
void log_set_request(const char *request);
/* message: constant lower-case text; the format gives further key=value pairs ("step=%s errno=%d")
 * or NULL. The pairs are escaped as a whole; a value that may hold spaces or quotes is the caller's
 * to quote, and one from outside is not logged at all. Keeps errno. */
void log_line(enum log_level level, const struct log_context *context, const char *message,
	      const char *format, ...) PRINTF_LIKE(4, 5);
/* One complete line, its newline included, as it is; at most 4 KiB. Never waits: a line that
 * standard error does not take is lost, and counted. */
void log_write(const char *line, size_t size);
/* Lines of text that others wrote may stand in this process's log as they are. */
bool log_is_text(void);
/* A record in the form of this process's log. from: the worker that it came from, checked
 * (log_record_sanitize), or NULL. */
void log_write_record(const struct log_record *record, const char *from);
/* As log_line with step, errno and text of err, which may come from outside. */
void log_err(enum log_level level, const struct log_context *context, const char *message,
	     const struct err *err);
