#include "shim/files_tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/id.h"
#include "base/io.h"
#include "base/path.h"
#include "base/str.h"

#include "shim/message.h"

/* As many descriptors, and as much stack, as a walk takes. */
#define TREE_MAX_DEPTH 64u
/* Each takes away 64 levels of every branch. Whoever fills the folder meanwhile is not followed for
 * ever. */
#define TREE_MAX_WALKS 4096
#define TREE_BLOCK     ((size_t)1024 * 1024)

int files_temporary_name(char name[FILES_NAME_MAX_BYTES])
{
	struct id id;
	char text[ID_TEXT_BYTES];
	int r;

	r = id_random(&id);
	if (r < 0)
		return r;
	id_format(&id, text);
	return str_format(name, FILES_NAME_MAX_BYTES, ".put-%s", text);
}

static bool tree_is_cancelled(int socket_fd)
{
	return socket_fd >= 0 && message_is_cancelled(socket_fd);
}

int files_tree_copy_bytes(int from_fd, int to_fd, int socket_fd)
{
	for (;;) {
		ssize_t n;

		if (tree_is_cancelled(socket_fd))
			return -ECANCELED;
		n = sendfile(to_fd, from_fd, NULL, TREE_BLOCK);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : 0;
	}
}

static int tree_open(int dir_fd, const char *name)
{
	return path_open_beneath(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NONBLOCK, 0);
}

/* Takes the descriptor. */
static DIR *tree_dir(int fd)
{
	DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;

	if (!dir)
		(void)fd_close(fd);
	return dir;
}

static const char *tree_next(DIR *dir)
{
	const struct dirent *item;

	do {
		/* One thread. NOLINTNEXTLINE(concurrency-mt-unsafe) */
		item = readdir(dir);
	} while (item && (str_equal(item->d_name, ".") || str_equal(item->d_name, "..")));
	return item ? item->d_name : NULL;
}

struct tree_removal {
	int top_fd;
	bool opens; /* folders that may not be written to are made writable */
};

static int tree_empty(const struct tree_removal *removal, int fd, unsigned int depth);

/* What is too deep for one walk is moved to the top, where the next one finds it. */
static int tree_lift(int dir_fd, const char *name, int top_fd)
{
	char lifted[FILES_NAME_MAX_BYTES];
	int r = files_temporary_name(lifted);

	if (r < 0)
		return r;
	return renameat(dir_fd, name, top_fd, lifted) < 0 ? -errno : 0;
}

/* Depth is bounded. NOLINTNEXTLINE(misc-no-recursion) */
static int tree_drop(const struct tree_removal *removal, int dir_fd, const char *name,
		     unsigned int depth)
{
	int fd;
	int r;

	if (unlinkat(dir_fd, name, 0) == 0 || errno == ENOENT)
		return 0;
	if (errno != EISDIR)
		return -errno;
	if (depth >= TREE_MAX_DEPTH)
		return tree_lift(dir_fd, name, removal->top_fd);
	fd = tree_open(dir_fd, name);
	if (fd < 0)
		return fd == -ENOENT ? 0 : fd;
	r = tree_empty(removal, fd, depth + 1);
	if (r < 0)
		return r;
	return unlinkat(dir_fd, name, AT_REMOVEDIR) < 0 && errno != ENOENT ? -errno : 0;
}

/* Takes fd. Depth is bounded. NOLINTNEXTLINE(misc-no-recursion) */
static int tree_empty(const struct tree_removal *removal, int fd, unsigned int depth)
{
	DIR *dir = tree_dir(fd);
	const char *name;
	int r = 0;

	if (!dir)
		return -ENOMEM;
	if (removal->opens)
		(void)fchmod(fd, 0700); /* where it may not: what is in it says so */
	while (r >= 0 && (name = tree_next(dir)))
		r = tree_drop(removal, fd, name, depth);
	(void)closedir(dir);
	return r;
}

static int tree_remove(int dir_fd, const char *name, bool opens)
{
	int r = -ENOTEMPTY;

	if (unlinkat(dir_fd, name, 0) == 0)
		return 0;
	if (errno != EISDIR)
		return -errno;
	/* Lifted folders, and names that a walk did not see, are left to the next walk. */
	for (int i = 0; r == -ENOTEMPTY && i < TREE_MAX_WALKS; i++) {
		int fd = tree_open(dir_fd, name);

		if (fd < 0)
			return fd;
		r = tree_empty(&(const struct tree_removal){.top_fd = fd, .opens = opens}, fd, 0);
		if (r < 0 && r != -ENOTEMPTY)
			return r;
		r = unlinkat(dir_fd, name, AT_REMOVEDIR) < 0 ? -errno : 0;
	}
	return r;
}

