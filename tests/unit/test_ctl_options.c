#include <errno.h>

#include "base/str.h"

#include "ctl/options.h"
#include "tests/lib/test.h"

#define RUN_OPTIONS                                                                                \
	(OPTIONS_COMMON | OPTION_BIT(OPTION_PROFILE) | OPTION_BIT(OPTION_ENV) |                    \
	 OPTION_BIT(OPTION_TTL) | OPTION_BIT(OPTION_STDIN))

/* argv is not const: the words are copied. They stay valid until the next call. */
static int parse(struct options *options, option_set accepted, const char *const *words,
		 int *ret_index)
{
	static char copies[2 * OPTIONS_MAX_ENV + 3][32];
	char *argv[2 * OPTIONS_MAX_ENV + 3];
	int n = 0;

	for (; words[n]; n++) {
		assert_int_equal(str_copy(copies[n], sizeof(copies[n]), words[n]), 0);
		argv[n] = copies[n];
	}
	*options = (struct options){0};
	return options_parse(options, accepted, n, argv, ret_index);
}

static void test_options_parse_all_forms_are_taken(void **state)
{
	static const char *const words[] = {"-p",    "agent", "--env", "A=1", "--env=B=x=y", "-i",
					    "--ttl", "5",     "--",    "x",   NULL};
	struct options options;
	int at = -1;

	(void)state;
	assert_int_equal(parse(&options, RUN_OPTIONS, words, &at), 0);
	assert_int_equal(at, 8);
	assert_string_equal(options.profile, "agent");
	assert_int_equal(options.n_env, 2);
	assert_string_equal(options.env[1], "B=x=y");
	assert_true(options.with_stdin);
	assert_int_equal(options.ttl_minutes, 5);
}

static void test_options_parse_stops_at_the_first_word(void **state)
{
	static const char *const words[] = {"-q", "word", "--nonsense", NULL};
	struct options options;
	int at = -1;

	(void)state;
	assert_int_equal(parse(&options, OPTIONS_COMMON, words, &at), 0);
	assert_int_equal(at, 1);
	assert_true(options.quiet);
}

static void test_options_parse_wrong_words_are_refused(void **state)
{
	static const char *const wrong[][3] = {
		{"--nonsense",  NULL,   NULL},
                {"-z",          NULL,   NULL},
                {"--profile",   NULL,   NULL},
		{"--quiet=yes", NULL,   NULL},
                {"--ttl",       "0",    NULL},
                {"--ttl",       "1x",   NULL},
		{"--env",       "A",    NULL},
                {"--env",       "=1",   NULL},
                {"-o",          "yaml", NULL},
		{"--follow",    NULL,   NULL}, /* of another command */
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		struct options options;
		int at = -1;

		assert_int_equal(parse(&options, RUN_OPTIONS, wrong[i], &at), -EINVAL);
		assert_int_equal(at, -1);
	}
}

static void test_options_parse_options_of_commands_are_not_general(void **state)
{
	static const char *const words[] = {"--profile", "agent", NULL};
	struct options options;
	int at = -1;

	(void)state;
	assert_int_equal(parse(&options, OPTIONS_COMMON, words, &at), -EINVAL);
}

static void test_options_parse_too_many_variables_are_refused(void **state)
{
	const char *words[2 * OPTIONS_MAX_ENV + 3] = {0};
	struct options options;
	int at = -1;

	(void)state;
	for (int i = 0; i < 2 * OPTIONS_MAX_ENV + 2; i += 2) {
		words[i] = "--env";
		words[i + 1] = "A=1";
	}
	assert_int_equal(parse(&options, RUN_OPTIONS, words, &at), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_options_parse_all_forms_are_taken),
		cmocka_unit_test(test_options_parse_stops_at_the_first_word),
		cmocka_unit_test(test_options_parse_wrong_words_are_refused),
		cmocka_unit_test(test_options_parse_options_of_commands_are_not_general),
		cmocka_unit_test(test_options_parse_too_many_variables_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
