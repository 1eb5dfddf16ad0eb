/*
 * Theory. A server process is forked before anything else. It enters a tiny private mount namespace
 * with /u (the host's /usr), /m (an empty mask layer), /d (the host's devices) and /r (where roots
 * are built), which is what the supervisor has as well, so that cloning it costs the same. It then
 * obeys one-byte commands and answers with microseconds. User namespaces are prepared ahead, as the
 * product's reserve is; the floor refills its own outside the measured time.
 */
#include "tests/bench/floor.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/io.h"
#include "base/sockmsg.h"
#include "base/str.h"

#include "policy/image.h"
#include "sandboxd/kernel.h"
#include "sandboxd/limits.h"
#include "tests/bench/floor_child.h"
#include "tests/bench/stats.h"

#define FLOOR_ID_BASE                                                                              \
	0x60000000u /* far from the product's blocks; one block is enough: nothing runs */
#define FLOOR_MAX_KEPT 512

struct floor {
	int server_fd;
	pid_t server;
	const char *true_path;
};

/* One cgroup hierarchy: where the server's own group is. */
struct hierarchy {
	const char *controller; /* "" for the v2 tree */
	int parent_fd;          /* the server's own group; -1: not on this host */
	int dir_fd;             /* group `floor-<pid>` in it */
};

struct kept {
	pid_t pid;
	char name[16];
};

struct server {
	struct hierarchy tree[4]; /* v2, memory, pids, cpu; dir_fd -1: not on this host */
	const struct sock_filter *filter;
	unsigned short n_filter;
	int program_fd;
	char group[32];
	unsigned int n_created;
	struct kept kept[FLOOR_MAX_KEPT];
	size_t n_kept;
};

static int write_map(pid_t pid, const char *file)
{
	char path[64], text[64];
	int fd, r;

	r = str_format(path, sizeof(path), "/proc/%d/%s", pid, file);
	if (r < 0)
		return r;
	r = str_format(text, sizeof(text), "0 %u %d\n", FLOOR_ID_BASE, IDBLOCK_MAPPED);
	if (r < 0)
		return r;
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	r = io_write_all(fd, text, strlen(text));
	(void)fd_close(fd);
	return r;
}

/* A user namespace held by its descriptor alone. */
static int userns_prepare(int *ret_fd)
{
	struct clone_args args = {.flags = CLONE_NEWUSER, .exit_signal = SIGCHLD};
	char path[64];
	int fd, r;
	pid_t pid;

	pid = kernel_clone3(&args);
	if (pid < 0)
		return -errno;
	if (pid == 0)
		for (;;)
			(void)pause();
	r = write_map(pid, "uid_map");
	if (r == 0)
		r = write_map(pid, "gid_map");
	if (r == 0)
		r = str_format(path, sizeof(path), "/proc/%d/ns/user", pid);
	fd = r == 0 ? open(path, O_RDONLY | O_CLOEXEC) : r;
	if (r == 0 && fd < 0)
		r = -errno;
	(void)kill(pid, SIGKILL);
	(void)waitpid(pid, NULL, 0);
	if (r < 0)
		return r;
	*ret_fd = fd;
	return 0;
}

/* Find the mount point of a hierarchy and our own group in it. */
static int hierarchy_find(const char *controller, char *path, size_t path_bytes)
{
	char *mounts AUTO_FREE = NULL;
	char *groups AUTO_FREE = NULL;
	char *save_mount = NULL;
	char *save_group = NULL;
	size_t size;
	const char *own = "/";
	int fd_mounts AUTO_CLOSE = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);
	int fd_groups AUTO_CLOSE = open("/proc/self/cgroup", O_RDONLY | O_CLOEXEC);

	if (io_read_file(fd_mounts, 1 << 20, &mounts, &size) < 0 ||
	    io_read_file(fd_groups, 1 << 16, &groups, &size) < 0)
		return -EIO;
	for (char *line = strtok_r(groups, "\n", &save_group); line;
	     line = strtok_r(NULL, "\n", &save_group)) {
		char *names = strchr(line, ':');
		char *group = names ? strchr(names + 1, ':') : NULL;

		if (!group)
			continue;
		*group++ = '\0';
		if (str_equal(names + 1, controller))
			own = group;
	}
	for (char *line = strtok_r(mounts, "\n", &save_mount); line;
	     line = strtok_r(NULL, "\n", &save_mount)) {
		char *tail = strstr(line, " - ");
		char *point = line;

		if (!tail)
			continue;
		for (int i = 0; i < 4 && point; i++) {
			point = strchr(point, ' ');
			point = point ? point + 1 : NULL;
		}
		if (!point)
			continue;
		*strchrnul(point, ' ') = '\0';
		if (controller[0] == '\0'
			    ? str_has_prefix(tail, " - cgroup2 ")
			    : str_has_prefix(tail, " - cgroup ") && strrchr(tail, ',') &&
				      str_equal(strrchr(tail, ',') + 1, controller))
			return str_format(path, path_bytes, "%s%s", point, own);
	}
	return -ENOENT;
}

