#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "supervisor/api/http/lines.h"
#include "tests/lib/test.h"

struct script {
	const char *text;
	size_t size;
	size_t at;
	size_t a_time; /* bytes a read gives at most */
	int end;       /* what follows the text */
};

static ssize_t read_script(void *userdata, char *data, size_t size)
{
	struct script *script = userdata;
	size_t n = script->size - script->at;

	if (n == 0)
		return script->end;
	if (n > size)
		n = size;
	if (n > script->a_time)
		n = script->a_time;
	memcpy(data, script->text + script->at, n);
	script->at += n;
	return (ssize_t)n;
}

/* Take one line by pieces of `size`; its length. No piece but a whole empty line is empty. */
static size_t take_line(struct lines *lines, struct script *script, size_t size, char *line)
{
	size_t length = 0;
	bool ended = false;

	while (!ended) {
		ssize_t n = lines_take(lines, read_script, script, line + length, size, &ended);

		assert_true(n > 0 || (n == 0 && ended && length == 0));
		length += (size_t)n;
	}
	return length;
}

static void test_lines_take_every_length_around_the_piece_and_the_block(void **state)
{
	static const size_t lengths[] = {0,
					 1,
					 4095,
					 4096,
					 4097,
					 8191,
					 8192,
					 8193,
					 LINES_BLOCK_BYTES - 1,
					 LINES_BLOCK_BYTES,
					 LINES_BLOCK_BYTES + 1,
					 3 * LINES_BLOCK_BYTES};
	static const size_t reads[] = {1, 4096, LINES_BLOCK_BYTES};
	size_t max = 4 * LINES_BLOCK_BYTES;
	char *text = malloc(2 * max);
	char *line = malloc(max);
	struct lines *lines = malloc(sizeof(*lines));

	(void)state;
	assert_true(text && line && lines);
	for (size_t i = 0; i < ARRAY_SIZE(lengths); i++) {
		for (size_t j = 0; j < ARRAY_SIZE(reads); j++) {
			struct script script = {.text = text, .a_time = reads[j], .end = -ENODATA};
			bool ended;

			memset(lines, 0, sizeof(*lines));
			memset(text, 'a', lengths[i]);
			memcpy(text + lengths[i], "\nsecond\n", 8);
			script.size = lengths[i] + 8;
			assert_int_equal(take_line(lines, &script, 4096, line), lengths[i]);
			assert_int_equal(take_line(lines, &script, 4096, line), 6);
			assert_memory_equal(line, "second", 6);
			assert_int_equal(
				lines_take(lines, read_script, &script, line, 4096, &ended),
				-ENODATA);
		}
	}
	free(lines);
	free(line);
	free(text);
}

static void test_lines_take_waits_in_the_middle_of_a_line(void **state)
{
	struct script script = {.text = "begun", .size = 5, .a_time = 100, .end = 0};
	struct lines *lines = calloc(1, sizeof(*lines));
	char piece[16];
	bool ended;

	(void)state;
	assert_non_null(lines);
	assert_int_equal(lines_take(lines, read_script, &script, piece, sizeof(piece), &ended), 5);
	assert_false(ended);
	assert_int_equal(lines_take(lines, read_script, &script, piece, sizeof(piece), &ended), 0);
	assert_false(ended);
	script = (struct script){.text = " ended\n", .size = 7, .a_time = 100};
	assert_int_equal(lines_take(lines, read_script, &script, piece, sizeof(piece), &ended), 6);
	assert_true(ended);
	free(lines);
}

static void test_lines_take_gives_what_is_there_before_an_error(void **state)
{
	struct script script = {.text = "half", .size = 4, .a_time = 100, .end = -EIO};
	struct lines *lines = calloc(1, sizeof(*lines));
	char piece[16];
	bool ended;

	(void)state;
	assert_non_null(lines);
	assert_int_equal(lines_take(lines, read_script, &script, piece, sizeof(piece), &ended), 4);
	assert_int_equal(lines_take(lines, read_script, &script, piece, sizeof(piece), &ended),
			 -EIO);
	free(lines);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_lines_take_every_length_around_the_piece_and_the_block),
	cmocka_unit_test(test_lines_take_waits_in_the_middle_of_a_line),
	cmocka_unit_test(test_lines_take_gives_what_is_there_before_an_error),
};

TEST_MAIN(tests)
