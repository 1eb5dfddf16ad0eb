/*
 * The durable frames of one job that the api worker has not acknowledged: output in a ring, the
 * last frame beside it. wire.h has the theory.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/auto.h"
#include "base/ring.h"

#include "sandboxd/wire.h"

struct outbox {
	bool keeps;       /* what is acknowledged stays until room is needed */
	uint64_t acked;   /* keeps: the highest number that is */
	uint64_t dropped; /* keeps: the highest number that made room; 0: none */
	struct ring ring; /* output frames, header and payload; no memory before the first output */
	size_t sent_bytes; /* of the ring: sent on this connection */
	size_t n_frames;   /* in the ring */
	struct {
		struct wire_header header; /* type 0: the job has not ended */
		union {
			struct wire_exit exit;
			struct wire_failed failed;
		} payload;
		bool is_sent;
	} last;
};

void outbox_done(struct outbox *outbox);
/* Payload bytes that the next frame may have; 0: stop reading. Kept frames make room. */
size_t outbox_room(struct outbox *outbox, size_t ring_bytes);
/* Does it have its ring? */
static inline bool outbox_is_open(const struct outbox *outbox)
{
	return outbox->ring.data;
}
/* The first output frame; makes the ring. 0 or -ENOMEM. */
MUST_USE int outbox_first(struct outbox *outbox, struct wire_header header, const void *payload,
			  size_t ring_bytes);
/* A frame behind others. There is room for it (outbox_room). */
void outbox_append(struct outbox *outbox, struct wire_header header, const void *payload);
/*
 * Read at most max_payload bytes (<= outbox_room) from fd straight into the ring, as one frame. The
 * number of bytes; 0 at the end of file, -EAGAIN, -errno: then no frame is made.
 */
MUST_USE ssize_t outbox_read(struct outbox *outbox, int fd, struct wire_header header,
			     size_t max_payload);
/* The frame that ends the job. payload may be NULL with payload_bytes 0. */
void outbox_set_last(struct outbox *outbox, struct wire_header header, const void *payload);
/* Number of the next frame that was not sent on this connection; 0: none. */
uint64_t outbox_next(const struct outbox *outbox);
/* Send that frame. 0, -EAGAIN or -errno. */
MUST_USE int outbox_send(struct outbox *outbox, int fd);
/* Forget frames up to `acked`, or where they are kept note that. */
void outbox_ack(struct outbox *outbox, uint64_t acked);
/* A new connection: nothing is sent. */
void outbox_rewind(struct outbox *outbox);
bool outbox_empty(const struct outbox *outbox);
/* Everything is acknowledged, the last frame too. */
bool outbox_rests(const struct outbox *outbox);
size_t outbox_frames(const struct outbox *outbox);
size_t outbox_bytes(const struct outbox *outbox);
