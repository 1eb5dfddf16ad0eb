#include <errno.h>
#include <jansson.h>
#include <string.h>

#include "base/str.h"

#include "supervisor/api/jobs/command_log.h"
#include "tests/lib/test.h"

/* Between two frames there is room for what the end adds. */
#define SEQ(number) ((number)*4)

static void put(struct command_log *log, uint64_t number, bool is_stderr, const char *text,
		struct command_event **ret_event)
{
	assert_int_equal(command_log_output(log, number, is_stderr, (const uint8_t *)text,
					    strlen(text), ret_event),
			 0);
}

static void assert_event(const struct command_event *event, uint64_t seq,
			 enum command_event_kind kind, const char *text)
{
	assert_non_null(event);
	assert_int_equal(event->seq, seq);
	assert_int_equal(event->kind, kind);
	assert_int_equal(event->size, strlen(text));
	assert_memory_equal(event->data, text, strlen(text));
}

static void test_command_log_output_a_character_is_not_cut(void **state)
{
	struct command_event *event;
	struct command_log log;

	(void)state;
	command_log_init(&log);
	put(&log, 1, false, "a\xe2\x82", &event);
	assert_event(event, SEQ(1), COMMAND_EVENT_STDOUT, "a");
	/* The other stream's has its own beginning. */
	put(&log, 2, true, "\xc3", &event);
	assert_null(event);
	put(&log, 3, false, "\xac!", &event);
	assert_event(event, SEQ(3), COMMAND_EVENT_STDOUT, "\xe2\x82\xac!");
	put(&log, 4, true, "\xa4", &event);
	assert_event(event, SEQ(4), COMMAND_EVENT_STDERR, "\xc3\xa4");
	command_log_done(&log);
}

static void test_command_log_end_what_was_begun_comes_before_it(void **state)
{
	const struct wire_exit exit_info = {.code = 3};
	struct command_event *event;
	struct command_log log;

	(void)state;
	command_log_init(&log);
	put(&log, 5, true, "\xf0\x9f", &event);
	assert_null(event);
	assert_int_equal(
		command_log_end(&log, 9, COMMAND_EVENT_EXIT, &exit_info, sizeof(exit_info)), 0);
	event = command_log_first(&log);
	assert_int_equal(event->kind, COMMAND_EVENT_STDERR);
	assert_int_equal(event->size, 2);
	event = command_log_next(&log, event);
	assert_int_equal(event->kind, COMMAND_EVENT_EXIT);
	assert_int_equal(event->seq, log.seq);
	assert_null(command_log_next(&log, event));
	command_log_done(&log);
}

static void test_command_log_end_without_a_number_has_one(void **state)
{
	struct command_event *event;
	struct command_log log;

	(void)state;
	command_log_init(&log);
	put(&log, 7, false, "x", &event);
	assert_int_equal(command_log_end(&log, 0, COMMAND_EVENT_LOST, "memory", 7), 0);
	assert_true(log.seq > SEQ(7));
	assert_non_null(command_log_after(&log, SEQ(7)));
	command_log_done(&log);
}

static void test_command_log_after_is_the_first_behind(void **state)
{
	struct command_event *event;
	struct command_log log;

	(void)state;
	command_log_init(&log);
	for (uint64_t number = 2; number <= 10; number += 2)
		put(&log, number, false, "x", &event);
	assert_int_equal(command_log_after(&log, 0)->seq, SEQ(2));
	assert_int_equal(command_log_after(&log, SEQ(4))->seq, SEQ(6));
	assert_int_equal(command_log_after(&log, SEQ(5))->seq, SEQ(6));
	assert_null(command_log_after(&log, SEQ(10)));
	assert_null(command_log_after(&log, UINT64_MAX));
	command_log_done(&log);
}

