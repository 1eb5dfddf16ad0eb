#include <string.h>

#include "supervisor/cgroup.h"
#include "supervisor/cgroup_find.h"
#include "tests/lib/test.h"

static struct cgroup hybrid(void)
{
	struct cgroup cgroup = CGROUP_NULL;

	(void)strcpy(cgroup.name, "sandboxd-0123abcd"); /* NOLINT: fits */
	return cgroup;
}

static uint64_t joined(const struct cgroup *cgroup, const char *text)
{
	char copy[512];

	assert_true(strlen(text) < sizeof(copy));
	memcpy(copy, text, strlen(text) + 1);
	return cgroup_joined(cgroup, "s1", copy);
}

static void test_cgroup_joined_hybrid_counts_each_hierarchy(void **state)
{
	struct cgroup cgroup = hybrid();

	(void)state;
	assert_int_equal(joined(&cgroup, "8:pids:/sandboxd-0123abcd/s1\n"
					 "4:memory:/x/sandboxd-0123abcd/s1\n"
					 "1:cpu,cpuacct:/sandboxd-0123abcd/s1\n"
					 "0::/sandboxd-0123abcd/s1"),
			 PROOF_MEMORY | PROOF_PIDS | PROOF_CPU);
}

static void test_cgroup_joined_other_session_does_not_count(void **state)
{
	struct cgroup cgroup = hybrid();

	(void)state;
	assert_int_equal(joined(&cgroup, "8:pids:/sandboxd-0123abcd/s11\n4:memory:/\n"
					 "1:cpu:/sandboxd-0123abce/s1\n"
					 "0::/sandboxd-0123abcd/s1"),
			 0);
}

static void test_cgroup_joined_v2_counts_the_one_group(void **state)
{
	struct cgroup cgroup = hybrid();

	(void)state;
	cgroup.in_v2[CGROUP_MEMORY] = cgroup.in_v2[CGROUP_PIDS] = cgroup.in_v2[CGROUP_CPU] = true;
	assert_int_equal(joined(&cgroup, "0::/a.slice/sandboxd-0123abcd/s1"),
			 PROOF_MEMORY | PROOF_PIDS | PROOF_CPU);
	assert_int_equal(joined(&cgroup, "0::/a.slice/sandboxd-0123abcd"), 0);
}

static void test_cgroup_find_lists_whole_names_only(void **state)
{
	(void)state;
	assert_true(cgroup_find_lists("3:cpu,cpuacct:/x", "cpu"));
	assert_true(cgroup_find_lists("3:cpu,cpuacct:/x", "cpuacct"));
	assert_false(cgroup_find_lists("3:cpuacct,cpuset:/x", "cpu"));
	assert_false(cgroup_find_lists("3:name=memory:/cpu", "cpu"));
	assert_false(cgroup_find_lists("0::/cpu", "cpu"));
	assert_false(cgroup_find_lists("cpu", "cpu"));
}

static void test_cgroup_missing_nothing_found_names_all(void **state)
{
	struct cgroup cgroup = hybrid();

	(void)state;
	assert_int_equal(cgroup_missing(&cgroup), PROOF_MEMORY | PROOF_PIDS | PROOF_CPU);
	cgroup.in_v2[CGROUP_PIDS] = true;
	assert_int_equal(cgroup_missing(&cgroup), PROOF_MEMORY | PROOF_CPU);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_cgroup_joined_hybrid_counts_each_hierarchy),
		cmocka_unit_test(test_cgroup_joined_other_session_does_not_count),
		cmocka_unit_test(test_cgroup_joined_v2_counts_the_one_group),
		cmocka_unit_test(test_cgroup_find_lists_whole_names_only),
		cmocka_unit_test(test_cgroup_missing_nothing_found_names_all),
	};
	int n_before = test_begin();

	return test_end(n_before, cmocka_run_group_tests(tests, NULL, NULL));
}
