/*
 * A rate: how many bytes may be read now.
 *
 * Who has to wait for tokens waits until there is a portion of them: each frame wakes everybody on
 * its way, and at the same rate small ones are a load of their own.
 */
#pragma once

#include <stdint.h>

#include "base/clock.h"

/* With fewer tokens than this reading waits. */
#define BUCKET_MIN_TOKENS 4096

struct bucket {
	uint64_t tokens;
	usec_t at; /* when `tokens` was right */
};

/* What has come since, up to a second's. rate_bytes: a second. */
void bucket_refill(struct bucket *bucket, uint64_t rate_bytes, usec_t now);
/* When there will be enough to read, of one that has less than BUCKET_MIN_TOKENS. */
usec_t bucket_enough_at(const struct bucket *bucket, uint64_t rate_bytes, usec_t now);
