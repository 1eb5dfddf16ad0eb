#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"
#include "base/log.h"
#include "base/log_record.h"

#include "tests/lib/test.h"

/* NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables): what the last capture saw */
static char captured[8192];

/* Standard error goes to a pipe from here to capture_end. */
static int capture_begin(int *ret_read_fd)
{
	int saved_fd = fd_dup(STDERR_FILENO, 10);
	int fds[2];

	assert_true(saved_fd >= 0);
	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	assert_int_equal(dup2(fds[1], STDERR_FILENO), STDERR_FILENO);
	(void)fd_close(fds[1]);
	*ret_read_fd = fds[0];
	return saved_fd;
}

static void capture_end(int saved_fd, int read_fd)
{
	ssize_t n;

	assert_int_equal(dup2(saved_fd, STDERR_FILENO), STDERR_FILENO);
	(void)fd_close(saved_fd);
	n = io_read(read_fd, captured, sizeof(captured) - 1);
	assert_true(n >= 0);
	captured[n] = '\0';
	(void)fd_close(read_fd);
}

static void test_log_line_has_fields(void **state)
{
	struct id id = {
		{1, 2, 3}
        };
	struct log_context context = {.session = &id, .request = "r\n1"};
	int read_fd, saved_fd;

	(void)state;
	log_init("test", LOG_LEVEL_INFO);
	saved_fd = capture_begin(&read_fd);
	errno = 5;
	log_line(LOG_LEVEL_WARNING, &context, "something is odd", "count=%d", 3);
	assert_int_equal(errno, 5);
	capture_end(saved_fd, read_fd);
	assert_non_null(strstr(captured, " level=warning program=test "));
	assert_non_null(strstr(captured, " msg=\"something is odd\" "
					 "session=01020300-0000-0000-0000-000000000000 "
					 "request=r\\n1 count=3\n"));
	assert_memory_equal(captured, "time=", 5);
}

static void test_log_line_level_filters(void **state)
{
	int read_fd, saved_fd;

	(void)state;
	log_init("test", LOG_LEVEL_DEBUG);
	log_set_level(LOG_LEVEL_ERROR);
	saved_fd = capture_begin(&read_fd);
	log_line(LOG_LEVEL_WARNING, NULL, "hidden", "%s", "");
	capture_end(saved_fd, read_fd);
	assert_string_equal(captured, "");
}

