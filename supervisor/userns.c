#include "supervisor/userns.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/io.h"
#include "base/str.h"

#include "sandboxd/kernel.h"
#include "sandboxd/limits.h"
#include "supervisor/weaken.h"

#define HELPER_TIMEOUT_MS 1000
#define REFILL_PAUSE_US   (4 * USEC_PER_MS)

/* What a session may make of each kind, in its own user namespace and below. */
static const struct userns_ceiling {
	const char *file;
	const char *value;
} ceilings[] = {
	{"/proc/sys/user/max_user_namespaces",   "0"    }, /* B1 */
	{"/proc/sys/user/max_pid_namespaces",    "0"    },
	{"/proc/sys/user/max_net_namespaces",    "0"    },
	{"/proc/sys/user/max_mnt_namespaces",    "0"    },
	{"/proc/sys/user/max_ipc_namespaces",    "0"    },
	{"/proc/sys/user/max_uts_namespaces",    "0"    },
	{"/proc/sys/user/max_cgroup_namespaces", "0"    },
	{"/proc/sys/user/max_time_namespaces",   "0"    },
	{"/proc/sys/user/max_inotify_instances", "256"  }, /* B20 */
	{"/proc/sys/user/max_inotify_watches",   "65536"},
	{"/proc/sys/user/max_fanotify_groups",   "0"    },
	{"/proc/sys/user/max_fanotify_marks",    "0"    },
};

/*
 * Runs as: host id 0 at first (unmapped), then uid 0 of the new user namespace, all capabilities
 * there and none outside; all other namespaces are the supervisor's. Must: raw system calls only,
 * it is a copy of the supervisor. The exit status says how many ceilings could not be set.
 */
static void __attribute__((noreturn)) helper(int barrier_fd)
{
	char byte = 0;
	int n_failed = 0;

	/* End of file instead of a byte: the supervisor died or could not write the maps. */
	if (read(barrier_fd, &byte, 1) != 1)
		_exit(100);
	/* The sysctls ask for the namespace's own root. */
	if (syscall(SYS_setresgid, 0, 0, 0) < 0 || syscall(SYS_setresuid, 0, 0, 0) < 0)
		_exit(101);
	for (size_t i = 0; i < ARRAY_SIZE(ceilings); i++) {
		if (weakened(WEAKEN_USERNS_CEILING))
			break;
		int fd = open(ceilings[i].file, O_WRONLY | O_CLOEXEC);
		/* ENOENT: this kernel has no such object, so none can be made. */
		if (fd < 0 && errno == ENOENT)
			continue;
		size_t length = strlen(ceilings[i].value);
		if (fd < 0 || write(fd, ceilings[i].value, length) != (ssize_t)length)
			n_failed++;
	}
	_exit(n_failed);
}

static int write_map(pid_t pid, const char *file, uint32_t base)
{
	char path[64];
	char map[64];

	int r = str_format(path, sizeof(path), "/proc/%d/%s", (int)pid, file);
	if (r < 0)
		return r;
	r = str_format(map, sizeof(map), "0 %u %d\n", base, IDBLOCK_MAPPED);
	if (r < 0)
		return r;
	return io_write_at(AT_FDCWD, path, map);
}