static int hierarchy_open(struct hierarchy *tree, const char *group)
{
	char path[512];

	tree->dir_fd = -1;
	tree->parent_fd = -1;
	if (hierarchy_find(tree->controller, path, sizeof(path)) < 0)
		return 0;
	tree->parent_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (tree->parent_fd < 0)
		return -errno;
	if (mkdirat(tree->parent_fd, group, 0755) < 0 && errno != EEXIST)
		return -errno;
	tree->dir_fd = openat(tree->parent_fd, group, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return tree->dir_fd < 0 ? -errno : 0;
}

static int bind_to(const char *from, const char *to, unsigned long flags)
{
	if (mkdir(to, 0755) < 0 && errno != EEXIST)
		return -errno;
	if (mount(from, to, NULL, MS_BIND, NULL) < 0)
		return -errno;
	if (mount(NULL, to, NULL, MS_REMOUNT | MS_BIND | flags, NULL) < 0)
		return -errno;
	return 0;
}

static int make_template(void)
{
	static const char *const dirs[] = {
		"/mnt/m",     "/mnt/s",      "/mnt/n",         "/mnt/proc",  "/mnt/e",
		"/mnt/e/dev", "/mnt/e/usr",  "/mnt/e/dev/pts", "/mnt/e/etc", "/mnt/e/dev/shm",
		"/mnt/e/tmp", "/mnt/e/proc", "/mnt/e/session"};
	static const struct {
		const char *path;
		unsigned int minor;
	} nodes[] = {
		{"/mnt/e/dev/null",    3},
		{"/mnt/e/dev/zero",    5},
		{"/mnt/e/dev/full",    7},
		{"/mnt/e/dev/random",  8},
		{"/mnt/e/dev/urandom", 9}
        };

	for (size_t i = 0; i < ARRAY_SIZE(dirs); i++)
		if (mkdir(dirs[i], 0755) < 0)
			return -errno;
	for (size_t i = 0; i < ARRAY_SIZE(nodes); i++)
		if (mknod(nodes[i].path, S_IFCHR | 0666, makedev(1, nodes[i].minor)) < 0)
			return -errno;
	return 0;
}

/* The tiny root. Runs as root in the server process, in a mount namespace of its own. */
static int enter_tiny_root(void)
{
	int r;

	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return -errno;
	if (mount("floor", "/mnt", "tmpfs", MS_NOSUID, "mode=700") < 0)
		return -errno;
	r = bind_to("/usr", "/mnt/u", MS_RDONLY | MS_NOSUID | MS_NODEV);
	if (r < 0)
		return r;
	r = make_template();
	if (r < 0)
		return r;
	if (mount("proc", "/mnt/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0)
		return -errno;
	if (chdir("/mnt") < 0 || syscall(SYS_pivot_root, ".", ".") < 0 ||
	    umount2(".", MNT_DETACH) < 0)
		return -errno;
	return 0;
}

static int server_setup(struct server *server, const struct floor_options *options)
{
	static const char *const controllers[] = {"", "memory", "pids", "cpu"};
	static struct image image; /* stays mapped for the life of the server */
	const struct policy_profile *profile;
	char path[512];
	char *program AUTO_FREE = NULL;
	size_t program_bytes, n_filter;
	int image_fd AUTO_CLOSE = -1;
	int program_fd AUTO_CLOSE = -1;
	int r;

	r = str_format(path, sizeof(path), "%s/policy.img", options->libexec_dir);
	if (r < 0)
		return r;
	image_fd = open(path, O_RDONLY | O_CLOEXEC);
	if (image_fd < 0)
		return -errno;
	r = image_open(image_fd, &image, NULL);
	if (r < 0)
		return r;
	profile = image_find(&image, "component", NULL);
	if (!profile)
		return -ENOENT;
	server->filter = image_filter(&image, profile, POLICY_FILTER_COMMAND, &n_filter);
	server->n_filter = (unsigned short)n_filter;
	program_fd = open(options->sleep_path, O_RDONLY | O_CLOEXEC);
	if (program_fd < 0)
		return -errno;
	r = io_read_file(program_fd, 1 << 24, &program, &program_bytes);
	if (r < 0)
		return r;
	server->program_fd = fd_memfd_sealed("floor", program, program_bytes, 1);
	if (server->program_fd < 0)
		return server->program_fd;
	r = str_format(server->group, sizeof(server->group), "floor-%d", getpid());
	if (r < 0)
		return r;
	for (size_t i = 0; i < ARRAY_SIZE(controllers); i++) {
		server->tree[i].controller = controllers[i];
		r = hierarchy_open(&server->tree[i], server->group);
		if (r < 0)
			return r;
	}
	return enter_tiny_root();
}

static int group_make(const struct hierarchy *tree, const char *name)
{
	static const struct {
		const char *controller;
		const char *file;
		const char *value;
	} rows[] = {
		{"memory", "memory.limit_in_bytes",          "1073741824"},
		{"memory", "memory.memsw.limit_in_bytes",    "1073741824"},
		{"memory", "memory.kmem.tcp.limit_in_bytes", "134217728" },
		{"pids",   "pids.max",                       "256"       },
		{"cpu",    "cpu.cfs_quota_us",               "100000"    },
		{"cpu",    "cpu.shares",                     "1024"      }
        };
	int fd AUTO_CLOSE = -1;
	int r;

	if (tree->dir_fd < 0)
		return -1;
	if (mkdirat(tree->dir_fd, name, 0755) < 0)
		return -errno;
	fd = openat(tree->dir_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		if (str_equal(rows[i].controller, tree->controller)) {
			r = io_write_at(fd, rows[i].file, rows[i].value);
			/* A kernel without swap accounting: the product skips it as well. */
			if (r < 0 && r != -ENOENT)
				return r;
		}
	return TAKE_FD(fd);
}

static void groups_remove(const struct server *server, const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(server->tree); i++)
		for (int tries = 0; server->tree[i].dir_fd >= 0 && tries < 200; tries++) {
			if (unlinkat(server->tree[i].dir_fd, name, AT_REMOVEDIR) == 0 ||
			    errno != EBUSY)
				break;
			(void)usleep(500);
		}
}

static void kept_end(const struct server *server, const struct kept *kept)
{
	(void)kill(kept->pid, SIGKILL);
	(void)waitpid(kept->pid, NULL, 0);
	groups_remove(server, kept->name);
}

/* The measured work; the clock is the caller's. */
static int create_measured(struct server *server, struct kept *kept, int userns_fd)
{
	struct clone_args args = {.flags = CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET |
					   CLONE_NEWIPC | CLONE_NEWUTS | CLONE_INTO_CGROUP,
				  .exit_signal = SIGCHLD};
	struct floor_child child = {
		.userns_fd = userns_fd,
		.program_fd = server->program_fd,
		.id_base = FLOOR_ID_BASE,
		.filter = server->filter,
		.n_filter = server->n_filter,
		.tmpfs_options = {"size", "268435456", "nr_inodes", "65536", "mode", "755"},
	};
	int group[4] = {-1, -1, -1, -1};
	int sync[2] = {-1, -1};
	int ready[2] = {-1, -1};
	char byte = 0;
	int r;

	for (size_t i = 0; i < ARRAY_SIZE(group); i++)
		group[i] = group_make(&server->tree[i], kept->name);
	for (size_t i = 1; i < ARRAY_SIZE(group); i++)
		child.group_fd[i - 1] = group[i];
	if (pipe2(sync, O_CLOEXEC) < 0 || pipe2(ready, O_CLOEXEC) < 0)
		return -errno;
	/* As the product's plan: it waits for the child, not the child for it. */
	r = io_write_all(sync[1], "s", 1);
	if (r < 0)
		return r;
	args.cgroup = (__u64)group[0];
	child.sync_fd = sync[0];
	child.ready_fd = ready[1];
	kept->pid = kernel_clone3(&args);
	if (kept->pid < 0)
		return -errno;
	if (kept->pid == 0)
		floor_child_run(&child);
	r = 0;
	ready[1] = fd_close(ready[1]);
	if (r == 0)
		r = io_read_exact(ready[0], &byte, 1);
	ready[0] = fd_close(ready[0]);
	for (size_t i = 0; i < 2; i++)
		sync[i] = fd_close(sync[i]);
	for (size_t i = 0; i < ARRAY_SIZE(group); i++)
		group[i] = fd_close(group[i]);
	return r;
}

static int server_create(struct server *server, bool keep, double *ret_us)
{
	struct kept kept = {.pid = -1};
	int userns_fd AUTO_CLOSE = -1;
	double start;
	int r;

	r = userns_prepare(&userns_fd);
	if (r < 0)
		return r;
	r = str_format(kept.name, sizeof(kept.name), "s%u", server->n_created++);
	if (r < 0)
		return r;
	start = bench_now_us();
	r = create_measured(server, &kept, userns_fd);
	*ret_us = bench_now_us() - start;
	if (r == 0 && keep && server->n_kept < FLOOR_MAX_KEPT) {
		server->kept[server->n_kept++] = kept;
		return 0;
	}
	if (kept.pid > 0)
		kept_end(server, &kept);
	return r;
}

static int server_create_bare(const struct server *server, double *ret_us)
{
	struct clone_args args = {.flags = CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET |
					   CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP,
				  .exit_signal = SIGCHLD};
	static char *const argv[] = {NULL};
	double start = bench_now_us();
	int ready[2];
	char byte;
	pid_t pid;
	int r;

	if (pipe2(ready, O_CLOEXEC) < 0)
		return -errno;
	pid = kernel_clone3(&args);
	if (pid < 0)
		return -errno;
	if (pid == 0) {
		if (ready[1] == 3 ? fcntl(3, F_SETFD, 0) < 0 : dup3(ready[1], 3, 0) < 0)
			_exit(1);
		(void)kernel_execveat(server->program_fd, argv, argv);
		_exit(1);
	}
	(void)fd_close(ready[1]);
	r = io_read_exact(ready[0], &byte, 1);
	*ret_us = bench_now_us() - start;
	(void)fd_close(ready[0]);
	(void)kill(pid, SIGKILL);
	(void)waitpid(pid, NULL, 0);
	return r;
}

static void server_drop(struct server *server)
{
	for (size_t i = 0; i < server->n_kept; i++)
		kept_end(server, &server->kept[i]);
	server->n_kept = 0;
}

struct answer {
	int32_t error_number;
	int32_t zero;
	double us;
};

static void server_loop(struct server *server, int fd)
{
	char command;

	while (sockmsg_recv(fd, &command, 1, NULL, 0) == 1) {
		struct answer answer = {0};

		switch (command) {
		case 'c':
		case 'k':
			answer.error_number = server_create(server, command == 'k', &answer.us);
			break;
		case 'b':
			answer.error_number = server_create_bare(server, &answer.us);
			break;
		case 'd':
			server_drop(server);
			break;
		default:
			answer.error_number = -EINVAL;
		}
		if (sockmsg_send(fd, &answer, sizeof(answer), NULL, 0) < 0)
			break;
	}
	server_drop(server);
	for (size_t i = 0; i < ARRAY_SIZE(server->tree); i++)
		if (server->tree[i].parent_fd >= 0)
			(void)unlinkat(server->tree[i].parent_fd, server->group, AT_REMOVEDIR);
}

static int ask(struct floor *floor, char command, double *ret_us)
{
	struct answer answer;
	ssize_t n;
	int r;

	r = sockmsg_send(floor->server_fd, &command, 1, NULL, 0);
	if (r < 0)
		return r;
	n = sockmsg_recv(floor->server_fd, &answer, sizeof(answer), NULL, 0);
	if (n != (ssize_t)sizeof(answer))
		return n < 0 ? (int)n : -EPIPE;
	if (ret_us)
		*ret_us = answer.us;
	return answer.error_number;
}

int floor_open(const struct floor_options *options, struct floor **ret_floor)
{
	static struct server server; /* the forked server's own copy */
	struct floor *floor AUTO_FREE = calloc(1, sizeof(*floor));
	int pair[2];
	int r;

	if (!floor)
		return -ENOMEM;
	r = sockmsg_pair(pair, 0);
	if (r < 0)
		return r;
	floor->server = fork();
	if (floor->server < 0)
		return -errno;
	if (floor->server == 0) {
		(void)fd_close(pair[0]);
		r = server_setup(&server, options);
		if (r < 0) {
			(void)fprintf(stderr, "bench: floor: %s\n", strerror(-r));
			_exit(1);
		}
		server_loop(&server, pair[1]);
		_exit(0);
	}
	(void)fd_close(pair[1]);
	floor->server_fd = pair[0];
	floor->true_path = options->true_path;
	*ret_floor = TAKE_PTR(floor);
	return 0;
}

void floor_close(struct floor *floor)
{
	if (!floor)
		return;
	floor->server_fd = fd_close(floor->server_fd);
	(void)waitpid(floor->server, NULL, 0);
	free(floor);
}

int floor_create(struct floor *floor, int keep, double *ret_us)
{
	return ask(floor, keep ? 'k' : 'c', ret_us);
}

int floor_create_bare(struct floor *floor, double *ret_us)
{
	return ask(floor, 'b', ret_us);
}

void floor_drop_kept(struct floor *floor)
{
	(void)ask(floor, 'd', NULL);
}

int floor_spawn(const struct floor *floor, double *ret_us)
{
	char name[] = "true";
	char *const argv[] = {name, NULL};
	char *const envp[] = {NULL};
	double start = bench_now_us();
	pid_t pid;
	int r;

	r = posix_spawn(&pid, floor->true_path, NULL, NULL, argv, envp);
	if (r != 0)
		return -r;
	if (waitpid(pid, NULL, 0) < 0)
		return -errno;
	*ret_us = bench_now_us() - start;
	return 0;
}
