#include "supervisor/provider/unwrap.h"

#include <errno.h>
#include <string.h>

#define OUTPUT_FIRST  1
#define OUTPUT_SECOND 2

void unwrap_reset(struct unwrap *unwrap)
{
	unwrap->head_bytes = 0;
	unwrap->piece_left = 0;
	unwrap->is_skipped = false;
	unwrap->message_bytes = 0;
}

static size_t smaller(size_t a, size_t b)
{
	return a < b ? a : b;
}

static int begin_piece(struct unwrap *unwrap)
{
	const uint8_t *head = unwrap->head;

	if ((head[0] != OUTPUT_FIRST && head[0] != OUTPUT_SECOND) || head[1] != 0 || head[2] != 0 ||
	    head[3] != 0)
		return -EPROTO;
	unwrap->piece_left = (uint32_t)head[4] << 24 | (uint32_t)head[5] << 16 |
			     (uint32_t)head[6] << 8 | head[7];
	unwrap->is_skipped = head[0] == OUTPUT_SECOND;
	unwrap->head_bytes = 0;
	return 0;
}

/* How long the message is with its head as far as that is known. 0: it cannot be so long. */
static size_t wanted(const struct unwrap *unwrap)
{
	uint32_t size;

	if (unwrap->message_bytes < CONTAIN_HEAD_BYTES)
		return CONTAIN_HEAD_BYTES;
	memcpy(&size, unwrap->message, sizeof(size));
	return size == 0 || size > WIRE_FRAME_MAX_BYTES ? 0 : CONTAIN_HEAD_BYTES + size;
}

static bool is_complete(const struct unwrap *unwrap)
{
	return unwrap->message_bytes > CONTAIN_HEAD_BYTES &&
	       unwrap->message_bytes == wanted(unwrap);
}

/* The rest of a head, or of a piece up to what the message lacks. How many of them, or -EPROTO. */
static ssize_t take_some(struct unwrap *unwrap, const uint8_t *data, size_t size)
{
	size_t n;

	if (unwrap->piece_left == 0) {
		n = smaller(size, UNWRAP_HEAD_BYTES - unwrap->head_bytes);
		memcpy(unwrap->head + unwrap->head_bytes, data, n);
		unwrap->head_bytes += n;
		if (unwrap->head_bytes == UNWRAP_HEAD_BYTES && begin_piece(unwrap) < 0)
			return -EPROTO;
		return (ssize_t)n;
	}
	n = smaller(size, unwrap->piece_left);
	if (!unwrap->is_skipped) {
		size_t all = wanted(unwrap);

		if (all == 0)
			return -EPROTO;
		n = smaller(n, all - unwrap->message_bytes);
		memcpy(unwrap->message + unwrap->message_bytes, data, n);
		unwrap->message_bytes += n;
	}
	unwrap->piece_left -= (uint32_t)n;
	return (ssize_t)n;
}

ssize_t unwrap_take(struct unwrap *unwrap, const uint8_t *data, size_t size)
{
	size_t at = 0;

	while (at < size && !is_complete(unwrap)) {
		ssize_t n = take_some(unwrap, data + at, size - at);

		if (n < 0)
			return n;
		at += (size_t)n;
	}
	return (ssize_t)at;
}

const uint8_t *unwrap_message(const struct unwrap *unwrap, size_t *ret_size)
{
	if (!is_complete(unwrap))
		return NULL;
	*ret_size = unwrap->message_bytes - CONTAIN_HEAD_BYTES;
	return unwrap->message + CONTAIN_HEAD_BYTES;
}

void unwrap_next(struct unwrap *unwrap)
{
	unwrap->message_bytes = 0;
}
