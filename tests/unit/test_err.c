#include <errno.h>
#include <string.h>

#include "base/err.h"

#include "tests/lib/test.h"

static void test_err_fail_fills_everything(void **state)
{
	struct err err = ERR_NULL;

	(void)state;
	assert_int_equal(err_fail(&err, -EPERM, "mounts", "open %s: %d", "x", 3), -EPERM);
	assert_int_equal(err.error_number, EPERM);
	assert_string_equal(err.step, "mounts");
	assert_string_equal(err.text, "open x: 3");
}

static void test_err_fail_null_returns_number(void **state)
{
	(void)state;
	assert_int_equal(err_fail(NULL, -ENOENT, "step", "text"), -ENOENT);
}

static void test_err_fail_long_is_cut(void **state)
{
	struct err err = ERR_NULL;
	char text[300];

	(void)state;
	memset(text, 'a', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	assert_int_equal(err_fail(&err, -EIO, text, "%s", text), -EIO);
	assert_int_equal(strlen(err.step), sizeof(err.step) - 1);
	assert_int_equal(strlen(err.text), ERR_TEXT_BYTES - 1);
}

static void test_err_fail_unprintable_is_replaced(void **state)
{
	struct err err = ERR_NULL;

	(void)state;
	assert_int_equal(err_fail(&err, -EIO, "a\nb", "%s", "\x1b[2J\xc3\xa9"), -EIO);
	assert_string_equal(err.step, "a?b");
	assert_string_equal(err.text, "?[2J??");
}

static void test_err_sanitize_hostile_is_made_safe(void **state)
{
	struct err err;

	(void)state;
	memset(&err, 0xff, sizeof(err));
	err_sanitize(&err);
	assert_int_equal(err.error_number, EPROTO);
	assert_int_equal(err.zero, 0);
	assert_int_equal(strlen(err.step), sizeof(err.step) - 1);
	assert_int_equal(strlen(err.text), ERR_TEXT_BYTES - 1);
	assert_int_equal(err.text[0], '?');
}

static void fail_with_zero(void *userdata)
{
	(void)userdata;
	(void)err_fail(NULL, 0, "x", "y");
}

static void test_err_fail_not_negative_aborts(void **state)
{
	(void)state;
	assert_true(test_aborts(fail_with_zero, NULL));
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_err_fail_fills_everything),
	cmocka_unit_test(test_err_fail_null_returns_number),
	cmocka_unit_test(test_err_fail_long_is_cut),
	cmocka_unit_test(test_err_fail_unprintable_is_replaced),
	cmocka_unit_test(test_err_sanitize_hostile_is_made_safe),
	cmocka_unit_test(test_err_fail_not_negative_aborts),
};
TEST_MAIN(tests)
