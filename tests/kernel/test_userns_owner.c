/*
 * What is used inside a user namespace is charged to the id outside that made it, too: namespaces
 * made by root share root's limits, one made under an id of its own does not (B20). That id has
 * every capability over the namespace for as long as it is outside, and none by itself inside.
 *
 * All of it in a user namespace that stands for the host, with limits that are soon reached, so
 * that the real host is not hurt.
 */
#include <fcntl.h>
#include <mqueue.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <sys/inotify.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <linux/capability.h>
#include <linux/securebits.h>

#include "base/io.h"
#include "base/str.h"

#include "sandboxd/kernel.h"
#include "sandboxd/limits.h"
#include "tests/kernel/kernel.h"

/* Far above every block that is handed out. */
#define BASE            0xf0000000u
#define OWNER           (BASE + SESSION_SHIM_OFFSET)
#define ALL_IDS         UINT32_MAX
#define MAX_INSTANCES   "4"
#define MAX_WATCHES     "6"
#define MAX_QUEUE_BYTES 200000 /* two queues */

static int take_id(unsigned int id, bool keep_caps)
{
	if (keep_caps &&
	    prctl(PR_SET_SECUREBITS, SECBIT_KEEP_CAPS | SECBIT_NO_SETUID_FIXUP, 0, 0, 0) < 0)
		return -errno;
	if (syscall(SYS_setresgid, id, id, id) < 0 || syscall(SYS_setresuid, id, id, id) < 0)
		return -errno;
	return 0;
}

static int drop_caps(void)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2] = {{0}};

	return syscall(SYS_capset, &header, data) < 0 ? -errno : 0;
}

static int watch(int fd, size_t i)
{
	static const char *const folders[] = {
		"/",         "/etc",         "/usr",         "/dev",         "/proc",
		"/proc/sys", "/proc/sys/fs", "/proc/sys/vm", "/proc/sys/net"};

	return i < ARRAY_SIZE(folders) ? inotify_add_watch(fd, folders[i], IN_OPEN) : 0;
}

static bool can_make_queue(size_t i)
{
	struct mq_attr attr = {.mq_maxmsg = 10, .mq_msgsize = 8192};
	char name[32];

	if (str_format(name, sizeof(name), "/owner-%zu", i) < 0)
		return false;
	mqd_t queue = mq_open(name, O_RDWR | O_CREAT | O_EXCL, 0600, &attr);
	/* It lives on, and counts, while it is open. */
	return queue != (mqd_t)-1 && mq_unlink(name) == 0;
}

/* Of each kind as much as there is. */
static void __attribute__((noreturn)) greedy(int fd)
{
	int first = inotify_init1(IN_CLOEXEC);

	for (size_t i = 0; i < 32 && watch(first, i) >= 0; i++)
		continue;
	for (size_t i = 0; i < 32 && inotify_init1(IN_CLOEXEC) >= 0; i++)
		continue;
	for (size_t i = 0; i < 200 && can_make_queue(i); i++)
		continue;
	char byte = first >= 0 ? 'h' : 'n';
	if (write(fd, &byte, 1) == 1)
		(void)!read(fd, &byte, 1);
	_exit(0);
}

/* A namespace that `owner` makes, and a greedy process in it. */
static void __attribute__((noreturn)) inside(int fd, unsigned int owner)
{
	char byte = 'u';

	if (owner != 0 && take_id(owner, true) < 0)
		_exit(1);
	/* Else /proc/PID/ns asks for power over the namespace of this program's exec. */
	if (prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) < 0 || unshare(CLONE_NEWUSER) < 0)
		_exit(1);
	if (write(fd, &byte, 1) != 1 || read(fd, &byte, 1) != 1 || take_id(1000, false) < 0)
		_exit(1);
	greedy(fd);
}

static int write_map(pid_t pid, uint32_t base, uint32_t n)
{
	static const char *const files[] = {"uid_map", "gid_map"};
	char path[64];
	char map[64];
	int r = str_format(map, sizeof(map), "0 %u %u\n", base, n);

	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(files); i++) {
		r = str_format(path, sizeof(path), "/proc/%d/%s", (int)pid, files[i]);
		if (r == 0)
			r = io_write_at(AT_FDCWD, path, map);
	}
	return r;
}