static void test_command_log_drop_first_is_counted(void **state)
{
	struct command_event *event;
	struct command_log log;
	size_t cost;

	(void)state;
	command_log_init(&log);
	put(&log, 1, false, "one", &event);
	cost = command_event_cost(event);
	put(&log, 2, false, "two", &event);
	assert_int_equal(log.bytes, cost + command_event_cost(event));
	command_log_drop_first(&log);
	assert_int_equal(log.dropped, SEQ(1));
	assert_int_equal(log.bytes, command_event_cost(event));
	assert_ptr_equal(command_log_first(&log), event);
	command_log_dropped(&log, 1);
	assert_int_equal(log.dropped, SEQ(1));
	command_log_done(&log);
}

static void assert_format(const struct command_event *event, const char *text)
{
	struct buf out = BUF_NULL(4096);

	assert_int_equal(command_event_format(&out, event), 0);
	assert_string_equal(buf_text(&out), text);
	buf_done(&out);
}

static void test_command_text_format_control_characters_are_no_text(void **state)
{
	static const struct {
		uint8_t byte;
		size_t n;
		int is_text;
	} table[] = {
		{0,    64,   1},
                {0,    4096, 0},
                {0x1b, 4096, 0},
		{'\v', 4096, 0},
                {'\n', 4096, 1},
                {'\b', 4096, 1},
	};
	uint8_t data[4096];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		struct buf out = BUF_NULL(sizeof(data) * 8);

		memset(data, table[i].byte, sizeof(data));
		assert_int_equal(command_text_format(&out, data, table[i].n), table[i].is_text);
		assert_int_equal(out.size > 0, table[i].is_text);
		buf_done(&out);
	}
}

static void test_command_event_format_text_where_it_is_utf8(void **state)
{
	struct command_event *event;
	struct command_log log;

	(void)state;
	command_log_init(&log);
	put(&log, 1, false, "\xc3\xa4\"\n\x01", &event);
	assert_format(event, "{\"type\":\"stdout\",\"seq\":4,\"text\":\"\xc3\xa4\\\"\\n\\u0001\"}");
	put(&log, 2, true, "\xff", &event);
	assert_format(event, "{\"type\":\"stderr\",\"seq\":8,\"data\":\"/w==\"}");
	command_log_done(&log);
}

static void test_command_text_format_every_byte_comes_back(void **state)
{
	uint8_t data[2048];
	size_t size = 0;
	struct buf out = BUF_NULL(sizeof(data) * 8);
	json_t *text;

	(void)state;
	/* Each byte below 0x80 behind enough letters, and characters of two to four bytes. */
	for (unsigned int byte = 0; byte < 0x80; byte++) {
		memset(data + size, 'x', 8);
		size += 8;
		data[size++] = (uint8_t)byte;
	}
	memcpy(data + size, "\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80", 9);
	size += 9;
	assert_int_equal(command_text_format(&out, data, size), 1);
	text = json_loadb((const char *)out.data, out.size, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
	assert_non_null(text);
	assert_int_equal(json_string_length(text), size);
	assert_memory_equal(json_string_value(text), data, size);
	json_decref(text);
	buf_done(&out);
	/* One byte too few: nothing is added. */
	out = BUF_NULL(4);
	assert_int_equal(command_text_format(&out, (const uint8_t *)"a\n\"", 3), -EMSGSIZE);
	assert_int_equal(out.size, 0);
	assert_int_equal(command_text_format(&out, (const uint8_t *)"", 0), 1);
	buf_done(&out);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_command_log_output_a_character_is_not_cut),
		cmocka_unit_test(test_command_log_end_what_was_begun_comes_before_it),
		cmocka_unit_test(test_command_log_end_without_a_number_has_one),
		cmocka_unit_test(test_command_log_after_is_the_first_behind),
		cmocka_unit_test(test_command_log_drop_first_is_counted),
		cmocka_unit_test(test_command_event_format_text_where_it_is_utf8),
		cmocka_unit_test(test_command_text_format_control_characters_are_no_text),
		cmocka_unit_test(test_command_text_format_every_byte_comes_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
