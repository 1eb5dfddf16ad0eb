#include <errno.h>

#include "base/num.h"

#include "tests/lib/test.h"

static void test_num_parse_u64_edges(void **state)
{
	uint64_t value = 7;

	(void)state;
	assert_int_equal(num_parse_u64("0", 0, 10, &value), 0);
	assert_true(value == 0);
	assert_int_equal(num_parse_u64("18446744073709551615", 0, UINT64_MAX, &value), 0);
	assert_true(value == UINT64_MAX);
	value = 7;
	assert_int_equal(num_parse_u64("18446744073709551616", 0, UINT64_MAX, &value), -ERANGE);
	assert_int_equal(num_parse_u64("99999999999999999999999", 0, UINT64_MAX, &value), -ERANGE);
	assert_int_equal(num_parse_u64("5", 6, 10, &value), -ERANGE);
	assert_int_equal(num_parse_u64("11", 6, 10, &value), -ERANGE);
	assert_true(value == 7);
}

static void test_num_parse_u64_other_forms_are_refused(void **state)
{
	static const char *const bad[] = {
		"",    " 1",  "1 ",  "+1",  "-1",  "-0", "00",       "01",
		"0x1", "1e3", "1.0", "1,0", "\n1", "1a", "\xd9\xa1", "99999999999999999999999x"};
	uint64_t value = 7;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(num_parse_u64(bad[i], 0, UINT64_MAX, &value), -EINVAL);
	assert_true(value == 7);
}

static void test_num_parse_u32_edges(void **state)
{
	uint32_t value = 7;

	(void)state;
	assert_int_equal(num_parse_u32("4294967296", 0, UINT32_MAX, &value), -ERANGE);
	assert_int_equal(value, 7);
	assert_int_equal(num_parse_u32("4294967295", 0, UINT32_MAX, &value), 0);
	assert_int_equal(value, UINT32_MAX);
}

static void test_num_parse_i32_edges(void **state)
{
	int32_t value = 7;

	(void)state;
	assert_int_equal(num_parse_i32("-2147483649", INT32_MIN, INT32_MAX, &value), -ERANGE);
	assert_int_equal(num_parse_i32("2147483648", INT32_MIN, INT32_MAX, &value), -ERANGE);
	assert_int_equal(num_parse_i32("-0", INT32_MIN, INT32_MAX, &value), -EINVAL);
	assert_int_equal(num_parse_i32("--1", INT32_MIN, INT32_MAX, &value), -EINVAL);
	assert_int_equal(num_parse_i32("-", INT32_MIN, INT32_MAX, &value), -EINVAL);
	assert_int_equal(num_parse_i32("-1", 0, 5, &value), -ERANGE);
	assert_int_equal(value, 7);
	assert_int_equal(num_parse_i32("-2147483648", INT32_MIN, INT32_MAX, &value), 0);
	assert_int_equal(value, INT32_MIN);
	assert_int_equal(num_parse_i32("2147483647", INT32_MIN, INT32_MAX, &value), 0);
	assert_int_equal(value, INT32_MAX);
}

static void test_num_parse_size_units(void **state)
{
	uint64_t value = 7;

	(void)state;
	assert_int_equal(num_parse_size("64", 100, &value), 0);
	assert_true(value == 64);
	assert_int_equal(num_parse_size("64K", UINT64_MAX, &value), 0);
	assert_true(value == 65536);
	assert_int_equal(num_parse_size("64KiB", UINT64_MAX, &value), 0);
	assert_true(value == 65536);
	assert_int_equal(num_parse_size("1GiB", 1ull << 30, &value), 0);
	assert_true(value == 1ull << 30);
	assert_int_equal(num_parse_size("2G", 1ull << 30, &value), -ERANGE);
	assert_int_equal(num_parse_size("18446744073709551615K", UINT64_MAX, &value), -ERANGE);
	assert_int_equal(num_parse_size("64 MiB", UINT64_MAX, &value), -EINVAL);
	assert_int_equal(num_parse_size("64mib", UINT64_MAX, &value), -EINVAL);
	assert_int_equal(num_parse_size("64MB", UINT64_MAX, &value), -EINVAL);
	assert_int_equal(num_parse_size("MiB", UINT64_MAX, &value), -EINVAL);
	assert_int_equal(num_parse_size("010K", UINT64_MAX, &value), -EINVAL);
}

static void test_num_parse_seconds_units(void **state)
{
	uint64_t value = 7;

	(void)state;
	assert_int_equal(num_parse_seconds("90", 100, &value), 0);
	assert_true(value == 90);
	assert_int_equal(num_parse_seconds("90s", 100, &value), 0);
	assert_true(value == 90);
	assert_int_equal(num_parse_seconds("15min", 900, &value), 0);
	assert_true(value == 900);
	assert_int_equal(num_parse_seconds("24h", 86400, &value), 0);
	assert_true(value == 86400);
	assert_int_equal(num_parse_seconds("30d", UINT64_MAX, &value), 0);
	assert_true(value == 2592000);
	assert_int_equal(num_parse_seconds("31d", 2592000, &value), -ERANGE);
	assert_int_equal(num_parse_seconds("5m", UINT64_MAX, &value), -EINVAL);
	assert_int_equal(num_parse_seconds("1h30min", UINT64_MAX, &value), -EINVAL);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_num_parse_u64_edges),
	cmocka_unit_test(test_num_parse_u64_other_forms_are_refused),
	cmocka_unit_test(test_num_parse_u32_edges),
	cmocka_unit_test(test_num_parse_i32_edges),
	cmocka_unit_test(test_num_parse_size_units),
	cmocka_unit_test(test_num_parse_seconds_units),
};
TEST_MAIN(tests)
