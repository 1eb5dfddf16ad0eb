/*
 * What of a stream, Server-Sent Events or one JSON object a line, is formatted and not yet taken by
 * its reader. The owner formats into `pending` when stream_out_is_empty says so.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/auto.h"
#include "base/buf.h"
#include "base/clock.h"

struct stream_out {
	struct buf pending; /* from `sent` on not yet taken */
	size_t sent;
	usec_t last_sent; /* boottime */
	bool as_lines;
	bool heartbeat; /* a comment is due where nothing else is there to be said */
};

/* max_bytes: of what is pending. */
void stream_out_init(struct stream_out *out, size_t max_bytes, bool as_lines);
void stream_out_done(struct stream_out *out);
/* All was taken; `pending` is empty then. */
bool stream_out_is_empty(struct stream_out *out);
/* The end of one event or line. 0 or -errno. */
MUST_USE int stream_out_end_item(struct stream_out *out);
/* The next bytes, at most `size`, behind a heartbeat where one is due; 0: there are none; -errno.
 * is_over: nothing follows, no heartbeat either. */
MUST_USE ssize_t stream_out_take(struct stream_out *out, bool is_over, char *data, size_t size);
/* It has been silent for APP_HEARTBEAT: its reader is to be woken. Lines have no comments. */
bool stream_out_is_due(struct stream_out *out, usec_t now);

/* text/event-stream or application/x-ndjson. */
const char *stream_out_type(const struct stream_out *out);
