/*
 * Masking against a slow reference, at every way to cut small inputs in two and at random ways to
 * cut large ones; and the bounds that make it fit for pid 1.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shim/mask.h"
#include "tests/lib/test.h"

#define MAX_BYTES 4096

struct rig {
	struct mask mask;
	struct mask_pattern pattern[8];
	uint32_t fail[8][64];
	size_t n;
};

static void rig_add(struct rig *rig, const char *value, const char *text)
{
	size_t n = rig->n++;

	rig->pattern[n] = (struct mask_pattern){
		.bytes = (const uint8_t *)value,
		.length = strlen(value),
		.fail = rig->fail[n],
		.text = text,
	};
	assert_true(strlen(value) <= 64);
	mask_init(&rig->mask, rig->pattern, rig->n);
}

static char *put_text(char *out, const char *text)
{
	size_t n = strlen(text);

	memcpy(out, text, n);
	return out + n;
}

/* All matches; overlapping ones joined; each run named after its first and longest. */
static size_t reference(const struct rig *rig, const uint8_t *data, size_t size, bool keep_length,
			char *out)
{
	static int owner[MAX_BYTES]; /* of the run that begins here, or -1 */
	static bool covered[MAX_BYTES];
	static bool joined[MAX_BYTES]; /* to the byte before */
	size_t n = 0;

	for (size_t i = 0; i < size; i++) {
		owner[i] = -1;
		covered[i] = joined[i] = false;
	}
	for (size_t i = 0; i < size; i++)
		for (size_t p = 0; p < rig->n; p++) {
			const struct mask_pattern *pattern = &rig->pattern[p];

			if (pattern->length > size - i ||
			    memcmp(data + i, pattern->bytes, pattern->length) != 0)
				continue;
			if (owner[i] < 0 || rig->pattern[owner[i]].length < pattern->length)
				owner[i] = (int)p;
			for (size_t k = i; k < i + pattern->length; k++) {
				covered[k] = true;
				joined[k] = joined[k] || k > i;
			}
		}
	for (size_t i = 0; i < size; i++) {
		if (!covered[i])
			out[n++] = (char)data[i];
		else if (keep_length)
			out[n++] = '*';
		else if (!joined[i])
			n = (size_t)(put_text(out + n, rig->pattern[owner[i]].text) - out);
	}
	return n;
}

/* Through a stream in pieces: `cut` gives the size of the next one. */
static size_t stream_through(const struct rig *rig, const uint8_t *data, size_t size,
			     size_t (*cut)(void *), void *userdata, bool keep_length, char *out)
{
	struct mask_stream stream;
	size_t at = 0;
	size_t n = 0;

	assert_int_equal(mask_stream_init(&stream, &rig->mask, keep_length), 0);
	while (at < size) {
		uint8_t *room;
		size_t piece = cut(userdata);
		size_t space = mask_stream_room(&stream, &room);

		if (piece > size - at)
			piece = size - at;
		if (piece > space)
			piece = space;
		assert_true(piece > 0);
		memcpy(room, data + at, piece);
		mask_stream_commit(&stream, piece);
		at += piece;
		while (mask_stream_ready(&stream))
			n += mask_stream_take(&stream, (uint8_t *)out + n, cut(userdata));
	}
	mask_stream_end(&stream, false);
	while (mask_stream_ready(&stream))
		n += mask_stream_take(&stream, (uint8_t *)out + n, 3);
	mask_stream_done(&stream);
	return n;
}

static size_t cut_twice(void *userdata)
{
	size_t *first = userdata;
	size_t n = *first;

	*first = SIZE_MAX / 2;
	return n;
}

static size_t cut_random(void *userdata)
{
	(void)userdata;
	return 1 + (size_t)(random() % 9);
}

static void test_mask_at_every_split_as_reference(void **state)
{
	static const char *const texts[] = {
		"",
		"plain",
		"hunter2-hunter2",
		"say hunter2, say it",
		"hunter",
		"hunterhunter2",
		"aaaa",
		"aaaaaaaaab",
		"xaaaaay",
		"abcdefgh",
		"abcdef abcdefgh cdef",
		"ababababac",
		"cdefghab",
	};
	static char want[MAX_BYTES];
	static char got[MAX_BYTES];
	struct rig rig = {0};

	(void)state;
	rig_add(&rig, "hunter2", "***PASSWORD***");
	rig_add(&rig, "aaaa", "***A***");
	rig_add(&rig, "abcdef", "***LEFT***");
	rig_add(&rig, "cdefgh", "***RIGHT***");
	rig_add(&rig, "abcd", "***SHORT***");
	rig_add(&rig, "ababac", "***AB***");
	for (size_t t = 0; t < ARRAY_SIZE(texts); t++)
		for (size_t split = 1; split <= strlen(texts[t]) + 1; split++)
			for (int keep = 0; keep < 2; keep++) {
				const uint8_t *data = (const uint8_t *)texts[t];
				size_t size = strlen(texts[t]);
				size_t first = split;
				size_t n = reference(&rig, data, size, keep, want);

				assert_int_equal(stream_through(&rig, data, size, cut_twice, &first,
								keep, got),
						 n);
				assert_memory_equal(got, want, n);
			}
}

