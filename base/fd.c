#include "base/fd.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/err.h"
#include "base/io.h"

/* Linux 6.3. An older kernel answers EINVAL. */
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008u
#endif
#ifndef MFD_EXEC
#define MFD_EXEC 0x0010u
#endif

int fd_close(int fd)
{
	int saved_errno = errno;

	if (fd >= 0) {
		int r = close(fd);

		/* Any other error (EIO, EINTR) still gave the number back. */
		ASSERT(r == 0 || errno != EBADF);
		errno = saved_errno;
	}
	return -1;
}

int fd_close_from(unsigned int first)
{
	/* musl has no name for it yet. */
	return syscall(SYS_close_range, first, ~0u, 0) < 0 ? -errno : 0;
}

int fd_dup(int fd, int min)
{
	int new_fd = fcntl(fd, F_DUPFD_CLOEXEC, min);

	return new_fd < 0 ? -errno : new_fd;
}

static int change_flag(int fd, int get, int set, int flag, int on)
{
	int old_flags, new_flags;

	old_flags = fcntl(fd, get);
	if (old_flags < 0)
		return -errno;
	new_flags = on ? old_flags | flag : old_flags & ~flag;
	if (new_flags != old_flags && fcntl(fd, set, new_flags) < 0)
		return -errno;
	return 0;
}

int fd_set_cloexec(int fd, int on)
{
	return change_flag(fd, F_GETFD, F_SETFD, FD_CLOEXEC, on);
}

int fd_set_nonblock(int fd, int on)
{
	return change_flag(fd, F_GETFL, F_SETFL, O_NONBLOCK, on);
}

static void close_dir(DIR *dir)
{
	(void)closedir(dir);
}
DEFINE_AUTO(DIR *, close_dir);

int fd_count(void)
{
	DIR *dir AUTO(close_dir) = opendir("/proc/self/fd");
	int n = 0;

	if (!dir)
		return -errno;
	for (;;) {
		struct dirent *entry;

		errno = 0;
		entry = readdir(dir); /* NOLINT(concurrency-mt-unsafe): a stream of our own */
		if (!entry)
			break;
		if (entry->d_name[0] != '.')
			n++;
	}
	if (errno != 0)
		return -errno;
	return n - 1; /* without the directory's own */
}

int fd_memfd_sealed(const char *name, const void *data, size_t size, int exec)
{
	const unsigned int base_flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
	int fd AUTO_CLOSE = -1;
	int r;

	/* Without one of the two, kernels from 6.3 on log a warning, and refuse where
	 * vm.memfd_noexec is 2. */
	fd = memfd_create(name, base_flags | (exec ? MFD_EXEC : MFD_NOEXEC_SEAL));
	if (fd < 0 && errno == EINVAL)
		fd = memfd_create(name, base_flags);
	if (fd < 0)
		return -errno;
	r = io_write_all(fd, data, size);
	if (r < 0)
		return r;
	if (lseek(fd, 0, SEEK_SET) < 0)
		return -errno;
	/* The write seal comes with the others, so that a holder can neither change what we run
	 * nor take the seals off. exec of this very descriptor works (no ETXTBSY): a memfd's first
	 * open does not count as a writer; a second open for writing is refused by the seal. */
	if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) < 0)
		return -errno;
	return TAKE_FD(fd);
}
