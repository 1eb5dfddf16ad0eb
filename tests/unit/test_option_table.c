#include <stdio.h>

#include "supervisor/config/option_table.h"
#include "supervisor/config/option_value.h"
#include "supervisor/config_check.h"
#include "tests/unit/config_rig.h"

/* The supervisor keeps what only a restart changes by a table of its own. */
static void test_option_table_and_the_supervisor_agree_on_restarts(void **state)
{
	size_t n;
	const struct option_row *rows = option_table_rows(&n);
	char name[128];

	(void)state;
	for (size_t i = 0; i < n; i++) {
		(void)snprintf(name, sizeof(name), "%s.%s", rows[i].section, rows[i].key);
		if (config_is_kept(name) != (rows[i].effect == OPTION_RESTART))
			fail_msg("%s", name);
	}
}

static void test_option_table_every_default_is_valid_and_names_are_unique(void **state)
{
	struct config_rig *rig = *state;
	size_t n;
	const struct option_row *rows = option_table_rows(&n);
	const char *wanted;

	for (size_t i = 0; i < n; i++) {
		assert_ptr_equal(option_table_find(rows[i].section, rows[i].key), &rows[i]);
		assert_string_equal(option_table_nearest(rows[i].section, rows[i].key),
				    rows[i].key);
		if (rows[i].by_default)
			assert_int_equal(option_value_set(&rows[i], rows[i].by_default, rig->answer,
							  &wanted),
					 0);
	}
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_option_table_and_the_supervisor_agree_on_restarts),
	CONFIG_TEST(test_option_table_every_default_is_valid_and_names_are_unique),
};

TEST_MAIN(tests)
