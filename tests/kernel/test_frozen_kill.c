/*
 * A process is cloned straight into a v2 group; frozen there, cgroup.kill still ends it at once,
 * and cgroup.events then says that the group is empty (E2).
 */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/io.h"

#include "sandboxd/kernel.h"
#include "supervisor/cgroup.h"
#include "supervisor/cgroup_find.h"
#include "tests/kernel/kernel.h"

static int try_group(int group_fd)
{
	int pid_fd = -1;
	siginfo_t info = {0};
	struct clone_args args = {
		.flags = (uint64_t)CLONE_PIDFD | CLONE_INTO_CGROUP,
		.pidfd = (uintptr_t)&pid_fd,
		.cgroup = (uint32_t)group_fd,
	};

	pid_t pid = kernel_clone3(&args);
	if (pid == 0) {
		for (;;)
			(void)pause();
	}
	KERNEL_CHECK(pid > 0);
	int events_fd = openat(group_fd, "cgroup.events", O_RDONLY | O_CLOEXEC);
	KERNEL_CHECK(events_fd >= 0);
	KERNEL_CHECK(cgroup_populated(events_fd) == 1);
	KERNEL_CHECK(io_write_at(group_fd, "cgroup.freeze", "1") == 0);
	KERNEL_CHECK(io_write_at(group_fd, "cgroup.kill", "1") == 0);
	struct pollfd wait_for = {.fd = pid_fd, .events = POLLIN};
	KERNEL_CHECK(poll(&wait_for, 1, 2000) == 1);
	/* exit_signal 0: only __WALL sees it. */
	KERNEL_CHECK(waitid(P_PIDFD, (id_t)pid_fd, &info, WEXITED) < 0 && errno == ECHILD);
	KERNEL_CHECK(waitid(P_PIDFD, (id_t)pid_fd, &info, WEXITED | __WALL) == 0);
	KERNEL_CHECK(info.si_code == CLD_KILLED && info.si_status == SIGKILL);
	KERNEL_CHECK(cgroup_populated(events_fd) == 0);
	return 0;
}

int main(void)
{
	char name[48];

	if (geteuid() != 0)
		return KERNEL_SKIP;
	int own_fd = cgroup_find_own(NULL, NULL);
	if (own_fd < 0)
		return KERNEL_SKIP;
	(void)snprintf(name, sizeof(name), "sandboxd-kernel-test-%d", (int)getpid());
	KERNEL_CHECK(mkdirat(own_fd, name, 0755) == 0);
	int group_fd = openat(own_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int r = group_fd < 0 ? 1 : try_group(group_fd);
	if (r != 0 && group_fd >= 0)
		(void)!io_write_at(group_fd, "cgroup.kill", "1");
	for (int i = 0; i < 500 && unlinkat(own_fd, name, AT_REMOVEDIR) < 0; i++)
		(void)usleep(2000);
	return r;
}
