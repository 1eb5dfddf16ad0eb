#include <errno.h>
#include <string.h>

#include "base/egress_rule.h"
#include "base/str.h"

#include "supervisor/egress/policy.h"
#include "tests/lib/test.h"

static struct egress_rule rule_of(uint32_t index, const char *text)
{
	struct egress_rule rule;

	assert_int_equal(egress_rule_parse(text, strlen(text), &rule), 0);
	rule.index = index;
	return rule;
}

static struct policy *policy_of(uint32_t n_rules)
{
	const struct egress_policy limits = {.n_rules = n_rules};
	struct policy *policy = NULL;

	assert_int_equal(policy_new(1, &limits, &policy), 0);
	return policy;
}

static void test_policy_end_takes_only_what_is_whole(void **state)
{
	const struct egress_policy huge = {.n_rules = EGRESS_RULES_MAX + 1};
	AUTO(policy_free) struct policy *good = policy_of(1);
	AUTO(policy_free) struct policy *few = policy_of(2);
	AUTO(policy_free) struct policy *many = policy_of(0);
	AUTO(policy_free) struct policy *order = policy_of(2);
	struct policy *none = NULL;
	struct egress_rule rule = rule_of(0, "a.b:1");

	(void)state;
	policy_add_rule(good, &rule);
	policy_add_rule(few, &rule);
	policy_add_rule(many, &rule);
	assert_int_equal(policy_end(good), 0);
	assert_int_equal(policy_end(few), -EINVAL);
	assert_int_equal(policy_end(many), -EINVAL);
	rule.index = 1;
	policy_add_rule(order, &rule);
	assert_int_equal(policy_end(order), -EINVAL);
	assert_int_equal(policy_new(1, &huge, &none), -EINVAL);
}

static void test_policy_permits_path_at_segments(void **state)
{
	AUTO(policy_free) struct policy *policy = policy_of(1);
	struct egress_rule rule = rule_of(0, "s3.example.com:9000");
	struct egress_path path = {.prefix = "/sandbox"};

	(void)state;
	rule.flags = EGRESS_PATHS;
	rule.n_paths = 2;
	policy_add_rule(policy, &rule);
	policy_add_path(policy, &path);
	assert_int_equal(str_copy(path.host, sizeof(path.host), "b.s3.example.com"), 0);
	assert_int_equal(str_copy(path.prefix, sizeof(path.prefix), "/"), 0);
	policy_add_path(policy, &path);
	assert_int_equal(policy_end(policy), 0);
	assert_true(policy_permits_path(policy, 0, "s3.example.com", "s3.example.com", "/sandbox"));
	assert_true(
		policy_permits_path(policy, 0, "s3.example.com", "s3.example.com", "/sandbox/x"));
	assert_false(
		policy_permits_path(policy, 0, "s3.example.com", "s3.example.com", "/sandboxes"));
	assert_false(policy_permits_path(policy, 0, "s3.example.com", "s3.example.com", ""));
	assert_false(policy_permits_path(policy, 0, "s3.example.com", "", "/sandbox"));
	assert_true(policy_permits_path(policy, 0, "s3.example.com", "b.s3.example.com", "/any"));
	assert_false(
		policy_permits_path(policy, 1, "s3.example.com", "s3.example.com", "/sandbox"));
}

static void test_policy_add_path_refuses_what_has_two_readings(void **state)
{
	static const char *const bad[] = {"", "a", "/a/../b", "/a//b", "/%61", "/a;b", "/a?b"};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		AUTO(policy_free) struct policy *policy = policy_of(1);
		struct egress_rule rule = rule_of(0, "a.b:80");
		struct egress_path path = {.rule = 0};

		rule.n_paths = 1;
		policy_add_rule(policy, &rule);
		assert_int_equal(str_copy(path.prefix, sizeof(path.prefix), bad[i]), 0);
		policy_add_path(policy, &path);
		assert_int_equal(policy_end(policy), -EINVAL);
	}
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_policy_end_takes_only_what_is_whole),
		cmocka_unit_test(test_policy_permits_path_at_segments),
		cmocka_unit_test(test_policy_add_path_refuses_what_has_two_readings),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
