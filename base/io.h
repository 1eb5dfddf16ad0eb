/*
 * Whole reads and writes. Nobody else calls read or write on a pipe or socket between our
 * processes.
 */
#pragma once

#include <stddef.h>
#include <sys/types.h>

#include "base/auto.h"

/* Read exactly size bytes (blocking descriptor). 0; -EPIPE at end-of-file before the last byte;
 * -errno. */
MUST_USE int io_read_exact(int fd, void *data, size_t size);

/* Write all bytes (blocking descriptor). 0 or -errno. */
MUST_USE int io_write_all(int fd, const void *data, size_t size);

/* One read, EINTR repeated. Number of bytes (0: end-of-file), -EAGAIN, or -errno. */
MUST_USE ssize_t io_read(int fd, void *data, size_t size);

/* One write, EINTR repeated. Number of bytes, -EAGAIN, or -errno. */
MUST_USE ssize_t io_write(int fd, const void *data, size_t size);

/* Read a file of at most max bytes from a descriptor into a new buffer, NUL terminated behind the
 * data. -EFBIG when there is more. The caller frees *ret_data. */
MUST_USE int io_read_file(int fd, size_t max_bytes, char **ret_data, size_t *ret_size);

/* Write text to the file `name` below dir_fd in one write (cgroup and procfs files). 0 or -errno.
 */
MUST_USE int io_write_at(int dir_fd, const char *name, const char *text);

/* Read a small file below dir_fd into text (NUL terminated, trailing newline removed). Length,
 * -EFBIG when it does not fit, or -errno. Neither follows a symlink in the last component. */
MUST_USE ssize_t io_read_at(int dir_fd, const char *name, char *text, size_t text_bytes);
