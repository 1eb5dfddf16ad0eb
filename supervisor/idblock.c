#include "supervisor/idblock.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/io.h"
#include "base/num.h"
#include "base/str.h"

#include "sandboxd/limits.h"
#include "supervisor/cgroup.h"

#define IDBLOCK_MAGIC      0x42444953u
#define IDBLOCK_VERSION    1
#define IDBLOCK_BOOT_BYTES 36
#define LOCK_TRIES         100u /* a millisecond apart: the loop waits */
#define LOCK_TRIES_RELEASE 5u   /* what is given back can wait, the loop need not */
#define LOCK_TRIES_START                                                                           \
	5000u /* nothing is served yet, and another start may hold it for its scan */
#define RECORDS_A_READ     256u
#define ETC_FILE_MAX_BYTES ((size_t)16 * 1024 * 1024)

enum idblock_state {
	IDBLOCK_STATE_FREE,
	IDBLOCK_STATE_USED,
	IDBLOCK_STATE_RESTING,
};

struct idblock_header {
	uint32_t magic;
	uint32_t version;
	uint32_t next; /* block where the next search begins */
	uint32_t zero;
	char boot[IDBLOCK_BOOT_BYTES]; /* records of an earlier boot mean nothing */
	char pad[12];
};
_Static_assert(sizeof(struct idblock_header) == 64, "file format");

struct idblock_record {
	uint32_t state; /* enum idblock_state */
	uint32_t zero;
	char instance[IDBLOCK_INSTANCE_BYTES];
	uint64_t group_id;
	uint64_t released_at_us; /* CLOCK_BOOTTIME */
};
_Static_assert(sizeof(struct idblock_record) == 32, "file format");

static off_t record_offset(uint32_t index)
{
	return (off_t)(sizeof(struct idblock_header) +
		       (size_t)(index - IDBLOCK_FIRST) * sizeof(struct idblock_record));
}

static int read_record(const struct idblock *idblock, uint32_t index, struct idblock_record *record)
{
	ssize_t n = pread(idblock->fd, record, sizeof(*record), record_offset(index));

	if (n < 0)
		return -errno;
	if ((size_t)n < sizeof(*record)) /* behind the end of the file: never used */
		*record = (struct idblock_record){0};
	return 0;
}

static int write_record(const struct idblock *idblock, uint32_t index,
			const struct idblock_record *record)
{
	ssize_t n = pwrite(idblock->fd, record, sizeof(*record), record_offset(index));

	if (n < 0)
		return -errno;
	return (size_t)n == sizeof(*record) ? 0 : -EIO;
}

/* Edits are short; a holder that is not (stopped by a debugger, say) must not stop us as well. */
static int file_lock(const struct idblock *idblock, unsigned int n_tries)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	const struct timespec pause = {.tv_nsec = 1000000};

	for (unsigned int i = 0; i < n_tries; i++) {
		if (fcntl(idblock->fd, F_OFD_SETLK, &lock) == 0)
			return 0;
		if (errno != EAGAIN && errno != EINTR)
			return -errno;
		(void)nanosleep(&pause, NULL);
	}
	return -ETIMEDOUT;
}

static void file_unlock(const struct idblock *idblock)
{
	struct flock lock = {.l_type = F_UNLCK, .l_whence = SEEK_SET};

	/* Cannot fail for a lock that is held. */
	(void)fcntl(idblock->fd, F_OFD_SETLK, &lock);
}

static void exclude_ids(struct idblock *idblock, uint64_t first, uint64_t count)
{
	if (count == 0)
		return;
	uint64_t from = first / IDBLOCK_SIZE;
	uint64_t to = (first + count - 1) / IDBLOCK_SIZE;

	for (uint64_t i = from; i <= to && i <= IDBLOCK_LAST; i++)
		idblock->excluded[i / 64] |= 1ull << (i % 64);
}

