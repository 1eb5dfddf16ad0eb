/*
 * Theory. What reads an image is a process that has nothing to lose: its root is an empty tmpfs,
 * its namespaces are its own, no path leads anywhere. It gets one folder, as a mount of its own on
 * which no link is followed, and one source, each as a descriptor. The mounts are mapped through
 * its user namespace, so that there, and only there, it acts as the owner of what images say is
 * root's; its ids on the host are those of a block that nobody has. A file system that cannot be
 * mapped gets the block's ids instead; what is plain there all the same is removed under its own.
 *
 * The order of the child's steps:
 *
 *   root          needs SYS_ADMIN over the new mount namespace
 *   descriptors   only now: until here any low number may be one of the host's
 *   user          from here on it is nobody on the host; all capabilities are of that namespace
 *   privileges    three of them stay: to give files to their owners, and to go on writing there
 *   death signal  after the change of ids, which clears it; then whether the parent lives
 *   limits        last: of memory it has more until its exec
 *
 * Namespaces but the user's belong to the host, so it could not mount even if it tried.
 */
#include "supervisor/template/jail.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <linux/capability.h>
#include <linux/keyctl.h>

#include "base/io.h"
#include "base/str.h"

#include "sandboxd/kernel.h"
#include "supervisor/privileges.h"
#include "supervisor/rlimits.h"
#include "supervisor/rootfs_mount.h"
#include "supervisor/signals.h"

#define PROGRAM        "sandbox-template"
#define POLICY         "policy.img"
#define HIGH_FD        64
#define CLOSE_ON_EXEC_ 4U /* CLOSE_RANGE_CLOEXEC */
#define END_TIMEOUT_MS 5000
#define MEMORY_BYTES   (512ull * 1024 * 1024) /* what the widest windows of compressors need */
#define CPU_S          3600
#define FILES_MAX      64
#define KEPT           (1ull << CAP_CHOWN | 1ull << CAP_DAC_OVERRIDE | 1ull << CAP_FOWNER)
#define MOUNT_BITS                                                                                 \
	(MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC | MOUNT_ATTR_NOSYMFOLLOW)

struct jail_child {
	const struct jail *jail;
	int program_fd;
	int policy_fd;
	int userns_fd;
	int tree_fd;   /* the mount */
	int source_fd; /* the mount, the stream, or /dev/null */
	int null_fd;
	int report_fd;
	int error_fd;
	int reader_fd; /* the parent's end of report_fd */
};
#define JAIL_CHILD_NULL                                                                            \
	((struct jail_child){.program_fd = -1,                                                     \
			     .policy_fd = -1,                                                      \
			     .userns_fd = -1,                                                      \
			     .tree_fd = -1,                                                        \
			     .source_fd = -1,                                                      \
			     .null_fd = -1,                                                        \
			     .report_fd = -1,                                                      \
			     .error_fd = -1,                                                       \
			     .reader_fd = -1})

static void child_done(struct jail_child *child)
{
	int *const fds[] = {&child->program_fd, &child->policy_fd, &child->userns_fd,
			    &child->tree_fd,    &child->source_fd, &child->null_fd,
			    &child->report_fd,  &child->error_fd};

	for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
		*fds[i] = fd_close(*fds[i]);
}

/* --- the child: a copy of root's process, no log, no return --- */

static int step_session(const struct jail_child *child, struct err *err)
{
	int r = signals_reset();

	/* Low as it may be: now, before another one is placed there. */
	(void)fd_close(child->reader_fd);
	if (r < 0)
		return err_fail(err, r, "jail-session", "signals");
	if (setsid() < 0)
		return err_fail(err, -errno, "jail-session", "setsid");
	(void)umask(022);
	return 0;
}

