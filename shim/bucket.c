#include "shim/bucket.h"

#include "sandboxd/limits.h"

#define MIN_BURST_BYTES (64ul * 1024)
/* Who waits, waits for so much of a second's, but at least BUCKET_MIN_TOKENS, and no more than a
 * frame. */
#define PORTIONS        64

void bucket_refill(struct bucket *bucket, uint64_t rate_bytes, usec_t now)
{
	uint64_t burst = rate_bytes > MIN_BURST_BYTES ? rate_bytes : MIN_BURST_BYTES;
	uint64_t span = now - bucket->at;
	uint64_t more;

	if (span > USEC_PER_SEC * 60)
		span = USEC_PER_SEC * 60;
	if (__builtin_mul_overflow(span, rate_bytes, &more))
		more = UINT64_MAX;
	more /= USEC_PER_SEC;
	if (more == 0)
		return;
	/* The burst of the session's is as its last command's, which may be smaller. */
	if (bucket->tokens > burst || burst - bucket->tokens < more)
		bucket->tokens = burst;
	else
		bucket->tokens += more;
	bucket->at = now;
}

usec_t bucket_enough_at(const struct bucket *bucket, uint64_t rate_bytes, usec_t now)
{
	uint64_t portion = rate_bytes / PORTIONS;

	if (portion < BUCKET_MIN_TOKENS)
		portion = BUCKET_MIN_TOKENS;
	if (portion > WIRE_PAYLOAD_MAX_BYTES)
		portion = WIRE_PAYLOAD_MAX_BYTES;
	return clock_add(now, (portion - bucket->tokens) * USEC_PER_SEC / rate_bytes + 1);
}