/* name:id:count of subuid and subgid; name:password:id of passwd and group. */
static void exclude_line(struct idblock *idblock, char *line, bool is_range)
{
	char *first = strchr(line, ':');
	char *second = first ? strchr(first + 1, ':') : NULL;
	uint32_t id = 0;
	uint32_t count = 1;

	if (!second)
		return;
	*second++ = '\0';
	if (is_range) {
		if (num_parse_u32(first + 1, 0, UINT32_MAX, &id) < 0 ||
		    num_parse_u32(second, 0, UINT32_MAX, &count) < 0)
			return;
	} else {
		char *end = strchr(second, ':');
		if (end)
			*end = '\0';
		if (num_parse_u32(second, 0, UINT32_MAX, &id) < 0)
			return;
	}
	exclude_ids(idblock, id, count);
}

static int exclude_file(struct idblock *idblock, int etc_fd, const char *name, bool is_range)
{
	AUTO_FREE char *text = NULL;
	size_t size = 0;
	AUTO_CLOSE int fd = openat(etc_fd, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

	if (fd < 0)
		return errno == ENOENT ? 0 : -errno;
	int r = io_read_file(fd, ETC_FILE_MAX_BYTES, &text, &size);
	if (r < 0)
		return r;
	for (char *line = text; line;) {
		char *next = strchr(line, '\n');
		if (next)
			*next++ = '\0';
		exclude_line(idblock, line, is_range);
		line = next;
	}
	return 0;
}

static int read_exclusions(struct idblock *idblock, const char *etc, struct err *err)
{
	static const struct {
		const char *name;
		bool is_range;
	} files[] = {
		{"passwd", false},
                {"group",  false},
                {"subuid", true },
                {"subgid", true }
        };
	AUTO_CLOSE int etc_fd = open(etc, O_PATH | O_DIRECTORY | O_CLOEXEC);

	if (etc_fd < 0)
		return err_fail(err, -errno, "id-blocks", "open %s", etc);
	for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
		int r = exclude_file(idblock, etc_fd, files[i].name, files[i].is_range);
		if (r < 0)
			return err_fail(err, r, "id-blocks", "read %s", files[i].name);
	}
	return 0;
}

static int read_boot(char boot[IDBLOCK_BOOT_BYTES + 8], struct err *err)
{
	ssize_t n = io_read_at(AT_FDCWD, "/proc/sys/kernel/random/boot_id", boot,
			       IDBLOCK_BOOT_BYTES + 8);

	if (n != IDBLOCK_BOOT_BYTES)
		return err_fail(err, n < 0 ? (int)n : -EIO, "id-blocks", "read boot_id");
	return 0;
}

/* Locked. A new file, one of another boot, or what is no table of ours begins empty. A table of
 * this boot in another release's format may name blocks that are in use. */
static int check_header(const struct idblock *idblock, struct err *err)
{
	struct idblock_header header = {0};
	char boot[IDBLOCK_BOOT_BYTES + 8] = "";

	int r = read_boot(boot, err);
	if (r < 0)
		return r;
	ssize_t n = pread(idblock->fd, &header, sizeof(header), 0);
	if (n < 0)
		return err_fail(err, -errno, "id-blocks", "read header");
	if ((size_t)n == sizeof(header) && header.magic == IDBLOCK_MAGIC &&
	    memcmp(header.boot, boot, IDBLOCK_BOOT_BYTES) == 0) {
		if (header.version == IDBLOCK_VERSION)
			return 0;
		return err_fail(err, -EPROTO, "id-blocks",
				"the file has version %u, ours is %d: stop the other release first",
				header.version, IDBLOCK_VERSION);
	}
	if (ftruncate(idblock->fd, 0) < 0)
		return err_fail(err, -errno, "id-blocks", "empty the file");
	header = (struct idblock_header){
		.magic = IDBLOCK_MAGIC,
		.version = IDBLOCK_VERSION,
		.next = IDBLOCK_FIRST,
	};
	memcpy(header.boot, boot, IDBLOCK_BOOT_BYTES);
	if (pwrite(idblock->fd, &header, sizeof(header), 0) != (ssize_t)sizeof(header))
		return err_fail(err, -EIO, "id-blocks", "write header");
	return 0;
}

