#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"

#include "supervisor/api/session/environment.h"
#include "tests/lib/test.h"

static const struct id session_id = {
	{0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x47, 0x08, 0x89, 0x0a, 0x0b, 0x0c, 0x0d, 0x0e, 0x0f,
	 0x10}
};

static const char *value_of(const struct environment *environment, const char *name)
{
	const char *found = NULL;

	for (size_t i = 0; i < environment->n_entries; i++) {
		const char *entry = environment->entry[i];

		if (str_has_prefix(entry, name) && entry[strlen(name)] == '=') {
			assert_null(found); /* a name stands once only */
			found = entry + strlen(name) + 1;
		}
	}
	return found;
}

static void test_environment_build_starts_empty_and_has_all_six(void **state)
{
	const struct environment_input input = {
		.session = &session_id, .prefix = "ALPHASWARM_", .dagster = true};
	struct environment environment;

	(void)state;
	assert_int_equal(environment_build(&input, &environment), 0);
	assert_string_equal(value_of(&environment, "PATH"), "/usr/bin:/bin");
	assert_string_equal(value_of(&environment, "HOME"), "/session/home");
	assert_string_equal(value_of(&environment, "TMPDIR"), "/session/tmp");
	assert_string_equal(value_of(&environment, "LANG"), "C.UTF-8");
	assert_string_equal(value_of(&environment, "SANDBOX_SESSION_ID"),
			    "01020304-0506-4708-890a-0b0c0d0e0f10");
	assert_non_null(value_of(&environment, "DAGSTER_HOME"));
	assert_null(value_of(&environment, "LSAN_OPTIONS"));
	assert_string_equal(value_of(&environment, "ALPHASWARM_ICEBERG_REST_URI"), "");
	assert_string_equal(value_of(&environment, "ALPHASWARM_ICEBERG_WAREHOUSE"),
			    "/session/iceberg");
	assert_string_equal(value_of(&environment, "ALPHASWARM_POLARIS_BASE_URL"), "");
	assert_string_equal(value_of(&environment, "ALPHASWARM_ALPHA_VANTAGE_BASE_URL"),
			    "https://example.invalid/sandbox/alphavantage");
	assert_string_equal(value_of(&environment, "ALPHASWARM_DATAHUB_GMS_URL"), "");
	assert_string_equal(value_of(&environment, "ALPHASWARM_KAFKA_BOOTSTRAP"), "");
	assert_null(environment.entry[environment.n_entries]);
	environment_done(&environment);
}

static void test_environment_build_programs_of_a_template(void **state)
{
	struct environment_input input = {
		.session = &session_id, .prefix = "P_", .has_template = true};
	struct environment environment;

	(void)state;
	assert_int_equal(environment_build(&input, &environment), 0);
	assert_string_equal(value_of(&environment, "PATH"), "/usr/local/bin:/usr/bin:/bin");
	environment_done(&environment);
	input.is_root = true;
	assert_int_equal(environment_build(&input, &environment), 0);
	assert_string_equal(value_of(&environment, "PATH"),
			    "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
	assert_string_equal(value_of(&environment, "USER"), "root");
	environment_done(&environment);
}

static void test_environment_build_order_of_sources(void **state)
{
	const char *const session_env[] = {"FOO=session", "LANG=de_DE", "P_KAFKA_BOOTSTRAP=prod",
					   NULL};
	const char *const command_env[] = {"FOO=command", NULL};
	struct environment_input input = {
		.session = &session_id,
		.prefix = "P_",
		.session_env = session_env,
		.command_env = command_env,
		.caller = {[0] = "http://caller" },
		.operator_default = { [0] = "http://operator", [5] = "operator:9092"},
	};
	struct environment environment;

	(void)state;
	assert_int_equal(environment_build(&input, &environment), 0);
	assert_string_equal(value_of(&environment, "FOO"), "command");
	assert_string_equal(value_of(&environment, "LANG"), "de_DE");
	assert_string_equal(value_of(&environment, "P_ICEBERG_REST_URI"), "http://caller");
	/* Whatever stood there before, the endpoint wins. */
	assert_string_equal(value_of(&environment, "P_KAFKA_BOOTSTRAP"), "operator:9092");
	assert_null(value_of(&environment, "DAGSTER_HOME"));
	assert_string_equal(value_of(&environment, "LSAN_OPTIONS"), "detect_leaks=0");
	environment_done(&environment);
}

static void test_environment_build_too_many_entries(void **state)
{
	static char text[EXEC_MAX_ENV][16];
	const char *entries[EXEC_MAX_ENV + 1];
	const struct environment_input input = {
		.session = &session_id, .prefix = "", .session_env = entries};
	struct environment environment = ENVIRONMENT_NULL;

	(void)state;
	for (size_t i = 0; i < EXEC_MAX_ENV; i++) {
		(void)snprintf(text[i], sizeof(text[i]), "N%zu=1", i);
		entries[i] = text[i];
	}
	entries[EXEC_MAX_ENV] = NULL;
	assert_int_equal(environment_build(&input, &environment), -E2BIG);
	assert_null(environment.entry);
}

static void test_environment_name_allowed_is_an_allowlist(void **state)
{
	static const char *const good[] = {"FOO", "_X", "A1", "MY_TOKEN"};
	static const char *const bad[] = {"",           "foo",
					  "1A",         "A B",
					  "A=B",        "PATH",
					  "HOME",       "LD_PRELOAD",
					  "LD_",        "SANDBOX_SESSION_ID",
					  "BASH_ENV",   "\xc3\x84",
					  "GCONV_PATH", "ALPHASWARM_KAFKA_BOOTSTRAP"};
	char longest[65];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(good); i++)
		assert_true(environment_name_allowed(good[i], strlen(good[i]), "ALPHASWARM_"));
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		if (environment_name_allowed(bad[i], strlen(bad[i]), "ALPHASWARM_"))
			fail_msg("allowed: %s", bad[i]);
	memset(longest, 'A', sizeof(longest));
	assert_true(environment_name_allowed(longest, 64, NULL));
	assert_false(environment_name_allowed(longest, 65, NULL));
	assert_true(environment_name_allowed("ALPHASWARM_OTHER", 16, "ALPHASWARM_"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_environment_build_starts_empty_and_has_all_six),
		cmocka_unit_test(test_environment_build_programs_of_a_template),
		cmocka_unit_test(test_environment_build_order_of_sources),
		cmocka_unit_test(test_environment_build_too_many_entries),
		cmocka_unit_test(test_environment_name_allowed_is_an_allowlist),
	};
	int n_before = test_begin();

	return test_end(n_before, cmocka_run_group_tests(tests, NULL, NULL));
}
