#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/io.h"

#include "sandboxd/kernel.h"
#include "tests/lib/test.h"

static int open_null(void)
{
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	return fd;
}

static void test_fd_close_negative_is_ignored(void **state)
{
	(void)state;
	errno = 7;
	assert_int_equal(fd_close(-1), -1);
	assert_int_equal(errno, 7);
}

static void test_fd_close_keeps_errno(void **state)
{
	int fd = open_null();

	(void)state;
	errno = 7;
	assert_int_equal(fd_close(fd), -1);
	assert_int_equal(errno, 7);
	assert_int_equal(fcntl(fd, F_GETFD), -1);
}

static void close_twice(void *userdata)
{
	int fd = fd_dup(0, 3);

	(void)userdata;
	(void)fd_close(fd);
	(void)fd_close(fd);
}

static void test_fd_close_twice_aborts(void **state)
{
	(void)state;
	assert_true(test_aborts(close_twice, NULL));
}

static void test_fd_dup_is_cloexec_from_min(void **state)
{
	int fd AUTO_CLOSE = open_null();
	int copy AUTO_CLOSE = fd_dup(fd, 100);

	(void)state;
	assert_true(copy >= 100);
	assert_int_equal(fcntl(copy, F_GETFD), FD_CLOEXEC);
	assert_int_equal(fd_dup(-1, 0), -EBADF);
}

static void test_fd_set_flags_changes_one(void **state)
{
	int fd AUTO_CLOSE = open_null();

	(void)state;
	assert_int_equal(fd_set_cloexec(fd, 0), 0);
	assert_int_equal(fcntl(fd, F_GETFD), 0);
	assert_int_equal(fd_set_cloexec(fd, 1), 0);
	assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
	assert_int_equal(fd_set_nonblock(fd, 1), 0);
	assert_true(fcntl(fd, F_GETFL) & O_NONBLOCK);
	assert_int_equal(fd_set_nonblock(fd, 0), 0);
	assert_false(fcntl(fd, F_GETFL) & O_NONBLOCK);
	assert_int_equal(fd_set_nonblock(-1, 1), -EBADF);
}

static void test_fd_count_sees_new_one(void **state)
{
	int before = fd_count();
	int fd AUTO_CLOSE = open_null();

	(void)state;
	assert_true(before >= 3 && fd >= 0);
	assert_int_equal(fd_count(), before + 1);
}

static void close_all_and_check(void *userdata)
{
	(void)userdata;
	if (fd_close_from(3) == 0 && fcntl(3, F_GETFD) < 0 && fcntl(0, F_GETFD) >= 0)
		abort(); /* the outcome that the test waits for */
}

static void test_fd_close_from_leaves_lower(void **state)
{
	(void)state;
	assert_true(test_aborts(close_all_and_check, NULL));
}

static void test_fd_memfd_sealed_cannot_change(void **state)
{
	int fd AUTO_CLOSE = fd_memfd_sealed("test", "hello", 5, 0);
	char text[6] = "";

	(void)state;
	assert_true(fd >= 0);
	assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
	assert_int_equal(io_read_exact(fd, text, 5), 0);
	assert_string_equal(text, "hello");
	assert_int_equal(io_write(fd, "x", 1), -EPERM);
	assert_int_equal(ftruncate(fd, 0), -1);
	assert_int_equal(ftruncate(fd, 100), -1);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
}

/* The very descriptor that wrote the program runs it, and so does a copy in another process. */
static void test_fd_memfd_sealed_exec_runs(void **state)
{
	char *data AUTO_FREE = NULL;
	size_t size = 0;
	int true_fd AUTO_CLOSE = open("/bin/true", O_RDONLY | O_CLOEXEC);
	int fd AUTO_CLOSE = -1;
	int status = -1;
	pid_t pid;

	(void)state;
	assert_int_equal(io_read_file(true_fd, (size_t)16 * 1024 * 1024, &data, &size), 0);
	fd = fd_memfd_sealed("true", data, size, 1);
	assert_true(fd >= 0);
	pid = fork();
	if (pid == 0) {
		char name[] = "true";
		char *argv[] = {name, NULL};
		char *envp[] = {NULL};

		(void)kernel_execveat(fd, argv, envp);
		_exit(errno == ETXTBSY ? 26 : 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_fd_close_negative_is_ignored),
	cmocka_unit_test(test_fd_close_keeps_errno),
	cmocka_unit_test(test_fd_close_twice_aborts),
	cmocka_unit_test(test_fd_dup_is_cloexec_from_min),
	cmocka_unit_test(test_fd_set_flags_changes_one),
	cmocka_unit_test(test_fd_count_sees_new_one),
	cmocka_unit_test(test_fd_close_from_leaves_lower),
	cmocka_unit_test(test_fd_memfd_sealed_cannot_change),
	cmocka_unit_test(test_fd_memfd_sealed_exec_runs),
};
TEST_MAIN(tests)
