#include <errno.h>
#include <stdio.h>
#include <time.h>

#include "base/clock.h"

#include "tests/lib/test.h"

static void test_clock_add_saturates(void **state)
{
	(void)state;
	assert_true(clock_add(1, 2) == 3);
	assert_true(clock_add(USEC_NEVER, 1) == USEC_NEVER);
	assert_true(clock_add(USEC_NEVER - 1, 5) == USEC_NEVER);
}

static void test_clock_format_known_times(void **state)
{
	char text[CLOCK_ISO_BYTES];

	(void)state;
	clock_format_iso(0, text);
	assert_string_equal(text, "1970-01-01T00:00:00.000000");
	clock_format_iso(951782400ull * USEC_PER_SEC + 1, text);
	assert_string_equal(text, "2000-02-29T00:00:00.000001");
	clock_format_iso(1795958886116877ull, text);
	assert_string_equal(text, "2026-11-29T13:28:06.116877");
	clock_format_iso(USEC_NEVER, text);
	assert_string_equal(text, "9999-12-31T23:59:59.999999");
}

/* Each day of 400 years and random seconds, against libc. */
static void test_clock_format_equals_libc(void **state)
{
	struct test_random random = TEST_RANDOM(9);

	(void)state;
	for (uint64_t day = 0; day < 146097 + 400; day++) {
		uint64_t seconds = day * 86400 + test_random_below(&random, 86400);
		time_t t = (time_t)seconds;
		char text[CLOCK_ISO_BYTES];
		char expected[CLOCK_ISO_BYTES];
		usec_t back = 0;
		struct tm tm;

		assert_non_null(gmtime_r(&t, &tm));
		assert_int_equal(
			strftime(expected, sizeof(expected), "%Y-%m-%dT%H:%M:%S.000042", &tm),
			CLOCK_ISO_BYTES - 1);
		clock_format_iso(seconds * USEC_PER_SEC + 42, text);
		assert_string_equal(text, expected);
		assert_int_equal(clock_parse_iso(text, &back), 0);
		assert_true(back == seconds * USEC_PER_SEC + 42);
	}
}

static void test_clock_parse_fractions(void **state)
{
	usec_t at = 0;

	(void)state;
	assert_int_equal(clock_parse_iso("1970-01-01T00:00:01", &at), 0);
	assert_true(at == USEC_PER_SEC);
	assert_int_equal(clock_parse_iso("1970-01-01 00:00:01.5", &at), 0);
	assert_true(at == 1500000);
	assert_int_equal(clock_parse_iso("1970-01-01T00:00:01.", &at), 0);
	assert_true(at == USEC_PER_SEC);
	assert_int_equal(clock_parse_iso("1970-01-01T00:00:00.000007", &at), 0);
	assert_true(at == 7);
}

static void test_clock_parse_bad_is_refused(void **state)
{
	static const char *const bad[] = {
		"",
		"1970-01-01",
		"1970-01-01T",
		"1970-01-01T00:00",
		"1970-01-01T00:00:00Z",
		"1970-01-01T00:00:00+00:00",
		"1970-01-01T00:00:00.0000000",
		"1970-01-01T24:00:00",
		"1970-01-01T00:60:00",
		"1970-01-01T00:00:60",
		"1970-00-01T00:00:00",
		"1970-13-01T00:00:00",
		"1970-01-00T00:00:00",
		"1970-01-32T00:00:00",
		"1971-02-29T00:00:00",
		"2100-02-29T00:00:00",
		"1969-12-31T23:59:59",
		"1970-1-01T00:00:00",
		"1970-01-01x00:00:00",
		"-970-01-01T00:00:00",
	};
	usec_t at = 7;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(clock_parse_iso(bad[i], &at), -EINVAL);
	assert_true(at == 7);
}

static void test_clock_boottime_goes_forward(void **state)
{
	usec_t before = clock_boottime();

	(void)state;
	assert_true(clock_boottime() >= before);
	assert_true(clock_realtime() > 1700000000ull * USEC_PER_SEC);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_clock_add_saturates),
	cmocka_unit_test(test_clock_format_known_times),
	cmocka_unit_test(test_clock_format_equals_libc),
	cmocka_unit_test(test_clock_parse_fractions),
	cmocka_unit_test(test_clock_parse_bad_is_refused),
	cmocka_unit_test(test_clock_boottime_goes_forward),
};
TEST_MAIN(tests)
