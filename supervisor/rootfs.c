#include "supervisor/rootfs.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/str.h"

#include "supervisor/etc_template.h"
#include "supervisor/rootfs_mount.h"

static const char *const letters[] = {"u", "m", "h", "e", "w", "s", "n", "d", "f", "t", "proc"};

/* Directories of the session's root. Those below /etc come from etc_template. */
static const char *const session_dirs[] = {"dev",  "dev/pts", "dev/shm", "etc",
					   "proc", "session", "tmp",     "usr"};
/* The frame around a template. What the template has below the opaque ones is not seen, nor below a
 * name where it has no directory. */
static const char *const frame_dirs[] = {"dev",  "dev/pts", "dev/shm", "etc",
					 "proc", "session", "tmp"};
static const char *const frame_opaque[] = {"dev", "proc", "session", "tmp"};
static const char *const worker_dirs[] = {
	"dev", "etc", "proc", "state", "usr", "usr/lib", "usr/lib/x86_64-linux-gnu", "usr/lib64"};

/* Made by us: no host inode is opened through them (B23), and nothing is bound over a path that
 * somebody else could prepare (A3, A6). */
static const struct node_row {
	const char *name;
	unsigned int major;
	unsigned int minor;
} nodes[] = {
	{"null",    1, 3},
        {"zero",    1, 5},
        {"full",    1, 7},
	{"random",  1, 8},
        {"urandom", 1, 9},
        {"tty",     5, 0},
};

static const struct link_row {
	const char *name;
	const char *target;
} dev_links[] =
	{
		{"dev/fd",     "/proc/self/fd"  },
                {"dev/stdin",  "/proc/self/fd/0"},
		{"dev/stdout", "/proc/self/fd/1"},
                {"dev/stderr", "/proc/self/fd/2"},
		{"dev/ptmx",   "pts/ptmx"       },
},
  root_links[] = {
	  {"bin", "usr/bin"},     {"sbin", "usr/sbin"},   {"lib", "usr/lib"},
	  {"lib32", "usr/lib32"}, {"lib64", "usr/lib64"},
};

/* /proc names that programs need and that tell little: sizes, versions, mount and net views of the
 * process itself. /proc/sys is made read-only beside this. */
static const char *const proc_allowed[] = {
	"cpuinfo", "filesystems", "loadavg", "meminfo",     "mounts", "net",
	"self",    "stat",        "sys",     "thread-self", "uptime", "version",
};

static int make_dirs(int dir_fd, const char *const *names, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (mkdirat(dir_fd, names[i], 0755) < 0)
			return -errno;
		if (fchmodat(dir_fd, names[i], 0755, 0) < 0)
			return -errno;
	}
	return 0;
}

static int make_node(int dir_fd, const struct node_row *row)
{
	char path[32];

	int r = str_format(path, sizeof(path), "dev/%s", row->name);
	if (r < 0)
		return r;
	if (mknodat(dir_fd, path, S_IFCHR, makedev(row->major, row->minor)) < 0)
		return -errno;
	return fchmodat(dir_fd, path, 0666, 0) < 0 ? -errno : 0;
}

static int make_links(int dir_fd, const struct link_row *rows, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (symlinkat(rows[i].target, dir_fd, rows[i].name) < 0)
			return -errno;
	}
	return 0;
}

static int open_dir(int dir_fd, const char *name)
{
	int fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

static int make_devices(int fd)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(nodes); i++)
		r = make_node(fd, &nodes[i]);
	return r < 0 ? r : make_links(fd, dev_links, ARRAY_SIZE(dev_links));
}

/* The template of a session's root, in /e. */
static int build_session(int root_fd, int usr_fd, int etc_fd, struct err *err)
{
	AUTO_CLOSE int fd = open_dir(root_fd, "e");

	if (fd < 0)
		return err_fail(err, fd, "rootfs", "open the template");
	int r = make_dirs(fd, session_dirs, ARRAY_SIZE(session_dirs));
	if (r == 0)
		r = make_devices(fd);
	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(root_links); i++) {
		/* usr/lib32 is not everywhere; a dangling link would only confuse. */
		if (faccessat(usr_fd, root_links[i].target + strlen("usr/"), F_OK, 0) == 0)
			r = make_links(fd, &root_links[i], 1);
	}
	if (r < 0)
		return err_fail(err, r, "rootfs", "make the template");
	AUTO_CLOSE int own_etc_fd = open_dir(fd, "etc");
	if (own_etc_fd < 0)
		return err_fail(err, own_etc_fd, "rootfs", "open the template's etc");
	return etc_template_build(own_etc_fd, etc_fd, err);
}