int idblock_open(struct idblock *idblock, const struct idblock_options *options, struct err *err)
{
	struct stat st;

	*idblock = IDBLOCK_NULL;
	idblock->group_fd = options->group_fd;
	idblock->group_id = options->group_id;
	if (strlen(options->instance) != IDBLOCK_INSTANCE_BYTES)
		return err_fail(err, -EINVAL, "id-blocks", "instance is not 8 characters");
	memcpy(idblock->instance, options->instance, IDBLOCK_INSTANCE_BYTES);
	int r = read_exclusions(idblock, options->etc, err);
	if (r < 0)
		return r;
	idblock->fd = open(options->file, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (idblock->fd < 0)
		return err_fail(err, -errno, "id-blocks", "open %s", options->file);
	if (fstat(idblock->fd, &st) < 0)
		return err_fail(err, -errno, "id-blocks", "stat %s", options->file);
	/* Whoever can write this file chooses the ids of the next session (A14). */
	if (!S_ISREG(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 077) != 0)
		return err_fail(err, -EPERM, "id-blocks", "%s is not ours alone", options->file);
	r = file_lock(idblock, LOCK_TRIES_START);
	if (r < 0)
		return err_fail(err, r, "id-blocks", "lock %s", options->file);
	r = check_header(idblock, err);
	file_unlock(idblock);
	return r;
}

bool idblock_usable(const struct idblock *idblock, uint32_t index)
{
	if (index < IDBLOCK_FIRST || index > IDBLOCK_LAST)
		return false;
	return (idblock->excluded[index / 64] & (1ull << (index % 64))) == 0;
}

/* Does the v2 group with this id still exist? Asked by id, so that no name can deceive (A13). */
static bool group_exists(const struct idblock *idblock, uint64_t group_id)
{
	if (idblock->group_fd < 0)
		return true;
	AUTO_CLOSE int fd = cgroup_open_by_id(idblock->group_fd, group_id);
	/* Any other failure proves nothing: leave the block alone. */
	return fd != -ESTALE;
}

/* Locked. May this record be handed out now? */
static bool record_free(const struct idblock_record *record, usec_t now)
{
	switch (record->state) {
	case IDBLOCK_STATE_FREE:
		return true;
	case IDBLOCK_STATE_RESTING:
		return now >= clock_add(record->released_at_us, IDBLOCK_QUARANTINE);
	default:
		return false;
	}
}

/* Behind the last record that was ever written; what follows is free. */
static uint32_t records_end(const struct idblock *idblock)
{
	struct stat st;

	if (fstat(idblock->fd, &st) < 0 || st.st_size < (off_t)sizeof(struct idblock_header))
		return IDBLOCK_LAST + 1;
	uint64_t n = ((uint64_t)st.st_size - sizeof(struct idblock_header)) /
		     sizeof(struct idblock_record);
	return n > IDBLOCK_LAST - IDBLOCK_FIRST ? IDBLOCK_LAST + 1 : IDBLOCK_FIRST + (uint32_t)n;
}

/* Locked. Of a used block: 1 when its rest begins now, 0, or -errno. */
typedef int (*visit_used)(void *userdata, uint32_t index, const struct idblock_record *record);

/* Locked, so in large bites: whoever waits for the lock gives up after a tenth of a second, and the
 * file of a host that has run for a while has a record for every block. */
static int each_used(const struct idblock *idblock, usec_t now, visit_used visit, void *userdata)
{
	struct idblock_record records[RECORDS_A_READ];
	uint32_t end = records_end(idblock);
	int r = 0;

	for (uint32_t first = IDBLOCK_FIRST; r >= 0 && first < end; first += RECORDS_A_READ) {
		ssize_t n = pread(idblock->fd, records, sizeof(records), record_offset(first));
		if (n < 0)
			return -errno;
		for (uint32_t i = 0; r >= 0 && i < (size_t)n / sizeof(records[0]); i++) {
			if (records[i].state != IDBLOCK_STATE_USED || first + i >= end)
				continue;
			r = visit(userdata, first + i, &records[i]);
			if (r <= 0)
				continue;
			records[i].state = IDBLOCK_STATE_RESTING;
			records[i].released_at_us = now;
			r = write_record(idblock, first + i, &records[i]);
		}
	}
	return r < 0 ? r : 0;
}

struct reclaim {
	const struct idblock *idblock;
	uint64_t live_id;
	uint64_t dead_id;
};

static int visit_reclaim(void *userdata, uint32_t index, const struct idblock_record *record)
{
	struct reclaim *reclaim = userdata;

	(void)index;
	if (record->group_id == reclaim->live_id)
		return 0;
	if (record->group_id != reclaim->dead_id) {
		if (group_exists(reclaim->idblock, record->group_id)) {
			reclaim->live_id = record->group_id;
			return 0;
		}
		reclaim->dead_id = record->group_id;
	}
	return 1;
}

/* Locked. Blocks of instances that are gone begin their rest. */
static int reclaim(const struct idblock *idblock, usec_t now)
{
	struct reclaim state = {.idblock = idblock, .live_id = idblock->group_id};

	return each_used(idblock, now, visit_reclaim, &state);
}

/* Locked. */
static int take_locked(struct idblock *idblock, usec_t now, uint32_t *ret_index)
{
	struct idblock_header header;
	struct idblock_record record;

	if (pread(idblock->fd, &header, sizeof(header), 0) != (ssize_t)sizeof(header))
		return -EIO;
	uint32_t index = header.next;
	if (index < IDBLOCK_FIRST || index > IDBLOCK_LAST)
		index = IDBLOCK_FIRST;
	for (uint32_t n = IDBLOCK_FIRST; n <= IDBLOCK_LAST; n++) {
		uint32_t following = index == IDBLOCK_LAST ? IDBLOCK_FIRST : index + 1;
		if (idblock_usable(idblock, index)) {
			int r = read_record(idblock, index, &record);
			if (r < 0)
				return r;
			if (record_free(&record, now)) {
				record = (struct idblock_record){
					.state = IDBLOCK_STATE_USED,
					.group_id = idblock->group_id,
				};
				memcpy(record.instance, idblock->instance, IDBLOCK_INSTANCE_BYTES);
				r = write_record(idblock, index, &record);
				if (r < 0)
					return r;
				header.next = following;
				if (pwrite(idblock->fd, &header, sizeof(header), 0) !=
				    (ssize_t)sizeof(header))
					return -EIO;
				*ret_index = index;
				return 0;
			}
		}
		index = following;
	}
	return -EBUSY;
}

/* Locked. */
static void release_locked(const struct idblock *idblock, uint32_t index, usec_t now)
{
	struct idblock_record record;

	if (read_record(idblock, index, &record) < 0 || record.state != IDBLOCK_STATE_USED ||
	    record.group_id != idblock->group_id)
		return;
	record.state = IDBLOCK_STATE_RESTING;
	record.released_at_us = now;
	/* A failed write leaves it ours until the instance's group is gone: wasteful, never
	 * unsafe. */
	(void)write_record(idblock, index, &record);
}

/* Locked. */
static void pay(struct idblock *idblock, usec_t now)
{
	if (!idblock->owes)
		return;
	for (uint32_t index = IDBLOCK_FIRST; index <= IDBLOCK_LAST; index++) {
		if (idblock_set_has(&idblock->owed, index * IDBLOCK_SIZE))
			release_locked(idblock, index, now);
	}
	idblock->owed = (struct idblock_set){{0}};
	idblock->owes = false;
}

int idblock_take(struct idblock *idblock, usec_t now, uint32_t *ret_base)
{
	uint32_t index = 0;

	int r = file_lock(idblock, LOCK_TRIES);
	if (r < 0)
		return r;
	pay(idblock, now);
	r = take_locked(idblock, now, &index);
	if (r == -EBUSY && reclaim(idblock, now) == 0)
		r = take_locked(idblock, now, &index);
	file_unlock(idblock);
	if (r < 0)
		return r;
	*ret_base = index * IDBLOCK_SIZE;
	return 0;
}

static int settle(struct idblock *idblock, usec_t now, unsigned int n_tries)
{
	if (!idblock->owes)
		return 0;
	int r = file_lock(idblock, n_tries);
	if (r < 0)
		return r;
	pay(idblock, now);
	file_unlock(idblock);
	return 0;
}

int idblock_settle(struct idblock *idblock, usec_t now)
{
	return settle(idblock, now, 1);
}

void idblock_release(struct idblock *idblock, uint32_t base, usec_t now)
{
	uint32_t index = base / IDBLOCK_SIZE;
	/* Many sessions end together: one of them waits, not each. */
	unsigned int n_tries = idblock->owes ? 1 : LOCK_TRIES_RELEASE;

	ASSERT(index >= IDBLOCK_FIRST && index <= IDBLOCK_LAST);
	idblock_set_add(&idblock->owed, base);
	idblock->owes = true;
	(void)!settle(idblock, now, n_tries);
}

void idblock_done(struct idblock *idblock)
{
	/* Nothing is served any more. Without the lock they stay ours until the group is gone. */
	(void)!settle(idblock, clock_boottime(), LOCK_TRIES_START);
	idblock->fd = fd_close(idblock->fd);
}

void idblock_set_add(struct idblock_set *set, uint32_t base)
{
	uint32_t index = base / IDBLOCK_SIZE;

	if (index >= IDBLOCK_FIRST && index <= IDBLOCK_LAST)
		set->block[index / 64] |= 1ull << (index % 64);
}

bool idblock_set_has(const struct idblock_set *set, uint32_t base)
{
	uint32_t index = base / IDBLOCK_SIZE;

	return index <= IDBLOCK_LAST && (set->block[index / 64] & 1ull << (index % 64)) != 0;
}

int idblock_holds(struct idblock *idblock, uint32_t base)
{
	struct idblock_record record;
	uint32_t index = base / IDBLOCK_SIZE;

	if (base % IDBLOCK_SIZE != 0 || index < IDBLOCK_FIRST || index > IDBLOCK_LAST)
		return 0;
	int r = file_lock(idblock, LOCK_TRIES_START);
	if (r < 0)
		return r;
	r = read_record(idblock, index, &record);
	file_unlock(idblock);
	if (r < 0)
		return r;
	return record.state == IDBLOCK_STATE_USED && record.group_id == idblock->group_id &&
	       memcmp(record.instance, idblock->instance, IDBLOCK_INSTANCE_BYTES) == 0;
}

struct release_all {
	const struct idblock *idblock;
	const struct idblock_set *keep;
};

static int visit_release(void *userdata, uint32_t index, const struct idblock_record *record)
{
	const struct release_all *release = userdata;

	return !idblock_set_has(release->keep, index * IDBLOCK_SIZE) &&
	       memcmp(record->instance, release->idblock->instance, IDBLOCK_INSTANCE_BYTES) == 0;
}

int idblock_release_all(struct idblock *idblock, const struct idblock_set *keep, usec_t now)
{
	struct release_all release = {.idblock = idblock, .keep = keep};

	int r = file_lock(idblock, LOCK_TRIES_START);
	if (r < 0)
		return r;
	r = reclaim(idblock, now);
	if (r == 0)
		r = each_used(idblock, now, visit_release, &release);
	file_unlock(idblock);
	return r;
}
