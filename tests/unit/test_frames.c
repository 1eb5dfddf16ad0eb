#include <stdio.h>
#include <string.h>

#include "supervisor/api/jobs/frames.h"
#include "tests/lib/test.h"

static const struct id task = {
	{0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x47, 0x08, 0x89, 0x0a, 0x0b, 0x0c, 0x0d, 0x0e, 0x0f,
	 0x10}
};

static int add(struct frames *frames, enum frames_stage stage, const char *message)
{
	return frames_add(frames, stage, message, NULL, 1500000, NULL);
}

static void test_frames_add_text_and_order_of_keys(void **state)
{
	json_t *extras =
		json_pack("{s:s, s:s, s:i}", "session_id", "s", "task_id", "forged", "n", 1);
	struct frames frames;
	uint32_t seq = 0;

	(void)state;
	frames_init(&frames, &task);
	assert_int_equal(
		frames_add(&frames, FRAMES_STAGE_START, "caf\xc3\xa9\n", extras, 1500000, &seq), 0);
	assert_int_equal(seq, 1);
	assert_string_equal(
		frames.line[0].text,
		"{\"task_id\":\"01020304-0506-4708-890a-0b0c0d0e0f10\",\"stage\":\"start\","
		"\"message\":\"caf\\u00E9\\n\",\"timestamp\":1.5,\"seq\":1,"
		"\"session_id\":\"s\",\"n\":1}");
	assert_int_equal(frames.line[0].size, strlen(frames.line[0].text));
	json_decref(extras);
	frames_done(&frames);
}

static void test_frames_add_timestamp_to_the_microsecond(void **state)
{
	static const struct {
		usec_t now;
		const char *text;
	} cases[] = {
		{1795967021859254, "\"timestamp\":1795967021.859254,"},
		{1795967021859189, "\"timestamp\":1795967021.859189,"},
		{1764422886116877, "\"timestamp\":1764422886.116877,"},
		{1764422886000000, "\"timestamp\":1764422886.0,"     },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct frames frames;

		frames_init(&frames, &task);
		assert_int_equal(
			frames_add(&frames, FRAMES_STAGE_START, "m", NULL, cases[i].now, NULL), 0);
		assert_non_null(strstr(frames.line[0].text, cases[i].text));
		frames_done(&frames);
	}
}

static void test_frames_add_exactly_one_terminal(void **state)
{
	static const enum frames_stage terminal[] = {FRAMES_STAGE_DONE, FRAMES_STAGE_ERROR};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(terminal); i++) {
		struct frames frames;

		frames_init(&frames, &task);
		assert_int_equal(add(&frames, FRAMES_STAGE_START, "a"), 0);
		assert_int_equal(add(&frames, terminal[i], "b"), 0);
		for (enum frames_stage stage = 0; stage < FRAMES_STAGE_MAX_; stage++)
			assert_int_equal(add(&frames, stage, "c"), FRAMES_E_TERMINAL);
		assert_int_equal(frames.n_lines, 2);
		frames_done(&frames);
	}
}

static void test_frames_visible_only_when_settled(void **state)
{
	struct frames frames;

	(void)state;
	frames_init(&frames, &task);
	assert_int_equal(add(&frames, FRAMES_STAGE_START, "a"), 0);
	assert_int_equal(add(&frames, FRAMES_STAGE_DONE, "b"), 0);
	assert_non_null(frames_after(&frames, 0));
	assert_null(frames_next_visible(&frames, 0));
	frames_settle(&frames, 1);
	assert_int_equal(frames_next_visible(&frames, 0)->seq, 1);
	assert_null(frames_next_visible(&frames, 1));
	assert_false(frames_finished(&frames, 2));
	frames_settle(&frames, 99);
	assert_int_equal(frames_next_visible(&frames, 1)->seq, 2);
	assert_null(frames_next_visible(&frames, 2));
	assert_false(frames_finished(&frames, 1));
	assert_true(frames_finished(&frames, 2));
	frames_done(&frames);
}

