/*
 * Theory. The stream is hostile: its sender may be a store that somebody else wrote to. So nothing
 * that it makes is ever followed: a link is only made, and no path goes through one, whether it was
 * there or came from the stream. A file is new or the entry is a duplicate. What a link says is
 * kept as it is: in a session it leads nowhere that its own programs could not go.
 *
 * There is no bound on the ratio: the bytes written are bounded, and holes take none.
 */
#include "jail/archive/extract.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/io.h"
#include "base/path.h"
#include "base/str.h"

#include "jail/archive/folders.h"
#include "jail/archive/name.h"
#include "jail/archive/place.h"

#define BLOCK_BYTES  65536
#define MODE_FILE    0600
#define MODE_FOLDER  0700
#define MODE_BITS    07777u
#define XATTR_USER   "user."
#define NSEC_PER_SEC 1000000000l

struct extract {
	struct archive_job *job;
	struct archive *in;
	struct archive_entry *entry;
	struct folders folders;
	char path[ARCHIVE_PATH_MAX + 1];
};

static int fail(struct extract *extract, enum archive_error error)
{
	return job_fail(extract->job, error, 0, extract->path);
}

static int fail_errno(struct extract *extract, int r)
{
	return job_fail_errno(extract->job, r, extract->path);
}

static struct timespec entry_mtime(struct archive_entry *entry)
{
	struct timespec mtime = {
		.tv_sec = archive_entry_mtime(entry),
		.tv_nsec = archive_entry_mtime_nsec(entry),
	};

	if (mtime.tv_nsec < 0 || mtime.tv_nsec >= NSEC_PER_SEC)
		mtime.tv_nsec = 0;
	return mtime;
}

static bool is_id(int64_t id)
{
	return id >= 0 && id < UINT32_MAX;
}

/* By the descriptor: at the name may be another one by now, and root may give away any. */
static int set_owner(struct extract *extract, int fd)
{
	int64_t uid = archive_entry_uid(extract->entry);
	int64_t gid = archive_entry_gid(extract->entry);

	if (!extract->job->is_root)
		return 0;
	if (!is_id(uid) || !is_id(gid))
		return fail(extract, ARCHIVE_E_FORMAT);
	if (fchownat(fd, "", (uid_t)uid, (gid_t)gid, AT_EMPTY_PATH) < 0)
		return fail_errno(extract, -errno);
	return 0;
}

static int set_xattrs(struct extract *extract, int fd)
{
	const char *name;
	const void *value;
	size_t size;

	(void)archive_entry_xattr_reset(extract->entry);
	while (archive_entry_xattr_next(extract->entry, &name, &value, &size) == ARCHIVE_OK) {
		if (!name || !str_has_prefix(name, XATTR_USER))
			continue;
		/* A file system without them loses them. */
		if (fsetxattr(fd, name, value, size, 0) < 0 && errno != ENOTSUP)
			return fail_errno(extract, -errno);
	}
	return 0;
}

static int write_block(struct extract *extract, int fd, const char *data, size_t size, int64_t at)
{
	if (at < 0 || size > ARCHIVE_FILE_MAX_BYTES || (uint64_t)at > ARCHIVE_FILE_MAX_BYTES - size)
		return fail(extract, ARCHIVE_E_BYTES);
	if (job_count_bytes(extract->job, size, extract->path) < 0)
		return -1;
	while (size > 0) {
		ssize_t n = pwrite(fd, data, size, at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return fail_errno(extract, -errno);
		data += n;
		size -= (size_t)n;
		at += n;
	}
	return 0;
}

static int write_content(struct extract *extract, int fd)
{
	int64_t size = archive_entry_size(extract->entry);
	const void *data;
	size_t n;
	la_int64_t at;
	int r;

	if (size < 0 || (uint64_t)size > ARCHIVE_FILE_MAX_BYTES)
		return fail(extract, ARCHIVE_E_BYTES);
	while ((r = archive_read_data_block(extract->in, &data, &n, &at)) == ARCHIVE_OK) {
		if (n > 0 && write_block(extract, fd, data, n, at) < 0)
			return -1;
	}
	if (r != ARCHIVE_EOF)
		return fail(extract, ARCHIVE_E_FORMAT);
	return ftruncate(fd, size) < 0 ? fail_errno(extract, -errno) : 0;
}

static int make_file(struct extract *extract, const struct place *place)
{
	const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, entry_mtime(extract->entry)};
	AUTO_CLOSE int fd = path_open_beneath(place->folder_fd, place->name,
					      O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, MODE_FILE);

	if (fd < 0)
		return fail_errno(extract, fd);
	/* The mode last but for the time: a change of owner takes bits away. */
	if (write_content(extract, fd) < 0 || set_xattrs(extract, fd) < 0 ||
	    set_owner(extract, fd) < 0)
		return -1;
	if (fchmod(fd, archive_entry_mode(extract->entry) & MODE_BITS) < 0 ||
	    futimens(fd, times) < 0)
		return fail_errno(extract, -errno);
	return 0;
}

