#include <errno.h>
#include <string.h>

#include "base/str.h"

#include "tests/lib/test.h"

static void test_str_has_prefix_suffix_edges(void **state)
{
	(void)state;
	assert_true(str_equal("", ""));
	assert_false(str_equal("a", "A"));
	assert_true(str_has_prefix("abc", ""));
	assert_true(str_has_prefix("abc", "ab"));
	assert_false(str_has_prefix("ab", "abc"));
	assert_true(str_has_suffix("a.yaml", ".yaml"));
	assert_true(str_has_suffix("abc", ""));
	assert_false(str_has_suffix("yaml", ".yaml"));
}

static void test_str_copy_too_long_leaves_dest(void **state)
{
	char dest[4] = "old";

	(void)state;
	assert_int_equal(str_copy(dest, sizeof(dest), "abcd"), -ENAMETOOLONG);
	assert_string_equal(dest, "old");
	assert_int_equal(str_copy(dest, sizeof(dest), "abc"), 0);
	assert_string_equal(dest, "abc");
	assert_int_equal(str_copy_n(dest, sizeof(dest), "xyz", 1), 0);
	assert_string_equal(dest, "x");
	assert_int_equal(str_copy_n(dest, 0, "", 0), -ENAMETOOLONG);
}

static void test_str_format_cut_is_refused(void **state)
{
	char dest[6] = "old";

	(void)state;
	assert_int_equal(str_format(dest, sizeof(dest), "%d", 12345), 0);
	assert_string_equal(dest, "12345");
	assert_int_equal(str_format(dest, sizeof(dest), "%d", 123456), -ENAMETOOLONG);
	assert_string_equal(dest, "");
}

/* A decoder of the plain kind: every one, two, three and some four byte sequences compared to it.
 */
/* NOLINTNEXTLINE(readability-function-cognitive-complexity): the rule in one place */
static bool reference_valid(const uint8_t *b, size_t n)
{
	static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
	size_t at = 0;

	while (at < n) {
		size_t length = b[at] < 0x80       ? 1
				: b[at] >> 5 == 6  ? 2
				: b[at] >> 4 == 14 ? 3
				: b[at] >> 3 == 30 ? 4
						   : 0;
		uint32_t code;

		if (length == 0 || at + length > n)
			return false;
		code = length == 1 ? b[at] : b[at] & (0xffu >> (length + 1));
		for (size_t i = 1; i < length; i++) {
			if (b[at + i] >> 6 != 2)
				return false;
			code = code << 6 | (b[at + i] & 63u);
		}
		if (length > 1 &&
		    (code < least[length] || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)))
			return false;
		at += length;
	}
	return true;
}

static void check_utf8(const uint8_t *bytes, size_t n)
{
	if (str_utf8_valid((const char *)bytes, n) != reference_valid(bytes, n))
		fail_msg("%02x %02x %02x %02x (%zu)", bytes[0], bytes[1], bytes[2], bytes[3], n);
}

static void test_str_utf8_valid_equals_reference(void **state)
{
	/* The bytes at which a range begins or ends. */
	static const uint8_t edges[] = {0x00, 0x41, 0x7f, 0x80, 0x81, 0x8f, 0x90, 0x9f, 0xa0, 0xbf,
					0xc0, 0xc1, 0xc2, 0xdf, 0xe0, 0xe1, 0xec, 0xed, 0xee, 0xef,
					0xf0, 0xf1, 0xf3, 0xf4, 0xf5, 0xf7, 0xf8, 0xfe, 0xff};

	(void)state;
	for (unsigned int i = 0; i < 0x10000; i++) {
		uint8_t bytes[4] = {(uint8_t)(i >> 8), (uint8_t)i, 0, 0};

		check_utf8(bytes, 1);
		check_utf8(bytes, 2);
		for (size_t e = 0; e < ARRAY_SIZE(edges); e++) {
			bytes[2] = edges[e];
			check_utf8(bytes, 3);
		}
	}
	for (unsigned int i = 0; i < 0x1000; i++)
		for (size_t c = 0; c < ARRAY_SIZE(edges); c++)
			for (size_t d = 0; d < ARRAY_SIZE(edges); d++) {
				uint8_t bytes[4] = {(uint8_t)(0xf0 | i >> 8), (uint8_t)i, edges[c],
						    edges[d]};

				check_utf8(bytes, 4);
			}
}

