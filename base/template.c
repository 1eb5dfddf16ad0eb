#include "base/template.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"

static int check(const struct template_record *record)
{
	if (record->magic != TEMPLATE_MAGIC)
		return -EINVAL;
	if (record->version != TEMPLATE_VERSION || record->size != sizeof(*record))
		return -EPROTO;
	if (record->id_base != TEMPLATE_OWNERS_PLAIN && record->id_base != TEMPLATE_ID_BASE)
		return -EINVAL;
	return record->reserved == 0 && record->n_inodes > 0 ? 0 : -EINVAL;
}

int template_record_open(int folder_fd, struct template_record *ret_record)
{
	AUTO_CLOSE int fd = openat(folder_fd, TEMPLATE_RECORD_FILE,
				   O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	struct template_record record = {0};
	struct stat st;
	ssize_t n;
	int r;

	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 077) != 0)
		return -EPERM;
	/* One byte more would be another layout. */
	n = st.st_size == (off_t)sizeof(record) ? pread(fd, &record, sizeof(record), 0) : 0;
	if (n < 0)
		return -errno;
	r = n == (ssize_t)sizeof(record) ? check(&record) : -EPROTO;
	if (r < 0)
		return r;
	*ret_record = record;
	return TAKE_FD(fd);
}

int template_hold(int record_fd, uint32_t user)
{
	struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET, .l_start = user, .l_len = 1};
	struct stat st;

	if (fcntl(record_fd, F_OFD_SETLK, &lock) < 0)
		return errno == EAGAIN || errno == EACCES ? -ENOENT : -errno;
	if (fstat(record_fd, &st) < 0)
		return -errno;
	return st.st_nlink > 0 ? 0 : -ENOENT;
}

int template_count_users(int record_fd, uint32_t *ret_n)
{
	off_t start = 0;
	uint32_t n = 0;

	for (;;) {
		struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = start};

		if (fcntl(record_fd, F_OFD_GETLK, &lock) < 0)
			return -errno;
		if (lock.l_type == F_UNLCK)
			break;
		/* Whoever has all of it removes it. */
		if (lock.l_len != 1 || lock.l_start < start)
			break;
		n++;
		start = lock.l_start + 1;
	}
	*ret_n = n;
	return 0;
}
