/*
 * The steps run as: root of the host's user namespace with the supervisor's capabilities, alone in
 * the session's new mount, PID, network, IPC and UTS namespaces, in its control groups (so that
 * what the kernel allocates here is counted there). cwd is the supervisor's tiny root. No
 * allocation, no stdio: raw system calls on what mountns_prepare made.
 */
#include "supervisor/mountns.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/str.h"

#include "sandboxd/limits.h"
#include "supervisor/rootfs_mount.h"
#include "supervisor/weaken.h"

#define TTY_GROUP 5 /* in the template's /etc/group */

#define ATTR_BASE     (MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV)
#define ATTR_READONLY (ATTR_BASE | MOUNT_ATTR_RDONLY)

int mountns_prepare(struct mountns *mountns, const struct plan *plan, uint32_t id_base,
		    bool subset_pid, const struct rootfs_proc_mask *proc_mask)
{
	*mountns = (struct mountns){
		.user_id = id_base + SESSION_USER_ID,
		.root_id = id_base,
		.subset_pid = subset_pid,
		.proc_mask = proc_mask,
		.template_fd = -1,
		.session_fd = -1,
		.root_fd = -1,
		.proc_fd = -1,
		.empty_fd = -1,
		.queues_fd = -1,
	};
	str_hex(mountns->machine_id, plan->session, ID_BYTES);
	mountns->machine_id[2 * (size_t)ID_BYTES] = '\n';
	int r = str_format(mountns->size, sizeof(mountns->size), "%llu",
			   (unsigned long long)plan->tmpfs_bytes);
	if (r == 0)
		r = str_format(mountns->inodes, sizeof(mountns->inodes), "%llu",
			       (unsigned long long)plan->tmpfs_inodes);
	if (r == 0)
		r = str_format(mountns->max_ptys, sizeof(mountns->max_ptys), "%u", plan->max_ptys);
	if (r == 0)
		r = str_format(mountns->tty_gid, sizeof(mountns->tty_gid), "%u",
			       id_base + TTY_GROUP);
	if (r == 0)
		r = str_format(mountns->shim_gid, sizeof(mountns->shim_gid), "%u",
			       id_base + SESSION_SHIM_OFFSET);
	return r;
}

static bool has_template(const struct mountns *mountns)
{
	return mountns->template_fd >= 0;
}

int mountns_prepare_usr(struct mountns *mountns, uint8_t set)
{
	if (set == 0)
		return str_copy(mountns->usr_layers, sizeof(mountns->usr_layers), "m:u");
	return str_format(mountns->usr_layers, sizeof(mountns->usr_layers), "m:h/%u:u", set);
}

int mountns_tmpfs(struct mountns *mountns)
{
	const struct rootfs_option options[] = {
		{"size",      mountns->size  },
		{"nr_inodes", mountns->inodes},
		{"mode",      "0755"         },
	};

	mountns->session_fd = rootfs_mount("tmpfs", options, ARRAY_SIZE(options), ATTR_BASE);
	if (mountns->session_fd < 0)
		return mountns->session_fd;
	/* Attached, since overlay takes layers by name of this namespace only ("s/r"). */
	return rootfs_attach(mountns->session_fd, AT_FDCWD, "/s");
}

static int folder(const struct mountns *mountns, const char *name, mode_t mode, bool is_users)
{
	int fd = mountns->session_fd;

	uint32_t owner = is_users ? mountns->user_id : mountns->root_id;

	if (mkdirat(fd, name, mode) < 0)
		return -errno;
	return fchownat(fd, name, owner, owner, AT_SYMLINK_NOFOLLOW) < 0 ? -errno : 0;
}

int mountns_folders(struct mountns *mountns)
{
	static const struct folder_row {
		const char *name;
		mode_t mode;
		bool is_users;
	} rows[] = {
		{"session",      0700,  true },
                {"session/home", 0700,  true },
                {"session/tmp",  0700,  true },
		{"tmp",          01777, false},
                {"shm",          01777, false},
                {"r",            0755,  false},
		{"r/etc",        0755,  false},
	};

	/* The modes above are what is meant, whatever the supervisor's umask. */
	(void)umask(0);
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		int r = folder(mountns, rows[i].name, rows[i].mode, rows[i].is_users);
		if (r < 0)
			return r;
	}
	/* Of the overlay alone: nobody inside has a path to it. */
	if (has_template(mountns) && mkdirat(mountns->session_fd, "w", 0700) < 0)
		return -errno;
	int fd = openat(mountns->session_fd, "r/etc/machine-id",
			O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
	if (fd < 0)
		return -errno;
	ssize_t n = write(fd, mountns->machine_id, 2 * (size_t)ID_BYTES + 1);
	int r = n < 0 ? -errno : 0;
	(void)fd_close(fd);
	return r;
}

static int overlay(const char *layers)
{
	const struct rootfs_option options[] = {
		{"lowerdir", layers}
        };

	return rootfs_mount("overlay", options, ARRAY_SIZE(options), ATTR_READONLY);
}

