#include "supervisor/provider/unwrap.h"

#include <errno.h>
#include <string.h>

#define OUTPUT_FIRST  1
#define OUTPUT_SECOND 2

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

ssize_t unwrap_take(struct unwrap *unwrap, const uint8_t *data, size_t size, uint8_t *out,
		    size_t out_size, size_t *ret_out_bytes)
{
	size_t at = 0;
	size_t out_at = 0;

	while (at < size) {
		bool is_head = unwrap->piece_left == 0;
		size_t n = smaller(size - at, is_head ? UNWRAP_HEAD_BYTES - unwrap->head_bytes
						      : unwrap->piece_left);

		if (is_head) {
			memcpy(unwrap->head + unwrap->head_bytes, data + at, n);
			unwrap->head_bytes += n;
			at += n;
			if (unwrap->head_bytes == UNWRAP_HEAD_BYTES && begin_piece(unwrap) < 0)
				return -EPROTO;
			continue;
		}
		if (!unwrap->is_skipped) {
			n = smaller(n, out_size - out_at);
			if (n == 0)
				break;
			memcpy(out + out_at, data + at, n);
			out_at += n;
		}
		unwrap->piece_left -= (uint32_t)n;
		at += n;
	}
	*ret_out_bytes = out_at;
	return (ssize_t)at;
}
