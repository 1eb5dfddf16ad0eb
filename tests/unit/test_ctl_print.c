#include <stdlib.h>
#include <string.h>

#include "ctl/print.h"
#include "tests/lib/test.h"

/* What `pieces` become when they come one after another on a terminal. The caller frees. */
static char *escaped(const char *const *pieces, size_t n)
{
	char *text = NULL;
	size_t size = 0;
	struct print_stream stream = {.file = open_memstream(&text, &size), .escape = true};

	assert_non_null(stream.file);
	for (size_t i = 0; i < n; i++)
		print_stream_write(&stream, pieces[i], strlen(pieces[i]));
	print_stream_end(&stream);
	assert_int_equal(fclose(stream.file), 0);
	return text;
}

static void check(const char *const *pieces, size_t n, const char *wanted)
{
	char *text = escaped(pieces, n);

	assert_string_equal(text, wanted);
	free(text);
}

static void test_print_stream_write_control_sequences_are_escaped(void **state)
{
	static const char *const title[] = {"\033]0;x\007", "\033[2J\n"};

	(void)state;
	check(title, 2, "\\x1b]0;x\\x07\\x1b[2J\n");
}

static void test_print_stream_write_split_character_is_joined(void **state)
{
	static const char *const letter[] = {"gr\xc3", "\xb6\xc3", "\x9f", "e\n"};
	static const char *const check_mark[] = {"\xe2", "\x9c", "\x93"};

	(void)state;
	check(letter, 4,
	      "gr\xc3\xb6\xc3\x9f"
	      "e\n");
	check(check_mark, 3, "\xe2\x9c\x93");
}

static void test_print_stream_write_split_c1_control_is_escaped(void **state)
{
	static const char *const csi[] = {"\xc2", "\x9b"
						  "2J"};

	(void)state;
	char *text = escaped(csi, 2);
	assert_null(strstr(text, "\x9b"));
	free(text);
}

static void test_print_stream_write_cut_character_is_shown_at_the_end(void **state)
{
	static const char *const cut[] = {"a\xe2\x9c"};

	(void)state;
	check(cut, 1, "a\\xe2\\x9c");
}

static void test_print_stream_write_long_output_is_whole(void **state)
{
	enum {
		LENGTH = 100000
	};
	char *long_text = malloc(LENGTH + 1);
	const char *pieces[1] = {long_text};

	(void)state;
	assert_non_null(long_text);
	for (size_t i = 0; i < LENGTH; i += 2)
		memcpy(long_text + i, "\xc3\xb6", 2);
	long_text[LENGTH] = '\0';
	check(pieces, 1, long_text);
	free(long_text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_print_stream_write_control_sequences_are_escaped),
		cmocka_unit_test(test_print_stream_write_split_character_is_joined),
		cmocka_unit_test(test_print_stream_write_split_c1_control_is_escaped),
		cmocka_unit_test(test_print_stream_write_cut_character_is_shown_at_the_end),
		cmocka_unit_test(test_print_stream_write_long_output_is_whole),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
