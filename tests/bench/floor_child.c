/*
 * Each call stands for a step of supervisor/steps_child.c; the step's name is at the line. Nothing
 * is checked beyond success: the floor is what the kernel costs when nobody looks.
 */
#include "tests/bench/floor_child.h"

#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <linux/capability.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <linux/securebits.h>

#include "base/auto.h"

#include "sandboxd/kernel.h"
#include "sandboxd/limits.h"

enum floor_step {
	FLOOR_STEP_SYNC = 1,
	FLOOR_STEP_GROUPS,
	FLOOR_STEP_CGROUPNS,
	FLOOR_STEP_NETWORK,
	FLOOR_STEP_TMPFS,
	FLOOR_STEP_OVERLAY,
	FLOOR_STEP_DEV,
	FLOOR_STEP_PROC,
	FLOOR_STEP_PIVOT,
	FLOOR_STEP_IDS,
	FLOOR_STEP_USERNS,
	FLOOR_STEP_CAPS,
	FLOOR_STEP_LIMITS,
	FLOOR_STEP_LANDLOCK,
	FLOOR_STEP_SECCOMP,
	FLOOR_STEP_EXEC,
};

#define STEP(number, expression)                                                                   \
	do {                                                                                       \
		if ((expression) < 0)                                                              \
			_exit(number);                                                             \
	} while (0)

/* "join": the v1 groups, by the thread itself. */
static int join(const struct floor_child *child)
{
	for (size_t i = 0; i < ARRAY_SIZE(child->group_fd); i++) {
		int fd;

		if (child->group_fd[i] < 0)
			continue;
		fd = openat(child->group_fd[i], "tasks", O_WRONLY | O_CLOEXEC);
		if (fd < 0 || write(fd, "0", 1) != 1)
			return -1;
		(void)close(fd);
	}
	return 0;
}

/* "loopback" */
static int network(void)
{
	struct ifreq request = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -1;
	if (ioctl(fd, SIOCSIFFLAGS, &request) < 0)
		return -1;
	return close(fd);
}

/* "ports" */
static int sysctls(void)
{
	static const struct {
		const char *path;
		const char *value;
	} rows[] = {
		{"/proc/sys/net/ipv4/ip_unprivileged_port_start", "0"   },
		{"/proc/sys/net/ipv4/tcp_max_tw_buckets",         "4096"}
        };

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		int fd = open(rows[i].path, O_WRONLY | O_CLOEXEC);

		if (fd < 0 || write(fd, rows[i].value, strlen(rows[i].value)) < 0)
			return -1;
		(void)close(fd);
	}
	return 0;
}

