/*
 * The identity of a shim: an id that the user namespace does not map is kept when it is entered,
 * the namespace then gives every capability over itself, and nobody inside can take that id (B24).
 * With max_user_namespaces 0 no further namespace can be made below (B1).
 */
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <linux/securebits.h>

#include "base/io.h"
#include "base/str.h"

#include "sandboxd/kernel.h"
#include "sandboxd/limits.h"
#include "tests/kernel/kernel.h"

/* Far above every block that is handed out. */
#define BASE 0xf0000000u

static void __attribute__((noreturn)) helper(int barrier_fd)
{
	char byte = 0;

	if (read(barrier_fd, &byte, 1) != 1)
		_exit(1);
	if (setresgid(0, 0, 0) < 0 || setresuid(0, 0, 0) < 0)
		_exit(2);
	_exit(io_write_at(AT_FDCWD, "/proc/sys/user/max_user_namespaces", "0") < 0 ? 3 : 0);
}

static int make_namespace(void)
{
	int fds[2];
	char path[64];
	char map[64];
	int status = 0;
	struct clone_args args = {.flags = CLONE_NEWUSER, .exit_signal = SIGCHLD};

	KERNEL_CHECK(pipe2(fds, O_CLOEXEC) == 0);
	pid_t pid = kernel_clone3(&args);
	if (pid == 0)
		helper(fds[0]);
	KERNEL_CHECK(pid > 0);
	KERNEL_CHECK(str_format(map, sizeof(map), "0 %u %d\n", BASE, IDBLOCK_MAPPED) == 0);
	KERNEL_CHECK(str_format(path, sizeof(path), "/proc/%d/uid_map", (int)pid) == 0);
	KERNEL_CHECK(io_write_at(AT_FDCWD, path, map) == 0);
	KERNEL_CHECK(str_format(path, sizeof(path), "/proc/%d/gid_map", (int)pid) == 0);
	KERNEL_CHECK(io_write_at(AT_FDCWD, path, map) == 0);
	KERNEL_CHECK(str_format(path, sizeof(path), "/proc/%d/ns/user", (int)pid) == 0);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	KERNEL_CHECK(fd >= 0);
	KERNEL_CHECK(io_write_all(fds[1], "m", 1) == 0);
	KERNEL_CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	return -fd;
}

int main(void)
{
	const unsigned int id = BASE + SESSION_SHIM_OFFSET;

	if (geteuid() != 0)
		return KERNEL_SKIP;
	int namespace_fd = -make_namespace();
	KERNEL_CHECK(namespace_fd > 0);
	KERNEL_CHECK(prctl(PR_SET_SECUREBITS, SECBIT_KEEP_CAPS | SECBIT_NO_SETUID_FIXUP, 0, 0, 0) ==
		     0);
	KERNEL_CHECK(syscall(SYS_setresgid, id, id, id) == 0);
	KERNEL_CHECK(syscall(SYS_setresuid, id, id, id) == 0);
	KERNEL_CHECK(setns(namespace_fd, CLONE_NEWUSER) == 0);
	KERNEL_CHECK(getuid() == 65534);
	/* Securebits and bounding set begin anew in there: what is locked must be locked after it.
	 */
	KERNEL_CHECK(prctl(PR_GET_SECUREBITS, 0, 0, 0, 0) == 0);
	KERNEL_CHECK(prctl(PR_CAPBSET_READ, 21 /* SYS_ADMIN */, 0, 0, 0) == 1);
	KERNEL_CHECK(setresuid(id, id, id) < 0 && errno == EINVAL);
	KERNEL_CHECK(unshare(CLONE_NEWUSER) < 0 && errno == ENOSPC);
	KERNEL_CHECK(setresuid(1000, 1000, 1000) == 0);
	return 0;
}