/* /usr is the mount point for a moment, because every host has it. */
static int step_root(const struct jail_child *child, struct err *err)
{
	static const struct rootfs_option options[] = {
		{"mode",      "0555"},
                {"nr_inodes", "1"   }
        };
	AUTO_CLOSE int root_fd = -1;
	int r;

	(void)child;
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return err_fail(err, -errno, "jail-root", "make mounts private");
	root_fd =
		rootfs_mount("tmpfs", options, ARRAY_SIZE(options), MOUNT_BITS | MOUNT_ATTR_RDONLY);
	if (root_fd < 0)
		return err_fail(err, root_fd, "jail-root", "make a tmpfs");
	r = rootfs_attach(root_fd, AT_FDCWD, "/usr");
	if (r == 0)
		r = rootfs_pivot(root_fd);
	return r < 0 ? err_fail(err, r, "jail-root", "enter the empty root") : 0;
}

static int step_descriptors(const struct jail_child *child, struct err *err)
{
	const struct {
		int from;
		int to;
	} rows[] = {
		{child->source_fd, TEMPLATE_FD_SOURCE},
                {child->report_fd, TEMPLATE_FD_REPORT},
		{child->null_fd,   STDERR_FILENO     },
                {child->tree_fd,   TEMPLATE_FD_TREE  },
		{child->policy_fd, TEMPLATE_FD_POLICY},
	};

	if (syscall(SYS_close_range, 0U, ~0U, CLOSE_ON_EXEC_) < 0)
		return err_fail(err, -errno, "jail-descriptors", "close_range");
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		if (dup2(rows[i].from, rows[i].to) < 0)
			return err_fail(err, -errno, "jail-descriptors", "place %d", rows[i].to);
	}
	return 0;
}

static int step_limits(const struct jail_child *child, struct err *err)
{
	static const struct {
		__rlimit_resource_t resource;
		uint64_t value;
	} rows[] = {
		{RLIMIT_CORE,   RLIMITS_NO_CORE},
		{RLIMIT_AS,     MEMORY_BYTES   },
		{RLIMIT_CPU,    CPU_S          },
		{RLIMIT_NOFILE, FILES_MAX      },
	};

	(void)child;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		int r = rlimits_lower(rows[i].resource, rows[i].value);

		if (r < 0)
			return err_fail(err, r, "jail-limits", "number %zu", i);
	}
	return 0;
}

static int step_user(const struct jail_child *child, struct err *err)
{
	if (setgroups(0, NULL) < 0)
		return err_fail(err, -errno, "jail-user", "setgroups");
	if (setns(child->userns_fd, CLONE_NEWUSER) < 0)
		return err_fail(err, -errno, "jail-user", "setns");
	if (setresgid(0, 0, 0) < 0 || setresuid(0, 0, 0) < 0)
		return err_fail(err, -errno, "jail-user", "become its root");
	/* It is a copy of root's memory until the exec. */
	if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
		return err_fail(err, -errno, "jail-user", "PR_SET_DUMPABLE");
	if (syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL) < 0)
		return err_fail(err, -errno, "jail-user", "join a new keyring");
	return 0;
}

static int step_privileges(const struct jail_child *child, struct err *err)
{
	(void)child;
	return privileges_keep(KEPT, err);
}

static int step_last(const struct jail_child *child, struct err *err)
{
	struct pollfd report = {.fd = child->report_fd};

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return err_fail(err, -errno, "jail-last", "PR_SET_NO_NEW_PRIVS");
	if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
		return err_fail(err, -errno, "jail-last", "PR_SET_PDEATHSIG");
	/* It is outside of our PID namespace. Who dies closes what it has, then tells its children:
	 * nobody told us if its end of the pipe was there just now. */
	if (poll(&report, 1, 0) != 0)
		return err_fail(err, -EPIPE, "jail-last", "the parent has ended");
	return 0;
}

