#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "supervisor/egress/names.h"
#include "tests/lib/test.h"

static const struct id session = {
	{1, 2, 3}
};

static void test_names_add_every_name_has_its_own_address(void **state)
{
	struct names names = {.max = NAMES_MAX};
	struct names again = {.max = NAMES_MAX};
	char name[32];

	(void)state;
	for (int i = 0; i < 2000; i++) {
		struct egress_address address = {.family = AF_INET};
		uint8_t second[4];

		(void)snprintf(name, sizeof(name), "n%d.example.com", i);
		assert_int_equal(names_add(&names, &session, name, address.bytes), 0);
		assert_true(names_is_synthetic(&address));
		assert_string_equal(names_find(&names, &address), name);
		/* In the same order after a restart: the same. */
		assert_int_equal(names_add(&again, &session, name, second), 0);
		assert_memory_equal(address.bytes, second, 4);
	}
	assert_int_equal(names.n, 2000);
	names_done(&names);
	names_done(&again);
}

static void test_names_add_is_bounded(void **state)
{
	struct names names = {.max = 2};
	uint8_t address[4];

	(void)state;
	assert_int_equal(names_add(&names, &session, "a.b", address), 0);
	assert_int_equal(names_add(&names, &session, "b.b", address), 0);
	assert_int_equal(names_add(&names, &session, "a.b", address), 0);
	assert_int_equal(names_add(&names, &session, "c.b", address), -ENOSPC);
	names_done(&names);
}

static void test_names_check_below_bounds_labels_and_rate(void **state)
{
	struct names names = {0};
	usec_t now = 1000 * USEC_PER_SEC;
	int taken = 0;

	(void)state;
	assert_int_equal(names_check_below(&names, "a.b.c.d.x.org", "x.org", now), -EMSGSIZE);
	assert_int_equal(
		names_check_below(&names, "0123456789012345678901234567890123456789012345678.x.org",
				  "x.org", now),
		-EMSGSIZE);
	while (names_check_below(&names, "a.x.org", "x.org", now) == 0)
		taken++;
	assert_int_equal(taken, NAMES_BELOW_BURST);
	assert_int_equal(names_check_below(&names, "a.x.org", "x.org", now), -EDQUOT);
	now += NAMES_BELOW_EVERY;
	assert_int_equal(names_check_below(&names, "a.x.org", "x.org", now), 0);
	assert_int_equal(names_check_below(&names, "a.x.org", "x.org", now), -EDQUOT);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names_add_every_name_has_its_own_address),
		cmocka_unit_test(test_names_add_is_bounded),
		cmocka_unit_test(test_names_check_below_bounds_labels_and_rate),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
