#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "supervisor/options.h"
#include "tests/lib/test.h"

#define MAX_ARGS 8

/* The program's name is added; NULL ends the list. */
static int parse(struct options *options, struct err *err, const char *const *arguments)
{
	char *argv[MAX_ARGS + 2] = {(char[]){"sandboxd"}};
	char copies[MAX_ARGS][64];
	int argc = 1;

	for (; arguments[argc - 1]; argc++) {
		assert_true(argc <= MAX_ARGS);
		(void)snprintf(copies[argc - 1], sizeof(copies[0]), "%s", arguments[argc - 1]);
		argv[argc] = copies[argc - 1];
	}
	return options_parse(options, argc, argv, err);
}

static void test_options_parse_nothing_gives_defaults(void **state)
{
	struct options options = {0};
	struct err err = ERR_NULL;

	(void)state;
	assert_int_equal(parse(&options, &err, (const char *const[]){NULL}), 0);
	assert_string_equal(options.runtime_dir, "/run/sandboxd");
	assert_string_equal(options.state_dir, "/var/lib/sandboxd");
	assert_null(options.config);
	assert_null(options.cgroup_parent);
	assert_int_equal(options.log_level, LOG_LEVEL_INFO);
	assert_false(options.supervisor);
}

static void test_options_parse_both_forms_are_taken(void **state)
{
	char a0[] = "sandboxd";
	char a1[] = "--runtime-dir";
	char a2[] = "/a";
	char a3[] = "--state-dir=/b";
	char a4[] = "--log-level=debug";
	char a5[] = "--supervisor";
	char a6[] = "--cgroup-parent=/c";
	char *argv[] = {a0, a1, a2, a3, a4, a5, a6, NULL};
	struct options options = {0};
	struct err err = ERR_NULL;

	(void)state;
	assert_int_equal(options_parse(&options, 7, argv, &err), 0);
	assert_string_equal(options.runtime_dir, "/a");
	assert_string_equal(options.state_dir, "/b");
	assert_string_equal(options.cgroup_parent, "/c");
	assert_int_equal(options.log_level, LOG_LEVEL_DEBUG);
	assert_true(options.supervisor);
}

static void test_options_parse_wrong_ones_are_named(void **state)
{
	static const struct {
		const char *arguments[3];
		const char *named;
	} cases[] = {
		{{"--nonsense"},           "--nonsense"                 },
		{{"--runtime-dirs", "/a"}, "--runtime-dirs"             },
		{{"--runtime-dir"},        "--runtime-dir needs a value"},
		{{"--runtime-dir", "a"},   "absolute"                   },
		{{"--config="},            "--config needs a value"     },
		{{"--log-level", "loud"},  "--log-level is"             },
		{{"stray"},                "stray"                      },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct options options = {0};
		struct err err = ERR_NULL;

		assert_int_equal(parse(&options, &err, cases[i].arguments), -EINVAL);
		assert_non_null(strstr(err.text, cases[i].named));
		assert_null(options.runtime_dir);
	}
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_options_parse_nothing_gives_defaults),
	cmocka_unit_test(test_options_parse_both_forms_are_taken),
	cmocka_unit_test(test_options_parse_wrong_ones_are_named),
};

TEST_MAIN(tests)
