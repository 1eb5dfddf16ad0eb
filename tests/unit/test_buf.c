#include <errno.h>
#include <string.h>

#include "base/buf.h"

#include "tests/lib/test.h"

static void test_buf_append_over_max_changes_nothing(void **state)
{
	struct buf buf = BUF_NULL(5);

	(void)state;
	assert_int_equal(buf_append(&buf, "abc", 3), 0);
	assert_int_equal(buf_append(&buf, "def", 3), -EMSGSIZE);
	assert_int_equal(buf_reserve(&buf, SIZE_MAX), -EMSGSIZE);
	assert_int_equal(buf_append_str(&buf, "de"), 0);
	assert_string_equal(buf_text(&buf), "abcde");
	assert_int_equal(buf_append(&buf, NULL, 0), 0);
	buf_done(&buf);
	assert_string_equal(buf_text(&buf), "");
	buf_done(&buf);
}

static void test_buf_printf_grows(void **state)
{
	struct buf buf = BUF_NULL(100000);
	char text[1001];

	(void)state;
	memset(text, 'x', 1000);
	text[1000] = '\0';
	for (int i = 0; i < 50; i++)
		assert_int_equal(buf_printf(&buf, "%d:%s,", i, text), 0);
	assert_memory_equal(buf_text(&buf), "0:xxx", 5);
	assert_int_equal(buf.size, 50 * 1002 + 10 + 40 * 2);
	buf_reset(&buf);
	assert_int_equal(buf.size, 0);
	buf_done(&buf);
}

static void test_buf_consume_moves_front(void **state)
{
	struct buf buf = BUF_NULL(100);

	(void)state;
	assert_int_equal(buf_append_str(&buf, "hello world"), 0);
	buf_consume(&buf, 6);
	assert_string_equal(buf_text(&buf), "world");
	buf_consume(&buf, 5);
	assert_string_equal(buf_text(&buf), "");
	buf_done(&buf);
}

static void test_buf_get_round_trip(void **state)
{
	struct buf buf = BUF_NULL(100);
	struct buf_reader reader;
	const char *text = NULL;
	size_t length = 0;
	uint32_t u32 = 0;
	uint64_t u64 = 0;

	(void)state;
	assert_int_equal(buf_append_u32(&buf, 0x01020304), 0);
	assert_int_equal(buf_append_u64(&buf, UINT64_MAX - 1), 0);
	assert_int_equal(buf_append(&buf, "name", 5), 0);
	reader = (struct buf_reader){.data = buf.data, .size = buf.size};
	assert_int_equal(buf_get_u32(&reader, &u32), 0);
	assert_int_equal(u32, 0x01020304);
	assert_int_equal(buf_get_u64(&reader, &u64), 0);
	assert_true(u64 == UINT64_MAX - 1);
	assert_int_equal(buf_get_str(&reader, &text, &length), 0);
	assert_string_equal(text, "name");
	assert_int_equal(length, 4);
	assert_int_equal(buf_get_str(&reader, &text, &length), -EBADMSG);
	buf_done(&buf);
}

static void test_buf_get_short_moves_nothing(void **state)
{
	static const uint8_t data[3] = {'a', 'b', 'c'};
	struct buf_reader reader = {.data = data, .size = 3};
	const char *text = NULL;
	size_t length = 0;
	uint32_t u32 = 7;
	uint64_t u64 = 7;

	(void)state;
	assert_int_equal(buf_get_u32(&reader, &u32), -EBADMSG);
	assert_int_equal(buf_get_u64(&reader, &u64), -EBADMSG);
	assert_int_equal(buf_get_str(&reader, &text, &length), -EBADMSG); /* no NUL inside */
	assert_int_equal(buf_get(&reader, &u64, SIZE_MAX), -EBADMSG);
	assert_int_equal(reader.at, 0);
	assert_int_equal(u32, 7);
	assert_true(u64 == 7);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_buf_append_over_max_changes_nothing),
	cmocka_unit_test(test_buf_printf_grows),
	cmocka_unit_test(test_buf_consume_moves_front),
	cmocka_unit_test(test_buf_get_round_trip),
	cmocka_unit_test(test_buf_get_short_moves_nothing),
};
TEST_MAIN(tests)
