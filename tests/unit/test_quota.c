#include <stdio.h>

#include "supervisor/api/session/quota.h"
#include "tests/lib/test.h"

static void test_quota_session_limits(void **state)
{
	(void)state;
	assert_int_equal(quota_session(9, 10, 5, 100), QUOTA_OK);
	assert_int_equal(quota_session(10, 10, 5, 100), QUOTA_SESSIONS);
	assert_int_equal(quota_session(9, 10, 100, 100), QUOTA_DESCRIPTORS);
}

static void test_quota_component_counts_replacement(void **state)
{
	struct spec_create spec = {.ttl_minutes = 1};
	struct id id = {{1}};
	struct session *session = session_new(&id, &spec, 0);
	char file[32];

	(void)state;
	assert_non_null(session);
	for (int i = 0; i < COMPONENTS_MAX; i++) {
		(void)snprintf(file, sizeof(file), "c%d.yaml", i);
		assert_int_equal(quota_component(session, file, 1), QUOTA_OK);
		assert_int_equal(session_component_set(session, file, 1), 0);
	}
	assert_int_equal(quota_component(session, "more.yaml", 1), QUOTA_COMPONENTS);
	assert_int_equal(quota_component(session, "c7.yaml", 1), QUOTA_OK);
	assert_int_equal(quota_component(session, "c7.yaml", COMPONENTS_MAX_BYTES),
			 QUOTA_COMPONENTS_BYTES);
	assert_int_equal(
		quota_component(session, "c7.yaml", COMPONENTS_MAX_BYTES - COMPONENTS_MAX + 1),
		QUOTA_OK);
	(void)session_free(session);
}

static void test_quota_job_one_runs_the_others_wait(void **state)
{
	struct session session = {.n_jobs = 2};

	(void)state;
	assert_int_equal(quota_job(&session, 2), QUOTA_OK);
	session.n_jobs = 3;
	assert_int_equal(quota_job(&session, 2), QUOTA_JOBS);
}

static void test_quota_from_launch_names_the_ceiling(void **state)
{
	(void)state;
	assert_int_equal(quota_from_launch(LAUNCH_E_MEMORY), QUOTA_MEMORY);
	assert_int_equal(quota_from_launch(LAUNCH_E_IDS), QUOTA_IDS);
	assert_int_equal(quota_from_launch(LAUNCH_E_STEP), QUOTA_OK);
	for (enum quota_reason reason = 0; reason < QUOTA_REASON_MAX_; reason++)
		assert_true(quota_text(reason)[0] != '\0' &&
			    (reason == QUOTA_OK || quota_retry_after_s(reason) > 0));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_quota_session_limits),
		cmocka_unit_test(test_quota_component_counts_replacement),
		cmocka_unit_test(test_quota_job_one_runs_the_others_wait),
		cmocka_unit_test(test_quota_from_launch_names_the_ceiling),
	};
	int n_before = test_begin();

	return test_end(n_before, cmocka_run_group_tests(tests, NULL, NULL));
}