static void test_str_utf8_valid_position_in_words(void **state)
{
	char text[40];

	(void)state;
	assert_true(str_utf8_valid("", 0));
	for (size_t at = 0; at < sizeof(text); at++) {
		memset(text, 'a', sizeof(text));
		text[at] = (char)0xc3;
		assert_false(str_utf8_valid(text, sizeof(text)));
		if (at + 1 == sizeof(text))
			break;
		text[at + 1] = (char)0xa9;
		assert_true(str_utf8_valid(text, sizeof(text)));
		assert_false(str_utf8_valid(text, at + 1)); /* cut in the middle */
	}
}

static void test_str_utf8_partial_is_what_a_character_lacks(void **state)
{
	static const struct {
		const char *text;
		size_t partial;
	} rows[] = {
		{"",                 0},
		{"a",                0},
		{"a\xc3\xa4",        0},
		{"a\xc3",            1},
		{"\xe2",             1},
		{"\xe2\x82",         2},
		{"\xe2\x82\xac",     0},
		{"\xf0\x9f\x98",     3},
		{"\xf0\x9f\x98\x80", 0},
 /* What can become no character is not waited for. */
		{"\xff",             0},
		{"\x80",             0},
		{"\xc0",             0},
		{"\xf5",             0},
		{"\xe2\x82\xac\xac", 0},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		if (str_utf8_partial(rows[i].text, strlen(rows[i].text)) != rows[i].partial)
			fail_msg("row %zu", i);
}

static void test_str_only_sets(void **state)
{
	(void)state;
	assert_true(str_only("aZ09", 4, ""));
	assert_false(str_only("a.b", 3, ""));
	assert_true(str_only("a.b", 3, "._-"));
	assert_false(str_only("a\0b", 3, "."));
	assert_true(str_only("", 0, ""));
	assert_false(str_only("\xc3\xa9", 2, "."));
}

static void check_escape(const char *src, size_t length, bool keep, const char *expected)
{
	char dest[128];

	assert_int_equal(str_escape(dest, sizeof(dest), src, length, keep), strlen(expected));
	assert_string_equal(dest, expected);
}

/* NOLINTBEGIN(misc-misleading-bidirectional): that they are escaped is the point */
static void test_str_escape_table(void **state)
{
	(void)state;
	check_escape("plain text", 10, false, "plain text");
	check_escape("a\nb\tc\rd\\e", 9, false, "a\\nb\\tc\\rd\\\\e");
	check_escape("a\nb\tc\r", 6, true, "a\nb\tc\\r");
	check_escape("\x1b[31m\x07\x7f", 7, false, "\\x1b[31m\\x07\\x7f");
	check_escape("n\0l", 3, false, "n\\x00l");
	check_escape("\xc3\xa9t\xc3\xa9", 5, false, "\xc3\xa9t\xc3\xa9");
	check_escape("\xf0\x9f\x98\x80", 4, false, "\xf0\x9f\x98\x80");
	check_escape("\xff\xc3", 2, false, "\\xff\\xc3");
	check_escape("\xc2\x9b"
		     "31m",
		     5, false, "\\xc2\\x9b31m"); /* C1: CSI */
	check_escape("\xe2\x80\xae"
		     "x",
		     4, false, "\\xe2\\x80\\xaex");                         /* U+202E */
	check_escape("\xe2\x81\xa6", 3, true, "\\xe2\\x81\\xa6");           /* U+2066 */
	check_escape("\xe2\x80\xa8", 3, false, "\\xe2\\x80\\xa8");          /* U+2028 */
	check_escape("\xf3\xa0\x80\x81", 4, false, "\\xf3\\xa0\\x80\\x81"); /* a tag */
	check_escape("\xed\xa0\x80", 3, false, "\\xed\\xa0\\x80");          /* surrogate */
}

/* NOLINTEND(misc-misleading-bidirectional) */

static void test_str_escape_cut_leaves_whole_units(void **state)
{
	char dest[8];

	(void)state;
	assert_int_equal(str_escape(dest, 4, "ab\n", 3, false), 2);
	assert_string_equal(dest, "ab");
	assert_int_equal(str_escape(dest, 5, "ab\n", 3, false), 4);
	assert_string_equal(dest, "ab\\n");
	assert_int_equal(str_escape(dest, 3, "a\xc3\xa9", 3, false), 1);
	assert_int_equal(str_escape(dest, 1, "a", 1, false), 0);
	assert_string_equal(dest, "");
	assert_int_equal(str_escape(dest, 0, "a", 1, false), 0);
}

static void test_str_hex_digit_takes_either_case(void **state)
{
	static const char digits[] = "0123456789abcdefABCDEF";

	(void)state;
	for (int c = -128; c < 128; c++) {
		const char *at = c ? strchr(digits, c) : NULL;
		int value = at ? (int)(at - digits) : -1;

		assert_int_equal(str_hex_digit((char)c), value > 15 ? value - 6 : value);
	}
}

static void test_str_hex_is_lower_case(void **state)
{
	char dest[7];

	(void)state;
	str_hex(dest, "\x00\xab\xff", 3);
	assert_string_equal(dest, "00abff");
}

static void test_str_base64_rfc_vectors(void **state)
{
	static const char *const vectors[][2] = {
		{"",       ""        },
		{"f",      "Zg=="    },
		{"fo",     "Zm8="    },
		{"foo",    "Zm9v"    },
		{"foob",   "Zm9vYg=="},
		{"fooba",  "Zm9vYmE="},
		{"foobar", "Zm9vYmFy"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(vectors); i++) {
		size_t n = strlen(vectors[i][0]);
		char text[16];
		char back[16] = "";
		size_t size = 99;

		assert_int_equal(str_base64(text, vectors[i][0], n), strlen(vectors[i][1]));
		assert_string_equal(text, vectors[i][1]);
		assert_int_equal(str_base64_bytes(n), strlen(vectors[i][1]) + 1);
		assert_int_equal(str_base64_decode(back, n, text, strlen(text), &size), 0);
		assert_int_equal(size, n);
		assert_memory_equal(back, vectors[i][0], n);
	}
}

static void test_str_base64_decode_bad_is_refused(void **state)
{
	static const char *const bad[] = {
		"Z",    "Zg",   "Zg=",  "Zh==",   "Zm9=",     "Zm8",  "Z===", "====",
		"=Zg=", "Zg= ", "Zm 9", "Zm9v\n", "Zg==Zg==", "Zm-v", "Zm_v", "Zm9v=",
	};
	char dest[16] = "old";
	size_t size = 7;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(
			str_base64_decode(dest, sizeof(dest), bad[i], strlen(bad[i]), &size),
			-EINVAL);
	assert_int_equal(str_base64_decode(dest, 2, "Zm9v", 4, &size), -ENOSPC);
	assert_string_equal(dest, "old");
	assert_int_equal(size, 7);
}

static void test_str_base64_random_round_trip(void **state)
{
	struct test_random random = TEST_RANDOM(3);
	uint8_t data[300], back[300];
	char text[401];

	(void)state;
	for (size_t n = 0; n < sizeof(data); n++) {
		size_t length, size = 0;

		test_random_fill(&random, data, n);
		length = str_base64(text, data, n);
		assert_int_equal(str_base64_decode(back, sizeof(back), text, length, &size), 0);
		assert_int_equal(size, n);
		assert_memory_equal(back, data, n);
	}
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_str_has_prefix_suffix_edges),
	cmocka_unit_test(test_str_copy_too_long_leaves_dest),
	cmocka_unit_test(test_str_format_cut_is_refused),
	cmocka_unit_test(test_str_utf8_valid_equals_reference),
	cmocka_unit_test(test_str_utf8_valid_position_in_words),
	cmocka_unit_test(test_str_utf8_partial_is_what_a_character_lacks),
	cmocka_unit_test(test_str_only_sets),
	cmocka_unit_test(test_str_escape_table),
	cmocka_unit_test(test_str_escape_cut_leaves_whole_units),
	cmocka_unit_test(test_str_hex_digit_takes_either_case),
	cmocka_unit_test(test_str_hex_is_lower_case),
	cmocka_unit_test(test_str_base64_rfc_vectors),
	cmocka_unit_test(test_str_base64_decode_bad_is_refused),
	cmocka_unit_test(test_str_base64_random_round_trip),
};
TEST_MAIN(tests)
