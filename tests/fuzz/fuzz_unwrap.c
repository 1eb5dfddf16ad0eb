/*
 * Streams of an engine: what the first output says is the same however the bytes come, and however
 * little room there is for it.
 */
#include "base/err.h"

#include "supervisor/provider/unwrap.h"
#include "tests/fuzz/fuzz.h"

struct seen {
	uint64_t digest;
	size_t bytes;
	bool is_wrong;
};

/* Taken in steps of so many bytes, with as much room. */
static struct seen take_all(const uint8_t *data, size_t size, size_t step)
{
	struct unwrap unwrap = {0};
	struct seen seen = {0};
	uint8_t out[64];
	size_t room = step < sizeof(out) ? step : sizeof(out);

	for (size_t at = 0; at < size;) {
		size_t offer = size - at < step ? size - at : step;
		size_t n_out;
		ssize_t taken = unwrap_take(&unwrap, data + at, offer, out, room, &n_out);

		if (taken < 0) {
			seen.is_wrong = true;
			return seen;
		}
		ASSERT((size_t)taken == offer || ((size_t)taken < offer && n_out == room));
		ASSERT(n_out <= room);
		at += (size_t)taken;
		for (size_t i = 0; i < n_out; i++)
			seen.digest = seen.digest * 31 + out[i];
		seen.bytes += n_out;
	}
	return seen;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct seen whole = take_all(data, size, size + 1);

	for (size_t step = 1; step <= 7; step += 6) {
		struct seen other = take_all(data, size, step);

		ASSERT(other.is_wrong == whole.is_wrong);
		if (!whole.is_wrong)
			ASSERT(other.digest == whole.digest && other.bytes == whole.bytes);
	}
	return 0;
}
