/*
 * Theory. The folder belongs to `user`, and so do we: a link or a fifo in it could only lead where
 * `user` can go anyway, but it could make us wait or read without end. So a file is opened without
 * following links and without blocking, must be regular, and is read up to its limit (A16, A18).
 *
 * An asset is the file name; the record of a file with problems is still sent, behind the problems,
 * so that a broken file does not hide itself or another.
 */
#include "jail/loader/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"
#include "base/str.h"

#include "jail/loader/document.h"
#include "jail/loader/report.h"
#include "sandboxd/limits.h"

struct folder_names {
	char *name[COMPONENTS_MAX]; /* owned */
	size_t n;
	size_t n_beyond;
};

static void folder_names_done(struct folder_names *names)
{
	for (size_t i = 0; i < names->n; i++)
		free(names->name[i]);
	names->n = 0;
}

static int folder_compare(const void *a, const void *b)
{
	const char *const *left = a;
	const char *const *right = b;

	return strcmp(*left, *right);
}

static bool folder_is_component(int dir_fd, const char *name)
{
	struct stat st;

	if (!str_has_suffix(name, ".yaml") && !str_has_suffix(name, ".yml"))
		return false;
	return fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) >= 0 && S_ISREG(st.st_mode);
}

static int folder_list(int dir_fd, struct folder_names *names)
{
	AUTO_CLOSE int fd = -1;
	const struct dirent *entry;
	DIR *dir;
	int r = 0;

	fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	dir = fdopendir(fd);
	if (!dir)
		return -errno;
	(void)TAKE_FD(fd);
	/* One thread; the entry is copied at once. */
	while ((entry = readdir(dir))) { /* NOLINT(concurrency-mt-unsafe) */
		if (!folder_is_component(dir_fd, entry->d_name))
			continue;
		if (names->n == COMPONENTS_MAX) {
			names->n_beyond++;
			continue;
		}
		names->name[names->n] = strdup(entry->d_name);
		if (!names->name[names->n]) {
			r = -ENOMEM;
			break;
		}
		names->n++;
	}
	(void)closedir(dir);
	if (r >= 0 && names->n > 1)
		qsort(names->name, names->n, sizeof(names->name[0]), folder_compare);
	return r;
}

/* Read the file. 0 and its text; 1: reported as a problem; -errno. */
static int folder_read(int dir_fd, struct report *report, char **ret_text, size_t *ret_size)
{
	AUTO_CLOSE int fd = -1;
	struct stat st;
	int r;

	fd = openat(dir_fd, report->name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	r = fd < 0 ? -errno : 0;
	if (r >= 0 && fstat(fd, &st) < 0)
		r = -errno;
	if (r >= 0 && !S_ISREG(st.st_mode))
		r = -EINVAL;
	if (r >= 0)
		r = io_read_file(fd, (size_t)COMPONENT_BODY_MAX_BYTES, ret_text, ret_size);
	if (r >= 0 || r == -ENOMEM)
		return r;
	r = r == -EFBIG
		    ? report_problem(report, 0, 0, "larger than %d bytes", COMPONENT_BODY_MAX_BYTES)
		    : report_problem(report, 0, 0, "cannot be read: %s", strerrordesc_np(-r));
	return r < 0 ? r : 1;
}

static int folder_file(int dir_fd, struct report *report, const char *name,
		       uint32_t *ret_n_documents)
{
	AUTO_FREE char *text = NULL;
	bool is_asset = str_has_suffix(name, ".yaml");
	size_t size = 0;
	int r;

	*ret_n_documents = 0;
	report->name = name;
	report->n_problems = 0;
	r = folder_read(dir_fd, report, &text, &size);
	if (r < 0)
		return r;
	if (r == 0) {
		r = document_check(report, (const uint8_t *)text, size, ret_n_documents);
		if (r < 0)
			return r;
	}
	return report_record(report, is_asset ? LOADER_ASSET : LOADER_STORED, name,
			     *ret_n_documents);
}

static int folder_load_names(int dir_fd, struct report *report, int out_fd,
			     const struct folder_names *names)
{
	uint32_t n_total = 0;
	int r = 0;

	for (size_t i = 0; i < names->n && r >= 0; i++) {
		uint32_t n_documents = 0;

		r = folder_file(dir_fd, report, names->name[i], &n_documents);
		n_total += n_documents;
		if (r >= 0)
			r = report_flush(report, out_fd);
	}
	if (r >= 0 && names->n_beyond > 0) {
		report->name = NULL;
		report->n_problems = 0;
		r = report_problem(report, 0, 0, "%zu components beyond the first %d are ignored",
				   names->n_beyond, COMPONENTS_MAX);
	}
	if (r >= 0)
		r = report_record(report, LOADER_END, NULL, n_total);
	return r >= 0 ? report_flush(report, out_fd) : r;
}

int folder_load(int dir_fd, struct report *report, int out_fd)
{
	struct folder_names names = {.n = 0};
	int r;

	r = folder_list(dir_fd, &names);
	if (r >= 0)
		r = folder_load_names(dir_fd, report, out_fd, &names);
	folder_names_done(&names);
	return r;
}
