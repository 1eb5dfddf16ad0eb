/*
 * A byte ring of fixed size for partial reads and writes. No byte is reserved: used + free = size.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/auto.h"

struct ring {
	uint8_t *data; /* owned */
	size_t size;
	size_t head; /* next byte to read */
	size_t used;
};

MUST_USE int ring_init(struct ring *ring, size_t size); /* 0 or -ENOMEM */
void ring_done(struct ring *ring);                      /* a ring of zeros is fine */
size_t ring_free_bytes(const struct ring *ring);
/* Number of bytes taken (as many as fit). */
size_t ring_put(struct ring *ring, const void *data, size_t size);
/* Copy up to size bytes from `offset` behind the head without removing them; number of bytes. */
size_t ring_peek(const struct ring *ring, size_t offset, void *ret_data, size_t size);
void ring_drop(struct ring *ring, size_t size); /* size <= used */
/* Free space and used space as at most two pieces; number of pieces. ring_commit after filling. */
int ring_space_iov(const struct ring *ring, struct iovec iov[2]);
int ring_used_iov(const struct ring *ring, struct iovec iov[2]);
void ring_commit(struct ring *ring, size_t size); /* size <= free */
