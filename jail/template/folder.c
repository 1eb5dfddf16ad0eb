/*
 * Theory. Nobody promises that the folder stays as it is meanwhile. So each path is walked anew
 * from its top and no link is followed; a file is read from the descriptor whose attributes were
 * read, in the length that it had then.
 */
#include "jail/template/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/io.h"
#include "base/str.h"

#include "jail/archive/hard_links.h"
#include "jail/archive/walk.h"

#define CHUNK_BYTES     ((size_t)256 * 1024)
#define XATTR_MAX_BYTES 65536 /* the kernel's, of the list and of a value */
/* What walk.h puts before each name. */
#define TOP             "."
#define TOP_BYTES       2

struct folder {
	struct tree *tree;
	int source_fd;
	struct hard_links links;
	struct walk walk;
};

static int fail_errno(struct folder *folder, int r, const char *path)
{
	return bounds_fail_errno(folder->tree->bounds, r, path);
}

/* With O_NOFOLLOW, and no link on the way. The descriptor or -errno. */
static int open_at(int source_fd, const char *path, int flags)
{
	AUTO_CLOSE int fd = fd_dup(source_fd, 0);

	while (fd >= 0) {
		char name[NAME_MAX + 1];
		size_t n = strcspn(path, "/");
		int r = str_copy_n(name, sizeof(name), path, n);
		int next;

		if (r < 0)
			return r;
		next = openat(fd, name,
			      O_NOFOLLOW | O_CLOEXEC |
				      (path[n] == '/' ? O_PATH | O_DIRECTORY : flags));
		if (next < 0)
			return -errno;
		(void)fd_close(fd);
		fd = next;
		if (path[n] == '\0')
			break;
		path += n + 1;
	}
	return TAKE_FD(fd);
}

static int copy_xattrs(struct folder *folder, int from_fd, int fd, const char *path)
{
	static char list[XATTR_MAX_BYTES];
	static char value[XATTR_MAX_BYTES];
	ssize_t n = flistxattr(from_fd, list, sizeof(list));

	for (const char *name = list; n > 0 && name < list + n; name += strlen(name) + 1) {
		ssize_t size = fgetxattr(from_fd, name, value, sizeof(value));

		if (size >= 0 &&
		    tree_set_xattr(folder->tree, fd, path, name, value, (size_t)size) < 0)
			return -1;
	}
	return 0;
}

static int copy_content(struct folder *folder, int from_fd, int fd, uint64_t size, const char *path)
{
	static char chunk[CHUNK_BYTES];

	while (size > 0) {
		ssize_t n =
			io_read(from_fd, chunk, size < CHUNK_BYTES ? (size_t)size : CHUNK_BYTES);
		int r;

		if (n < 0)
			return fail_errno(folder, (int)n, path);
		/* It became shorter: the rest is a hole. */
		if (n == 0)
			return 0;
		r = io_write_all(fd, chunk, (size_t)n);
		if (r < 0)
			return fail_errno(folder, r, path);
		size -= (uint64_t)n;
	}
	return 0;
}

static struct tree_attributes attributes_of(struct folder *folder, const struct stat *st)
{
	return tree_attributes(folder->tree->bounds, st->st_mode, st->st_uid, st->st_gid,
			       st->st_mtim);
}

static int copy_file(struct folder *folder, const char *path)
{
	AUTO_CLOSE int from_fd = open_at(folder->source_fd, path, O_RDONLY | O_NONBLOCK);
	struct tree_attributes attributes;
	AUTO_CLOSE int fd = -1;
	const char *first = NULL;
	struct stat st;
	int r;

	if (from_fd < 0)
		return fail_errno(folder, from_fd, path);
	if (fstat(from_fd, &st) < 0)
		return fail_errno(folder, -errno, path);
	/* It was one a moment ago. */
	if (!S_ISREG(st.st_mode))
		return fail_errno(folder, -EAGAIN, path);
	if (st.st_nlink > 1) {
		r = hard_links_find(&folder->links, &st, path, &first);
		if (r < 0)
			return fail_errno(folder, r, path);
	}
	if (first)
		return tree_make_hard_link(folder->tree, path, first);
	attributes = attributes_of(folder, &st);
	fd = tree_make_file(folder->tree, path, (uint64_t)st.st_size);
	if (fd < 0)
		return -1;
	if (copy_content(folder, from_fd, fd, (uint64_t)st.st_size, path) < 0 ||
	    copy_xattrs(folder, from_fd, fd, path) < 0)
		return -1;
	return tree_end_file(folder->tree, fd, path, (uint64_t)st.st_size, &attributes);
}

static int copy_folder(struct folder *folder, const char *path)
{
	AUTO_CLOSE int from_fd = open_at(folder->source_fd, path, O_RDONLY | O_DIRECTORY);
	struct tree_attributes attributes;
	char below[TEMPLATE_PATH_MAX + 1 + TOP_BYTES];
	struct stat st;
	int r;

	if (from_fd < 0)
		return fail_errno(folder, from_fd, path);
	if (fstat(from_fd, &st) < 0)
		return fail_errno(folder, -errno, path);
	attributes = attributes_of(folder, &st);
	if (tree_make_folder(folder->tree, path, &attributes) < 0)
		return -1;
	r = str_format(below, sizeof(below), TOP "/%s", path);
	if (r >= 0)
		r = walk_push_folder(&folder->walk, below, from_fd);
	return r < 0 ? fail_errno(folder, r, path) : 0;
}

static int copy_link(struct folder *folder, int fd, const struct stat *st, const char *path)
{
	struct tree_attributes attributes = attributes_of(folder, st);
	char target[TEMPLATE_PATH_MAX + 1];
	ssize_t n = readlinkat(fd, "", target, sizeof(target));

	if (n < 0)
		return fail_errno(folder, -errno, path);
	if ((size_t)n == sizeof(target))
		return fail_errno(folder, -ENAMETOOLONG, path);
	target[n] = '\0';
	return tree_make_link(folder->tree, path, target, &attributes);
}

static int copy(struct folder *folder, const char *path)
{
	AUTO_CLOSE int fd = open_at(folder->source_fd, path, O_PATH);
	struct stat st;

	if (bounds_count_entry(folder->tree->bounds, path) < 0)
		return -1;
	if (fd < 0)
		return fail_errno(folder, fd, path);
	if (fstat(fd, &st) < 0)
		return fail_errno(folder, -errno, path);
	if (S_ISREG(st.st_mode))
		return copy_file(folder, path);
	if (S_ISDIR(st.st_mode))
		return copy_folder(folder, path);
	if (S_ISLNK(st.st_mode))
		return copy_link(folder, fd, &st, path);
	folder->tree->bounds->report.n_devices++;
	return 0;
}

static int copy_all(struct folder *folder)
{
	int r = walk_push_folder(&folder->walk, TOP, folder->source_fd);

	if (r < 0)
		return fail_errno(folder, r, NULL);
	for (;;) {
		AUTO_FREE char *path = walk_pop(&folder->walk);

		if (!path)
			return 0;
		if (copy(folder, path + TOP_BYTES) < 0)
			return -1;
	}
}

int folder_copy(struct tree *tree, int source_fd)
{
	struct folder folder = {.tree = tree, .source_fd = source_fd};
	int r = copy_all(&folder);

	hard_links_done(&folder.links);
	walk_done(&folder.walk);
	return r;
}
