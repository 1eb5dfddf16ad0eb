#include <string.h>

#include "supervisor/api/janitor/plan.h"
#include "tests/lib/test.h"

static void test_janitor_plan_expired_earliest_first_and_bounded(void **state)
{
	struct test_random random = TEST_RANDOM(8);
	struct janitor_victim victims[10];
	struct session *sessions[64];
	struct registry registry;
	uint32_t actions;
	size_t n_expired = 0;
	size_t n;

	(void)state;
	assert_int_equal(registry_init(&registry), 0);
	assert_int_equal(janitor_plan_next(&registry), USEC_NEVER);
	for (size_t i = 0; i < ARRAY_SIZE(sessions); i++) {
		struct spec_create spec = {.ttl_minutes = 1};
		struct id id;

		test_random_fill(&random, id.bytes, sizeof(id.bytes));
		sessions[i] = session_new(&id, &spec, 0);
		assert_non_null(sessions[i]);
		sessions[i]->expires_at = 1 + test_random_below(&random, 1000);
		assert_int_equal(registry_add(&registry, sessions[i]), 0);
		if (i % 8 == 0)
			assert_int_equal(session_apply(sessions[i], SESSION_EVENT_CLOSE,
						       SESSION_REASON_DELETED, &actions),
					 0);
		else
			n_expired += sessions[i]->expires_at <= 500;
	}
	assert_true(n_expired > ARRAY_SIZE(victims));
	n = janitor_plan_expired(&registry, 500, victims, ARRAY_SIZE(victims));
	assert_int_equal(n, ARRAY_SIZE(victims));
	for (size_t i = 0; i < n; i++) {
		assert_int_equal(victims[i].reason, SESSION_REASON_EXPIRED);
		assert_int_equal(registry_find(&registry, &victims[i].session)->expires_at,
				 victims[i].expires_at);
		if (i > 0)
			assert_true(victims[i - 1].expires_at <= victims[i].expires_at);
	}
	assert_int_equal(victims[0].expires_at, janitor_plan_next(&registry));
	assert_int_equal(janitor_plan_expired(&registry, 0, victims, 10), 0);
	assert_int_equal(janitor_plan_expired(&registry, 500, victims, 0), 0);
	for (size_t i = 0; i < ARRAY_SIZE(sessions); i++) {
		registry_remove(&registry, sessions[i]);
		(void)session_free(sessions[i]);
	}
	registry_done(&registry);
}

static void test_janitor_plan_start_leaves_no_third_state(void **state)
{
	const struct janitor_row row = {.expires_at = 100};
	const struct janitor_row half = {.expires_at = 100, .restoring = true};

	(void)state;
	assert_int_equal(janitor_plan_start(&row, true, 99), JANITOR_START_ADOPT);
	assert_int_equal(janitor_plan_start(&row, true, 100), JANITOR_START_KILL);
	assert_int_equal(janitor_plan_start(&row, false, 99), JANITOR_START_DORMANT);
	assert_int_equal(janitor_plan_start(&row, false, 100), JANITOR_START_CLOSE_ROW);
	assert_int_equal(janitor_plan_start(&half, true, 99), JANITOR_START_DROP_TREE);
	assert_int_equal(janitor_plan_start(&half, false, 99), JANITOR_START_DORMANT);
	assert_int_equal(janitor_plan_start(&half, true, 100), JANITOR_START_KILL);
	assert_int_equal(janitor_plan_start(NULL, true, 99), JANITOR_START_KILL);
}

static void test_janitor_plan_warning_comes_twice(void **state)
{
	const usec_t end = 100 * USEC_PER_MINUTE;

	(void)state;
	assert_int_equal(janitor_plan_warning(end, end - 6 * USEC_PER_MINUTE, 0), 0);
	assert_int_equal(janitor_plan_warning(end, end - 5 * USEC_PER_MINUTE, 0), 5);
	assert_int_equal(janitor_plan_warning(end, end - 2 * USEC_PER_MINUTE, 5), 0);
	assert_int_equal(janitor_plan_warning(end, end - USEC_PER_MINUTE, 5), 1);
	assert_int_equal(janitor_plan_warning(end, end - USEC_PER_MINUTE, 0), 1); /* not both */
	assert_int_equal(janitor_plan_warning(end, end - 1, 1), 0);
	assert_int_equal(janitor_plan_warning(end, end, 5), 0);
}

static void test_janitor_plan_retention_saturates(void **state)
{
	struct janitor_retention retention;

	(void)state;
	retention = janitor_plan_retention(100 * USEC_PER_SEC, 10, 0, UINT64_MAX);
	assert_int_equal(retention.frames_before, 90 * USEC_PER_SEC);
	assert_int_equal(retention.rows_before, 100 * USEC_PER_SEC);
	assert_int_equal(retention.bodies_before, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_janitor_plan_expired_earliest_first_and_bounded),
		cmocka_unit_test(test_janitor_plan_start_leaves_no_third_state),
		cmocka_unit_test(test_janitor_plan_warning_comes_twice),
		cmocka_unit_test(test_janitor_plan_retention_saturates),
	};
	int n_before = test_begin();

	return test_end(n_before, cmocka_run_group_tests(tests, NULL, NULL));
}