static void test_log_line_long_is_one_line(void **state)
{
	char text[3000];
	int read_fd, saved_fd;

	(void)state;
	memset(text, '\n', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	log_init("test", LOG_LEVEL_INFO);
	saved_fd = capture_begin(&read_fd);
	log_line(LOG_LEVEL_INFO, NULL, "long", "value=%s", text);
	capture_end(saved_fd, read_fd);
	assert_true(strlen(captured) <= 1024);
	assert_ptr_equal(strchr(captured, '\n'), captured + strlen(captured) - 1);
}

static void test_log_err_quotes_stay_inside(void **state)
{
	struct err err = ERR_NULL;
	int read_fd, saved_fd;

	(void)state;
	(void)err_fail(&err, -EPERM, "mounts", "open \"x\"");
	log_init("test", LOG_LEVEL_INFO);
	saved_fd = capture_begin(&read_fd);
	log_err(LOG_LEVEL_ERROR, NULL, "failed", &err);
	capture_end(saved_fd, read_fd);
	assert_non_null(strstr(captured, " step=mounts errno=1 error=\"open 'x'\"\n"));
}

/* Nobody reads: the lines are lost and told of later, and nobody waited. */
static void test_log_line_does_not_wait_for_its_reader(void **state)
{
	static char swallowed[1u << 20];
	int read_fd, saved_fd;

	(void)state;
	log_init("test", LOG_LEVEL_INFO);
	saved_fd = capture_begin(&read_fd);
	for (int i = 0; i < 5000; i++)
		log_line(LOG_LEVEL_INFO, NULL, "one of many", "i=%d", i);
	assert_true(io_read(read_fd, swallowed, sizeof(swallowed) - 1) > 0);
	assert_null(strstr(swallowed, "lost"));
	log_line(LOG_LEVEL_INFO, NULL, "the next", "");
	log_line(LOG_LEVEL_INFO, NULL, "the last", "");
	capture_end(saved_fd, read_fd);
	assert_memory_equal(captured, "program=test msg=\"log lines are lost\" n=",
			    strlen("program=test msg=\"log lines are lost\" n="));
	assert_non_null(strstr(captured, "the next"));
	assert_non_null(strstr(captured, "the last"));
	assert_null(strstr(strchr(captured, '\n'), "lost"));
}

static void test_log_json_is_one_object(void **state)
{
	int read_fd, saved_fd;

	(void)state;
	log_init("test", LOG_LEVEL_INFO);
	log_set_format(LOG_FORMAT_JSON);
	saved_fd = capture_begin(&read_fd);
	log_set_request("r-1");
	log_line(LOG_LEVEL_INFO, NULL, "odd", "a=1 b=\"x y\" c=p\\q d=%s word", "\n");
	log_set_request(NULL);
	log_line(LOG_LEVEL_ERROR, NULL, "even", NULL);
	capture_end(saved_fd, read_fd);
	log_set_format(LOG_FORMAT_LOGFMT);
	assert_non_null(strstr(captured, "\"level\":\"info\",\"program\":\"test\""));
	assert_non_null(strstr(captured,
			       ",\"msg\":\"odd\",\"request\":\"r-1\",\"fields\":{\"a\":\"1\","
			       "\"b\":\"x y\",\"c\":\"p\\\\\\\\q\",\"d\":\"\\\\n\"}}\n"));
	assert_non_null(strstr(captured, "\"msg\":\"even\",\"fields\":{}}\n"));
}

static void test_log_record_from_outside_is_made_plain(void **state)
{
	struct log_record record;
	char text[LOG_JSON_BYTES + 1];
	size_t n;

	(void)state;
	memset(&record, 0xff, sizeof(record));
	memcpy(record.fields, "a=\"}\0b", 7);
	log_record_sanitize(&record);
	record.time_us = 0;
	n = log_record_json(text, &record, "test");
	assert_true(n <= LOG_JSON_BYTES);
	for (size_t i = 0; i + 1 < n; i++)
		assert_true(text[i] >= 0x20 && text[i] < 0x7f);
	assert_int_equal(text[n - 1], '\n');
	n = log_record_journal(text, &record, "test");
	text[n] = '\0';
	assert_non_null(strstr(text, "\nPRIORITY=3\nSYSLOG_IDENTIFIER=test\n"));
}

static void test_log_record_journal_has_fields(void **state)
{
	struct log_record record = {.level = LOG_LEVEL_WARNING, .message = "odd", .request = "r"};
	char text[LOG_JSON_BYTES + 1];

	(void)state;
	log_record_set_fields(&record, "step=mounts error=\"a b\" PRIORITY=0");
	text[log_record_journal(text, &record, "test")] = '\0';
	assert_string_equal(text, "MESSAGE=odd step=mounts error=\"a b\" PRIORITY=0\nPRIORITY=4\n"
				  "SYSLOG_IDENTIFIER=test\nSANDBOXD_REQUEST=r\n"
				  "SANDBOXD_FIELD_STEP=mounts\nSANDBOXD_FIELD_ERROR=a b\n"
				  "SANDBOXD_FIELD_PRIORITY=0\n");
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_log_json_is_one_object),
	cmocka_unit_test(test_log_record_from_outside_is_made_plain),
	cmocka_unit_test(test_log_record_journal_has_fields),
	cmocka_unit_test(test_log_line_has_fields),
	cmocka_unit_test(test_log_line_level_filters),
	cmocka_unit_test(test_log_line_long_is_one_line),
	cmocka_unit_test(test_log_err_quotes_stay_inside),
	cmocka_unit_test(test_log_line_does_not_wait_for_its_reader),
};
TEST_MAIN(tests)
