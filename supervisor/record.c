#include "supervisor/record.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/plan.h"
#include "base/str.h"

#include "sandboxd/wire.h"
#include "supervisor/idblock.h"

#define NAME_BYTES (ID_TEXT_BYTES + 16)

static int write_whole(int fd, const struct record *record)
{
	ssize_t n = pwrite(fd, record, sizeof(*record), 0);

	if (n < 0)
		return -errno;
	return n == (ssize_t)sizeof(*record) ? 0 : -EIO;
}

int record_write(int dir_fd, const char *name, const struct record *record)
{
	char new_name[NAME_BYTES];
	char final_name[NAME_BYTES];

	int r = str_format(new_name, sizeof(new_name), "%s" RECORD_REST, name);
	if (r == 0)
		r = str_format(final_name, sizeof(final_name), "%s" RECORD_SUFFIX, name);
	if (r < 0)
		return r;
	AUTO_CLOSE int fd =
		openat(dir_fd, new_name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	r = write_whole(fd, record);
	if (r == 0 && renameat2(dir_fd, new_name, dir_fd, final_name, RENAME_NOREPLACE) < 0)
		r = -errno;
	if (r < 0) {
		(void)unlinkat(dir_fd, new_name, 0);
		return r;
	}
	return TAKE_FD(fd);
}

int record_rewrite(int fd, const struct record *record)
{
	return write_whole(fd, record);
}

static bool is_padded_text(const char *text, size_t bytes)
{
	size_t length = strnlen(text, bytes);

	for (size_t i = 0; i < length; i++) {
		if (text[i] < 0x21 || text[i] > 0x7e)
			return false;
	}
	for (size_t i = length; i < bytes; i++) {
		if (text[i] != '\0')
			return false;
	}
	return length > 0 && length < bytes;
}

static bool is_instance(const char text[RECORD_INSTANCE_BYTES])
{
	for (size_t i = 0; i < RECORD_INSTANCE_BYTES; i++) {
		if (text[i] == '\0' || !strchr("0123456789abcdef", text[i]))
			return false;
	}
	return true;
}

static bool is_block(uint32_t base)
{
	uint32_t index = base / IDBLOCK_SIZE;

	return base % IDBLOCK_SIZE == 0 && index >= IDBLOCK_FIRST && index <= IDBLOCK_LAST;
}

static bool state_fits(const struct record *record)
{
	switch (record->state) {
	case RECORD_STATE_STARTING:
		return record->pid == 0;
	case RECORD_STATE_LIVE:
		/* 1 is whoever reaps for all of us, never a session. */
		return record->pid > 1 && record->proof.shim_pid == record->pid &&
		       record->proof.id_base == record->id_base;
	default:
		return false;
	}
}

static int check(const struct record *record, const char *name)
{
	struct id id;

	if (id_parse(name, &id) < 0 || memcmp(id.bytes, record->plan.session, ID_BYTES) != 0)
		return -EINVAL;
	if (plan_check(&record->plan, NULL) < 0)
		return -EINVAL;
	if (!is_instance(record->instance) ||
	    !is_padded_text(record->release, sizeof(record->release)))
		return -EINVAL;
	if (record->group_id == 0 || !is_block(record->id_base))
		return -EINVAL;
	if (record->born_at_us > clock_boottime() || !state_fits(record))
		return -EINVAL;
	return 0;
}

int record_read(int dir_fd, const char *name, struct record *ret_record)
{
	char file[NAME_BYTES];
	struct record record = {0};
	struct stat st;

	int r = str_format(file, sizeof(file), "%s" RECORD_SUFFIX, name);
	if (r < 0)
		return r;
	AUTO_CLOSE int fd =
		openat(dir_fd, file, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (fd < 0)
		return errno == ELOOP || errno == ENXIO ? -EPERM : -errno;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 07777) != 0600 ||
	    st.st_nlink != 1)
		return -EPERM;
	ssize_t n = io_read(fd, &record, sizeof(record));
	if (n < 0)
		return (int)n;
	if ((size_t)n < offsetof(struct record, instance) || record.magic != RECORD_MAGIC)
		return -EINVAL;
	if (record.version != RECORD_VERSION)
		return -EPROTO;
	if ((size_t)n != sizeof(record) || st.st_size != (off_t)sizeof(record) ||
	    record.size != sizeof(record))
		return -EINVAL;
	r = check(&record, name);
	if (r < 0)
		return r;
	*ret_record = record;
	return record.wire_version == WIRE_VERSION ? 0 : -EPROTO;
}

void record_remove(int dir_fd, const char *name)
{
	static const char *const suffixes[] = {RECORD_SUFFIX, RECORD_REST};
	char file[NAME_BYTES];

	for (size_t i = 0; i < ARRAY_SIZE(suffixes); i++) {
		if (str_format(file, sizeof(file), "%s%s", name, suffixes[i]) == 0)
			(void)unlinkat(dir_fd, file, 0);
	}
}
