#include "supervisor/api/store/audit_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/str.h"

#include "sandboxd/limits.h"

#define NAME_BYTES 32

/* A loss of power may have left a part of a line: the next one begins behind it. */
static int end_last_line(int fd, off_t *size)
{
	char last = '\n';

	if (*size > 0 && pread(fd, &last, 1, *size - 1) < 0)
		return -errno;
	if (last == '\n')
		return 0;
	if (write(fd, "\n", 1) < 0)
		return -errno;
	(*size)++;
	return 0;
}

static int open_current(struct audit_file *file)
{
	AUTO_CLOSE int fd = openat(file->dir_fd, AUDIT_FILE_NAME,
				   O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	struct stat st;
	int r;

	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EBADF;
	r = end_last_line(fd, &st.st_size);
	if (r < 0)
		return r;
	file->size = (uint64_t)st.st_size;
	file->fd = TAKE_FD(fd);
	return 0;
}

int audit_file_open(struct audit_file *file, int dir_fd, uint64_t max_bytes)
{
	*file = AUDIT_FILE_NULL;
	file->dir_fd = dir_fd;
	file->max_bytes = max_bytes;
	return open_current(file);
}

static void old_name(char name[NAME_BYTES], unsigned int number)
{
	if (number == 0)
		(void)snprintf(name, NAME_BYTES, AUDIT_FILE_NAME);
	else
		(void)snprintf(name, NAME_BYTES, AUDIT_FILE_NAME ".%u", number);
}

/* Each takes the next number; the last one is gone. */
static int rotate(struct audit_file *file)
{
	char from[NAME_BYTES];
	char to[NAME_BYTES];

	(void)fdatasync(file->fd); /* nobody comes back to it */
	for (unsigned int i = AUDIT_OLD_FILES; i > 0; i--) {
		old_name(from, i - 1);
		old_name(to, i);
		if (renameat(file->dir_fd, from, file->dir_fd, to) < 0 && errno != ENOENT)
			return -errno;
	}
	file->fd = fd_close(file->fd);
	return open_current(file);
}

/* A part of a line would spoil the next one as well. */
static int undo(struct audit_file *file, int error)
{
	if (ftruncate(file->fd, (off_t)file->size) < 0)
		file->fd = fd_close(file->fd); /* opened again before the next line */
	return error;
}

int audit_file_append(struct audit_file *file, const char *line, size_t size)
{
	ssize_t n;
	int r = 0;

	if (file->fd < 0)
		r = open_current(file);
	if (r == 0 && file->size > 0 && file->size + size > file->max_bytes)
		r = rotate(file);
	if (r < 0)
		return r;
	do {
		n = write(file->fd, line, size);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	if ((size_t)n < size)
		return undo(file, -ENOSPC);
	file->size += size;
	file->unsynced = true;
	return 0;
}

int audit_file_sync(struct audit_file *file)
{
	struct stat st;

	if (file->fd < 0)
		return open_current(file);
	if (file->unsynced && fdatasync(file->fd) < 0)
		return -errno;
	file->unsynced = false;
	if (fstat(file->fd, &st) == 0 && st.st_nlink > 0)
		return 0;
	file->fd = fd_close(file->fd);
	return open_current(file);
}

void audit_file_close(struct audit_file *file)
{
	if (file->fd >= 0 && file->unsynced)
		(void)fdatasync(file->fd);
	file->fd = fd_close(file->fd);
}
