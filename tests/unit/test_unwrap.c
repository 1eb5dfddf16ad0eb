/* The stream of a command that an engine runs, taken apart. */
#include <errno.h>
#include <string.h>

#include "supervisor/provider/unwrap.h"
#include "tests/lib/test.h"

static size_t put_piece(uint8_t *to, uint8_t output, const void *data, uint32_t size)
{
	const uint8_t head[UNWRAP_HEAD_BYTES] = {output,
						 0,
						 0,
						 0,
						 (uint8_t)(size >> 24),
						 (uint8_t)(size >> 16),
						 (uint8_t)(size >> 8),
						 (uint8_t)size};

	memcpy(to, head, sizeof(head));
	memcpy(to + sizeof(head), data, size);
	return sizeof(head) + size;
}

static void test_pieces_of_any_size(void **state)
{
	static uint8_t said[3000];
	static uint8_t stream[sizeof(said) * 40];
	static uint8_t got[sizeof(said)];

	(void)state;
	for (size_t i = 0; i < sizeof(said); i++)
		said[i] = (uint8_t)(i * 7);
	for (uint32_t cut = 1; cut < 40; cut++) {
		struct unwrap unwrap = {0};
		size_t bytes = 0;
		size_t n_got = 0;

		for (size_t at = 0; at < sizeof(said); at += cut) {
			size_t left = sizeof(said) - at;

			bytes += put_piece(stream + bytes, 1, said + at,
					   (uint32_t)(left < cut ? left : cut));
			bytes += put_piece(stream + bytes, 2, "said", 4);
			bytes += put_piece(stream + bytes, 1, "", 0);
		}
		for (size_t at = 0; at < bytes;) {
			size_t offer = bytes - at < cut ? bytes - at : cut;
			size_t room = 1 + cut % 5;
			size_t n_out;
			ssize_t taken;

			room = room < sizeof(got) - n_got ? room : sizeof(got) - n_got;
			taken = unwrap_take(&unwrap, stream + at, offer, got + n_got, room, &n_out);
			assert_true(taken >= 0 && n_out <= room);
			/* Nothing waits but for room. */
			assert_true((size_t)taken == offer || n_out == room);
			at += (size_t)taken;
			n_got += n_out;
		}
		assert_int_equal(n_got, sizeof(said));
		assert_memory_equal(got, said, sizeof(said));
	}
}

static void test_heads_that_are_none(void **state)
{
	static const uint8_t heads[][UNWRAP_HEAD_BYTES] = {
		{0,   0,   0,   0,   0,   0,   0,   1  },
		{3,   0,   0,   0,   0,   0,   0,   1  },
		{1,   1,   0,   0,   0,   0,   0,   1  },
		{1,   0,   0,   9,   0,   0,   0,   1  },
		{'H', 'T', 'T', 'P', '/', '1', '.', '1'},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(heads); i++) {
		struct unwrap unwrap = {0};
		uint8_t out[8];
		size_t n_out;

		assert_int_equal(
			unwrap_take(&unwrap, heads[i], sizeof(heads[i]), out, sizeof(out), &n_out),
			-EPROTO);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_pieces_of_any_size),
		cmocka_unit_test(test_heads_that_are_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
