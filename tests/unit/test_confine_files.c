#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/confine.h"

#include "tests/lib/test.h"

/* Bits of the child's status: what went wrong. */
static int confined_child(int dir_fd, int null_fd)
{
	int status = 0;

	if (confine_no_files() < 0)
		return 64;
	if (openat(dir_fd, "file", O_RDONLY | O_CLOEXEC) >= 0 || errno != EACCES)
		status |= 1;
	if (open("/etc/passwd", O_RDONLY | O_CLOEXEC) >= 0 || errno != EACCES)
		status |= 2;
	if (openat(dir_fd, "new", O_WRONLY | O_CREAT | O_CLOEXEC, 0600) >= 0 || errno != EACCES)
		status |= 4;
	if (mkdirat(dir_fd, "dir", 0700) == 0 || errno != EACCES)
		status |= 8;
	if (unlinkat(dir_fd, "file", 0) == 0 || errno != EACCES)
		status |= 16;
	if (write(null_fd, "x", 1) != 1)
		status |= 32;
	return status;
}

static void test_confine_no_files_refuses_paths_and_keeps_descriptors(void **state)
{
	struct test_temp temp;
	int null_fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
	int status = -1;
	pid_t pid;

	(void)state;
	/* The kernel of the tests has Landlock, or this proves nothing. */
	test_temp_init(&temp);
	test_temp_write(&temp, "file", "content");
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0)
		_exit(confined_child(temp.fd, null_fd));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	/* The control: the same calls of this process succeed. */
	assert_int_equal(mkdirat(temp.fd, "dir", 0700), 0);
	assert_int_equal(unlinkat(temp.fd, "file", 0), 0);
	(void)fd_close(null_fd);
	test_temp_done(&temp);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_confine_no_files_refuses_paths_and_keeps_descriptors),
};

TEST_MAIN(tests)