static int step_exec(const struct jail_child *child, struct err *err)
{
	/* The words are the caller's, which an exec does not change. */
	union {
		const char *in;
		char *out;
	} word;
	char name[] = PROGRAM;
	char *argv[JAIL_WORDS_MAX + 2] = {name};
	char *env[] = {NULL};

	for (size_t i = 0; i < JAIL_WORDS_MAX && child->jail->word[i]; i++) {
		word.in = child->jail->word[i];
		argv[i + 1] = word.out;
	}
	(void)kernel_execveat(child->program_fd, argv, env);
	return err_fail(err, -errno, "jail-exec", "execveat " PROGRAM);
}

static int (*const steps[])(const struct jail_child *child, struct err *err) = {
	step_session,    step_root, step_descriptors, step_user,
	step_privileges, step_last, step_limits,      step_exec,
};

static _Noreturn void run_child(const struct jail_child *child)
{
	struct err err = ERR_NULL;

	for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
		if (steps[i](child, &err) < 0)
			break;
	}
	IGNORE_RESULT(io_write_all(child->error_fd, &err, sizeof(err)));
	_exit(127);
}

/* --- the parent --- */

static int write_map(pid_t pid, const char *file, uint32_t base)
{
	char path[64];
	char map[64];
	int r = str_format(path, sizeof(path), "/proc/%d/%s", (int)pid, file);

	if (r == 0)
		r = str_format(map, sizeof(map), "0 %u %u\n", base, TEMPLATE_ID_LAST + 1);
	return r < 0 ? r : io_write_at(AT_FDCWD, path, map);
}

static int map_and_open(pid_t pid, uint32_t base)
{
	char path[64];
	int r = write_map(pid, "uid_map", base);

	if (r == 0)
		r = write_map(pid, "gid_map", base);
	if (r == 0)
		r = str_format(path, sizeof(path), "/proc/%d/ns/user", (int)pid);
	if (r < 0)
		return r;
	r = open(path, O_RDONLY | O_CLOEXEC);
	return r < 0 ? -errno : r;
}

/* The namespace of a child that only waits. The descriptor or -errno. */
static int make_userns(uint32_t base)
{
	struct clone_args args = {.flags = CLONE_NEWUSER, .exit_signal = SIGCHLD};
	pid_t parent = getpid();
	pid_t pid = kernel_clone3(&args);
	int fd;

	if (pid == 0) {
		if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != parent)
			_exit(1);
		for (;;)
			(void)pause();
	}
	if (pid < 0)
		return -errno;
	fd = map_and_open(pid, base);
	/* Our own unreaped child. */
	(void)kill(pid, SIGKILL);
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		continue;
	return fd;
}

/* A mount of that folder alone. *ret_mapped: through the namespace, if there is one. The descriptor
 * or -errno. */
static int clone_folder(int folder_fd, int userns_fd, uint64_t bits, bool *ret_mapped)
{
	struct mount_attr attr = {.attr_set = MOUNT_ATTR_IDMAP, .userns_fd = (uint32_t)userns_fd};
	AUTO_CLOSE int fd =
		open_tree(folder_fd, "", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH);
	int r;

	if (fd < 0)
		return -errno;
	*ret_mapped =
		userns_fd >= 0 && mount_setattr(fd, "", AT_EMPTY_PATH, &attr, sizeof(attr)) == 0;
	/* Of its kind, or mapped already: this one cannot be. */
	if (userns_fd >= 0 && !*ret_mapped && errno != EINVAL && errno != EPERM)
		return -errno;
	r = rootfs_set_attr(fd, bits, 0);
	return r < 0 ? r : TAKE_FD(fd);
}

/* The first of its ids on the host. */
static uint32_t id_base_of(const struct jail *jail)
{
	return jail->owners == JAIL_OWNERS_PLAIN ? TEMPLATE_OWNERS_PLAIN : TEMPLATE_ID_BASE;
}

