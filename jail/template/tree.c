/*
 * Theory. The source says where things lie, and is hostile. A path is walked from the root by its
 * components, each opened as a folder and not followed; so a link, whether it was there or came
 * from the source, never leads anywhere. All runs where only this tree is, so even one that was
 * followed would end in it. No call is given a setuid or setgid bit; the filter has none either.
 */
#include "jail/template/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/str.h"

#define MODE_BITS    01777u
#define MODE_REFUSED 06000u
#define FOLDER_MODE  0755
#define FILE_MODE    0600
#define XATTR_USER   "user."
#define XATTR_LAYERS "user.overlay." /* some mounts read their own in these */

void tree_init(struct tree *tree, int root_fd, struct bounds *bounds, struct trash *trash)
{
	*tree = (struct tree){
		.root_fd = root_fd, .bounds = bounds, .trash = trash, .folder_fd = -1};
}

static void leave(struct tree *tree)
{
	const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, tree->folder_mtime};

	if (tree->folder_fd < 0)
		return;
	/* Its time is no promise. */
	(void)utimensat(tree->folder_fd, "", times, AT_EMPTY_PATH);
	tree->folder_fd = fd_close(tree->folder_fd);
}

void tree_done(struct tree *tree)
{
	leave(tree);
}

static uint32_t plain_id(int64_t id)
{
	return id < 0 || id > TEMPLATE_ID_LAST ? TEMPLATE_ID_LAST : (uint32_t)id;
}

struct tree_attributes tree_attributes(struct bounds *bounds, uint32_t mode, int64_t uid,
				       int64_t gid, struct timespec mtime)
{
	if (mode & MODE_REFUSED)
		bounds->report.n_modes++;
	return (struct tree_attributes){
		.mode = mode & MODE_BITS,
		.uid = plain_id(uid),
		.gid = plain_id(gid),
		.mtime = mtime,
	};
}

