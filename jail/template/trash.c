#include "jail/template/trash.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/str.h"

#define TRASH_FOLDER "trash"
#define FOLDER_MODE  0700

int trash_open(struct trash *trash, int top_fd, struct bounds *bounds)
{
	*trash = TRASH_NULL;
	if (mkdirat(top_fd, TRASH_FOLDER, FOLDER_MODE) < 0 && errno != EEXIST)
		return -errno;
	trash->fd = openat(top_fd, TRASH_FOLDER, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (trash->fd < 0)
		return -errno;
	trash->top_fd = top_fd;
	trash->bounds = bounds;
	return 0;
}

int trash_adopt(struct trash *trash, int folder_fd)
{
	int fd = fd_dup(folder_fd, 0);

	*trash = TRASH_NULL;
	trash->fd = fd;
	return fd < 0 ? fd : 0;
}

static void forget(const struct trash *trash, const struct stat *st)
{
	/* The last of its names. A folder counts when it comes to its end. */
	if (trash->bounds && st->st_nlink == 1)
		bounds_forget(trash->bounds, S_ISREG(st->st_mode) ? (uint64_t)st->st_size : 0);
}

/* A run that was ended may have left some of the names. */
static int move(struct trash *trash, int folder_fd, const char *name)
{
	char number[24];

	for (;;) {
		int r = str_format(number, sizeof(number), "%llu",
				   (unsigned long long)trash->next++);

		if (r < 0)
			return r;
		if (renameat2(folder_fd, name, trash->fd, number, RENAME_NOREPLACE) == 0)
			return 0;
		if (errno != EEXIST)
			return -errno;
	}
}

int trash_put(struct trash *trash, int folder_fd, const char *name)
{
	struct stat st;

	if (fstatat(folder_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : -errno;
	if (S_ISDIR(st.st_mode))
		return move(trash, folder_fd, name);
	if (unlinkat(folder_fd, name, 0) < 0)
		return -errno;
	forget(trash, &st);
	return 0;
}

/* One pass over what is in the folder. 0 or -errno. */
static int each(struct trash *trash, int folder_fd,
		int (*visit)(struct trash *trash, int folder_fd, const char *name), bool *ret_found)
{
	AUTO_CLOSE int fd = openat(folder_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *entry;
	bool found = false;
	int r = 0;

	if (!dir)
		return -errno;
	(void)TAKE_FD(fd);
	errno = 0;
	/* One thread. */
	while (r >= 0 && (entry = readdir(dir))) { /* NOLINT(concurrency-mt-unsafe) */
		if (str_equal(entry->d_name, ".") || str_equal(entry->d_name, ".."))
			continue;
		found = true;
		r = visit(trash, folder_fd, entry->d_name);
		errno = 0;
	}
	if (r >= 0 && errno != 0)
		r = -errno;
	(void)closedir(dir);
	*ret_found = found;
	return r;
}

int trash_put_children(struct trash *trash, int folder_fd)
{
	bool found;

	return each(trash, folder_fd, trash_put, &found);
}

/* Its own children come to lie beside it. What a pass over a folder that changes did not see is
 * seen by the next. */
static int flatten(struct trash *trash, int trash_fd, const char *name)
{
	AUTO_CLOSE int fd = openat(trash_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	int r;

	if (fd < 0 && (errno == ENOTDIR || errno == ELOOP))
		return unlinkat(trash_fd, name, 0) < 0 ? -errno : 0;
	if (fd < 0)
		return errno == ENOENT ? 0 : -errno;
	r = trash_put_children(trash, fd);
	if (r < 0)
		return r;
	if (unlinkat(trash_fd, name, AT_REMOVEDIR) < 0)
		return errno == ENOTEMPTY ? 0 : -errno;
	if (trash->bounds)
		bounds_forget(trash->bounds, 0);
	return 0;
}

int trash_empty(struct trash *trash)
{
	bool found = true;
	int r = 0;

	while (r >= 0 && found)
		r = each(trash, trash->fd, flatten, &found);
	return r;
}

int trash_remove(struct trash *trash)
{
	return unlinkat(trash->top_fd, TRASH_FOLDER, AT_REMOVEDIR) < 0 ? -errno : 0;
}

void trash_done(struct trash *trash)
{
	trash->fd = fd_close(trash->fd);
}
