/*
 * Pure: what comes on the stream of a command that the engine runs, taken apart. The engine cuts
 * the command's two outputs into pieces with a head of 8 bytes each (which output, three zero
 * bytes, length in big-endian order), wherever it likes; the first output is the tether's.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/auto.h"

#define UNWRAP_HEAD_BYTES 8

/* A new stream: all zero. */
struct unwrap {
	uint8_t head[UNWRAP_HEAD_BYTES];
	size_t head_bytes;   /* that are there */
	uint32_t piece_left; /* of the piece */
	bool is_skipped;     /* the piece is of the other output */
};

/* The first output's bytes go to `out`, at most out_size of them, *ret_out_bytes in all. How many
 * bytes of the stream were taken: fewer than `size` only where `out` is full. -EPROTO: this is no
 * such stream. */
MUST_USE ssize_t unwrap_take(struct unwrap *unwrap, const uint8_t *data, size_t size, uint8_t *out,
			     size_t out_size, size_t *ret_out_bytes);
