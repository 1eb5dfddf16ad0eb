/*
 * One log line before it has a form, and the forms: logfmt, JSON, the journal's native protocol.
 *
 * Workers send records instead of text: what they say then has one form in the service's log,
 * whichever it is, and the supervisor needs no parser to give it that form. A record may come from
 * a worker that was taken over: log_record_sanitize comes before everything else.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/auto.h"
#include "base/clock.h"

#include "sandboxd/limits.h"

#define LOG_RECORD_MAGIC       0x31474f1eu /* its first byte, in memory, begins no line of text */
#define LOG_RECORD_FIELD_BYTES 640
#define LOG_TEXT_BYTES         1024 /* a line of logfmt at most, its newline included */
#define LOG_JSON_BYTES         3072

struct log_record {
	uint32_t magic;
	uint32_t level; /* enum log_level */
	uint64_t time_us;
	int32_t pid;
	uint32_t fields_bytes; /* NULs included */
	char message[96];
	char session[ID_TEXT_BYTES]; /* "" : none */
	char job[ID_TEXT_BYTES];
	char request[70];
	char fields[LOG_RECORD_FIELD_BYTES]; /* `key=value` each, ended by a NUL; escaped */
};
_Static_assert(sizeof(struct log_record) <= 4096, "one write to a pipe is whole (PIPE_BUF)");

/* Fill fields from `key=value key="a value"`, which is escaped here. */
void log_record_set_fields(struct log_record *record, const char *text);
/* Every string ends and is printable ASCII, every number is in its range. */
void log_record_sanitize(struct log_record *record);

/* Each writes one line or datagram without a NUL and returns its length; cut at its bounds above.
 * from: the program that sent it through a relay, or NULL. */
size_t log_record_text(char dest[LOG_TEXT_BYTES], const struct log_record *record,
		       const char *program, const char *from);
size_t log_record_json(char dest[LOG_JSON_BYTES], const struct log_record *record,
		       const char *program);
size_t log_record_journal(char dest[LOG_JSON_BYTES], const struct log_record *record,
			  const char *program);