/* "tmpfs": the one superblock of all writable places, built detached. */
static int tmpfs(const struct floor_child *child)
{
	static const char *const dirs[] = {"session", "session/home", "session/tmp", "tmp", "shm",
					   "r",       "r/etc"};
	int fs = (int)syscall(SYS_fsopen, "tmpfs", FSOPEN_CLOEXEC);
	int mnt;

	if (fs < 0)
		return -1;
	for (size_t i = 0; child->tmpfs_options[i]; i += 2)
		if (syscall(SYS_fsconfig, fs, FSCONFIG_SET_STRING, child->tmpfs_options[i],
			    child->tmpfs_options[i + 1], 0) < 0)
			return -1;
	if (syscall(SYS_fsconfig, fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
		return -1;
	mnt = (int)syscall(SYS_fsmount, fs, FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
	if (mnt < 0)
		return -1;
	(void)close(fs);
	if (syscall(SYS_move_mount, mnt, "", AT_FDCWD, "/s", MOVE_MOUNT_F_EMPTY_PATH) < 0)
		return -1;
	for (size_t i = 0; i < ARRAY_SIZE(dirs); i++)
		if (mkdirat(mnt, dirs[i], 0755) < 0)
			return -1;
	for (size_t i = 0; i < 3; i++)
		if (fchownat(mnt, dirs[i], child->id_base + SESSION_USER_ID,
			     child->id_base + SESSION_USER_ID, 0) < 0)
			return -1;
	return mnt;
}

/* "writable": one of its directories at its place. */
static int place(int tree_fd, const char *from, int root, const char *to)
{
	int fd = (int)syscall(SYS_open_tree, tree_fd, from, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
	int r;

	if (fd < 0)
		return -1;
	r = (int)syscall(SYS_move_mount, fd, "", root, to, MOVE_MOUNT_F_EMPTY_PATH);
	(void)close(fd);
	return r;
}

static int overlay(const char *layers)
{
	int fs = (int)syscall(SYS_fsopen, "overlay", FSOPEN_CLOEXEC);
	int mnt;

	if (fs < 0)
		return -1;
	if (syscall(SYS_fsconfig, fs, FSCONFIG_SET_STRING, "lowerdir", layers, 0) < 0 ||
	    syscall(SYS_fsconfig, fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
		return -1;
	mnt = (int)syscall(SYS_fsmount, fs, FSMOUNT_CLOEXEC,
			   MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_RDONLY);
	(void)close(fs);
	return mnt;
}

static int attach(int mount_fd, int dir_fd, const char *to)
{
	return (int)syscall(SYS_move_mount, mount_fd, "", dir_fd, to, MOVE_MOUNT_F_EMPTY_PATH);
}

/* "root" and "usr": two overlays of the session's own. */
static int roots(void)
{
	int root = overlay("s/r:e");
	int usr;

	if (root < 0 || attach(root, AT_FDCWD, "/n") < 0)
		return -1;
	usr = overlay("m:u");
	if (usr < 0 || attach(usr, root, "usr") < 0)
		return -1;
	(void)close(usr);
	return root;
}

/* "dev": a clone of the root's own directory where device nodes work, and devpts. */
static int dev(int root)
{
	struct mount_attr attr = {.attr_set = MOUNT_ATTR_NOEXEC, .attr_clr = MOUNT_ATTR_NODEV};
	int fd = (int)syscall(SYS_open_tree, root, "dev", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);

	if (fd < 0 || syscall(SYS_mount_setattr, fd, "", AT_EMPTY_PATH, &attr, sizeof(attr)) < 0 ||
	    attach(fd, root, "dev") < 0)
		return -1;
	(void)close(fd);
	return mount("pts", "/n/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC,
		     "newinstance,ptmxmode=0666,mode=620,max=16");
}

/* "proc" */
static int proc(void)
{
	return mount("proc", "/n/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC,
		     "hidepid=invisible,subset=pid");
}

static int pivot(int root)
{
	if (fchdir(root) < 0 || syscall(SYS_pivot_root, ".", ".") < 0)
		return -1;
	return umount2(".", MNT_DETACH);
}

static int caps(void)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2] = {
		{.effective = (1u << CAP_SETUID) | (1u << CAP_SETGID) | (1u << CAP_KILL),
		 .permitted = (1u << CAP_SETUID) | (1u << CAP_SETGID) | (1u << CAP_KILL),
		 .inheritable = (1u << CAP_SETUID) | (1u << CAP_SETGID) | (1u << CAP_KILL)},
		{0}
        };

	for (unsigned long cap = 0; cap <= 40; cap++)
		if (!(data[0].permitted & (cap < 32 ? 1u << cap : 0)) &&
		    prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0)
			return -1;
	return (int)syscall(SYS_capset, &header, data);
}

static int limits(void)
{
	static const struct {
		int resource;
		rlim_t value;
	} rows[] = {
		{RLIMIT_CORE,       0    },
		{RLIMIT_NOFILE,     4096 },
		{RLIMIT_MSGQUEUE,   65536},
		{RLIMIT_SIGPENDING, 256  },
		{RLIMIT_MEMLOCK,    65536}
        };

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		const struct rlimit limit = {rows[i].value, rows[i].value};

		if (setrlimit((__rlimit_resource_t)rows[i].resource, &limit) < 0)
			return -1;
	}
	return 0;
}

static int landlock(void)
{
	struct landlock_ruleset_attr attr = {.handled_access_fs = LANDLOCK_ACCESS_FS_MAKE_BLOCK};
	int fd = (int)syscall(SYS_landlock_create_ruleset, &attr, sizeof(attr), 0);
	int r;

	if (fd < 0)
		return 0; /* a kernel without Landlock: the product skips it as well */
	r = (int)syscall(SYS_landlock_restrict_self, fd, 0);
	(void)close(fd);
	return r;
}

static int seccomp(const struct floor_child *child)
{
	/* The kernel only reads the program; its struct has no const. */
	struct sock_fprog program = {.len = child->n_filter};
	const void *filter = child->filter;

	__builtin_memcpy(&program.filter, &filter, sizeof(filter));
	return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program);
}

void floor_child_run(const struct floor_child *child)
{
	static char *const argv[] = {NULL};
	const uid_t id = child->id_base + SESSION_SHIM_OFFSET;
	char byte;
	int tree, root;

	STEP(FLOOR_STEP_SYNC, read(child->sync_fd, &byte, 1) == 1 ? 0 : -1);
	STEP(FLOOR_STEP_GROUPS, join(child));
	STEP(FLOOR_STEP_CGROUPNS, unshare(CLONE_NEWCGROUP));
	STEP(FLOOR_STEP_NETWORK, network());
	STEP(FLOOR_STEP_NETWORK, sysctls());
	STEP(FLOOR_STEP_NETWORK, sethostname("sandbox", 7));
	tree = tmpfs(child);
	STEP(FLOOR_STEP_TMPFS, tree);
	root = roots();
	STEP(FLOOR_STEP_OVERLAY, root);
	STEP(FLOOR_STEP_DEV, dev(root));
	STEP(FLOOR_STEP_TMPFS, place(tree, "session", root, "session"));
	STEP(FLOOR_STEP_TMPFS, place(tree, "tmp", root, "tmp"));
	STEP(FLOOR_STEP_TMPFS, place(tree, "shm", root, "dev/shm"));
	STEP(FLOOR_STEP_PROC, proc());
	STEP(FLOOR_STEP_PIVOT, pivot(root));
	STEP(FLOOR_STEP_IDS, syscall(SYS_setgroups, 0, NULL));
	STEP(FLOOR_STEP_IDS, prctl(PR_SET_SECUREBITS, SECBIT_KEEP_CAPS | SECBIT_NO_SETUID_FIXUP));
	STEP(FLOOR_STEP_IDS, syscall(SYS_setresgid, id, id, id));
	STEP(FLOOR_STEP_IDS, syscall(SYS_setresuid, id, id, id));
	STEP(FLOOR_STEP_USERNS, setns(child->userns_fd, CLONE_NEWUSER));
	STEP(FLOOR_STEP_USERNS, syscall(SYS_keyctl, 1 /* join session keyring */, NULL, 0, 0, 0));
	STEP(FLOOR_STEP_CAPS, setsid());
	STEP(FLOOR_STEP_CAPS, caps());
	STEP(FLOOR_STEP_LIMITS, limits());
	STEP(FLOOR_STEP_LIMITS, dup3(child->ready_fd, 3, 0) == 3 || child->ready_fd == 3 ? 0 : -1);
	STEP(FLOOR_STEP_LIMITS, fcntl(3, F_SETFD, 0));
	STEP(FLOOR_STEP_LIMITS, prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	STEP(FLOOR_STEP_LANDLOCK, landlock());
	STEP(FLOOR_STEP_SECCOMP, seccomp(child));
	STEP(FLOOR_STEP_EXEC, kernel_execveat(child->program_fd, argv, argv));
	_exit(FLOOR_STEP_EXEC);
}