static int make_folder(struct extract *extract, const struct place *place)
{
	struct folder_end end = {
		.mode = archive_entry_mode(extract->entry) & MODE_BITS,
		.uid = (uid_t)archive_entry_uid(extract->entry),
		.gid = (gid_t)archive_entry_gid(extract->entry),
		.mtime = entry_mtime(extract->entry),
	};
	AUTO_CLOSE int fd = -1;
	int r;

	if (mkdirat(place->folder_fd, place->name, MODE_FOLDER) < 0 && errno != EEXIST)
		return fail_errno(extract, -errno);
	fd = path_open_beneath(place->folder_fd, place->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW,
			       0);
	/* There is something else. */
	if (fd == -ENOTDIR || fd == -ELOOP)
		return fail(extract, ARCHIVE_E_DUPLICATE);
	if (fd < 0)
		return fail_errno(extract, fd);
	if (set_xattrs(extract, fd) < 0)
		return -1;
	r = folders_add(&extract->folders, extract->path, &end);
	return r < 0 ? fail_errno(extract, r) : 0;
}

static int make_link(struct extract *extract, const struct place *place)
{
	const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, entry_mtime(extract->entry)};
	const char *target = archive_entry_symlink(extract->entry);
	AUTO_CLOSE int fd = -1;
	struct stat st;

	if (!target || target[0] == '\0')
		return fail(extract, ARCHIVE_E_FORMAT);
	if (symlinkat(target, place->folder_fd, place->name) < 0)
		return fail_errno(extract, -errno);
	if (utimensat(place->folder_fd, place->name, times, AT_SYMLINK_NOFOLLOW) < 0)
		return fail_errno(extract, -errno);
	if (!extract->job->is_root)
		return 0;
	fd = path_open_beneath(place->folder_fd, place->name, O_PATH | O_NOFOLLOW, 0);
	if (fd < 0)
		return fail_errno(extract, fd);
	if (fstat(fd, &st) < 0)
		return fail_errno(extract, -errno);
	return S_ISLNK(st.st_mode) ? set_owner(extract, fd) : fail(extract, ARCHIVE_E_LINK_ON_WAY);
}

static int make_hard_link(struct extract *extract, const struct place *place)
{
	char target[ARCHIVE_PATH_MAX + 1];
	struct archive_job *job = extract->job;
	struct place from = PLACE_NULL;
	struct stat st;
	int r;

	if (name_normalize(archive_entry_hardlink(extract->entry), target) != ARCHIVE_E_NONE ||
	    !name_is_below(target, job->path, job->n_paths))
		return fail(extract, ARCHIVE_E_HARD_LINK);
	if (place_open(job, target, &from) < 0)
		return -1;
	if (fstatat(from.folder_fd, from.name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
	    !S_ISREG(st.st_mode))
		r = fail(extract, ARCHIVE_E_HARD_LINK);
	else if (linkat(from.folder_fd, from.name, place->folder_fd, place->name, 0) < 0)
		r = fail_errno(extract, -errno);
	else
		r = 0;
	place_done(&from);
	return r;
}

static int make(struct extract *extract, const struct place *place)
{
	if (archive_entry_hardlink(extract->entry))
		return make_hard_link(extract, place);
	switch (archive_entry_filetype(extract->entry)) {
	case AE_IFREG:
		return make_file(extract, place);
	case AE_IFDIR:
		return make_folder(extract, place);
	case AE_IFLNK:
		return make_link(extract, place);
	default:
		return fail(extract, ARCHIVE_E_TYPE);
	}
}

static int extract_entry(struct extract *extract)
{
	struct archive_job *job = extract->job;
	const char *name = archive_entry_pathname(extract->entry);
	struct place place = PLACE_NULL;
	int r;

	if (!name || name_normalize(name, extract->path) != ARCHIVE_E_NONE)
		return job_fail(job, ARCHIVE_E_NAME, 0, name);
	if (job_count_entry(job, extract->path) < 0)
		return -1;
	if (!name_is_below(extract->path, job->path, job->n_paths))
		return fail(extract, ARCHIVE_E_OUTSIDE);
	if (place_open(job, extract->path, &place) < 0)
		return -1;
	r = make(extract, &place);
	place_done(&place);
	return r;
}

static int read_all(struct extract *extract, int in_fd)
{
	struct archive *in = extract->in;
	int r;

	if (archive_read_support_format_tar(in) != ARCHIVE_OK ||
	    archive_read_support_filter_gzip(in) != ARCHIVE_OK ||
	    archive_read_support_filter_zstd(in) != ARCHIVE_OK)
		return fail_errno(extract, -ENOMEM);
	if (archive_read_open_fd(in, in_fd, BLOCK_BYTES) != ARCHIVE_OK)
		return fail(extract, ARCHIVE_E_FORMAT);
	/* A warning is a name or an attribute that is not as the format has it: not of ours. */
	while ((r = archive_read_next_header(in, &extract->entry)) == ARCHIVE_OK) {
		if (extract_entry(extract) < 0)
			return -1;
	}
	/* One without entries is never made. */
	if (r != ARCHIVE_EOF || extract->job->summary.n_entries == 0)
		return fail(extract, ARCHIVE_E_FORMAT);
	return folders_apply(&extract->folders, extract->job);
}

int extract_run(struct archive_job *job, int in_fd)
{
	struct extract extract = {.job = job};
	int r;

	extract.in = archive_read_new();
	r = extract.in ? read_all(&extract, in_fd) : job_fail_errno(job, -ENOMEM, NULL);
	IGNORE_RESULT(archive_read_free(extract.in));
	folders_done(&extract.folders);
	return r;
}
