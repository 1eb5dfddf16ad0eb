#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"

#include "supervisor/log_relay.h"
#include "tests/lib/test.h"

/* Standard error goes to a file while the relay writes. */
static void feed(const char *bytes, size_t size, char *ret_text, size_t text_bytes)
{
	struct log_relay relay = LOG_RELAY_NULL;
	struct test_temp temp;
	int saved = fd_dup(STDERR_FILENO, 10);
	int fd;
	ssize_t n;

	test_temp_init(&temp);
	fd = openat(temp.fd, "log", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	assert_true(fd >= 0 && saved >= 0);
	assert_int_equal(dup2(fd, STDERR_FILENO), STDERR_FILENO);
	relay.from = "worker";
	log_relay_feed(&relay, bytes, size);
	assert_int_equal(dup2(saved, STDERR_FILENO), STDERR_FILENO);
	n = pread(fd, ret_text, text_bytes - 1, 0);
	assert_true(n >= 0);
	ret_text[n] = '\0';
	(void)fd_close(fd);
	(void)fd_close(saved);
	test_temp_done(&temp);
}

static void test_log_relay_feed_lines_carry_their_origin(void **state)
{
	char text[256];

	(void)state;
	feed("one\ntwo\nrest", 12, text, sizeof(text));
	assert_string_equal(text, "from=worker one\nfrom=worker two\n");
}

static void test_log_relay_feed_control_bytes_are_replaced(void **state)
{
	char text[256];

	(void)state;
	feed("a\033[31m\r\0b\xc2\x9b\n", 12, text, sizeof(text));
	assert_string_equal(text, "from=worker a?[31m??b??\n");
}

static void test_log_relay_feed_long_line_is_cut(void **state)
{
	char line[3 * LOG_RELAY_LINE_BYTES];
	char text[2 * LOG_RELAY_LINE_BYTES];

	(void)state;
	memset(line, 'x', sizeof(line));
	line[sizeof(line) - 1] = '\n';
	feed(line, sizeof(line), text, sizeof(text));
	assert_int_equal(strlen(text), strlen("from=worker ") + LOG_RELAY_LINE_BYTES + 1);
}

/* A program of ours speaks in records; who it is says the pipe, not the record. */
static void test_log_relay_feed_records_get_our_form(void **state)
{
	struct log_record record = {
		.magic = LOG_RECORD_MAGIC, .level = LOG_LEVEL_INFO, .message = "wor\033d"};
	char bytes[2 * sizeof(record) + 8];
	char text[1024];

	(void)state;
	log_record_set_fields(&record, "a=1 program=sandboxd");
	memcpy(bytes, &record, sizeof(record));
	memcpy(bytes + sizeof(record), "text\n", 5);
	memcpy(bytes + sizeof(record) + 5, &record, sizeof(record));
	feed(bytes, 2 * sizeof(record) + 5, text, sizeof(text));
	assert_non_null(strstr(text, "level=info program=worker pid=0 msg=\"wor?d\" a=1 "
				     "program=sandboxd\nfrom=worker text\nfrom=worker time="));
	assert_memory_equal(text, "from=worker time=", 17);
}

/* What begins as one and is none is dropped, and the stream goes on. */
static void test_log_relay_feed_false_record_is_dropped(void **state)
{
	char bytes[sizeof(struct log_record) + 3];
	char text[256];

	(void)state;
	memset(bytes, 'x', sizeof(bytes));
	bytes[0] = 0x1e;
	memcpy(bytes + sizeof(struct log_record), "on\n", 3);
	feed(bytes, sizeof(bytes), text, sizeof(text));
	assert_string_equal(text, "from=worker on\n");
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_log_relay_feed_records_get_our_form),
	cmocka_unit_test(test_log_relay_feed_false_record_is_dropped),
	cmocka_unit_test(test_log_relay_feed_lines_carry_their_origin),
	cmocka_unit_test(test_log_relay_feed_control_bytes_are_replaced),
	cmocka_unit_test(test_log_relay_feed_long_line_is_cut),
};

TEST_MAIN(tests)
