/*
 * Pure: what comes on the stream of a command that the engine runs, taken apart. The engine cuts
 * the command's two outputs into pieces with a head of 8 bytes each (which output, three zero
 * bytes, length in big-endian order), wherever it likes; in the first output are the messages of
 * sandboxd/contain.h.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/auto.h"

#include "sandboxd/contain.h"

#define UNWRAP_HEAD_BYTES 8

struct unwrap {
	uint8_t head[UNWRAP_HEAD_BYTES];
	size_t head_bytes;   /* that are there */
	uint32_t piece_left; /* of the piece */
	bool is_skipped;     /* the piece is of the other output */
	size_t message_bytes;
	uint8_t message[CONTAIN_MESSAGE_BYTES];
};

/* Start: all zero is right too. */
void unwrap_reset(struct unwrap *unwrap);
/* How many of the bytes were taken: all, or those up to the end of a message, which is then there
 * until unwrap_next. -EPROTO: this is no such stream. */
MUST_USE ssize_t unwrap_take(struct unwrap *unwrap, const uint8_t *data, size_t size);
/* The message that is complete, without its length, or NULL. */
const uint8_t *unwrap_message(const struct unwrap *unwrap, size_t *ret_size);
void unwrap_next(struct unwrap *unwrap);