/* trusted: neither a session nor whoever unpacked a template can set or remove it. */
static int make_opaque(int dir_fd, const char *name)
{
	AUTO_CLOSE int fd = open_dir(dir_fd, name);

	if (fd < 0)
		return fd;
	return fsetxattr(fd, "trusted.overlay.opaque", "y", 1, 0) < 0 ? -errno : 0;
}

/* In /f. */
static int build_frame(int root_fd, struct err *err)
{
	AUTO_CLOSE int fd = open_dir(root_fd, "f");

	if (fd < 0)
		return err_fail(err, fd, "rootfs", "open the frame");
	int r = make_dirs(fd, frame_dirs, ARRAY_SIZE(frame_dirs));
	if (r == 0)
		r = make_devices(fd);
	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(frame_opaque); i++)
		r = make_opaque(fd, frame_opaque[i]);
	if (r < 0)
		return err_fail(err, r, "rootfs", "make the frame");
	AUTO_CLOSE int etc_fd = open_dir(fd, "etc");
	if (etc_fd < 0)
		return err_fail(err, etc_fd, "rootfs", "open the frame's etc");
	return etc_template_frame(etc_fd, err);
}

/* The template of a worker's root, in /w. */
static int build_worker(int root_fd, int etc_fd, struct err *err)
{
	AUTO_CLOSE int fd = open_dir(root_fd, "w");

	if (fd < 0)
		return err_fail(err, fd, "rootfs", "open the worker's template");
	int r = make_dirs(fd, worker_dirs, ARRAY_SIZE(worker_dirs));
	if (r == 0)
		r = make_node(fd, &nodes[0]);
	/* The resolver's numbers of questions begin with what it reads there. */
	if (r == 0)
		r = make_node(fd, &nodes[4]);
	if (r == 0)
		r = make_links(fd, &root_links[2], 1);
	if (r == 0)
		r = make_links(fd, &root_links[4], 1);
	if (r < 0)
		return err_fail(err, r, "rootfs", "make the worker's template");
	AUTO_CLOSE int own_etc_fd = open_dir(fd, "etc");
	if (own_etc_fd < 0)
		return err_fail(err, own_etc_fd, "rootfs", "open the worker's etc");
	return etc_template_worker(own_etc_fd, etc_fd, err);
}

static int build(int root_fd, int usr_fd, struct usr_mask_job *ret_job, struct err *err)
{
	AUTO_CLOSE int etc_fd = open_dir(AT_FDCWD, "/etc");

	if (etc_fd < 0)
		return err_fail(err, etc_fd, "rootfs", "open /etc");
	int r = make_dirs(root_fd, letters, ARRAY_SIZE(letters));
	if (r < 0)
		return err_fail(err, r, "rootfs", "make directories");
	AUTO_CLOSE int mask_fd = open_dir(root_fd, "m");
	if (mask_fd < 0)
		return err_fail(err, mask_fd, "rootfs", "open the mask layer");
	AUTO_CLOSE int copies_fd = open_dir(root_fd, "h");
	if (copies_fd < 0)
		return err_fail(err, copies_fd, "rootfs", "open the copies");
	r = usr_mask_begin(usr_fd, mask_fd, copies_fd, ret_job, err);
	if (r < 0)
		return r;
	r = build_session(root_fd, usr_fd, etc_fd, err);
	if (r < 0)
		return r;
	r = build_frame(root_fd, err);
	if (r < 0)
		return r;
	return build_worker(root_fd, etc_fd, err);
}

/*
 * From here on the process sees nothing of the host by name. /usr is the mount point of the new
 * root for the moment between the two calls, because every host has it; pivot_root then puts the
 * old root on top of the new one, and it is detached whole.
 */