static void test_frames_bounds_drop_log_frames_only_and_say_so(void **state)
{
	const struct frames_line *line;
	struct frames frames;
	uint32_t after = 0;
	int n_notes = 0;
	int n = 0;

	(void)state;
	frames_init(&frames, &task);
	frames.max_frames = 10;
	for (int i = 0; i < 25; i++)
		assert_int_equal(add(&frames, FRAMES_STAGE_LOG, "l"),
				 i < 10 ? 0 : FRAMES_E_DROPPED);
	for (int i = 0; i < 5; i++)
		assert_int_equal(add(&frames, FRAMES_STAGE_MATERIALIZE, "m"), 0);
	assert_int_equal(add(&frames, FRAMES_STAGE_DONE, "d"), 0);
	while ((line = frames_after(&frames, after))) {
		assert_int_equal(line->seq, after + 1);
		after = line->seq;
		n_notes += strstr(line->text, "15 log frames were dropped") != NULL;
		n++;
	}
	assert_int_equal(n, 17);
	assert_int_equal(n_notes, 1);
	assert_int_equal(frames.line[frames.n_lines - 1].stage, FRAMES_STAGE_DONE);
	frames_done(&frames);
}

static void test_frames_bounds_in_bytes(void **state)
{
	struct frames frames;

	(void)state;
	frames_init(&frames, &task);
	frames.max_bytes = 300;
	assert_int_equal(add(&frames, FRAMES_STAGE_LOG, "one"), 0);
	assert_int_equal(add(&frames, FRAMES_STAGE_LOG, "two"), 0);
	assert_int_equal(add(&frames, FRAMES_STAGE_LOG, "three"), FRAMES_E_DROPPED);
	assert_int_equal(add(&frames, FRAMES_STAGE_ERROR, "end"), 0);
	assert_int_equal(frames.n_lines, 4);
	assert_int_equal(frames.max_bytes, 300);
	frames_done(&frames);
}

static void test_frames_trim_leaves_what_is_not_settled(void **state)
{
	struct frames frames;
	size_t bytes;

	(void)state;
	frames_init(&frames, &task);
	for (int i = 0; i < 6; i++)
		assert_int_equal(add(&frames, FRAMES_STAGE_LOG, "l"), 0);
	bytes = frames.bytes;
	assert_int_equal(frames_trim(&frames), 0);
	frames_settle(&frames, 4);
	assert_int_equal(frames_trim(&frames), bytes / 6 * 4);
	assert_int_equal(frames.trimmed_seq, 4);
	assert_true(frames_need_store(&frames, 3));
	assert_false(frames_need_store(&frames, 4));
	assert_int_equal(frames_after(&frames, 0)->seq, 5);
	assert_int_equal(add(&frames, FRAMES_STAGE_LOG, "l"), 0);
	assert_int_equal(frames_after(&frames, 6)->seq, 7);
	frames_done(&frames);
}

static void test_frames_resume_goes_on_behind_the_stored(void **state)
{
	struct frames frames;
	uint32_t seq;

	(void)state;
	frames_init(&frames, &task);
	frames_resume(&frames, 41, false);
	assert_true(frames_need_store(&frames, 40));
	assert_int_equal(frames_add(&frames, FRAMES_STAGE_ERROR, "x", NULL, 1, &seq), 0);
	assert_int_equal(seq, 42);
	frames_done(&frames);
	frames_init(&frames, &task);
	frames_resume(&frames, 41, true);
	assert_int_equal(add(&frames, FRAMES_STAGE_LOG, "x"), FRAMES_E_TERMINAL);
	assert_true(frames_finished(&frames, 41));
	frames_done(&frames);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_frames_add_text_and_order_of_keys),
		cmocka_unit_test(test_frames_add_timestamp_to_the_microsecond),
		cmocka_unit_test(test_frames_add_exactly_one_terminal),
		cmocka_unit_test(test_frames_visible_only_when_settled),
		cmocka_unit_test(test_frames_bounds_drop_log_frames_only_and_say_so),
		cmocka_unit_test(test_frames_bounds_in_bytes),
		cmocka_unit_test(test_frames_trim_leaves_what_is_not_settled),
		cmocka_unit_test(test_frames_resume_goes_on_behind_the_stored),
	};
	int n_before = test_begin();

	return test_end(n_before, cmocka_run_group_tests(tests, NULL, NULL));
}
