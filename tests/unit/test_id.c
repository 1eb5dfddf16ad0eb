#include <errno.h>
#include <string.h>

#include "base/id.h"

#include "tests/lib/test.h"

static void test_id_random_is_version_4(void **state)
{
	struct id first = {0};

	(void)state;
	for (int i = 0; i < 1000; i++) {
		struct id id = {0};
		struct id back = {0};
		char text[ID_TEXT_BYTES];

		assert_int_equal(id_random(&id), 0);
		id_format(&id, text);
		assert_int_equal(strlen(text), 36);
		assert_int_equal(text[14], '4');
		assert_non_null(strchr("89ab", text[19]));
		assert_int_equal(id_parse(text, &back), 0);
		assert_true(id_equal(&id, &back));
		assert_int_equal(id_hash(&id), id_hash(&back));
		assert_false(id_equal(&id, &first));
		assert_false(id_is_null(&id));
		first = id;
	}
}

static void test_id_format_known_bytes(void **state)
{
	struct id id = {
		{0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x46, 0x77, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd,
		 0xee, 0xff}
        };
	char text[ID_TEXT_BYTES];

	(void)state;
	id_format(&id, text);
	assert_string_equal(text, "00112233-4455-4677-8899-aabbccddeeff");
}

static void test_id_parse_other_forms_are_refused(void **state)
{
	static const char *const bad[] = {
		"",
		"0",
		"00112233-4455-4677-8899-aabbccddeef",
		"00112233-4455-4677-8899-aabbccddeefff",
		"00112233-4455-4677-8899-aabbccddeef ",
		" 00112233-4455-4677-8899-aabbccddeef",
		"00112233-4455-4677-8899-AABBCCDDEEFF",
		"{00112233-4455-4677-8899-aabbccddeeff}",
		"00112233445546778899aabbccddeeff",
		"00112233-4455-1677-8899-aabbccddeeff",
		"00112233-4455-4677-c899-aabbccddeeff",
		"00112233-4455-4677-0899-aabbccddeeff",
		"00112233_4455_4677_8899_aabbccddeeff",
		"0011223-34455-4677-8899-aabbccddeeff",
		"g0112233-4455-4677-8899-aabbccddeeff",
		"00000000-0000-0000-0000-000000000000",
		"../../..-4455-4677-8899-aabbccddeeff",
	};
	struct id id = {{7}};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(id_parse(bad[i], &id), -EINVAL);
	assert_int_equal(id.bytes[0], 7);
}

static void test_id_is_null_zero(void **state)
{
	struct id id = {0};

	(void)state;
	assert_true(id_is_null(&id));
	id.bytes[15] = 1;
	assert_false(id_is_null(&id));
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_id_random_is_version_4),
	cmocka_unit_test(test_id_format_known_bytes),
	cmocka_unit_test(test_id_parse_other_forms_are_refused),
	cmocka_unit_test(test_id_is_null_zero),
};
TEST_MAIN(tests)