static int enter(int root_fd, int usr_fd, int state_tree_fd, struct err *err)
{
	if (unshare(CLONE_NEWNS) < 0)
		return err_fail(err, -errno, "rootfs", "unshare the mount namespace");
	/* Detached and private both: private alone once let mounts leak to a host. */
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return err_fail(err, -errno, "rootfs", "make mounts private");
	AUTO_CLOSE int proc_fd = rootfs_mount(
		"proc", NULL, 0, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
	if (proc_fd < 0)
		return err_fail(err, proc_fd, "rootfs", "make /proc");
	int r = rootfs_attach(root_fd, AT_FDCWD, "/usr");
	if (r == 0)
		/* NOLINTNEXTLINE(readability-suspicious-call-argument): the layer into the root */
		r = rootfs_attach(usr_fd, root_fd, "u");
	if (r == 0 && state_tree_fd >= 0)
		r = rootfs_attach(state_tree_fd, root_fd, "d");
	if (r == 0)
		r = rootfs_attach(proc_fd, root_fd, "proc");
	if (r < 0)
		return err_fail(err, r, "rootfs", "attach the layers");
	r = rootfs_pivot(root_fd);
	if (r < 0)
		return err_fail(err, r, "rootfs", "pivot_root");
	return 0;
}

int rootfs_seal(struct err *err)
{
	AUTO_CLOSE int root_fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);

	if (root_fd < 0)
		return err_fail(err, -errno, "rootfs", "open the root");
	int r = rootfs_set_attr(root_fd, MOUNT_ATTR_RDONLY, 0);
	if (r < 0)
		return err_fail(err, r, "rootfs", "make the root read-only");
	return 0;
}

/* The state directory goes along for the workers: nothing runs from it, no device works in it. */
static int clone_state(int state_fd, struct err *err)
{
	AUTO_CLOSE int fd =
		open_tree(state_fd, "", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH);

	if (fd < 0)
		return err_fail(err, -errno, "rootfs", "clone the state directory");
	int r = rootfs_set_attr(fd, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC, 0);
	if (r < 0)
		return err_fail(err, r, "rootfs", "restrict the state directory");
	return TAKE_FD(fd);
}

int rootfs_enter(int state_fd, struct usr_mask_job *ret_job, struct err *err)
{
	static const struct rootfs_option options[] = {
		{"mode", "0755"},
                {"size", "256m"}
        };

	AUTO_CLOSE int root_fd = rootfs_mount("tmpfs", options, ARRAY_SIZE(options),
					      MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
	if (root_fd < 0)
		return err_fail(err, root_fd, "rootfs", "make a tmpfs");
	AUTO_CLOSE int state_tree_fd = -1;
	if (state_fd >= 0) {
		state_tree_fd = clone_state(state_fd, err);
		if (state_tree_fd < 0)
			return state_tree_fd;
	}
	AUTO_CLOSE int usr_fd = rootfs_clone(AT_FDCWD, "/usr");
	if (usr_fd < 0)
		return err_fail(err, usr_fd, "rootfs", "clone the /usr mount");
	int r = rootfs_set_attr(usr_fd, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV,
				0);
	if (r < 0)
		return err_fail(err, r, "rootfs", "make the clone of /usr read-only");
	r = build(root_fd, usr_fd, ret_job, err);
	if (r < 0)
		return r;
	return enter(root_fd, usr_fd, state_tree_fd, err);
}

static bool proc_is_allowed(const char *name)
{
	if (name[0] == '.' || isdigit((unsigned char)name[0]))
		return true;
	for (size_t i = 0; i < ARRAY_SIZE(proc_allowed); i++) {
		if (str_equal(name, proc_allowed[i]))
			return true;
	}
	return false;
}

int rootfs_proc_mask(struct rootfs_proc_mask *ret_mask, struct err *err)
{
	struct rootfs_proc_mask mask = {0};
	const struct dirent *entry = NULL;
	int r = 0;
	DIR *dir = opendir("/proc");

	if (!dir)
		return err_fail(err, -errno, "rootfs", "open /proc");
	while (r == 0 && (entry = readdir(dir))) { /* NOLINT(concurrency-mt-unsafe): own stream */
		if (proc_is_allowed(entry->d_name))
			continue;
		if (mask.n == ROOTFS_PROC_MASK_MAX) {
			r = -E2BIG;
			break;
		}
		mask.entry[mask.n].is_directory = entry->d_type == DT_DIR;
		r = str_copy(mask.entry[mask.n].name, ROOTFS_PROC_NAME_BYTES, entry->d_name);
		/* A link at the top level (such as self) leads to the process itself. */
		if (entry->d_type != DT_LNK)
			mask.n++;
	}
	(void)closedir(dir);
	if (r < 0)
		return err_fail(err, r, "rootfs", "list /proc");
	*ret_mask = mask;
	return 0;
}
