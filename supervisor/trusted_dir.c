#include "supervisor/trusted_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

#include "base/path.h"
#include "base/str.h"

/* Nothing is made where somebody else could put something in its place: root's, and writable by
 * root alone or sticky (/tmp). */
static int check_parent(int dir_fd)
{
	struct stat st;

	if (fstat(dir_fd, &st) < 0)
		return -errno;
	if (st.st_uid != 0 || ((st.st_mode & 022) && !(st.st_mode & S_ISVTX)))
		return -EPERM;
	return 0;
}

static int open_or_make(int dir_fd, const char *name, mode_t mode)
{
	int fd;
	int r;

	fd = openat(dir_fd, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd >= 0)
		return fd;
	if (errno != ENOENT)
		return -errno;
	r = check_parent(dir_fd);
	if (r < 0)
		return r;
	/* EEXIST: another instance was faster. */
	if (mkdirat(dir_fd, name, mode) < 0 && errno != EEXIST)
		return -errno;
	fd = openat(dir_fd, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

/* Make what is missing of path. Whether the whole is to be trusted is decided by the caller. */
static int make_missing(const char *path, mode_t mode)
{
	AUTO_CLOSE int fd = -1;
	char name[NAME_MAX + 1];

	fd = open("/", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	for (;;) {
		size_t length;
		int next;
		int r;

		path += strspn(path, "/");
		if (path[0] == '\0')
			return 0;
		length = strcspn(path, "/");
		r = str_copy_n(name, sizeof(name), path, length);
		if (r < 0)
			return r;
		path += length;
		next = open_or_make(fd, name, path[strspn(path, "/")] ? 0755 : mode);
		if (next < 0)
			return next;
		(void)fd_close(fd);
		fd = next;
	}
}

/* path_open_trusted wants no empty component; people write them. */
static int without_empty_components(const char *path, char *dest, size_t dest_bytes)
{
	size_t used = 0;

	for (;;) {
		size_t length;

		path += strspn(path, "/");
		length = strcspn(path, "/");
		if (used + 1 + length + 1 > dest_bytes)
			return -ENAMETOOLONG;
		if (length == 0)
			break;
		dest[used] = '/';
		memcpy(dest + used + 1, path, length);
		used += 1 + length;
		path += length;
	}
	if (used == 0)
		dest[used++] = '/';
	dest[used] = '\0';
	return 0;
}

int trusted_dir_open(const char *path, mode_t mode, const char *step, struct err *err)
{
	char clean[PATH_MAX];
	int r;

	r = without_empty_components(path, clean, sizeof(clean));
	if (r < 0)
		return err_fail(err, r, step, "the path is too long");
	r = make_missing(clean, mode);
	if (r < 0)
		return err_fail(err, r, step, "%s: make the directory", clean);
	r = path_open_trusted(clean, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (r < 0)
		return err_fail(err, r, step, "%s: open, or not owned by root alone", clean);
	return r;
}
