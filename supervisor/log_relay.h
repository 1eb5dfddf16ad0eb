/*
 * A worker's standard error. A worker never holds the service's own log or terminal: it could
 * truncate the one and push characters into the other (B8).
 */
#pragma once

#include <stddef.h>

#include "base/auto.h"
#include "base/log_record.h"
#include "base/loop.h"

#define LOG_RELAY_LINE_BYTES 1024

struct log_relay {
	const char *from; /* name of the program; not owned */
	int fd;           /* owned */
	struct loop_source *source;
	size_t used;
	union {
		char line[LOG_RELAY_LINE_BYTES]; /* text, up to its newline */
		struct log_record record;        /* where it begins with the magic */
	} in;
};
#define LOG_RELAY_NULL ((struct log_relay){.fd = -1})

/* fd becomes the relay's, also on failure. */
MUST_USE int log_relay_start(struct log_relay *relay, struct loop *loop, int fd, const char *from);
/* Pass on what the pipe still holds, then close it. Idempotent. */
void log_relay_done(struct log_relay *relay);
/* Add bytes as if they were read: complete lines are written at once. */
void log_relay_feed(struct log_relay *relay, const char *bytes, size_t size);
