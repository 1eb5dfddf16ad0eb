#include "base/path.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>

#include "base/str.h"

#include "sandboxd/kernel.h"

/* openat2 says EAGAIN when a rename or mount ran at the same time as a ".." or a scoped walk. */
#define MAX_TRIES 64

static bool component_valid(const char *component, size_t length)
{
	if (length == 0)
		return false;
	if (component[0] == '.' && (length == 1 || (length == 2 && component[1] == '.')))
		return false;
	return true;
}

int path_check_relative(const char *path)
{
	if (strnlen(path, PATH_MAX) == PATH_MAX)
		return -ENAMETOOLONG;
	for (const char *at = path;;) {
		size_t length = strcspn(at, "/");

		if (!component_valid(at, length))
			return -EINVAL;
		if (length > NAME_MAX)
			return -ENAMETOOLONG;
		if (at[length] == '\0')
			return 0;
		at += length + 1;
	}
}

static int open_resolved(int dir_fd, const char *path, int flags, mode_t mode, uint64_t resolve)
{
	struct open_how how = {
		.flags = (uint64_t)(unsigned int)(flags | O_CLOEXEC),
		.mode = (flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE ? mode : 0,
		.resolve = resolve,
	};
	int fd = -1;

	for (int i = 0; i < MAX_TRIES; i++) {
		fd = kernel_openat2(dir_fd, path, &how);
		if (fd >= 0)
			return fd;
		if (errno != EAGAIN && errno != EINTR)
			return -errno;
	}
	return -EAGAIN;
}

int path_open_beneath(int dir_fd, const char *path, int flags, mode_t mode)
{
	return open_resolved(dir_fd, path, flags, mode,
			     RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS);
}

int path_open_within(int dir_fd, const char *path, int flags)
{
	return open_resolved(dir_fd, path, flags, 0, RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS);
}

/*
 * Owned by root, and nobody else may write: then only root can have put it there. In a sticky
 * directory others may add names, but cannot replace root's.
 */
static bool trusted(const struct stat *st, bool is_last)
{
	if (st->st_uid != 0 || S_ISLNK(st->st_mode))
		return false;
	if ((st->st_mode & (S_IWGRP | S_IWOTH)) == 0)
		return true;
	return !is_last && S_ISDIR(st->st_mode) && (st->st_mode & S_ISVTX);
}

/* Open one name in dir_fd as O_PATH and check it. */
static int step_into(int dir_fd, const char *name, bool is_last, struct stat *ret_st)
{
	int fd AUTO_CLOSE = -1;

	fd = openat(dir_fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (fstat(fd, ret_st) < 0)
		return -errno;
	if (!trusted(ret_st, is_last))
		return -EPERM;
	return TAKE_FD(fd);
}

/* Open what step_into has checked, and see that it is the same. The check comes first because an
 * open for reading can hang (a fifo) or do something (a device). */
static int open_checked(int dir_fd, const char *name, int flags, const struct stat *checked)
{
	int fd AUTO_CLOSE = -1;
	struct stat st;

	fd = openat(dir_fd, name, flags | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (st.st_dev != checked->st_dev || st.st_ino != checked->st_ino || !trusted(&st, true))
		return -EPERM;
	return TAKE_FD(fd);
}

int path_open_trusted(const char *path, int flags)
{
	int dir_fd AUTO_CLOSE = -1;
	const char *rest = path + 1;
	char name[NAME_MAX + 1];
	struct stat st = {0};
	int r;

	if (path[0] != '/' || (flags & (O_CREAT | O_TRUNC)))
		return -EINVAL;
	if (*rest == '\0') {
		dir_fd = step_into(AT_FDCWD, "/", true, &st);
		return dir_fd < 0 ? TAKE_FD(dir_fd) : open_checked(AT_FDCWD, "/", flags, &st);
	}
	r = path_check_relative(rest);
	if (r < 0)
		return r;
	dir_fd = step_into(AT_FDCWD, "/", false, &st);
	while (dir_fd >= 0) {
		size_t length = strcspn(rest, "/");
		bool is_last = rest[length] == '\0';
		int fd;

		r = str_copy_n(name, sizeof(name), rest, length);
		if (r < 0)
			return r;
		fd = step_into(dir_fd, name, is_last, &st);
		if (fd < 0)
			return fd;
		if (is_last) {
			(void)fd_close(fd);
			return open_checked(dir_fd, name, flags, &st);
		}
		(void)fd_close(dir_fd);
		dir_fd = fd;
		rest += length + 1;
	}
	return TAKE_FD(dir_fd); /* the error of "/" itself */
}
