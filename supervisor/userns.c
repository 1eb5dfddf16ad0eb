#include "supervisor/userns.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <linux/nsfs.h>
#include <linux/securebits.h>

#include "base/fd.h"
#include "base/io.h"
#include "base/str.h"

#include "sandboxd/kernel.h"
#include "sandboxd/limits.h"
#include "supervisor/rlimits.h"
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
	{"/proc/sys/user/max_inotify_instances", "128"  }, /* B20 */
	{"/proc/sys/user/max_inotify_watches",   "65536"},
	{"/proc/sys/user/max_fanotify_groups",   "0"    },
	{"/proc/sys/user/max_fanotify_marks",    "0"    },
};

/* The namespace counts for whoever makes it: what is used inside is charged to that id of the host
 * as well, and held against the limits that the maker has at that moment. Every capability stays,
 * for hosts that let nobody else make user namespaces. */
static int become_owner(uint32_t owner)
{
	if (weakened(WEAKEN_USERNS_OWNER))
		return 0;
	if (prctl(PR_SET_SECUREBITS, SECBIT_KEEP_CAPS | SECBIT_NO_SETUID_FIXUP, 0, 0, 0) < 0)
		return -errno;
	if (syscall(SYS_setresgid, owner, owner, owner) < 0 ||
	    syscall(SYS_setresuid, owner, owner, owner) < 0)
		return -errno;
	return rlimits_lower_counted();
}

static int make_namespace(uint32_t owner)
{
	int r = become_owner(owner);

	if (r < 0)
		return r;
	return unshare(CLONE_NEWUSER) < 0 ? -errno : 0;
}

/*
 * Runs as: a copy of the supervisor, then the owner's id with the supervisor's capabilities, then
 * uid 0 of the new user namespace, all capabilities there and none outside; all other namespaces
 * are the supervisor's. Must: raw system calls only. The exit status says how many ceilings could
 * not be set.
 */
static void __attribute__((noreturn)) helper(int talk_fd, uint32_t owner)
{
	char byte = 0;
	int n_failed = 0;
	int r = make_namespace(owner);

	if (write(talk_fd, &r, sizeof(r)) != (ssize_t)sizeof(r) || r < 0)
		_exit(100);
	/* End of file instead of a byte: the supervisor died or could not write the maps. */
	if (read(talk_fd, &byte, 1) != 1)
		_exit(101);
	/* The sysctls ask for the namespace's own root. */
	if (syscall(SYS_setresgid, 0, 0, 0) < 0 || syscall(SYS_setresuid, 0, 0, 0) < 0)
		_exit(102);
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

/* Of the kernel: this is the helper's new namespace, and it counts for the block. */
static int check_owner(int fd, uint32_t owner)
{
	uid_t found = 0;

	if (weakened(WEAKEN_USERNS_OWNER))
		return 0;
	if (ioctl(fd, NS_GET_OWNER_UID, &found) < 0)
		return -errno;
	return found == owner ? 0 : -EPERM;
}

/* When the helper says that it is in its namespace, which is waited for: give it its ids and let it
 * go on. */
static int map_and_open(struct userns_helper *helper, struct userns *userns)
{
	struct pollfd said = {.fd = helper->talk_fd, .events = POLLIN};
	int r = 0;

	if (poll(&said, 1, HELPER_TIMEOUT_MS) <= 0)
		return -ETIMEDOUT;
	/* Less than a word: it was killed. A negative one says why there is no namespace. */
	if (read(helper->talk_fd, &r, sizeof(r)) != (ssize_t)sizeof(r))
		return -EPERM;
	if (r < 0)
		return r;
	r = open_namespace(helper->pid);
	if (r < 0)
		return r;
	userns->fd = r;
	r = check_owner(userns->fd, userns->base + SESSION_SHIM_OFFSET);
	if (r < 0)
		return r;
	r = write_map(helper->pid, "uid_map", userns->base);
	if (r < 0)
		return r;
	r = write_map(helper->pid, "gid_map", userns->base);
	if (r < 0)
		return r;
	r = io_write_all(helper->talk_fd, "m", 1);
	if (r < 0)
		return r;
	helper->talk_fd = fd_close(helper->talk_fd);
	return 0;
}

/* Clone the helper of a namespace to come. It waits for its maps: see map_and_open. */
static int begin(struct idblock *idblock, struct userns *ret_userns,
		 struct userns_helper *ret_helper, struct err *err)
{
	int fds[2] = {-1, -1};
	int pid_fd = -1;
	uint32_t base = 0;

	int r = idblock_take(idblock, clock_boottime(), &base);
	if (r < 0)
		return err_fail(err, r, "user-namespace", "take an id block");
	base = weaken_base(idblock, base);
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0) {
		r = -errno;
		idblock_release(idblock, base, clock_boottime());
		return err_fail(err, r, "user-namespace", "socketpair");
	}
	AUTO_CLOSE int ours = fds[0];
	AUTO_CLOSE int theirs = fds[1];
	struct clone_args args = {.flags = CLONE_PIDFD, .pidfd = (uintptr_t)&pid_fd};
	pid_t pid = kernel_clone3(&args);
	if (pid == 0) {
		/* Else the helper itself would keep its peer open when the supervisor dies. */
		(void)close(ours);
		helper(theirs, base + SESSION_SHIM_OFFSET);
	}
	if (pid < 0) {
		r = -errno;
		idblock_release(idblock, base, clock_boottime());
		return err_fail(err, r, "user-namespace", "clone");
	}
	*ret_userns = (struct userns){.fd = -1, .base = base};
	*ret_helper =
		(struct userns_helper){.pid = pid, .pid_fd = pid_fd, .talk_fd = TAKE_FD(ours)};
	return 0;
}

