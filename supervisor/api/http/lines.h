/*
 * Lines of a stream, taken piece by piece through one block: a line may be longer than the block,
 * and its newline is taken but never given. Pure.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/auto.h"

#define LINES_BLOCK_BYTES ((size_t)16 * 1024)

/* As request_stream's: bytes put into data; 0: nothing yet; -ENODATA: the end; other: an error. */
typedef ssize_t (*lines_read)(void *userdata, char *data, size_t size);

struct lines {
	size_t at;
	size_t size;
	char block[LINES_BLOCK_BYTES];
};

/* 1: something is in the block; else what read said. */
MUST_USE int lines_fill(struct lines *lines, lines_read read, void *userdata);
/* The next piece of the line, at most size bytes (size > 0). *ret_ended: it is the last one; it is
 * empty only where the whole line is. 0 and not ended: nothing yet. Negative: what read said. */
MUST_USE ssize_t lines_take(struct lines *lines, lines_read read, void *userdata, void *data,
			    size_t size, bool *ret_ended);
