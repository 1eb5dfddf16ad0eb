#include <errno.h>
#include <string.h>

#include "base/json.h"

#include "tests/lib/test.h"

static void expect_bad(const char *text, size_t size, const char *reason)
{
	const char *got = NULL;
	json_t *doc = NULL;

	assert_int_equal(doc_parse(text, size, &doc, &got), -EBADMSG);
	assert_null(doc);
	assert_string_equal(got, reason);
}

#define EXPECT_BAD(text, reason) expect_bad(text, sizeof(text) - 1, reason)

static void test_doc_parse_bad_has_reason(void **state)
{
	(void)state;
	EXPECT_BAD("", "ends early");
	EXPECT_BAD("{", "ends early");
	EXPECT_BAD("nope", "not JSON");
	EXPECT_BAD("{} {}", "more than one document");
	EXPECT_BAD("{\"a\":1,\"a\":2}", "duplicate key");
	EXPECT_BAD("\"\xff\"", "not UTF-8");
	EXPECT_BAD("\"\xed\xa0\x80\"", "not UTF-8");
	EXPECT_BAD("\"\\ud800\"", "not JSON");
	EXPECT_BAD("99999999999999999999999", "number out of range");
	EXPECT_BAD("1e999", "number out of range");
	EXPECT_BAD("{\"a\\u0000b\":1}", "NUL in a key");
	EXPECT_BAD("{\"a\":1,}", "not JSON");
	EXPECT_BAD("NaN", "not JSON");
	EXPECT_BAD("{}\0", "more than one document");
}

static void test_doc_parse_depth_is_bounded(void **state)
{
	static char text[200000];
	const char *reason = NULL;
	json_t *doc = NULL;

	(void)state;
	memset(text, '[', sizeof(text));
	expect_bad(text, sizeof(text), "too deep");
	memset(text, '[', DOC_MAX_DEPTH);
	memset(text + DOC_MAX_DEPTH, ']', DOC_MAX_DEPTH);
	assert_int_equal(doc_parse(text, 2 * (size_t)DOC_MAX_DEPTH, &doc, &reason), 0);
	json_decref(doc);
	/* Brackets and quotes inside strings do not count. */
	memset(text, '[', 300);
	text[0] = '"';
	text[100] = '\\';
	text[101] = '"';
	text[299] = '"';
	assert_int_equal(doc_parse(text, 300, &doc, &reason), 0);
	json_decref(doc);
}

static void test_doc_parse_keeps_nul_and_order(void **state)
{
	static const char text[] = "{\"z\":\"a\\u0000b\",\"a\":[1,true,null,1.5]}";
	char *again AUTO_FREE = NULL;
	const char *reason = NULL;
	json_t *doc = NULL;

	(void)state;
	assert_int_equal(doc_parse(text, sizeof(text) - 1, &doc, &reason), 0);
	assert_null(reason);
	assert_int_equal(json_string_length(json_object_get(doc, "z")), 3);
	again = doc_format(doc, 0);
	assert_string_equal(again, text);
	json_decref(doc);
}

static void test_doc_format_ascii_escapes(void **state)
{
	char *raw AUTO_FREE = NULL;
	char *ascii AUTO_FREE = NULL;
	json_t *doc = json_string("\xc3\xa9\xf0\x9f\x98\x80");

	(void)state;
	raw = doc_format(doc, 0);
	assert_string_equal(raw, "\"\xc3\xa9\xf0\x9f\x98\x80\"");
	ascii = doc_format(doc, 1);
	assert_string_equal(ascii, "\"\\u00E9\\uD83D\\uDE00\"");
	json_decref(doc);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_doc_parse_bad_has_reason),
	cmocka_unit_test(test_doc_parse_depth_is_bounded),
	cmocka_unit_test(test_doc_parse_keeps_nul_and_order),
	cmocka_unit_test(test_doc_format_ascii_escapes),
};
TEST_MAIN(tests)
