#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/io.h"

#include "tests/lib/test.h"

static void test_io_read_exact_early_end_is_epipe(void **state)
{
	char data[8];
	int fds[2];

	(void)state;
	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	assert_int_equal(io_write_all(fds[1], "1234567", 7), 0);
	assert_int_equal(io_read_exact(fds[0], data, 4), 0);
	assert_memory_equal(data, "1234", 4);
	fds[1] = fd_close(fds[1]);
	assert_int_equal(io_read_exact(fds[0], data, 4), -EPIPE);
	assert_int_equal(io_read_exact(fds[0], data, 0), 0);
	(void)fd_close(fds[0]);
}

static void test_io_read_nothing_there_is_eagain(void **state)
{
	char data[8];
	int fds[2];

	(void)state;
	assert_int_equal(pipe2(fds, O_CLOEXEC | O_NONBLOCK), 0);
	assert_int_equal(io_read(fds[0], data, sizeof(data)), -EAGAIN);
	assert_int_equal(io_write(fds[1], "x", 1), 1);
	assert_int_equal(io_read(fds[0], data, sizeof(data)), 1);
	fds[1] = fd_close(fds[1]);
	assert_int_equal(io_read(fds[0], data, sizeof(data)), 0);
	(void)fd_close(fds[0]);
}

static void test_io_read_file_bounds(void **state)
{
	struct test_temp temp;
	char large[9001];
	char *data = NULL;
	size_t size = 0;
	int fd;

	(void)state;
	test_temp_init(&temp);
	memset(large, 'x', sizeof(large) - 1);
	large[sizeof(large) - 1] = '\0';
	test_temp_write(&temp, "large", large);
	test_temp_write(&temp, "empty", "");
	fd = openat(temp.fd, "large", O_RDONLY | O_CLOEXEC);
	assert_int_equal(io_read_file(fd, 8999, &data, &size), -EFBIG);
	assert_null(data);
	assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
	assert_int_equal(io_read_file(fd, 9000, &data, &size), 0);
	assert_int_equal(size, 9000);
	assert_string_equal(data, large);
	free(data);
	(void)fd_close(fd);
	fd = openat(temp.fd, "empty", O_RDONLY | O_CLOEXEC);
	assert_int_equal(io_read_file(fd, 0, &data, &size), 0);
	assert_int_equal(size, 0);
	assert_string_equal(data, "");
	free(data);
	(void)fd_close(fd);
	test_temp_done(&temp);
}

static void test_io_at_round_trip(void **state)
{
	struct test_temp temp;
	char text[16];

	(void)state;
	test_temp_init(&temp);
	test_temp_write(&temp, "file", "");
	assert_int_equal(io_write_at(temp.fd, "file", "42\n"), 0);
	assert_int_equal(io_read_at(temp.fd, "file", text, sizeof(text)), 2);
	assert_string_equal(text, "42");
	assert_int_equal(io_read_at(temp.fd, "file", text, 3), -EFBIG);
	assert_int_equal(io_read_at(temp.fd, "none", text, sizeof(text)), -ENOENT);
	assert_int_equal(io_write_at(temp.fd, "none", "1"), -ENOENT);
	assert_int_equal(symlinkat("file", temp.fd, "link"), 0);
	assert_int_equal(io_write_at(temp.fd, "link", "1"), -ELOOP);
	test_temp_done(&temp);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_io_read_exact_early_end_is_epipe),
	cmocka_unit_test(test_io_read_nothing_there_is_eagain),
	cmocka_unit_test(test_io_read_file_bounds),
	cmocka_unit_test(test_io_at_round_trip),
};
TEST_MAIN(tests)