void userns_release(struct userns_reserve *reserve, struct userns *userns)
{
	userns->fd = fd_close(userns->fd);
	if (userns->base != 0)
		idblock_release(reserve->idblock, userns->base, clock_boottime());
	userns->base = 0;
}

/* Wait for the helper's end. r: what came of the maps. After a failure nothing is held. */
static int finish(struct userns_reserve *reserve, struct userns_helper *helper,
		  struct userns *userns, int r)
{
	if (r < 0)
		(void)kernel_pidfd_send_signal(helper->pid_fd, SIGKILL);
	int result = helper_result(helper->pid_fd);
	helper->pid_fd = fd_close(helper->pid_fd);
	helper->talk_fd = fd_close(helper->talk_fd);
	if (r == 0 && result == 0)
		return 0;
	/* A process lives on under these ids: the block stays in use as long as this instance. */
	if (result == -ETIMEDOUT)
		userns->base = 0;
	userns_release(reserve, userns);
	return r < 0 ? r : result;
}

/* The helper in preparation has ended, or is waited for. r: what came of the maps. */
static int settle(struct userns_reserve *reserve, int r)
{
	reserve->next_source = loop_remove(reserve->next_source);
	r = finish(reserve, &reserve->helper, &reserve->next, r);
	if (r < 0)
		return r;
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
	if (settle(reserve, 0) == 0)
		begin_next(reserve);
	return 0;
}

/* It has its namespace, or is gone. */
static int on_helper_word(void *userdata, uint32_t events)
{
	struct userns_reserve *reserve = userdata;

	(void)events;
	reserve->next_source = loop_remove(reserve->next_source);
	int r = map_and_open(&reserve->helper, &reserve->next);
	if (r == 0)
		r = loop_add(reserve->loop, reserve->helper.pid_fd, EPOLLIN, on_helper_end, reserve,
			     &reserve->next_source);
	if (r < 0)
		(void)settle(reserve, r);
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
	if (reserve->helper.pid_fd >= 0 || reserve->n_ready >= least(reserve))
		return;
	if (begin(reserve->idblock, &reserve->next, &reserve->helper, NULL) < 0)
		return;
	int r = loop_add(reserve->loop, reserve->helper.talk_fd, EPOLLIN, on_helper_word, reserve,
			 &reserve->next_source);
	if (r < 0)
		(void)settle(reserve, r);
}

int userns_reserve_init(struct userns_reserve *reserve, struct loop *loop, struct idblock *idblock)
{
	*reserve = USERNS_RESERVE_NULL;
	reserve->loop = loop;
	reserve->idblock = idblock;
	return loop_add_timer(loop, USEC_NEVER, on_pause_end, reserve, &reserve->pause);
}

/* Now, whatever the helper in preparation is at. */
static void settle_at_once(struct userns_reserve *reserve)
{
	bool is_mapped = reserve->helper.talk_fd < 0;

	/* Before its descriptor may be closed. */
	reserve->next_source = loop_remove(reserve->next_source);
	(void)settle(reserve, is_mapped ? 0 : map_and_open(&reserve->helper, &reserve->next));
}

int userns_take(struct userns_reserve *reserve, struct userns *ret_userns, struct err *err)
{
	struct userns userns = USERNS_NULL;
	struct userns_helper helper = USERNS_HELPER_NULL;

	if (reserve->n_ready == 0 && reserve->helper.pid_fd >= 0)
		settle_at_once(reserve);
	if (reserve->n_ready > 0) {
		*ret_userns = reserve->ready[0]; /* first in, first out, as the id blocks */
		reserve->n_ready--;
		memmove(reserve->ready, reserve->ready + 1,
			reserve->n_ready * sizeof(reserve->ready[0]));
		return 0;
	}
	int r = begin(reserve->idblock, &userns, &helper, err);
	if (r < 0)
		return r;
	r = map_and_open(&helper, &userns);
	r = finish(reserve, &helper, &userns, r);
	if (r < 0)
		return err_fail(err, r, "user-namespace", "make it, map it or set its ceilings");
	*ret_userns = userns;
	return 0;
}

void userns_reserve_done(struct userns_reserve *reserve)
{
	reserve->pause = loop_remove(reserve->pause);
	if (reserve->helper.pid_fd >= 0)
		settle_at_once(reserve);
	while (reserve->n_ready > 0)
		userns_release(reserve, &reserve->ready[--reserve->n_ready]);
}
