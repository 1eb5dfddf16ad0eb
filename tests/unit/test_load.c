#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "supervisor/api/jobs/load.h"
#include "tests/lib/test.h"

static struct loader_record record(uint32_t type, const char *name, const char *text)
{
	struct loader_record r = {.magic = LOADER_MAGIC, .type = type, .line = 3, .column = 7};

	memcpy(r.name, name, strnlen(name, sizeof(r.name)));
	memcpy(r.text, text, strnlen(text, sizeof(r.text)));
	return r;
}

static int feed(struct load_parser *parser, const struct loader_record *r)
{
	return load_parser_feed(parser, r, sizeof(*r));
}

static void test_load_parser_feed_cut_anywhere(void **state)
{
	struct loader_record all[4] = {record(LOADER_ASSET, "a.yaml", ""),
				       record(LOADER_PROBLEM, "a.yaml", "bad\n\x1b[31m"),
				       record(LOADER_STORED, "b.yml", ""),
				       record(LOADER_END, "", "")};
	struct test_random random = TEST_RANDOM(6);

	(void)state;
	all[3].n_documents = 9;
	for (int round = 0; round < 200; round++) {
		struct load_parser parser = LOAD_PARSER_NULL;
		struct load_result result;
		size_t at = 0;

		while (at < sizeof(all)) {
			size_t n = 1 + test_random_below(&random, 900);

			if (n > sizeof(all) - at)
				n = sizeof(all) - at;
			assert_int_equal(load_parser_take(&parser, &result), -EBADMSG);
			assert_int_equal(load_parser_feed(&parser, (const char *)all + at, n), 0);
			at += n;
		}
		assert_int_equal(load_parser_take(&parser, &result), 0);
		assert_int_equal(result.n_assets, 1);
		assert_string_equal(result.asset[0].file, "a.yaml");
		assert_int_equal(result.n_problems, 1);
		assert_int_equal(result.problem[0].line, 3);
		assert_null(strchr(result.problem[0].text, '\n'));
		assert_null(strchr(result.problem[0].text, '\x1b'));
		assert_int_equal(result.n_documents, 9);
		load_result_done(&result);
		load_parser_done(&parser);
	}
}

static void test_load_parser_feed_refuses_what_no_loader_writes(void **state)
{
	struct loader_record cases[] = {
		record(LOADER_ASSET, "", ""),
		record(LOADER_ASSET, "a.yml", ""),
		record(LOADER_ASSET, "../a.yaml", ""),
		record(LOADER_STORED, "a.yaml", ""),
		record(0, "a.yaml", ""),
		record(5, "a.yaml", ""),
		record(LOADER_ASSET, "a.yaml", ""),
	};
	struct loader_record good = record(LOADER_ASSET, "a.yaml", "");

	(void)state;
	cases[6].magic++;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct load_parser parser = LOAD_PARSER_NULL;

		assert_int_equal(feed(&parser, &cases[i]), -EBADMSG);
		assert_int_equal(feed(&parser, &good), -EBADMSG); /* stays broken */
		load_parser_done(&parser);
	}
}

/* What the loader writes for files that only a command can make. */
static void test_load_parser_feed_long_names_and_the_folder(void **state)
{
	struct loader_record asset = record(LOADER_ASSET, "", "");
	struct loader_record beyond = record(LOADER_PROBLEM, "", "too many");
	struct load_parser parser = LOAD_PARSER_NULL;

	(void)state;
	memset(asset.name, 'n', sizeof(asset.name) - 1); /* ".yaml" was cut off */
	assert_int_equal(feed(&parser, &asset), 0);
	assert_int_equal(strlen(parser.result.asset[0].file), LOADER_NAME_BYTES - 1);
	assert_int_equal(feed(&parser, &beyond), 0);
	assert_string_equal(parser.result.problem[0].file, "");
	load_parser_done(&parser);
}

static void test_load_parser_feed_nothing_after_end(void **state)
{
	struct loader_record end = record(LOADER_END, "", "");
	struct load_parser parser = LOAD_PARSER_NULL;
	struct load_result result;

	(void)state;
	assert_int_equal(feed(&parser, &end), 0);
	assert_int_equal(load_parser_feed(&parser, "x", 1), 0);
	assert_int_equal(load_parser_take(&parser, &result), -EBADMSG);
	assert_int_equal(load_parser_feed(&parser, (const char *)&end + 1, sizeof(end) - 1),
			 -EBADMSG);
	load_parser_done(&parser);
}

static void test_load_parser_feed_bounds_the_records(void **state)
{
	struct loader_record asset = record(LOADER_ASSET, "a.yaml", "");
	struct load_parser parser = LOAD_PARSER_NULL;

	(void)state;
	for (int i = 0; i < LOAD_MAX_ASSETS; i++)
		assert_int_equal(feed(&parser, &asset), 0);
	assert_int_equal(feed(&parser, &asset), -EBADMSG);
	load_parser_done(&parser);
}

static void test_load_parser_feed_unterminated_text_is_bounded(void **state)
{
	struct loader_record problem = record(LOADER_PROBLEM, "a.yaml", "");
	struct load_parser parser = LOAD_PARSER_NULL;

	(void)state;
	memset(problem.text, 0xff, sizeof(problem.text));
	memset(problem.name, 'n', sizeof(problem.name));
	assert_int_equal(feed(&parser, &problem), 0);
	assert_true(strlen(parser.result.problem[0].text) < LOAD_TEXT_BYTES);
	assert_int_equal(strlen(parser.result.problem[0].file), LOADER_NAME_BYTES);
	load_parser_done(&parser);
}

static void test_load_stem_length_cuts_one_suffix(void **state)
{
	(void)state;
	assert_int_equal(load_stem_length("demo.yaml"), 4);
	assert_int_equal(load_stem_length("demo.yml"), 4);
	assert_int_equal(load_stem_length("demo"), 4);
	assert_int_equal(load_stem_length("a.yaml.yaml"), 6);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_load_parser_feed_cut_anywhere),
		cmocka_unit_test(test_load_parser_feed_refuses_what_no_loader_writes),
		cmocka_unit_test(test_load_parser_feed_long_names_and_the_folder),
		cmocka_unit_test(test_load_parser_feed_nothing_after_end),
		cmocka_unit_test(test_load_parser_feed_bounds_the_records),
		cmocka_unit_test(test_load_parser_feed_unterminated_text_is_bounded),
		cmocka_unit_test(test_load_stem_length_cuts_one_suffix),
	};
	int n_before = test_begin();

	return test_end(n_before, cmocka_run_group_tests(tests, NULL, NULL));
}
