/*
 * Heads of an engine's answer: what is taken and what is said of it is the same however the bytes
 * come, and what is behind the head is left. A second reader, of the whole at once, says where that
 * is.
 */
#include <errno.h>
#include <string.h>

#include "base/err.h"

#include "supervisor/provider/attach_head.h"
#include "tests/fuzz/fuzz.h"

struct seen {
	int result;
	size_t taken;
};

static struct seen take_all(const char *data, size_t size, size_t step)
{
	struct attach_head head = {0};
	struct seen seen = {0};

	while (seen.result == 0 && seen.taken < size) {
		size_t offer = size - seen.taken < step ? size - seen.taken : step;
		size_t taken;

		seen.result = attach_head_take(&head, data + seen.taken, offer, &taken);
		ASSERT(taken <= offer && (taken == offer || seen.result != 0));
		seen.taken += taken;
	}
	return seen;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *text = (const char *)data;
	const char *end = size > 0 ? memmem(text, size, "\r\n\r\n", 4) : NULL;
	size_t length = end ? (size_t)(end - text) + 4 : size;
	struct seen whole = take_all(text, size, size + 1);

	if (length > ATTACH_HEAD_MAX) {
		ASSERT(whole.result == -EPROTO);
	} else {
		ASSERT(whole.taken == length);
		ASSERT(end ? whole.result == 1 || whole.result == -EPROTO : whole.result == 0);
	}
	if (whole.result == 1)
		ASSERT(memcmp(text, "HTTP/1.1 ", 9) == 0);
	for (size_t step = 1; step <= 7; step += 6) {
		struct seen other = take_all(text, size, step);

		ASSERT(other.result == whole.result && other.taken == whole.taken);
	}
	return 0;
}
