/*
 * Theory. Every path is opened anew from the root, and no folder on the way may be a link: whatever
 * is renamed meanwhile, what is read lies where its name in the archive says. A file is read from
 * the descriptor whose attributes were written, in the length that was written; one that became
 * shorter is filled up with zeros, and each that changed is counted.
 *
 * Hard links need their first name in the archive: the table has inodes of this run only. Holes are
 * not read and take no room. Owners are written as they are in the session.
 */
#include "jail/archive/create.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/io.h"
#include "base/path.h"
#include "base/str.h"

#include "jail/archive/hard_links.h"
#include "jail/archive/name.h"
#include "jail/archive/walk.h"

#define CHUNK_BYTES     ((size_t)256 * 1024)
#define HOLE_BYTES      ((size_t)1 << 30)
#define BLOCK_BYTES     65536
#define XATTR_MAX_BYTES 65536 /* the kernel's, of the list and of a value */
#define XATTR_USER      "user."
#define ZSTD_LEVEL      "3"
#define HOLES_MAX       65536 /* beyond, the rest of the file is written as it is read */

struct create {
	struct archive_job *job;
	struct archive *out;
	struct archive_entry *entry;
	struct hard_links links;
	struct walk walk;
	const char *zeros; /* HOLE_BYTES of no memory */
	dev_t dev;         /* of the path under way */
};

static int fail_archive(struct create *create, const char *path)
{
	int error = archive_errno(create->out);

	return job_fail(create->job, ARCHIVE_E_SYSTEM, error > 0 ? error : EIO, path);
}

static int write_header(struct create *create, const char *path)
{
	if (job_count_entry(create->job, path) < 0)
		return -1;
	return archive_write_header(create->out, create->entry) == ARCHIVE_OK
		       ? 0
		       : fail_archive(create, path);
}

static void describe(struct create *create, const char *path, const struct stat *st)
{
	struct archive_entry *entry = archive_entry_clear(create->entry);

	archive_entry_copy_pathname(entry, path);
	archive_entry_set_mode(entry, st->st_mode);
	archive_entry_set_uid(entry, st->st_uid);
	archive_entry_set_gid(entry, st->st_gid);
	archive_entry_set_mtime(entry, st->st_mtim.tv_sec, st->st_mtim.tv_nsec);
	archive_entry_set_size(entry, 0);
}

/* Those that a program in a session can set. A file that loses one between list and value changed;
 * its ctime says so. */
static void describe_xattrs(struct create *create, int fd)
{
	static char list[XATTR_MAX_BYTES];
	static char value[XATTR_MAX_BYTES];
	ssize_t n = flistxattr(fd, list, sizeof(list));

	for (const char *name = list; n > 0 && name < list + n; name += strlen(name) + 1) {
		ssize_t size;

		if (!str_has_prefix(name, XATTR_USER))
			continue;
		size = fgetxattr(fd, name, value, sizeof(value));
		if (size >= 0)
			archive_entry_xattr_add_entry(create->entry, name, value, (size_t)size);
	}
}

/* Regions with data; a file system without holes says that all of it is. */
static void describe_holes(struct create *create, int fd, off_t size)
{
	off_t at = 0;

	for (int i = 0; at < size; i++) {
		off_t data = lseek(fd, at, SEEK_DATA);
		off_t hole = data < 0 ? -1 : lseek(fd, data, SEEK_HOLE);

		if (data < 0 && errno == ENXIO) {
			/* It ends in a hole: an empty region says how long it is. */
			archive_entry_sparse_add_entry(create->entry, size, 0);
			return;
		}
		if (data < 0 || hole <= data || i == HOLES_MAX) {
			archive_entry_sparse_add_entry(create->entry, at, size - at);
			return;
		}
		if (data == 0 && hole >= size)
			return;
		if (hole > size)
			hole = size;
		if (data < hole)
			archive_entry_sparse_add_entry(create->entry, data, hole - data);
		at = hole;
	}
}

/* The library leaves out what lies in a hole, but counts it. */
static int write_zeros(struct create *create, uint64_t n, const char *path)
{
	while (n > 0) {
		size_t size = n < HOLE_BYTES ? (size_t)n : HOLE_BYTES;
		la_ssize_t written = archive_write_data(create->out, create->zeros, size);

		if (written <= 0)
			return fail_archive(create, path);
		n -= (uint64_t)written;
	}
	return 0;
}

