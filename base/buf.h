/*
 * A byte buffer that grows up to a maximum, with appenders and typed getters that cannot over-read.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/auto.h"

struct buf {
	uint8_t *data;
	size_t size; /* bytes in use */
	size_t allocated;
	size_t max_bytes; /* appending beyond: -EMSGSIZE */
};
#define BUF_NULL(max) ((struct buf){.max_bytes = (max)})

void buf_done(struct buf *buf);  /* frees; the buffer is empty and usable again */
void buf_reset(struct buf *buf); /* empty; keeps its memory */
void buf_wipe(struct buf *buf);  /* as buf_done, and nothing of it is left in memory */

/* All that grow the buffer: 0; -EMSGSIZE beyond max_bytes; -ENOMEM. On failure nothing has changed.
 * `data` may move, so pointers into it end with the next call. Numbers are in host order. */
MUST_USE int buf_reserve(struct buf *buf, size_t more);
MUST_USE int buf_append(struct buf *buf, const void *data, size_t size);
MUST_USE int buf_append_str(struct buf *buf, const char *text);
MUST_USE int buf_append_u32(struct buf *buf, uint32_t value);
MUST_USE int buf_append_u64(struct buf *buf, uint64_t value);
MUST_USE int buf_printf(struct buf *buf, const char *format, ...) PRINTF_LIKE(2, 3);
/* Text with its NUL, not counted in size; valid until the next change. NULL only without memory. */
const char *buf_text(struct buf *buf);
/* Drop bytes at the front (size <= buf->size). Moves the rest: not for a stream, which takes a
 * ring. */
void buf_consume(struct buf *buf, size_t size);

/* A reader over bytes that somebody else owns. Each getter returns 0 or -EBADMSG and then moves
 * nothing. */
struct buf_reader {
	const uint8_t *data;
	size_t size;
	size_t at;
};
MUST_USE int buf_get(struct buf_reader *reader, void *ret_data, size_t size);
MUST_USE int buf_get_u32(struct buf_reader *reader, uint32_t *ret_value);
MUST_USE int buf_get_u64(struct buf_reader *reader, uint64_t *ret_value);
/* A string with its NUL inside the bytes; *ret_text points into them. */
MUST_USE int buf_get_str(struct buf_reader *reader, const char **ret_text, size_t *ret_length);
