/*
 * Theory. Two numbers describe the content: `head`, the next byte to read (always < size), and
 * `used`. The place to write is head + used, wrapped. Because `used` is kept and not derived from a
 * second index, a full ring and an empty one differ without a reserved byte, and there is one place
 * (piece) where wrapping is computed.
 */
#include "base/ring.h"

#include <errno.h>
#include <string.h>

#include "base/err.h"

/* The at most two pieces of `n` bytes that begin `offset` bytes behind the head. */
static int pieces(const struct ring *ring, size_t offset, size_t n, struct iovec iov[2])
{
	size_t start, first;

	if (n == 0)
		return 0;
	ASSERT(offset <= ring->size && n <= ring->size);
	start = ring->size - ring->head > offset ? ring->head + offset
						 : offset - (ring->size - ring->head);
	first = ring->size - start < n ? ring->size - start : n;
	iov[0] = (struct iovec){.iov_base = ring->data + start, .iov_len = first};
	if (first == n)
		return 1;
	iov[1] = (struct iovec){.iov_base = ring->data, .iov_len = n - first};
	return 2;
}

int ring_init(struct ring *ring, size_t size)
{
	uint8_t *data;

	ASSERT(size > 0);
	data = malloc(size);
	if (!data)
		return -ENOMEM;
	*ring = (struct ring){.data = data, .size = size};
	return 0;
}

void ring_done(struct ring *ring)
{
	free(ring->data);
	*ring = (struct ring){0};
}

size_t ring_free_bytes(const struct ring *ring)
{
	return ring->size - ring->used;
}

size_t ring_put(struct ring *ring, const void *data, size_t size)
{
	const uint8_t *from = data;
	size_t n = ring_free_bytes(ring) < size ? ring_free_bytes(ring) : size;
	struct iovec iov[2];
	int n_iov = pieces(ring, ring->used, n, iov);

	for (int i = 0; i < n_iov; i++) {
		memcpy(iov[i].iov_base, from, iov[i].iov_len);
		from += iov[i].iov_len;
	}
	ring->used += n;
	return n;
}

size_t ring_peek(const struct ring *ring, size_t offset, void *ret_data, size_t size)
{
	uint8_t *to = ret_data;
	struct iovec iov[2];
	size_t n;
	int n_iov;

	if (offset >= ring->used)
		return 0;
	n = ring->used - offset < size ? ring->used - offset : size;
	n_iov = pieces(ring, offset, n, iov);
	for (int i = 0; i < n_iov; i++) {
		memcpy(to, iov[i].iov_base, iov[i].iov_len);
		to += iov[i].iov_len;
	}
	return n;
}

void ring_drop(struct ring *ring, size_t size)
{
	ASSERT(size <= ring->used);
	ring->used -= size;
	if (ring->used == 0)
		ring->head = 0; /* empty: the next bytes come in one piece */
	else
		ring->head = ring->size - ring->head > size ? ring->head + size
							    : size - (ring->size - ring->head);
}

int ring_space_iov(const struct ring *ring, struct iovec iov[2])
{
	return pieces(ring, ring->used, ring_free_bytes(ring), iov);
}

int ring_used_iov(const struct ring *ring, struct iovec iov[2])
{
	return pieces(ring, 0, ring->used, iov);
}

void ring_commit(struct ring *ring, size_t size)
{
	ASSERT(size <= ring_free_bytes(ring));
	ring->used += size;
}