int files_tree_remove(int dir_fd, const char *name)
{
	return tree_remove(dir_fd, name, false);
}

int files_tree_discard(int dir_fd, const char *name)
{
	return tree_remove(dir_fd, name, true);
}

struct tree_copy {
	ino_t made; /* the new folder: it may lie in what is copied */
	dev_t made_on;
	int socket_fd; /* to pid 1; -1: nobody cancels it */
};

static int tree_copy_file(const struct tree_copy *copy, int from_fd, const char *name, int to_fd,
			  const char *to, const struct stat *seen)
{
	AUTO_CLOSE int in_fd = -1;
	AUTO_CLOSE int out_fd = -1;
	struct stat st;
	int r;

	in_fd = path_open_beneath(from_fd, name, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0);
	if (in_fd < 0)
		return TAKE_FD(in_fd);
	if (fstat(in_fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode) || st.st_ino != seen->st_ino)
		return -EAGAIN; /* it was replaced in this moment */
	out_fd = path_open_beneath(to_fd, to, O_WRONLY | O_CREAT | O_EXCL, 0600);
	if (out_fd < 0)
		return TAKE_FD(out_fd);
	r = files_tree_copy_bytes(in_fd, out_fd, copy->socket_fd);
	return r >= 0 && fchmod(out_fd, st.st_mode & 0777) < 0 ? -errno : r;
}

static int tree_copy_link(int from_fd, const char *name, int to_fd, const char *to)
{
	char target[PATH_MAX];
	ssize_t n = readlinkat(from_fd, name, target, sizeof(target) - 1);

	if (n < 0)
		return -errno;
	target[n] = '\0';
	return symlinkat(target, to_fd, to) < 0 ? -errno : 0;
}

static int tree_copy_into(struct tree_copy *copy, int from_fd, int to_fd, const char *to,
			  unsigned int depth);

/* Depth is bounded. NOLINTNEXTLINE(misc-no-recursion) */
static int tree_copy_item(struct tree_copy *copy, int from_fd, const char *name, int to_fd,
			  const char *to, unsigned int depth)
{
	struct stat st;
	int fd;

	if (fstatat(from_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : -errno;
	if (S_ISREG(st.st_mode))
		return tree_copy_file(copy, from_fd, name, to_fd, to, &st);
	if (S_ISLNK(st.st_mode))
		return tree_copy_link(from_fd, name, to_fd, to);
	if (!S_ISDIR(st.st_mode))
		return -ENXIO;
	if (st.st_ino == copy->made && st.st_dev == copy->made_on)
		return 0;
	fd = tree_open(from_fd, name);
	return fd < 0 ? fd : tree_copy_into(copy, fd, to_fd, to, depth);
}

/* Takes from_fd. Depth is bounded. NOLINTNEXTLINE(misc-no-recursion) */
static int tree_copy_into(struct tree_copy *copy, int from_fd, int to_fd, const char *to,
			  unsigned int depth)
{
	DIR *dir = tree_dir(from_fd);
	AUTO_CLOSE int made_fd = -1;
	const char *name;
	struct stat st;
	int r = 0;

	if (!dir)
		return -ENOMEM;
	if (depth > TREE_MAX_DEPTH)
		r = -ENAMETOOLONG;
	else if (fstat(from_fd, &st) < 0 || mkdirat(to_fd, to, 0700) < 0)
		r = -errno;
	if (r >= 0)
		r = made_fd = tree_open(to_fd, to);
	if (r >= 0 && depth == 0) {
		struct stat made = {0};

		r = fstat(made_fd, &made) < 0 ? -errno : 0;
		copy->made = made.st_ino;
		copy->made_on = made.st_dev;
	}
	while (r >= 0 && (name = tree_next(dir)))
		r = tree_copy_item(copy, from_fd, name, made_fd, name, depth + 1);
	if (r >= 0 && fchmod(made_fd, st.st_mode & 0777) < 0)
		r = -errno;
	(void)closedir(dir);
	return r;
}

int files_tree_copy(int from_fd, int to_fd, const char *to, int socket_fd)
{
	struct tree_copy copy = {.socket_fd = socket_fd};

	return tree_copy_into(&copy, from_fd, to_fd, to, 0);
}

int files_tree_copy_item(int from_fd, const char *name, int to_fd, const char *to)
{
	struct tree_copy copy = {.socket_fd = -1};

	return tree_copy_item(&copy, from_fd, name, to_fd, to, 0);
}
