/*
 * Streams of an engine: the messages are the same however the bytes come, and none is larger than a
 * frame.
 */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

#include "supervisor/provider/unwrap.h"
#include "tests/fuzz/fuzz.h"

/* A digest of all messages, and how many; taken in steps of so many bytes. */
static uint64_t digest_of(const uint8_t *data, size_t size, size_t step)
{
	static struct unwrap unwrap;
	uint64_t digest = 0;
	size_t at = 0;

	unwrap_reset(&unwrap);
	while (at < size) {
		size_t offer = size - at < step ? size - at : step;
		ssize_t taken = unwrap_take(&unwrap, data + at, offer);
		const uint8_t *message;
		size_t bytes;

		if (taken < 0)
			break;
		ASSERT((size_t)taken <= offer);
		at += (size_t)taken;
		message = unwrap_message(&unwrap, &bytes);
		if (!message) {
			ASSERT((size_t)taken == offer);
			continue;
		}
		ASSERT(bytes > 0 && bytes <= WIRE_FRAME_MAX_BYTES);
		for (size_t i = 0; i < bytes; i++)
			digest = digest * 31 + message[i];
		digest = digest * 31 + bytes;
		unwrap_next(&unwrap);
	}
	return digest;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint64_t whole = digest_of(data, size, size + 1);

	ASSERT(digest_of(data, size, 1) == whole);
	ASSERT(digest_of(data, size, 7) == whole);
	return 0;
}
