#include <errno.h>
#include <string.h>

#include "base/plan.h"

#include "tests/lib/test.h"

static struct plan good_plan(void)
{
	struct plan plan = {
		.magic = PLAN_MAGIC,
		.version = PLAN_VERSION,
		.size = sizeof(struct plan),
		.session = {0xa0, 0xa1, 0xa2, 0xa3, 0xa4, 0xa5, 0x46, 0xa7, 0x88, 0xa9, 0xaa, 0xab,
			    0xac, 0xad, 0xae, 0xaf},
		.profile = 1,
		.egress = 2,
		.tmpfs_bytes = 256ull << 20,
		.tmpfs_inodes = 65536,
		.memory_bytes = 1ull << 30,
		.max_pids = 256,
		.max_files = 4096,
		.cpu_pct = 100,
		.cpu_weight = 100,
		.max_ptys = 16,
	};

	for (size_t i = 0; i < sizeof(plan.profile_hash); i++)
		plan.profile_hash[i] = (uint8_t)i;
	return plan;
}

static void test_plan_bytes_are_golden(void **state)
{
	struct plan plan = good_plan();

	(void)state;
	test_golden("plan", &plan, sizeof(plan));
}

static void test_plan_check_good_is_accepted(void **state)
{
	struct plan plan = good_plan();
	struct err err = ERR_NULL;

	(void)state;
	assert_int_equal(plan_check(&plan, &err), 0);
	assert_int_equal(err.error_number, 0);
}

static void expect_field(const struct plan *plan, const char *field)
{
	struct err err = ERR_NULL;

	assert_int_equal(plan_check(plan, &err), -EINVAL);
	assert_string_equal(err.step, "plan");
	if (!strstr(err.text, field))
		fail_msg("%s is not in: %s", field, err.text);
	assert_int_equal(plan_check(plan, NULL), -EINVAL);
}

#define EXPECT_RANGE(member, low, high)                                                            \
	do {                                                                                       \
		struct plan plan = good_plan();                                                    \
		plan.member = (__typeof__(plan.member))((low)-1);                                  \
		expect_field(&plan, #member);                                                      \
		plan.member = (__typeof__(plan.member))((high) + 1);                               \
		expect_field(&plan, #member);                                                      \
	} while (0)

/* NOLINTNEXTLINE(readability-function-size): one line per field */
static void test_plan_check_each_field_out_of_range_is_named(void **state)
{
	(void)state;
	EXPECT_RANGE(magic, PLAN_MAGIC, PLAN_MAGIC);
	EXPECT_RANGE(version, PLAN_VERSION, PLAN_VERSION);
	EXPECT_RANGE(size, sizeof(struct plan), sizeof(struct plan));
	EXPECT_RANGE(profile, 0u, 15u);
	EXPECT_RANGE(egress, 0u, PLAN_EGRESS_MAX);
	EXPECT_RANGE(tmpfs_bytes, PLAN_TMPFS_MIN_BYTES, PLAN_TMPFS_MAX_BYTES);
	EXPECT_RANGE(tmpfs_inodes, PLAN_INODES_MIN, PLAN_INODES_MAX);
	EXPECT_RANGE(memory_bytes, PLAN_MEMORY_MIN_BYTES, PLAN_MEMORY_MAX_BYTES);
	EXPECT_RANGE(max_pids, PLAN_PIDS_MIN, PLAN_PIDS_MAX);
	EXPECT_RANGE(max_files, PLAN_FILES_MIN, PLAN_FILES_MAX);
	EXPECT_RANGE(cpu_pct, PLAN_CPU_MIN_PCT, PLAN_CPU_MAX_PCT);
	EXPECT_RANGE(cpu_weight, PLAN_CPU_WEIGHT_MIN, PLAN_CPU_WEIGHT_MAX);
	EXPECT_RANGE(max_ptys, 0u, PLAN_PTYS_MAX);
	EXPECT_RANGE(flags, 0u, PLAN_CANARY);
}

static void test_plan_check_null_session_is_refused(void **state)
{
	struct plan plan = good_plan();

	(void)state;
	memset(plan.session, 0, sizeof(plan.session));
	expect_field(&plan, "session");
}

static void test_plan_check_tmpfs_over_half_of_memory_is_refused(void **state)
{
	struct plan plan = good_plan();

	(void)state;
	plan.tmpfs_bytes = plan.memory_bytes / 2;
	assert_int_equal(plan_check(&plan, NULL), 0);
	plan.tmpfs_bytes++;
	expect_field(&plan, "tmpfs_bytes");
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_plan_bytes_are_golden),
	cmocka_unit_test(test_plan_check_good_is_accepted),
	cmocka_unit_test(test_plan_check_each_field_out_of_range_is_named),
	cmocka_unit_test(test_plan_check_null_session_is_refused),
	cmocka_unit_test(test_plan_check_tmpfs_over_half_of_memory_is_refused),
};
TEST_MAIN(tests)