/* Overlay acts on its layers with the rights of who mounts it: copies of a template's files are
 * made with CHOWN, FOWNER, DAC_OVERRIDE and MKNOD of the supervisor's, when the caller's own rights
 * were looked at. Nothing that a layer says of another place in it is followed, whatever the
 * module's defaults. */
static int template_root(const struct mountns *mountns)
{
	static const struct rootfs_option options[] = {
		{"lowerdir",     "f:t"     },
                {"upperdir",     "s/r"     },
                {"workdir",      "s/w"     },
		{"redirect_dir", "nofollow"},
                {"metacopy",     "off"     },
                {"index",        "off"     },
	};
	int r = rootfs_attach(mountns->template_fd, AT_FDCWD, "/t");

	return r < 0 ? r : rootfs_mount("overlay", options, ARRAY_SIZE(options), ATTR_BASE);
}

int mountns_root(struct mountns *mountns)
{
	/* Relative one-letter names: what mountinfo shows inside. */
	mountns->root_fd = has_template(mountns) ? template_root(mountns) : overlay("s/r:e");
	if (mountns->root_fd < 0)
		return mountns->root_fd;
	return rootfs_attach(mountns->root_fd, AT_FDCWD, "/n");
}

int mountns_usr(struct mountns *mountns)
{
	int fd;

	if (has_template(mountns))
		return 0;
	fd = weakened(WEAKEN_OVERLAY) ? rootfs_clone(AT_FDCWD, "/u") : overlay(mountns->usr_layers);
	if (fd < 0)
		return fd;
	return rootfs_attach(fd, mountns->root_fd, "usr");
}

int mountns_proc(struct mountns *mountns)
{
	/* A runner finds the tree of its command by /proc (shim/tree.c); no command has the gid. */
	const struct rootfs_option options[] = {
		{"hidepid", "invisible"      },
		{"gid",     mountns->shim_gid},
		{"subset",  "pid"            },
	};
	size_t n_options = ARRAY_SIZE(options) - (mountns->subset_pid ? 0 : 1);
	size_t skip = weakened(WEAKEN_HIDEPID) ? 1 : 0;

	if (!mountns->subset_pid) {
		/* The still empty mount point is what covers directories. */
		mountns->empty_fd = openat(mountns->root_fd, "proc", O_PATH | O_CLOEXEC);
		if (mountns->empty_fd < 0)
			return -errno;
	}
	mountns->proc_fd = rootfs_mount("proc", options + skip, n_options - skip,
					ATTR_BASE | MOUNT_ATTR_NOEXEC);
	if (mountns->proc_fd < 0)
		return mountns->proc_fd;
	return rootfs_attach(mountns->proc_fd, mountns->root_fd, "proc");
}

static int cover(const struct mountns *mountns, const char *name, bool is_directory)
{
	int fd = is_directory ? open_tree(mountns->empty_fd, "",
					  OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH)
			      : rootfs_clone(mountns->root_fd, "dev/null");

	if (fd < 0)
		return is_directory ? -errno : fd;
	/* It is a part of a root that can be written to. */
	int r = is_directory && has_template(mountns) ? rootfs_set_attr(fd, MOUNT_ATTR_RDONLY, 0)
						      : 0;
	if (r == 0)
		r = rootfs_attach(fd, mountns->proc_fd, name);
	(void)fd_close(fd);
	return r;
}

/* Only where the profile's programs need names at /proc's top level: B17. */
int mountns_mask(struct mountns *mountns)
{
	if (mountns->subset_pid || weakened(WEAKEN_PROC_MASK))
		return 0;
	for (uint32_t i = 0; i < mountns->proc_mask->n; i++) {
		int r = cover(mountns, mountns->proc_mask->entry[i].name,
			      mountns->proc_mask->entry[i].is_directory);
		/* It may have gone with a module since it was listed. */
		if (r < 0 && r != -ENOENT)
			return r;
	}
	/* Sysctls stay readable and cannot be written by anybody inside (A5). */
	int fd = rootfs_clone(mountns->proc_fd, "sys");
	if (fd < 0)
		return fd;
	int r = rootfs_set_attr(fd, MOUNT_ATTR_RDONLY, 0);
	if (r < 0)
		return r;
	return rootfs_attach(fd, mountns->proc_fd, "sys");
}

/* The one mount where device nodes work, and nothing runs from it. */
int mountns_dev(struct mountns *mountns)
{
	const struct rootfs_option options[] = {
		{"ptmxmode", "0666"           },
		{"mode",     "0620"           },
		{"gid",      mountns->tty_gid },
		{"max",      mountns->max_ptys},
	};

	int fd = rootfs_clone(mountns->root_fd, "dev");
	if (fd < 0)
		return fd;
	int r = rootfs_set_attr(fd, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOEXEC, MOUNT_ATTR_NODEV);
	if (r < 0)
		return r;
	r = rootfs_attach(fd, mountns->root_fd, "dev");
	if (r < 0)
		return r;
	/* Each mount of devpts is an instance of its own; nodev must be off here, too (A4). */
	fd = rootfs_mount("devpts", options, ARRAY_SIZE(options),
			  MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC);
	if (fd < 0)
		return fd;
	return rootfs_attach(fd, mountns->root_fd, "dev/pts");
}

