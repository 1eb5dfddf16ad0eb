/*
 * Descriptors: closed exactly once, close-on-exec at birth.
 */
#pragma once

#include <stddef.h>

/* Close fd if it is >= 0; aborts on EBADF, which means that somebody closed it before and may since
 * have closed somebody else's. Returns -1: `fd = fd_close(fd);` */
int fd_close(int fd);

/* Close every descriptor from `first` on (close_range). Returns 0 or -errno. */
int fd_close_from(unsigned int first);

/* Duplicate fd, close-on-exec, at a number >= min. Returns the new descriptor or -errno. */
int fd_dup(int fd, int min);

/* Set or clear FD_CLOEXEC / O_NONBLOCK. Return 0 or -errno. */
int fd_set_cloexec(int fd, int on);
int fd_set_nonblock(int fd, int on);

/* Number of open descriptors of this process, or -errno (reads /proc/self/fd; allocates). */
int fd_count(void);

/* A sealed memfd that holds size bytes of data, its offset at 0, close-on-exec: nobody can change
 * it any more. exec: it will be run (by this very descriptor), else it can not be where the kernel
 * knows MFD_NOEXEC_SEAL. Returns the descriptor or -errno. */
int fd_memfd_sealed(const char *name, const void *data, size_t size, int exec);