/* The folder `name`, made where it is missing and `make` says so. The descriptor or -errno. */
static int step(struct tree *tree, int folder_fd, const char *name, bool make)
{
	int fd = openat(folder_fd, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (fd >= 0)
		return fd;
	if (errno != ENOENT || !make)
		return -errno;
	if (mkdirat(folder_fd, name, FOLDER_MODE) < 0)
		return -errno;
	if (bounds_count_inode(tree->bounds, name) < 0)
		return -EDQUOT; /* and why is noted */
	fd = openat(folder_fd, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

/* The first n_bytes of path, as a folder. The descriptor or -errno. */
static int walk(struct tree *tree, const char *path, size_t n_bytes, bool make)
{
	AUTO_CLOSE int fd = fd_dup(tree->root_fd, 0);
	const char *end = path + n_bytes;

	while (fd >= 0 && path < end) {
		char name[NAME_MAX + 1];
		size_t n = strcspn(path, "/");
		int next = str_copy_n(name, sizeof(name), path, n);

		if (next >= 0)
			next = step(tree, fd, name, make);
		if (next < 0)
			return next;
		(void)fd_close(fd);
		fd = next;
		path += n + (path[n] == '/');
	}
	return TAKE_FD(fd);
}

/* Be in the folder of path; *ret_name: its last component, within path. 0 or -errno. */
static int enter(struct tree *tree, const char *path, bool make, const char **ret_name)
{
	const char *slash = strrchr(path, '/');
	size_t n = slash ? (size_t)(slash - path) : 0;
	struct stat st;
	int fd;

	*ret_name = slash ? slash + 1 : path;
	if (tree->folder_fd >= 0 && strlen(tree->folder) == n && memcmp(tree->folder, path, n) == 0)
		return 0;
	leave(tree);
	fd = walk(tree, path, n, make);
	if (fd < 0)
		return fd;
	if (fstat(fd, &st) < 0) {
		int r = -errno;

		(void)fd_close(fd);
		return r;
	}
	tree->folder_fd = fd;
	tree->folder_mtime = st.st_mtim;
	memcpy(tree->folder, path, n);
	tree->folder[n] = '\0';
	return 0;
}

/* The same for something new at path: nothing is at its name then. 0 or -1. */
static int enter_anew(struct tree *tree, const char *path, const char **ret_name)
{
	int r = enter(tree, path, true, ret_name);

	if (r == 0)
		r = trash_put(tree->trash, tree->folder_fd, *ret_name);
	if (r < 0)
		return bounds_fail_errno(tree->bounds, r, path);
	return bounds_count_inode(tree->bounds, path);
}

static int set_attributes(struct tree *tree, int fd, const char *path,
			  const struct tree_attributes *attributes)
{
	const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, attributes->mtime};

	/* The mode behind the owner, whose change takes bits away; the time last. */
	if (fchown(fd, attributes->uid, attributes->gid) < 0 || fchmod(fd, attributes->mode) < 0 ||
	    futimens(fd, times) < 0)
		return bounds_fail_errno(tree->bounds, -errno, path);
	return 0;
}

int tree_make_folder(struct tree *tree, const char *path, const struct tree_attributes *attributes)
{
	AUTO_CLOSE int fd = -1;
	const char *name;
	struct stat st;
	int r = enter(tree, path, true, &name);

	if (r < 0)
		return bounds_fail_errno(tree->bounds, r, path);
	if (fstatat(tree->folder_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISDIR(st.st_mode)) {
		if (enter_anew(tree, path, &name) < 0)
			return -1;
		if (mkdirat(tree->folder_fd, name, FOLDER_MODE) < 0)
			return bounds_fail_errno(tree->bounds, -errno, path);
	}
	fd = openat(tree->folder_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return bounds_fail_errno(tree->bounds, -errno, path);
	return set_attributes(tree, fd, path, attributes);
}

int tree_make_link(struct tree *tree, const char *path, const char *target,
		   const struct tree_attributes *attributes)
{
	const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, attributes->mtime};
	const char *name;

	if (target[0] == '\0')
		return bounds_fail(tree->bounds, TEMPLATE_E_FORMAT, 0, path);
	if (enter_anew(tree, path, &name) < 0)
		return -1;
	if (symlinkat(target, tree->folder_fd, name) < 0 ||
	    fchownat(tree->folder_fd, name, attributes->uid, attributes->gid, AT_SYMLINK_NOFOLLOW) <
		    0 ||
	    utimensat(tree->folder_fd, name, times, AT_SYMLINK_NOFOLLOW) < 0)
		return bounds_fail_errno(tree->bounds, -errno, path);
	return 0;
}

int tree_make_hard_link(struct tree *tree, const char *path, const char *target)
{
	AUTO_CLOSE int from_fd = -1;
	const char *slash = strrchr(target, '/');
	const char *from = slash ? slash + 1 : target;
	const char *name;
	struct stat st;
	int r;

	if (str_equal(path, target))
		return bounds_fail(tree->bounds, TEMPLATE_E_HARD_LINK, 0, path);
	from_fd = walk(tree, target, slash ? (size_t)(slash - target) : 0, false);
	if (from_fd < 0 || fstatat(from_fd, from, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
	    (!S_ISREG(st.st_mode) && !S_ISLNK(st.st_mode)))
		return bounds_fail(tree->bounds, TEMPLATE_E_HARD_LINK, 0, path);
	r = enter(tree, path, true, &name);
	if (r == 0)
		r = trash_put(tree->trash, tree->folder_fd, name);
	if (r == 0)
		r = linkat(from_fd, from, tree->folder_fd, name, 0) < 0 ? -errno : 0;
	/* It went with the name, or with a folder that was in its place. */
	if (r == -ENOENT)
		return bounds_fail(tree->bounds, TEMPLATE_E_HARD_LINK, 0, path);
	return r < 0 ? bounds_fail_errno(tree->bounds, r, path) : 0;
}

int tree_make_file(struct tree *tree, const char *path, uint64_t size)
{
	const char *name;
	int fd;

	if (enter_anew(tree, path, &name) < 0 || bounds_count_bytes(tree->bounds, size, path) < 0)
		return -1;
	fd = openat(tree->folder_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
		    FILE_MODE);
	return fd < 0 ? bounds_fail_errno(tree->bounds, -errno, path) : fd;
}

int tree_end_file(struct tree *tree, int fd, const char *path, uint64_t size,
		  const struct tree_attributes *attributes)
{
	/* It may end in a hole. */
	if (ftruncate(fd, (off_t)size) < 0)
		return bounds_fail_errno(tree->bounds, -errno, path);
	return set_attributes(tree, fd, path, attributes);
}

int tree_set_xattr(struct tree *tree, int fd, const char *path, const char *name, const void *value,
		   size_t size)
{
	if (!str_has_prefix(name, XATTR_USER) || str_has_prefix(name, XATTR_LAYERS)) {
		tree->bounds->report.n_xattrs++;
		return 0;
	}
	if (bounds_count_xattr(tree->bounds, strlen(name) + size, path) < 0)
		return -1;
	/* A file system without them loses them. */
	if (fsetxattr(fd, name, value, size, 0) < 0 && errno != ENOTSUP)
		return bounds_fail_errno(tree->bounds, -errno, path);
	return 0;
}

int tree_remove(struct tree *tree, const char *path)
{
	const char *name;
	int r = enter(tree, path, false, &name);

	if (r == 0)
		r = trash_put(tree->trash, tree->folder_fd, name);
	return r < 0 && r != -ENOENT ? bounds_fail_errno(tree->bounds, r, path) : 0;
}

int tree_remove_children(struct tree *tree, const char *path)
{
	AUTO_CLOSE int fd = -1;
	int r;

	/* A folder that was moved away must not be the one that is remembered. */
	leave(tree);
	r = walk(tree, path, strlen(path), false);
	if (r < 0)
		return r == -ENOENT ? 0 : bounds_fail_errno(tree->bounds, r, path);
	fd = r;
	r = trash_put_children(tree->trash, fd);
	return r < 0 ? bounds_fail_errno(tree->bounds, r, path) : 0;
}

/* What a session mounts on, or reads as a folder. */
static const struct top {
	const char *name;
	uint32_t mode;
	bool is_covered; /* nothing of the image is seen there */
} tops[] = {
	{"dev",     0755,  true },
        {"etc",     0755,  false},
        {"proc",    0555,  true },
	{"session", 0755,  true },
        {"tmp",     01777, true },
        {"usr",     0755,  false},
};

static int finish_top(struct tree *tree, const struct top *top)
{
	struct tree_attributes attributes = {.mode = top->mode};
	struct stat st;
	bool is_there = fstatat(tree->root_fd, top->name, &st, AT_SYMLINK_NOFOLLOW) == 0;

	if (is_there && S_ISDIR(st.st_mode))
		return 0;
	if (is_there && !top->is_covered)
		return bounds_fail(tree->bounds, TEMPLATE_E_TOP, 0, top->name);
	tree->bounds->report.n_tops += is_there;
	attributes.mtime.tv_sec = time(NULL);
	return tree_make_folder(tree, top->name, &attributes);
}

int tree_finish(struct tree *tree)
{
	struct template_report *report = &tree->bounds->report;
	struct stat st;

	leave(tree);
	for (size_t i = 0; i < ARRAY_SIZE(tops); i++) {
		if (finish_top(tree, &tops[i]) < 0)
			return -1;
	}
	report->has_shell = fstatat(tree->root_fd, "usr/bin/sh", &st, AT_SYMLINK_NOFOLLOW) == 0 ||
			    fstatat(tree->root_fd, "bin/sh", &st, AT_SYMLINK_NOFOLLOW) == 0;
	return 0;
}