/* 0, or 1 and the failure is printed. */
static int beside_greed(unsigned int owner, bool is_hurt)
{
	int fds[2];
	char byte = 0;
	int status = 0;
	int held = inotify_init1(IN_CLOEXEC);

	KERNEL_CHECK(held >= 0);
	KERNEL_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
	pid_t pid = fork();
	if (pid == 0) {
		(void)close(fds[0]);
		inside(fds[1], owner);
	}
	KERNEL_CHECK(pid > 0 && close(fds[1]) == 0);
	KERNEL_CHECK(read(fds[0], &byte, 1) == 1 && byte == 'u');
	KERNEL_CHECK(write_map(pid, BASE, IDBLOCK_MAPPED) == 0);
	KERNEL_CHECK(write(fds[0], "m", 1) == 1);
	KERNEL_CHECK(read(fds[0], &byte, 1) == 1 && byte == 'h');
	errno = 0;
	int fd = inotify_init1(IN_CLOEXEC);
	KERNEL_CHECK(is_hurt ? fd < 0 && errno == EMFILE : fd >= 0);
	errno = 0;
	KERNEL_CHECK(is_hurt ? watch(held, 0) < 0 && errno == ENOSPC : watch(held, 0) >= 0);
	errno = 0;
	KERNEL_CHECK(is_hurt ? !can_make_queue(1000) && errno == EMFILE : can_make_queue(1000));
	KERNEL_CHECK(close(fds[0]) == 0);
	KERNEL_CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	KERNEL_CHECK(fd < 0 || close(fd) == 0);
	KERNEL_CHECK(close(held) == 0);
	return 0;
}

/* In a child, since it gives up its ids. The exit status: 0 entered, 1 refused, 2 else. */
static int enter(int namespace_fd, unsigned int id, bool is_inside)
{
	int status = 0;
	pid_t pid = fork();

	if (pid == 0) {
		if (is_inside && (take_id(id, true) < 0 || setns(namespace_fd, CLONE_NEWUSER) < 0))
			_exit(2);
		if (!is_inside && take_id(id, false) < 0)
			_exit(2);
		if (drop_caps() < 0)
			_exit(2);
		int r = is_inside
				? io_write_at(AT_FDCWD, "/proc/sys/user/max_inotify_instances", "9")
				: setns(namespace_fd, CLONE_NEWUSER);
		_exit(r < 0);
	}
	return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : 2;
}

static int powers_of_owner(void)
{
	int fds[2];
	char byte = 0;
	char path[64];

	KERNEL_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
	pid_t pid = fork();
	if (pid == 0) {
		(void)close(fds[0]);
		inside(fds[1], OWNER);
	}
	KERNEL_CHECK(pid > 0 && close(fds[1]) == 0);
	KERNEL_CHECK(read(fds[0], &byte, 1) == 1 && byte == 'u');
	KERNEL_CHECK(write_map(pid, BASE, IDBLOCK_MAPPED) == 0);
	KERNEL_CHECK(str_format(path, sizeof(path), "/proc/%d/ns/user", (int)pid) == 0);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	KERNEL_CHECK(fd >= 0);
	KERNEL_CHECK(close(fds[0]) == 0);
	KERNEL_CHECK(waitpid(pid, NULL, 0) == pid);
	KERNEL_CHECK(enter(fd, OWNER, false) == 0);
	KERNEL_CHECK(enter(fd, OWNER - 1, false) == 1);
	KERNEL_CHECK(enter(fd, OWNER, true) == 1);
	return close(fd) < 0;
}

static int host(int fd)
{
	const struct rlimit queues = {.rlim_cur = MAX_QUEUE_BYTES, .rlim_max = MAX_QUEUE_BYTES};
	char byte = 'u';

	KERNEL_CHECK(unshare(CLONE_NEWUSER) == 0);
	KERNEL_CHECK(write(fd, &byte, 1) == 1 && read(fd, &byte, 1) == 1);
	KERNEL_CHECK(unshare(CLONE_NEWIPC) == 0);
	/* What is above this namespace keeps the old limit, for this host and its sessions
	 * together.
	 */
	KERNEL_CHECK(setrlimit(RLIMIT_MSGQUEUE, &queues) == 0);
	KERNEL_CHECK(io_write_at(AT_FDCWD, "/proc/sys/user/max_inotify_instances", MAX_INSTANCES) ==
		     0);
	KERNEL_CHECK(io_write_at(AT_FDCWD, "/proc/sys/user/max_inotify_watches", MAX_WATCHES) == 0);
	if (beside_greed(0, true) != 0 || beside_greed(OWNER, false) != 0)
		return 1;
	return powers_of_owner();
}

int main(void)
{
	int fds[2];
	char byte = 0;
	int status = 0;

	if (geteuid() != 0)
		return KERNEL_SKIP;
	(void)signal(SIGPIPE, SIG_IGN);
	KERNEL_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
	pid_t pid = fork();
	if (pid == 0) {
		(void)close(fds[0]);
		_exit(host(fds[1]));
	}
	KERNEL_CHECK(pid > 0 && close(fds[1]) == 0);
	KERNEL_CHECK(read(fds[0], &byte, 1) == 1);
	int r = write_map(pid, 0, ALL_IDS);
	/* In a container whose ids are not all of them. */
	if (r == 0)
		KERNEL_CHECK(write(fds[0], "m", 1) == 1);
	KERNEL_CHECK(close(fds[0]) == 0);
	KERNEL_CHECK(waitpid(pid, &status, 0) == pid);
	return r < 0 ? KERNEL_SKIP : status != 0;
}
