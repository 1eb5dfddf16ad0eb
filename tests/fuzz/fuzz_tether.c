/*
 * A tether whose far end is the input; the first byte says which end we are and in which pieces it
 * comes. What is found does not depend on the pieces, and our own side stays what it was.
 */
#include <string.h>

#include "base/err.h"
#include "base/tether.h"

#include "tests/fuzz/fuzz.h"

struct seen {
	unsigned int n_messages;
	unsigned int n_begun;
	int error;
};

static void take_all(struct tether *tether, struct seen *seen)
{
	const void *data;
	size_t size;
	int found;

	while ((found = tether_next(tether, &data, &size)) > 0) {
		seen->n_begun += found == TETHER_BEGUN;
		if (found == TETHER_BEGUN)
			continue;
		ASSERT(size > 0 && size <= TETHER_MESSAGE_MAX_BYTES);
		ASSERT(data == tether->in + tether->in_at + TETHER_HEADER_BYTES);
		seen->n_messages++;
		tether_took(tether);
	}
	seen->error = found;
}

static struct seen feed(const uint8_t *data, size_t size, uint64_t name, size_t piece)
{
	struct seen seen = {0};
	struct tether tether;
	const void *out;

	if (tether_init(&tether, name) < 0)
		return seen;
	tether_stream(&tether);
	if (name != 0)
		ASSERT(tether_put(&tether, "one", 3) == 0 && tether_put(&tether, "two", 3) == 0);
	while (size > 0 && seen.error == 0) {
		void *space;
		size_t n = tether_space(&tether, &space);

		ASSERT(n > 0);
		n = n < piece ? n : piece;
		n = n < size ? n : size;
		memcpy(space, data, n);
		tether_read(&tether, n);
		data += n;
		size -= n;
		take_all(&tether, &seen);
		tether_wrote(&tether, tether_pending(&tether, &out));
		ASSERT(tether.acked <= tether.sent && tether.next <= tether.kept.used);
		ASSERT(tether.told <= tether.taken);
	}
	tether_done(&tether);
	return seen;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const uint64_t caller = 0x4141414141414141;
	uint64_t name;
	struct seen one, other;

	if (size < 1)
		return 0;
	name = data[0] & 1 ? caller : 0;
	one = feed(data + 1, size - 1, name, 1);
	other = feed(data + 1, size - 1, name, (size_t)(data[0] >> 1) + 1);
	/* Whether an ACK is of something that has gone out depends on the pieces. */
	if (one.error == 0 && other.error == 0)
		ASSERT(one.n_messages == other.n_messages && one.n_begun == other.n_begun);
	return 0;
}