static void test_mask_of_random_input_as_reference(void **state)
{
	static char want[16 * MAX_BYTES];
	static char got[16 * MAX_BYTES];
	static uint8_t data[256];

	(void)state;
	srandom(7);
	for (int round = 0; round < 3000; round++) {
		static char values[4][16];
		struct rig rig = {0};
		size_t size = (size_t)(random() % (long)sizeof(data));
		bool keep = random() % 4 == 0;
		size_t n;

		/* Two letters: everything overlaps with everything. */
		for (size_t p = 0; p < 4; p++) {
			size_t length = 4 + (size_t)(random() % 8);

			for (size_t i = 0; i < length; i++)
				values[p][i] = (char)('a' + random() % 2);
			values[p][length] = '\0';
		}
		rig_add(&rig, values[0], "<0>");
		rig_add(&rig, values[1], "<1>");
		/* The same value under two names has either. */
		if (strcmp(values[2], values[0]) != 0 && strcmp(values[2], values[1]) != 0)
			rig_add(&rig, values[2], "<2>");
		for (size_t i = 0; i < size; i++)
			data[i] = (uint8_t)('a' + (random() % 16 == 0 ? 2 : random() % 2));
		if (strcmp(values[0], values[1]) == 0)
			continue;
		n = reference(&rig, data, size, keep, want);
		assert_int_equal(stream_through(&rig, data, size, cut_random, NULL, keep, got), n);
		assert_memory_equal(got, want, n);
	}
}

static size_t feed(struct mask_stream *stream, const char *text)
{
	uint8_t *room;

	assert_true(mask_stream_room(stream, &room) >= strlen(text));
	memcpy(room, text, strlen(text));
	mask_stream_commit(stream, strlen(text));
	return strlen(text);
}

static void test_mask_holds_only_what_may_become_a_secret(void **state)
{
	struct mask_stream stream;
	struct rig rig = {0};
	uint8_t out[64];

	(void)state;
	rig_add(&rig, "hunter2", "***P***");
	assert_int_equal(mask_stream_init(&stream, &rig.mask, false), 0);
	feed(&stream, "a prompt> ");
	assert_int_equal(mask_stream_take(&stream, out, sizeof(out)), 10);
	feed(&stream, "ok hunt");
	assert_int_equal(mask_stream_take(&stream, out, sizeof(out)), 3);
	assert_false(mask_stream_ready(&stream));
	feed(&stream, "s");
	assert_int_equal(mask_stream_take(&stream, out, sizeof(out)), 5);
	assert_memory_equal(out, "hunts", 5);
	mask_stream_done(&stream);
}

static void test_mask_of_a_cut_stream_covers_a_beginning(void **state)
{
	struct rig rig = {0};
	uint8_t out[64];

	(void)state;
	rig_add(&rig, "hunter2", "***P***");
	for (int cut = 0; cut < 2; cut++) {
		struct mask_stream stream;
		size_t n;

		assert_int_equal(mask_stream_init(&stream, &rig.mask, false), 0);
		feed(&stream, "> hunter");
		mask_stream_end(&stream, cut);
		n = mask_stream_take(&stream, out, sizeof(out));
		assert_int_equal(n, cut ? 9 : 8);
		assert_memory_equal(out, cut ? "> ***P***" : "> hunter", n);
		mask_stream_done(&stream);
	}
}

/* One run without end: needs no more memory than any other stream, and no more time. */
static void test_mask_run_without_end_flows(void **state)
{
	static char secret[64];
	static char block[MASK_CHUNK_BYTES];
	struct mask_stream stream;
	struct rig rig = {0};
	size_t total = 0;
	uint8_t out[256];

	(void)state;
	memset(secret, 'a', sizeof(secret) - 1);
	memset(block, 'a', sizeof(block));
	rig_add(&rig, secret, "***A***");
	assert_int_equal(mask_stream_init(&stream, &rig.mask, false), 0);
	for (int i = 0; i < 512; i++) {
		uint8_t *room;
		size_t space = mask_stream_room(&stream, &room);

		assert_true(space >= sizeof(block));
		memcpy(room, block, sizeof(block));
		mask_stream_commit(&stream, sizeof(block));
		while (mask_stream_ready(&stream))
			total += mask_stream_take(&stream, out, sizeof(out));
	}
	mask_stream_end(&stream, false);
	while (mask_stream_ready(&stream))
		total += mask_stream_take(&stream, out, sizeof(out));
	assert_int_equal(total, strlen("***A***"));
	mask_stream_done(&stream);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_mask_at_every_split_as_reference),
		cmocka_unit_test(test_mask_of_random_input_as_reference),
		cmocka_unit_test(test_mask_holds_only_what_may_become_a_secret),
		cmocka_unit_test(test_mask_of_a_cut_stream_covers_a_beginning),
		cmocka_unit_test(test_mask_run_without_end_flows),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
