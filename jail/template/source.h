/*
 * The bytes of a source, for the library that reads archives and for a digest of them: what is
 * unpacked is what was counted.
 */
#pragma once

#include <nettle/sha2.h>
#include <stdint.h>

#include "base/auto.h"

#define SOURCE_CHUNK_BYTES 65536

struct source {
	int fd; /* not owned; read from where it stands */
	uint64_t n_bytes;
	uint64_t max_bytes;
	int error; /* -errno; -EFBIG: there are more than that */
	struct sha256_ctx digest;
	uint8_t chunk[SOURCE_CHUNK_BYTES];
};

void source_init(struct source *source, int fd, uint64_t max_bytes);
/* The next bytes, in chunk. Their number; 0: the end; -errno, again and again. */
MUST_USE ssize_t source_next(struct source *source);
/* Read what is left, and say what all of it was. 0 or -errno. */
MUST_USE int source_end(struct source *source, uint8_t ret_digest[SHA256_DIGEST_SIZE]);