/* The folder, and whose it is. */
static int give_tree(struct jail *jail, struct jail_child *child)
{
	bool mapped = false;
	int userns_fd = jail->owners == JAIL_OWNERS_ANY ? child->userns_fd : -1;
	int fd = clone_folder(jail->tree_fd, userns_fd, MOUNT_BITS, &mapped);
	uint32_t base = mapped ? TEMPLATE_OWNERS_PLAIN : id_base_of(jail);

	if (fd < 0)
		return fd;
	child->tree_fd = fd;
	jail->id_base = base;
	return fchown(jail->tree_fd, base, base) < 0 ? -errno : 0;
}

static int give_source(const struct jail *jail, struct jail_child *child)
{
	struct stat st;
	bool mapped;
	int fd;

	if (jail->source_fd < 0) {
		fd = fd_dup(child->null_fd, HIGH_FD);
	} else {
		if (fstat(jail->source_fd, &st) < 0)
			return -errno;
		fd = S_ISDIR(st.st_mode) ? clone_folder(jail->source_fd, child->userns_fd,
							MOUNT_BITS | MOUNT_ATTR_RDONLY, &mapped)
					 : fd_dup(jail->source_fd, HIGH_FD);
	}
	child->source_fd = fd;
	return fd < 0 ? fd : 0;
}

