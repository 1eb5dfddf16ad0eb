#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/confine.h"
#include "base/landlock.h"

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

union unix_address {
	struct sockaddr any;
	struct sockaddr_un un;
};

/* What the api worker keeps: its folder, without programs; nobody's abstract socket. */
static int folder_child(const struct test_temp *temp, const union unix_address *address,
			socklen_t size)
{
	char *const argv[] = {(char[]){"true"}, NULL};
	int socket_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int status = 0;

	if (confine_folder(temp->path) < 0 || socket_fd < 0)
		return 128;
	if (openat(temp->fd, "file", O_RDWR | O_TRUNC | O_CLOEXEC) < 0 ||
	    openat(temp->fd, "new", O_WRONLY | O_CREAT | O_CLOEXEC, 0600) < 0)
		status |= 1;
	if (renameat(temp->fd, "new", temp->fd, "newer") < 0 || unlinkat(temp->fd, "newer", 0) < 0)
		status |= 2;
	if (open("/etc/passwd", O_RDONLY | O_CLOEXEC) >= 0 || errno != EACCES)
		status |= 4;
	if (mkdirat(temp->fd, "dir", 0700) == 0 || errno != EACCES)
		status |= 8;
	if (execve("/bin/true", argv, NULL) == 0 || errno != EACCES)
		status |= 16;
	if (landlock_abi() >= 6 && (connect(socket_fd, &address->any, size) == 0 || errno != EPERM))
		status |= 32;
	if (landlock_abi() >= 6 && (kill(getppid(), 0) == 0 || errno != EPERM))
		status |= 64;
	return status;
}

static void test_confine_folder_keeps_the_folder_and_no_more(void **state)
{
	union unix_address address = {.un.sun_family = AF_UNIX};
	socklen_t size = sizeof(sa_family_t) + 1 + (socklen_t)strlen("confine-folder");
	int listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int control_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct test_temp temp;
	int status = -1;
	pid_t pid;

	(void)state;
	test_temp_init(&temp);
	test_temp_write(&temp, "file", "content");
	memcpy(address.un.sun_path + 1, "confine-folder", strlen("confine-folder"));
	assert_int_equal(bind(listen_fd, &address.any, size), 0);
	assert_int_equal(listen(listen_fd, 4), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0)
		_exit(folder_child(&temp, &address, size));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	/* The control. */
	assert_int_equal(connect(control_fd, &address.any, size), 0);
	assert_int_equal(mkdirat(temp.fd, "dir", 0700), 0);
	(void)fd_close(control_fd);
	(void)fd_close(listen_fd);
	test_temp_done(&temp);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_confine_folder_keeps_the_folder_and_no_more),
	cmocka_unit_test(test_confine_no_files_refuses_paths_and_keeps_descriptors),
};

TEST_MAIN(tests)
