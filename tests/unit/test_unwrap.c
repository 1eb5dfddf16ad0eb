/* The stream of a command that an engine runs, taken apart. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "supervisor/provider/unwrap.h"
#include "tests/lib/test.h"

static struct unwrap unwrap;

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

static size_t put_message(uint8_t *to, uint8_t fill, uint32_t size)
{
	memcpy(to, &size, sizeof(size));
	memset(to + sizeof(size), fill, size);
	return sizeof(size) + size;
}

static void test_messages_in_pieces_of_any_size(void **state)
{
	static uint8_t messages[3 * CONTAIN_MESSAGE_BYTES];
	static uint8_t stream[16 * CONTAIN_MESSAGE_BYTES];
	static const uint32_t sizes[] = {1, 24, 1000};
	size_t n = 0;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++)
		n += put_message(messages + n, (uint8_t)('a' + i), sizes[i]);
	for (uint32_t cut = 1; cut < 40; cut++) {
		size_t bytes = 0;
		size_t found = 0;

		for (size_t at = 0; at < n; at += cut) {
			uint32_t size = (uint32_t)(n - at < cut ? n - at : cut);

			bytes += put_piece(stream + bytes, 1, messages + at, size);
			bytes += put_piece(stream + bytes, 2, "said", 4);
		}
		unwrap_reset(&unwrap);
		for (size_t at = 0; at < bytes;) {
			size_t offer = bytes - at < cut ? bytes - at : cut;
			ssize_t taken = unwrap_take(&unwrap, stream + at, offer);
			const uint8_t *message;
			size_t size;

			assert_true(taken >= 0);
			at += (size_t)taken;
			message = unwrap_message(&unwrap, &size);
			if (!message) {
				assert_int_equal(taken, offer);
				continue;
			}
			assert_int_equal(size, sizes[found]);
			assert_int_equal(message[0], 'a' + found);
			assert_int_equal(message[size - 1], 'a' + found);
			unwrap_next(&unwrap);
			found++;
		}
		assert_int_equal(found, ARRAY_SIZE(sizes));
	}
}

static void test_the_largest_and_what_is_larger(void **state)
{
	static uint8_t message[CONTAIN_MESSAGE_BYTES + 1];
	static uint8_t stream[2 * CONTAIN_MESSAGE_BYTES];
	size_t bytes;
	size_t size;

	(void)state;
	unwrap_reset(&unwrap);
	bytes = put_message(message, 'x', WIRE_FRAME_MAX_BYTES);
	bytes = put_piece(stream, 1, message, (uint32_t)bytes);
	assert_int_equal(unwrap_take(&unwrap, stream, bytes), bytes);
	assert_non_null(unwrap_message(&unwrap, &size));
	assert_int_equal(size, WIRE_FRAME_MAX_BYTES);

	for (uint32_t wrong = 0; wrong <= WIRE_FRAME_MAX_BYTES + 1;
	     wrong += WIRE_FRAME_MAX_BYTES + 1) {
		unwrap_reset(&unwrap);
		memcpy(message, &wrong, sizeof(wrong));
		bytes = put_piece(stream, 1, message, 16);
		assert_int_equal(unwrap_take(&unwrap, stream, bytes), -EPROTO);
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
		unwrap_reset(&unwrap);
		assert_int_equal(unwrap_take(&unwrap, heads[i], sizeof(heads[i])), -EPROTO);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_messages_in_pieces_of_any_size),
		cmocka_unit_test(test_the_largest_and_what_is_larger),
		cmocka_unit_test(test_heads_that_are_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
