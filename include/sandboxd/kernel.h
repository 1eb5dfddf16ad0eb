/*
 * What glibc 2.36 and the 6.1 headers lack, and which newer features are in use. A feature newer
 * than Linux 6.1 is one bit here: probed once at start, forced off as a whole by
 * SANDBOX_KERNEL=6.1, listed by `sandboxctl doctor`. Logic asks kernel_has(); nowhere else is an
 * #ifdef or a version compared.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <linux/fs.h>
#include <linux/openat2.h>
#include <linux/sched.h>

#ifndef CLONE_INTO_CGROUP
#define CLONE_INTO_CGROUP 0x200000000ULL
#endif
/* Of struct ifinfomsg, 6.3. An older kernel passes over attributes that it does not know. */
#define KERNEL_IFLA_GSO_IPV4_MAX_SIZE 63
#ifndef PIDFD_SELF
#define PIDFD_SELF (-10000)
#endif

enum kernel_probe {
	KERNEL_PIDFD_INFO = 1u << 1,   /* PIDFD_GET_INFO with the cgroup id, 6.13 */
	KERNEL_TMPFS_IDMAP = 1u << 2,  /* idmapped tmpfs, 6.3 */
	KERNEL_USR_IDMAP = 1u << 8,    /* the file system of /usr can be idmapped */
	KERNEL_LANDLOCK = 1u << 9,     /* Landlock is in use */
	KERNEL_SLICE = 1u << 10,       /* slices of one's own, 6.12 */
	KERNEL_STATE_IDMAP = 1u << 11, /* the file system of the state directory, as of /usr */
};

static inline int kernel_clone3(struct clone_args *args)
{
	return (int)syscall(SYS_clone3, args, sizeof(*args));
}

static inline int kernel_openat2(int dir_fd, const char *path, struct open_how *how)
{
	return (int)syscall(SYS_openat2, dir_fd, path, how, sizeof(*how));
}

static inline int kernel_renameat2(int dir_fd, const char *name, int to_fd, const char *to,
				   unsigned int flags)
{
	return (int)syscall(SYS_renameat2, dir_fd, name, to_fd, to, flags);
}

static inline int kernel_pidfd_open(int pid, unsigned int flags)
{
	return (int)syscall(SYS_pidfd_open, pid, flags);
}

static inline int kernel_pidfd_send_signal(int pid_fd, int sig)
{
	return (int)syscall(SYS_pidfd_send_signal, pid_fd, sig, NULL, 0);
}

static inline int kernel_execveat(int fd, char *const argv[], char *const envp[])
{
	/* 0x1000 is AT_EMPTY_PATH: run the descriptor itself, no path is looked at. */
	return (int)syscall(SYS_execveat, fd, "", argv, envp, 0x1000);
}

/* struct sched_attr in its first published size. Its header has a type that libc's sched.h has too.
 */
struct kernel_sched {
	uint32_t size;
	uint32_t policy;
	uint64_t flags;
	int32_t nice;
	uint32_t priority;
	uint64_t slice_ns;
	uint64_t deadline[2];
};

/* How long the caller, and what it forks from now on, runs before the scheduler looks at others
 * (nanoseconds; 0: as the kernel has it). Who asks for less waits less when it is woken, and gets
 * no more of the processor. 0; -1 where the kernel has no such thing, or the service was given
 * another policy than the usual one. */
static inline int kernel_set_slice(uint64_t slice_ns)
{
	struct kernel_sched attr = {0};

	if (syscall(SYS_sched_getattr, 0, &attr, sizeof(attr), 0) < 0)
		return -1;
	/* Of the usual policy an older kernel says 0. */
	if (attr.policy != 0 || attr.slice_ns == 0)
		return -1;
	attr.slice_ns = slice_ns;
	return (int)syscall(SYS_sched_setattr, 0, &attr, 0);
}
