#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "sandboxd/config.h"
#include "supervisor/config_check.h"
#include "tests/lib/test.h"

static struct config_answer *good_answer(void)
{
	struct config_answer *answer = calloc(1, sizeof(*answer));

	assert_non_null(answer);
	answer->magic = CONFIG_MAGIC;
	answer->version = CONFIG_VERSION;
	answer->size = sizeof(*answer);
	answer->supervisor = (struct supervisor_config){
		.magic = CONFIG_MAGIC,
		.version = CONFIG_VERSION,
		.size = sizeof(answer->supervisor),
		.max_sessions = 10,
		.max_launches_per_s = 10,
		.n_egress = 1,
		.max_pids = 1000,
		.control_gid = UINT32_MAX,
		.session = {.memory_bytes = PLAN_MEMORY_MAX_BYTES,
			    .tmpfs_bytes = PLAN_TMPFS_MIN_BYTES,
			    .tmpfs_inodes = PLAN_INODES_MIN,
			    .max_pids = PLAN_PIDS_MIN,
			    .max_files = PLAN_FILES_MIN,
			    .cpu_pct = 100},
	};
	answer->api.magic = CONFIG_MAGIC;
	answer->api.version = CONFIG_VERSION;
	answer->api.size = sizeof(answer->api);
	answer->api.max_sessions = 10;
	answer->api.queue_max_jobs = 1;
	answer->api.frames_keep_s = CONFIG_KEEP_MIN_S;
	answer->api.rows_keep_s = CONFIG_KEEP_MIN_S;
	answer->api.bodies_keep_s = CONFIG_KEEP_MAX_S;
	answer->api.janitor_interval_s = 1;
	answer->api.audit_file_bytes = CONFIG_AUDIT_MIN_BYTES;
	answer->api.store_max_bytes = CONFIG_STORE_MIN_BYTES;
	answer->api.snapshot_max_bytes = CONFIG_SNAPSHOT_MIN_BYTES;
	answer->api.snapshot_max_entries = 1;
	answer->api.snapshot_retention_s = CONFIG_KEEP_MIN_S;
	answer->api.network_limits.connections = 1;
	answer->api.network_limits.connects_per_s = 1;
	answer->api.celery.visibility_timeout_s = CONFIG_VISIBILITY_MIN_S;
	answer->api.celery.prefetch = 1;
	answer->egress.magic = CONFIG_MAGIC;
	answer->egress.version = CONFIG_VERSION;
	answer->egress.size = sizeof(answer->egress);
	return answer;
}

static void expect_refused(struct config_answer *answer, const char *named)
{
	struct err err = ERR_NULL;

	assert_int_equal(config_check(answer, sizeof(*answer), &err), -EINVAL);
	if (!strstr(err.text, named))
		fail_msg("%s is not in: %s", named, err.text);
	free(answer);
}

static void test_config_check_good_is_accepted(void **state)
{
	AUTO_FREE struct config_answer *answer = good_answer();

	(void)state;
	assert_int_equal(config_check(answer, sizeof(*answer), NULL), 0);
}

static void test_config_check_wrong_size_is_refused(void **state)
{
	AUTO_FREE struct config_answer *answer = good_answer();

	(void)state;
	assert_int_equal(config_check(answer, sizeof(*answer) - 1, NULL), -EINVAL);
	assert_int_equal(config_check(answer, 0, NULL), -EINVAL);
}

static void test_config_check_frames_are_compared(void **state)
{
	struct config_answer *answer;

	(void)state;
	answer = good_answer();
	answer->api.version++;
	expect_refused(answer, "api");
	answer = good_answer();
	answer->egress.size++;
	expect_refused(answer, "egress");
	answer = good_answer();
	answer->magic = 0;
	expect_refused(answer, "answer");
}

static void test_config_check_each_number_has_a_range(void **state)
{
	struct config_answer *answer;

	(void)state;
	answer = good_answer();
	answer->supervisor.max_sessions = 0;
	expect_refused(answer, "limits.sessions");
	answer = good_answer();
	answer->supervisor.max_launches_per_s = 0; /* would divide by it */
	expect_refused(answer, "launches_per_second");
	answer = good_answer();
	answer->supervisor.n_egress = CONFIG_EGRESS_MAX + 1; /* would allocate by it */
	expect_refused(answer, "egress_workers");
	answer = good_answer();
	answer->supervisor.session.memory_bytes = PLAN_MEMORY_MAX_BYTES + 1;
	expect_refused(answer, "session_memory");
	answer = good_answer();
	answer->api.n_trusted_peers = CONFIG_MAX_PEERS + 1;
	expect_refused(answer, "trusted_peers");
	answer = good_answer();
	answer->api.endpoint_default_set = 1u << ENDPOINTS_N;
	expect_refused(answer, "endpoint_default_set");
	answer = good_answer();
	answer->api.network_limits.connects_per_s = 0;
	expect_refused(answer, "connects_per_second");
	answer = good_answer();
	answer->api.network_limits.bytes_per_s = CONFIG_NET_BYTES_MAX + 1;
	expect_refused(answer, "bytes_per_second");
	answer = good_answer();
	answer->egress.n_name_servers = CONFIG_MAX_NS + 1;
	expect_refused(answer, "n_name_servers");
}

static void test_config_check_texts_have_to_end(void **state)
{
	struct config_answer *answer;

	(void)state;
	answer = good_answer();
	memset(answer->api.stream_url, 'a', sizeof(answer->api.stream_url));
	expect_refused(answer, "stream_url");
	answer = good_answer();
	memset(answer->api.endpoint_default[5], 'a', sizeof(answer->api.endpoint_default[5]));
	expect_refused(answer, "endpoint 5");
}

static struct config_answer *with_override(enum quota_scope scope)
{
	struct config_answer *answer = good_answer();

	answer->api.quota.n_overrides = 1;
	answer->api.quota.override[0].scope = scope;
	answer->api.quota.override[0].name[0] = 'a';
	return answer;
}

/* A limit of one tenant has the range of the same limit of all. */
static void test_config_check_limits_of_a_tenant(void **state)
{
	struct config_answer *answer = with_override(QUOTA_SCOPE_WORKSPACE);
	struct quota_limits *limits = &answer->api.quota.override[0].limits;

	(void)state;
	limits->memory_bytes = CONFIG_TOTAL_MEMORY_MAX;
	limits->jobs = CONFIG_QUOTA_JOBS_MAX;
	assert_int_equal(config_check(answer, sizeof(*answer), NULL), 0);
	limits->memory_bytes++;
	expect_refused(answer, "out of range: number 0");
	answer = with_override(QUOTA_SCOPE_OWNER);
	answer->api.quota.override[0].limits.jobs = CONFIG_QUOTA_JOBS_MAX + 1;
	expect_refused(answer, "out of range: number 0");
	answer = with_override(QUOTA_SCOPE_OWNER);
	answer->api.quota.override[0].limits.launches_per_s = CONFIG_LAUNCH_RATE_MAX + 1;
	expect_refused(answer, "out of range: number 0");
	answer = with_override(QUOTA_SCOPE_HOST);
	expect_refused(answer, "quota of a tenant: number 0");
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_config_check_good_is_accepted),
	cmocka_unit_test(test_config_check_wrong_size_is_refused),
	cmocka_unit_test(test_config_check_frames_are_compared),
	cmocka_unit_test(test_config_check_each_number_has_a_range),
	cmocka_unit_test(test_config_check_texts_have_to_end),
	cmocka_unit_test(test_config_check_limits_of_a_tenant),
};

TEST_MAIN(tests)
