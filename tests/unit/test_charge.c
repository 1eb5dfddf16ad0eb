#include <errno.h>

#include "base/charge.h"

#include "tests/lib/test.h"

static void test_charge_take_beyond_max_takes_nothing(void **state)
{
	struct charge_account account = {.max = 10};
	struct charge a = CHARGE_NULL;
	struct charge b = CHARGE_NULL;

	(void)state;
	assert_int_equal(charge_take(&a, &account, 7), 0);
	assert_int_equal(charge_take(&b, &account, 4), -EDQUOT);
	assert_null(b.account);
	assert_int_equal(charge_take(&b, &account, UINT64_MAX), -EDQUOT);
	assert_int_equal(charge_take(&b, &account, 3), 0);
	assert_true(account.used == 10);
	charge_done(&a);
	charge_done(&a);
	assert_true(account.used == 3);
	charge_done(&b);
	assert_true(account.used == 0);
}

static void test_charge_resize_bounds(void **state)
{
	struct charge_account account = {.max = 10};
	struct charge a = CHARGE_NULL;

	(void)state;
	assert_int_equal(charge_take(&a, &account, 5), 0);
	assert_int_equal(charge_resize(&a, 10), 0);
	assert_int_equal(charge_resize(&a, 11), -EDQUOT);
	assert_true(account.used == 10 && a.amount == 10);
	account.max = 2; /* lowered while held: giving back still works */
	assert_int_equal(charge_resize(&a, 9), 0);
	assert_int_equal(charge_resize(&a, 10), -EDQUOT);
	assert_true(account.used == 9);
	charge_done(&a);
	assert_true(account.used == 0);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_charge_take_beyond_max_takes_nothing),
	cmocka_unit_test(test_charge_resize_bounds),
};
TEST_MAIN(tests)
