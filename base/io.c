#include "base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

int io_read_exact(int fd, void *data, size_t size)
{
	uint8_t *at = data;

	while (size > 0) {
		ssize_t n = io_read(fd, at, size);

		if (n < 0)
			return (int)n;
		if (n == 0)
			return -EPIPE;
		at += n;
		size -= (size_t)n;
	}
	return 0;
}

int io_write_all(int fd, const void *data, size_t size)
{
	const uint8_t *at = data;

	while (size > 0) {
		ssize_t n = io_write(fd, at, size);

		if (n < 0)
			return (int)n;
		if (n == 0)
			return -EIO; /* no progress and no error: do not spin */
		at += n;
		size -= (size_t)n;
	}
	return 0;
}

ssize_t io_read(int fd, void *data, size_t size)
{
	ssize_t n;

	do
		n = read(fd, data, size);
	while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : n;
}

ssize_t io_write(int fd, const void *data, size_t size)
{
	ssize_t n;

	do
		n = write(fd, data, size);
	while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : n;
}

/* Read until end-of-file or until `size` bytes are there: procfs files come in pieces. */
static ssize_t read_up_to(int fd, char *data, size_t size)
{
	size_t used = 0;

	while (used < size) {
		ssize_t n = io_read(fd, data + used, size - used);

		if (n < 0)
			return n;
		if (n == 0)
			break;
		used += (size_t)n;
	}
	return (ssize_t)used;
}

int io_read_file(int fd, size_t max_bytes, char **ret_data, size_t *ret_size)
{
	char *data AUTO_FREE = NULL;
	size_t allocated = 0;
	size_t used = 0;

	if (max_bytes >= SSIZE_MAX - 1)
		return -EINVAL;
	for (;;) {
		/* One byte more than the maximum, to see that there is more. */
		size_t wanted = allocated ? allocated * 2 : 4096;
		char *larger;
		ssize_t n;

		if (wanted > max_bytes + 1)
			wanted = max_bytes + 1;
		larger = realloc(data, wanted + 1);
		if (!larger)
			return -ENOMEM;
		data = larger;
		allocated = wanted;
		n = read_up_to(fd, data + used, allocated - used);
		if (n < 0)
			return (int)n;
		used += (size_t)n;
		if (used > max_bytes)
			return -EFBIG;
		if (used < allocated)
			break;
	}
	data[used] = '\0';
	*ret_size = used;
	*ret_data = TAKE_PTR(data);
	return 0;
}

int io_write_at(int dir_fd, const char *name, const char *text)
{
	int fd AUTO_CLOSE = -1;
	size_t size = strlen(text);
	ssize_t n;

	fd = openat(dir_fd, name, O_WRONLY | O_CLOEXEC | O_NOCTTY | O_NOFOLLOW);
	if (fd < 0)
		return -errno;
	n = io_write(fd, text, size);
	if (n < 0)
		return (int)n;
	return (size_t)n == size ? 0 : -EIO;
}

ssize_t io_read_at(int dir_fd, const char *name, char *text, size_t text_bytes)
{
	int fd AUTO_CLOSE = -1;
	ssize_t n;

	if (text_bytes == 0)
		return -EINVAL;
	fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NOFOLLOW);
	if (fd < 0)
		return -errno;
	n = read_up_to(fd, text, text_bytes);
	if (n < 0)
		return n;
	if ((size_t)n == text_bytes) {
		text[0] = '\0';
		return -EFBIG;
	}
	if (n > 0 && text[n - 1] == '\n')
		n--;
	text[n] = '\0';
	return n;
}