/* 1: the file is shorter than that. */
static int write_region(struct create *create, int fd, off_t at, off_t end, const char *path)
{
	static char chunk[CHUNK_BYTES];

	if (job_count_bytes(create->job, (uint64_t)(end - at), path) < 0)
		return -1;
	while (at < end) {
		size_t size = end - at < (off_t)sizeof(chunk) ? (size_t)(end - at) : sizeof(chunk);
		ssize_t n = pread(fd, chunk, size, at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return job_fail_errno(create->job, -errno, path);
		if (n == 0)
			return write_zeros(create, (uint64_t)(end - at), path) < 0 ? -1 : 1;
		if (archive_write_data(create->out, chunk, (size_t)n) != n)
			return fail_archive(create, path);
		at += n;
	}
	return 0;
}

static int write_content(struct create *create, int fd, const struct stat *st, const char *path)
{
	bool is_short = false;
	int64_t offset;
	int64_t length;
	off_t at = 0;
	int r;

	if (archive_entry_sparse_reset(create->entry) == 0) {
		r = write_region(create, fd, 0, st->st_size, path);
		if (r < 0)
			return -1;
		is_short = r > 0;
		at = st->st_size;
	}
	while (at < st->st_size &&
	       archive_entry_sparse_next(create->entry, &offset, &length) == ARCHIVE_OK) {
		if (write_zeros(create, (uint64_t)(offset - at), path) < 0)
			return -1;
		r = write_region(create, fd, offset, offset + length, path);
		if (r < 0)
			return -1;
		is_short |= r > 0;
		at = offset + length;
	}
	if (at < st->st_size && write_zeros(create, (uint64_t)(st->st_size - at), path) < 0)
		return -1;
	return is_short ? 1 : 0;
}

static bool has_changed(int fd, const struct stat *before)
{
	struct stat after;

	return fstat(fd, &after) < 0 || after.st_size != before->st_size ||
	       after.st_mtim.tv_sec != before->st_mtim.tv_sec ||
	       after.st_mtim.tv_nsec != before->st_mtim.tv_nsec;
}

/* Left out, and said so; what cannot be opened for another reason ends the run. */
static int leave_out(struct create *create, int r, const char *path)
{
	if (r != -EACCES && r != -EPERM && r != -ENOENT)
		return job_fail_errno(create->job, r, path);
	create->job->summary.n_left_out++;
	return 0;
}

static int add_file(struct create *create, const char *path)
{
	AUTO_CLOSE int fd = path_open_beneath(create->job->root_fd, path,
					      O_RDONLY | O_NONBLOCK | O_NOFOLLOW, 0);
	const char *first = NULL;
	struct stat st;
	int r;

	if (fd < 0)
		return leave_out(create, fd, path);
	if (fstat(fd, &st) < 0)
		return job_fail_errno(create->job, -errno, path);
	if (!S_ISREG(st.st_mode))
		return leave_out(create, -ENOENT, path);
	if ((uint64_t)st.st_size > ARCHIVE_FILE_MAX_BYTES)
		return job_fail(create->job, ARCHIVE_E_BYTES, 0, path);
	describe(create, path, &st);
	if (st.st_nlink > 1) {
		r = hard_links_find(&create->links, &st, path, &first);
		if (r < 0)
			return job_fail_errno(create->job, r, path);
	}
	if (first) {
		archive_entry_copy_hardlink(create->entry, first);
		return write_header(create, path);
	}
	archive_entry_set_size(create->entry, st.st_size);
	describe_xattrs(create, fd);
	describe_holes(create, fd, st.st_size);
	if (write_header(create, path) < 0)
		return -1;
	r = write_content(create, fd, &st, path);
	if (r < 0)
		return -1;
	if (r > 0 || has_changed(fd, &st))
		create->job->summary.n_changed++;
	return 0;
}

static int add_folder(struct create *create, const char *path)
{
	AUTO_CLOSE int fd = path_open_beneath(create->job->root_fd, path,
					      O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0);
	struct stat st;
	int r;

	if (fd < 0)
		return leave_out(create, fd, path);
	if (fstat(fd, &st) < 0)
		return job_fail_errno(create->job, -errno, path);
	if (st.st_dev != create->dev)
		return leave_out(create, -ENOENT, path);
	describe(create, path, &st);
	describe_xattrs(create, fd);
	if (write_header(create, path) < 0)
		return -1;
	r = walk_push_folder(&create->walk, path, fd);
	return r < 0 ? job_fail_errno(create->job, r, path) : 0;
}

static int add_link(struct create *create, int fd, const struct stat *st, const char *path)
{
	char target[ARCHIVE_PATH_MAX + 1];
	ssize_t n = readlinkat(fd, "", target, sizeof(target));

	if (n < 0)
		return job_fail_errno(create->job, -errno, path);
	if ((size_t)n == sizeof(target))
		return job_fail(create->job, ARCHIVE_E_NAME, 0, path);
	target[n] = '\0';
	describe(create, path, st);
	archive_entry_copy_symlink(create->entry, target);
	return write_header(create, path);
}

static int add(struct create *create, const char *path)
{
	AUTO_CLOSE int fd = path_open_beneath(create->job->root_fd, path, O_PATH | O_NOFOLLOW, 0);
	struct stat st;

	if (fd < 0)
		return leave_out(create, fd, path);
	if (fstat(fd, &st) < 0)
		return job_fail_errno(create->job, -errno, path);
	if (S_ISREG(st.st_mode))
		return add_file(create, path);
	if (S_ISDIR(st.st_mode))
		return add_folder(create, path);
	if (S_ISLNK(st.st_mode))
		return add_link(create, fd, &st, path);
	create->job->summary.n_left_out++;
	return 0;
}

/* One of the paths, and what is below. */
static int add_tree(struct create *create, const char *top)
{
	AUTO_CLOSE int fd = path_open_beneath(create->job->root_fd, top, O_PATH | O_NOFOLLOW, 0);
	struct archive_job *job = create->job;
	struct stat st;
	int r;

	if (fd == -ENOENT || fd == -ENOTDIR) {
		job->summary.n_missing++;
		return 0;
	}
	if (fd < 0)
		return job_fail_errno(job, fd, top);
	if (fstat(fd, &st) < 0)
		return job_fail_errno(job, -errno, top);
	create->dev = st.st_dev;
	r = walk_push(&create->walk, top);
	if (r < 0)
		return job_fail_errno(job, r, top);
	for (;;) {
		AUTO_FREE char *path = walk_pop(&create->walk);

		if (!path)
			return 0;
		if (name_is_excluded(path, job->exclude, job->n_excludes))
			continue;
		if (add(create, path) < 0)
			return -1;
	}
}

/* Within another of the paths, or the same as an earlier one. */
static bool is_covered(const struct archive_job *job, size_t i)
{
	for (size_t j = 0; j < job->n_paths; j++) {
		if (j != i && name_is_below(job->path[i], &job->path[j], 1) &&
		    (j < i || !str_equal(job->path[i], job->path[j])))
			return true;
	}
	return false;
}

static int open_out(struct create *create, int out_fd)
{
	struct archive *out = create->out;

	/* Names are bytes. */
	if (archive_write_set_format_pax(out) == ARCHIVE_OK &&
	    archive_write_set_format_option(out, "pax", "hdrcharset", "BINARY") == ARCHIVE_OK &&
	    archive_write_set_format_option(out, "pax", "xattrheader", "SCHILY") == ARCHIVE_OK &&
	    archive_write_add_filter_zstd(out) == ARCHIVE_OK &&
	    archive_write_set_filter_option(out, "zstd", "compression-level", ZSTD_LEVEL) ==
		    ARCHIVE_OK &&
	    archive_write_set_bytes_per_block(out, BLOCK_BYTES) == ARCHIVE_OK &&
	    archive_write_set_bytes_in_last_block(out, 1) == ARCHIVE_OK &&
	    archive_write_open_fd(out, out_fd) == ARCHIVE_OK)
		return 0;
	return fail_archive(create, NULL);
}

static int write_all(struct create *create, int out_fd)
{
	struct archive_job *job = create->job;

	if (open_out(create, out_fd) < 0)
		return -1;
	for (size_t i = 0; i < job->n_paths; i++) {
		if (!is_covered(job, i) && add_tree(create, job->path[i]) < 0)
			return -1;
	}
	if (job->summary.n_entries == 0)
		return job_fail(job, ARCHIVE_E_EMPTY, 0, job->path[0]);
	return archive_write_close(create->out) == ARCHIVE_OK ? 0 : fail_archive(create, NULL);
}

int create_run(struct archive_job *job, int out_fd)
{
	struct create create = {.job = job};
	void *zeros = mmap(NULL, HOLE_BYTES, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
			   -1, 0);
	int r;

	if (zeros == MAP_FAILED)
		return job_fail_errno(job, -errno, NULL);
	create.zeros = zeros;
	create.out = archive_write_new();
	create.entry = archive_entry_new();
	if (create.out && create.entry)
		r = write_all(&create, out_fd);
	else
		r = job_fail_errno(job, -ENOMEM, NULL);
	archive_entry_free(create.entry);
	IGNORE_RESULT(archive_write_free(create.out));
	hard_links_done(&create.links);
	walk_done(&create.walk);
	(void)munmap(zeros, HOLE_BYTES);
	return r;
}