static int open_namespace(pid_t pid)
{
	char path[64];

	int r = str_format(path, sizeof(path), "/proc/%d/ns/user", (int)pid);
	if (r < 0)
		return r;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

/* Wait for the helper, half a millisecond, or for none at all: 0 when every ceiling is set.
 * -ETIMEDOUT: it does not even end when it is killed, and keeps its ids. */
static int helper_result(int pid_fd)
{
	struct pollfd ended = {.fd = pid_fd, .events = POLLIN};
	siginfo_t info = {0};

	if (poll(&ended, 1, HELPER_TIMEOUT_MS) <= 0) {
		(void)kernel_pidfd_send_signal(pid_fd, SIGKILL);
		if (poll(&ended, 1, HELPER_TIMEOUT_MS) <= 0)
			return -ETIMEDOUT;
	}
	if (waitid(P_PIDFD, (id_t)pid_fd, &info, WEXITED | WNOHANG | __WALL) < 0)
		return -errno;
	return info.si_code == CLD_EXITED && info.si_status == 0 ? 0 : -EPERM;
}

static int map_and_open(pid_t pid, int barrier_fd, uint32_t base, int *ret_fd)
{
	int r = write_map(pid, "uid_map", base);
	if (r < 0)
		return r;
	r = write_map(pid, "gid_map", base);
	if (r < 0)
		return r;
	r = open_namespace(pid);
	if (r < 0)
		return r;
	AUTO_CLOSE int fd = r;
	r = io_write_all(barrier_fd, "m", 1);
	if (r < 0)
		return r;
	*ret_fd = TAKE_FD(fd);
	return 0;
}

/* Clone the helper and map its namespace. The helper goes on by itself; see helper_result. */
static int begin(struct idblock *idblock, struct userns *ret_userns, int *ret_pid_fd,
		 struct err *err)
{
	int pipe_fds[2] = {-1, -1};
	int pid_fd = -1;
	int fd = -1;
	uint32_t base = 0;
	bool stuck = false;

	int r = idblock_take(idblock, clock_boottime(), &base);
	if (r < 0)
		return err_fail(err, r, "user-namespace", "take an id block");
	base = weaken_base(idblock, base);
	if (pipe2(pipe_fds, O_CLOEXEC) < 0) {
		r = -errno;
		idblock_release(idblock, base, clock_boottime());
		return err_fail(err, r, "user-namespace", "pipe");
	}
	AUTO_CLOSE int barrier_read_fd = pipe_fds[0];
	AUTO_CLOSE int barrier_write_fd = pipe_fds[1];
	struct clone_args args = {
		.flags = CLONE_NEWUSER | CLONE_PIDFD,
		.pidfd = (uintptr_t)&pid_fd,
	};
	pid_t pid = kernel_clone3(&args);
	if (pid == 0) {
		/* Else the helper itself would keep the barrier open when the supervisor dies. */
		(void)close(barrier_write_fd);
		helper(barrier_read_fd);
	}
	r = pid < 0 ? -errno : map_and_open(pid, barrier_write_fd, base, &fd);
	if (r < 0) {
		if (pid > 0) {
			(void)kernel_pidfd_send_signal(pid_fd, SIGKILL);
			stuck = helper_result(pid_fd) == -ETIMEDOUT;
			pid_fd = fd_close(pid_fd);
		}
		if (!stuck)
			idblock_release(idblock, base, clock_boottime());
		return err_fail(err, r, "user-namespace", "clone or map");
	}
	*ret_userns = (struct userns){.fd = fd, .base = base};
	*ret_pid_fd = pid_fd;
	return 0;
}

void userns_release(struct userns_reserve *reserve, struct userns *userns)
{
	userns->fd = fd_close(userns->fd);
	if (userns->base != 0)
		idblock_release(reserve->idblock, userns->base, clock_boottime());
	userns->base = 0;
}

/* Of a namespace whose helper failed. */
static void discard(struct userns_reserve *reserve, struct userns *userns, int result)
{
	/* A process lives on under these ids: the block stays in use as long as this instance. */
	if (result == -ETIMEDOUT)
		userns->base = 0;
	userns_release(reserve, userns);
}

/* The helper in preparation has ended, or is waited for. */
static int settle(struct userns_reserve *reserve)
{
	int r = helper_result(reserve->next_pid_fd);

	reserve->next_source = loop_remove(reserve->next_source);
	reserve->next_pid_fd = fd_close(reserve->next_pid_fd);
	if (r < 0) {
		discard(reserve, &reserve->next, r);
		return r;
	}
	reserve->ready[reserve->n_ready++] = reserve->next;
	reserve->next = USERNS_NULL;
	return 0;
}

static void begin_next(struct userns_reserve *reserve);

static int on_helper_end(void *userdata, uint32_t events)
{
	struct userns_reserve *reserve = userdata;

	(void)events;
	/* A failure shows again, with its reason, when a launch finds the reserve empty; until then
	 * nothing is gained by trying over and over. */
	if (settle(reserve) == 0)
		begin_next(reserve);
	return 0;
}

static int on_pause_end(void *userdata, uint32_t events)
{
	struct userns_reserve *reserve = userdata;

	(void)events;
	begin_next(reserve);
	return 0;
}

void userns_reserve_refill(struct userns_reserve *reserve)
{
	if (reserve->n_ready < reserve->want / 4)
		begin_next(reserve);
	else if (reserve->n_ready < reserve->want)
		loop_timer_set(reserve->pause, clock_add(clock_boottime(), REFILL_PAUSE_US));
}

/* Beside launches only what keeps the next ones from making theirs themselves. */
static uint32_t least(const struct userns_reserve *reserve)
{
	return reserve->n_launches > 0 ? reserve->want / 4 : reserve->want;
}

static void begin_next(struct userns_reserve *reserve)
{
	if (reserve->next_pid_fd >= 0 || reserve->n_ready >= least(reserve))
		return;
	if (begin(reserve->idblock, &reserve->next, &reserve->next_pid_fd, NULL) < 0)
		return;
	int r = loop_add(reserve->loop, reserve->next_pid_fd, EPOLLIN, on_helper_end, reserve,
			 &reserve->next_source);
	if (r < 0)
		(void)settle(reserve);
}

int userns_reserve_init(struct userns_reserve *reserve, struct loop *loop, struct idblock *idblock)
{
	*reserve = USERNS_RESERVE_NULL;
	reserve->loop = loop;
	reserve->idblock = idblock;
	return loop_add_timer(loop, USEC_NEVER, on_pause_end, reserve, &reserve->pause);
}

int userns_take(struct userns_reserve *reserve, struct userns *ret_userns, struct err *err)
{
	struct userns userns = USERNS_NULL;
	int pid_fd = -1;

	if (reserve->n_ready == 0 && reserve->next_pid_fd >= 0)
		(void)settle(reserve);
	if (reserve->n_ready > 0) {
		*ret_userns = reserve->ready[0]; /* first in, first out, as the id blocks */
		reserve->n_ready--;
		memmove(reserve->ready, reserve->ready + 1,
			reserve->n_ready * sizeof(reserve->ready[0]));
		return 0;
	}
	int r = begin(reserve->idblock, &userns, &pid_fd, err);
	if (r < 0)
		return r;
	r = helper_result(pid_fd);
	pid_fd = fd_close(pid_fd);
	if (r < 0) {
		discard(reserve, &userns, r);
		return err_fail(err, r, "user-namespace", "set its ceilings");
	}
	*ret_userns = userns;
	return 0;
}

void userns_reserve_done(struct userns_reserve *reserve)
{
	reserve->pause = loop_remove(reserve->pause);
	if (reserve->next_pid_fd >= 0)
		(void)settle(reserve);
	while (reserve->n_ready > 0)
		userns_release(reserve, &reserve->ready[--reserve->n_ready]);
}
