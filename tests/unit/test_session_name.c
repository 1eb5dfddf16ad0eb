#include <string.h>

#include "base/id.h"
#include "base/session_name.h"

#include "tests/lib/test.h"

static bool valid(const char *text)
{
	return session_name_valid(text, strlen(text));
}

static void test_session_name_characters_and_length(void **state)
{
	static const char *const good[] = {"web", "z", "0x", "a.b", "my_job-2", "cafe.", "1.0"};
	static const char *const bad[] = {"",    ".web", "-web", "_web", "Web",
					  "w b", "w/b",  "w%b",  "wéb",  "web\n"};
	char text[SESSION_NAME_MAX + 2] = "";

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(good); i++)
		assert_true(valid(good[i]));
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_false(valid(bad[i]));
	assert_false(session_name_valid("we\0b", 4));
	memset(text, 'x', SESSION_NAME_MAX);
	assert_true(valid(text));
	text[SESSION_NAME_MAX] = 'x';
	assert_false(valid(text));
}

static void test_session_name_is_no_beginning_of_an_id(void **state)
{
	struct id id = {0};
	char text[ID_TEXT_BYTES];

	(void)state;
	assert_false(valid("cafe"));
	assert_false(valid("dead-beef"));
	assert_true(valid("dead-beefs"));
	assert_int_equal(id_random(&id), 0);
	id_format(&id, text);
	for (size_t n = 1; n < sizeof(text); n++)
		assert_false(session_name_valid(text, n));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_session_name_characters_and_length),
		cmocka_unit_test(test_session_name_is_no_beginning_of_an_id),
	};
	int n_before = test_begin();

	return test_end(n_before, cmocka_run_group_tests(tests, NULL, NULL));
}