struct place_row {
	const char *from;
	const char *to;
	uint64_t attr;
};

static int place(const struct mountns *mountns, const struct place_row *row)
{
	int fd = rootfs_clone(mountns->session_fd, row->from);

	if (fd < 0)
		return fd;
	int r = row->attr ? rootfs_set_attr(fd, row->attr, 0) : 0;
	if (r < 0)
		return r;
	return rootfs_attach(fd, mountns->root_fd, row->to);
}

/* Test builds only: a mount where none should be. */
static int writable_etc(const struct mountns *mountns)
{
	const struct rootfs_option options[] = {
		{"mode", "1777"}
        };
	int fd = rootfs_mount("tmpfs", options, ARRAY_SIZE(options), ATTR_BASE);

	return fd < 0 ? fd : rootfs_attach(fd, mountns->root_fd, "etc");
}

int mountns_writable(struct mountns *mountns)
{
	static const struct place_row rows[] = {
		{"session", "session", 0                },
		{"tmp",     "tmp",     0                },
		{"shm",     "dev/shm", MOUNT_ATTR_NOEXEC},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		int r = place(mountns, &rows[i]);
		if (r < 0)
			return r;
	}
	return weakened(PLANT_MOUNT) ? writable_etc(mountns) : 0;
}

/* Attached nowhere: only a Landlock rule asks for it (shim/domain.c). */
int mountns_queues(struct mountns *mountns)
{
	int fd = rootfs_mount("mqueue", NULL, 0, ATTR_BASE | MOUNT_ATTR_NOEXEC);

	if (fd == -ENODEV)
		return 0; /* compiled out */
	if (fd < 0)
		return fd;
	mountns->queues_fd = fd;
	return 0;
}

int mountns_pivot(struct mountns *mountns)
{
	return rootfs_pivot(mountns->root_fd);
}

/* The clones that a worker's root is put together of: from the supervisor's root, to below its own.
 */
static int worker_bind(int root_fd, const char *from, const char *to, uint64_t set, uint64_t clear)
{
	AUTO_CLOSE int fd = rootfs_clone(AT_FDCWD, from);

	if (fd < 0)
		return fd;
	int r = rootfs_set_attr(fd, set, clear);
	if (r < 0)
		return r;
	return rootfs_attach(fd, root_fd, to);
}

static int worker_state(int root_fd, int state_fd)
{
	struct stat expected;
	struct stat found;

	/* state_fd belongs to the host's mount namespace, and only mounts of our own can be cloned:
	 * the same directory is therefore below /d. */
	if (fstat(state_fd, &expected) < 0 || stat("/d/api", &found) < 0)
		return -errno;
	if (expected.st_dev != found.st_dev || expected.st_ino != found.st_ino)
		return -ESTALE;
	return worker_bind(root_fd, "/d/api", "state", ATTR_BASE | MOUNT_ATTR_NOEXEC, 0);
}

static int worker_mounts(int root_fd, int state_fd)
{
	static const struct rootfs_option options[] = {
		{"hidepid", "invisible"},
                {"subset",  "pid"      }
        };

	int r = worker_bind(root_fd, "/u/lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu",
			    ATTR_READONLY, 0);
	if (r == 0)
		r = worker_bind(root_fd, "/u/lib64", "usr/lib64", ATTR_READONLY, 0);
	if (r == 0)
		r = worker_bind(root_fd, "/w/dev", "dev",
				MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC,
				MOUNT_ATTR_NODEV);
	if (r < 0)
		return r;
	AUTO_CLOSE int proc_fd = rootfs_mount("proc", options, ARRAY_SIZE(options),
					      ATTR_READONLY | MOUNT_ATTR_NOEXEC);
	if (proc_fd < 0)
		return proc_fd;
	r = rootfs_attach(proc_fd, root_fd, "proc");
	if (r < 0 || state_fd < 0)
		return r;
	return worker_state(root_fd, state_fd);
}

/* Runs as root in the worker's own mount, PID, IPC and UTS namespaces, before it gives up its ids.
 */
int mountns_worker(int state_fd, struct err *err)
{
	AUTO_CLOSE int root_fd = rootfs_clone(AT_FDCWD, "/w");

	if (root_fd < 0)
		return err_fail(err, root_fd, "worker-root", "clone the template");
	int r = rootfs_attach(root_fd, AT_FDCWD, "/n");
	if (r < 0)
		return err_fail(err, r, "worker-root", "attach the template");
	r = worker_mounts(root_fd, state_fd);
	if (r < 0)
		return err_fail(err, r, "worker-root", "make its mounts");
	r = rootfs_set_attr(root_fd, ATTR_READONLY | MOUNT_ATTR_NOEXEC, 0);
	if (r < 0)
		return err_fail(err, r, "worker-root", "make it read-only");
	r = rootfs_pivot(root_fd);
	if (r < 0)
		return err_fail(err, r, "worker-root", "pivot_root");
	return 0;
}
