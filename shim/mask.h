/*
 * Secret values masked in a stream of bytes, also when they come in pieces. Pure: memory is the
 * caller's, nothing is read or written here.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/auto.h"

#define MASK_MAX_PATTERNS 1280
#define MASK_NONE         UINT16_MAX
#define MASK_PAIRS        1024
#define MASK_CHUNK_BYTES  16384 /* what a stream takes at once beside what it holds back */

struct mask_pattern {
	const uint8_t *bytes;
	size_t length;
	uint32_t *fail;   /* `length` of them; mask_init fills it */
	const char *text; /* what stands in its place: "***NAME***" */
};

/* Everything that is masked in one session; not changed after mask_init. */
struct mask {
	const struct mask_pattern *pattern;
	size_t n;
	size_t longest;
	bool is_first[256]; /* some pattern begins with this byte */
	/* Patterns by their first two bytes: the index of the first one, then of the next;
	 * MASK_NONE. */
	uint16_t pair[MASK_PAIRS];
	uint16_t next[MASK_MAX_PATTERNS];
};

void mask_init(struct mask *mask, const struct mask_pattern *patterns, size_t n);

/*
 * One stream. The caller asks for room, reads into it, commits what it read, and takes out what is
 * decided; at the end of the input it says so, and takes out the rest.
 */
struct mask_stream {
	const struct mask *mask;
	bool keep_length; /* '*' for each masked byte: for output whose lengths mean something */
	bool is_ended;
	uint8_t *data;
	uint16_t *mark;   /* per byte of data: enum mask_mark */
	uint32_t *state;  /* per pattern: how much of it the input ends with */
	uint16_t *active; /* those whose state is not 0 */
	size_t n_active;
	int last; /* byte before; -1: none */
	size_t capacity;
	size_t at;           /* first byte that was not taken out */
	size_t used;         /* end of the input */
	size_t held;         /* bytes before `used` that may be the beginning of a secret */
	size_t covered_from; /* the last masked run */
	size_t covered_to;
	const char *text; /* rest of a replacement that was taken out in part; NULL: none */
};

/* 0 or -ENOMEM. */
MUST_USE int mask_stream_init(struct mask_stream *stream, const struct mask *mask,
			      bool keep_length);
void mask_stream_done(struct mask_stream *stream); /* wipes */

/* Room for input; 0 while decided bytes fill it. */
size_t mask_stream_room(struct mask_stream *stream, uint8_t **ret_data);
void mask_stream_commit(struct mask_stream *stream, size_t n);
/* No more input. is_cut: the stream goes on, but not to us, or its writer was killed: a beginning
 * of a secret that is long enough to be one is masked as well. Idempotent. */
void mask_stream_end(struct mask_stream *stream, bool is_cut);
/* Take out at most `size` decided bytes. */
size_t mask_stream_take(struct mask_stream *stream, uint8_t *data, size_t size);
/* Is anything decided and not taken out? */
bool mask_stream_ready(const struct mask_stream *stream);