/* What lies beside this program. */
static int open_beside(const char *name)
{
	char path[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);
	AUTO_CLOSE int folder_fd = -1;
	char *slash;
	int fd;

	if (n < 0)
		return -errno;
	path[n] = '\0';
	slash = strrchr(path, '/');
	if (!slash)
		return -ENOENT;
	slash[1] = '\0';
	folder_fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (folder_fd < 0)
		return -errno;
	fd = openat(folder_fd, name, O_RDONLY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

/* Above every number that the child places. */
static int lift(int *fd)
{
	int high = *fd < 0 ? *fd : fd_dup(*fd, HIGH_FD);

	if (*fd >= 0)
		(void)fd_close(*fd);
	*fd = high;
	return high < 0 ? high : 0;
}

static int prepare(struct jail *jail, struct jail_child *child, struct err *err)
{
	int *const lifted[] = {&child->program_fd, &child->policy_fd, &child->userns_fd,
			       &child->null_fd,    &child->tree_fd,   &child->source_fd};
	int r;

	child->program_fd = open_beside(PROGRAM);
	if (child->program_fd < 0)
		return err_fail(err, child->program_fd, "jail", "open " PROGRAM);
	child->policy_fd = open_beside(POLICY);
	if (child->policy_fd < 0)
		return err_fail(err, child->policy_fd, "jail", "open " POLICY);
	child->null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (child->null_fd < 0)
		return err_fail(err, -errno, "jail", "open /dev/null");
	child->userns_fd = make_userns(id_base_of(jail));
	if (child->userns_fd < 0)
		return err_fail(err, child->userns_fd, "jail", "make a user namespace");
	r = give_tree(jail, child);
	if (r < 0)
		return err_fail(err, r, "jail", "give it the folder");
	r = give_source(jail, child);
	if (r < 0)
		return err_fail(err, r, "jail", "give it the source");
	for (size_t i = 0; i < ARRAY_SIZE(lifted); i++) {
		r = lift(lifted[i]);
		if (r < 0)
			return err_fail(err, r, "jail", "copy a descriptor");
	}
	return 0;
}

/* The reading ends are the caller's. */
static int make_pipes(struct jail_child *child, int *ret_report_fd, int *ret_error_fd)
{
	int *const reading[] = {ret_report_fd, ret_error_fd};
	int *const writing[] = {&child->report_fd, &child->error_fd};

	for (size_t i = 0; i < ARRAY_SIZE(reading); i++) {
		int fds[2];
		int r;

		if (pipe2(fds, O_CLOEXEC) < 0)
			return -errno;
		*reading[i] = fds[0];
		*writing[i] = fds[1];
		r = lift(writing[i]);
		if (r < 0)
			return r;
	}
	return 0;
}

/* Until it has ended. 0, -EINTR, or -errno. */
static int wait_for(const struct jail *jail, int pid_fd)
{
	struct pollfd ends[] = {
		{.fd = pid_fd,          .events = POLLIN},
                {.fd = jail->signal_fd, .events = POLLIN}
        };
	siginfo_t info;
	int r = 0;

	while (!(ends[0].revents & POLLIN) && !(ends[1].revents & POLLIN)) {
		if (poll(ends, ARRAY_SIZE(ends), -1) < 0 && errno != EINTR)
			return -errno;
	}
	if (!(ends[0].revents & POLLIN)) {
		(void)kernel_pidfd_send_signal(pid_fd, SIGKILL);
		/* Stuck in the kernel, it is left to the next one to remove what it made. */
		if (poll(ends, 1, END_TIMEOUT_MS) <= 0)
			return -ETIMEDOUT;
		r = -EINTR;
	}
	if (waitid(P_PIDFD, (id_t)pid_fd, &info, WEXITED) < 0)
		return -errno;
	return r;
}

static int read_report(int report_fd, int error_fd, struct template_report *ret_report,
		       struct err *err)
{
	struct template_report report = {0};
	struct err step = ERR_NULL;

	if (io_read_exact(error_fd, &step, sizeof(step)) == 0) {
		err_sanitize(&step);
		*err = step;
		return step.error_number > 0 ? -step.error_number : -EIO;
	}
	if (io_read_exact(report_fd, &report, sizeof(report)) < 0)
		return err_fail(err, -EPIPE, "jail",
				PROGRAM " ended without a word: out of memory or time");
	if (report.magic != TEMPLATE_REPORT_MAGIC || report.error >= TEMPLATE_E_MAX_)
		return err_fail(err, -EPROTO, "jail", PROGRAM " said what it cannot say");
	report.name[sizeof(report.name) - 1] = '\0';
	for (size_t i = 0; report.name[i] != '\0'; i++) {
		if (report.name[i] < ' ' || report.name[i] > '~')
			report.name[i] = '?';
	}
	*ret_report = report;
	return 0;
}

static int start(struct jail_child *child, int *ret_pid_fd, struct err *err)
{
	int pid_fd = -1;
	struct clone_args args = {
		.flags = CLONE_PIDFD | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC |
			 CLONE_NEWUTS | CLONE_NEWCGROUP,
		.pidfd = (uint64_t)(uintptr_t)&pid_fd,
		.exit_signal = SIGCHLD,
	};
	pid_t pid = kernel_clone3(&args);

	if (pid < 0)
		return err_fail(err, -errno, "jail", "clone3");
	if (pid == 0)
		run_child(child);
	*ret_pid_fd = pid_fd;
	return 0;
}

static int run(const struct jail *jail, struct jail_child *child,
	       struct template_report *ret_report, struct err *err)
{
	AUTO_CLOSE int report_fd = -1;
	AUTO_CLOSE int error_fd = -1;
	AUTO_CLOSE int pid_fd = -1;
	int r = make_pipes(child, &report_fd, &error_fd);

	if (r < 0)
		return err_fail(err, r, "jail", "pipe");
	child->reader_fd = report_fd;
	r = start(child, &pid_fd, err);
	child->reader_fd = -1;
	if (r < 0)
		return r;
	/* Else the end of a pipe would never come. */
	child_done(child);
	r = wait_for(jail, pid_fd);
	if (r < 0)
		return err_fail(err, r, "jail", "wait for " PROGRAM);
	return read_report(report_fd, error_fd, ret_report, err);
}

int jail_run(struct jail *jail, struct template_report *ret_report, struct err *err)
{
	struct jail_child child = JAIL_CHILD_NULL;
	int r;

	child.jail = jail;
	r = prepare(jail, &child, err);
	if (r == 0)
		r = run(jail, &child, ret_report, err);
	child_done(&child);
	return r;
}
