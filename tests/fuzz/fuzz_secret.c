/*
 * What outside parties say of secrets: the first byte chooses a launch's request, the stream of
 * records with what the shim makes of it, or the text that goes through the mask.
 */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/secret.h"

#include "shim/mask.h"
#include "shim/secrets.h"
#include "tests/fuzz/fuzz.h"

static void fuzz_request(const uint8_t *data, size_t size)
{
	struct secret_request request = {0};

	memcpy(&request, data, size < sizeof(request) ? size : sizeof(request));
	if (secret_request_check(&request) < 0)
		return;
	for (size_t i = 0; i < request.n; i++)
		ASSERT(secret_name_valid(request.name[i], strlen(request.name[i])));
}

/* Nothing that leaves holds a whole value, whatever the text is. */
static void expect_masked(const struct mask *mask, const uint8_t *text, size_t size)
{
	for (size_t p = 0; p < mask->n; p++)
		ASSERT(!memmem(text, size, mask->pattern[p].bytes, mask->pattern[p].length));
}

static void fuzz_mask(const struct mask *mask, const uint8_t *data, size_t size)
{
	struct mask_stream stream;
	static uint8_t out[65536];
	size_t n = 0;

	if (mask_stream_init(&stream, mask, true) < 0)
		return;
	while (size > 0) {
		size_t piece = 1 + (size_t)data[0] % 7;
		uint8_t *room = NULL;

		piece = piece < size ? piece : size;
		ASSERT(mask_stream_room(&stream, &room) >= piece);
		memcpy(room, data, piece);
		mask_stream_commit(&stream, piece);
		data += piece;
		size -= piece;
		if (n < sizeof(out))
			n += mask_stream_take(&stream, out + n, sizeof(out) - n);
	}
	mask_stream_end(&stream, false);
	if (n < sizeof(out))
		n += mask_stream_take(&stream, out + n, sizeof(out) - n);
	mask_stream_done(&stream);
	expect_masked(mask, out, n);
}

static void fuzz_records(const uint8_t *data, size_t size)
{
	static struct secrets secrets;
	struct secret_view views[SECRETS_SESSION_MAX];
	size_t n = 0;
	bool stars = false;

	if (secret_stream_parse(data, size, views, &n) < 0)
		return;
	ASSERT(n > 0 && n <= SECRETS_SESSION_MAX);
	if (secrets_take(&secrets, views, n) < 0)
		return;
	ASSERT(secrets.n == n && secrets.n_patterns >= n);
	/* A value of stars only is what it is masked with. */
	for (size_t p = 0; p < secrets.mask.n; p++)
		stars = stars ||
			memchr(secrets.mask.pattern[p].bytes, '*', secrets.mask.pattern[p].length);
	if (!stars && size < 8192)
		fuzz_mask(&secrets.mask, data, size);
	secrets_forget(&secrets);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size < 1)
		return 0;
	if (data[0] & 1)
		fuzz_request(data + 1, size - 1);
	else
		fuzz_records(data + 1, size - 1);
	return 0;
}
