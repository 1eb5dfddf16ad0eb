#include "jail/template/accounts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"
#include "base/str.h"

#include "sandboxd/limits.h"

#define FILE_MAX_BYTES ((size_t)1024 * 1024)
#define FILE_MODE      0644
#define ETC            "etc"

/* As a session without a template has them. */
static const struct accounts {
	const char *path;
	const char *name; /* in etc */
	const char *text;
} files[] = {
	{ETC "/passwd", "passwd",
	 "root:x:0:0:root:/session/home:/bin/sh\n"
	 "user:x:1000:1000:user:/session/home:/bin/sh\n"
	 "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"                  },
	{ETC "/group",  "group",  "root:x:0:\ntty:x:5:\nuser:x:1000:\nnogroup:x:65534:\n"},
};
_Static_assert(SESSION_USER_ID == 1000, "the texts above");

/* What the image has there, NUL terminated; "" where that is no plain file of its size. To be
 * freed; NULL: no memory. */
static char *read_own(const struct tree *tree, const char *name)
{
	AUTO_CLOSE int etc_fd =
		openat(tree->root_fd, ETC, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	AUTO_CLOSE int fd = -1;
	char *text = NULL;
	struct stat st;
	size_t size;

	if (etc_fd < 0)
		return strdup("");
	fd = openat(etc_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) ||
	    io_read_file(fd, FILE_MAX_BYTES, &text, &size) < 0)
		return strdup("");
	return text;
}

static bool is_ours(const char *text, const char *line, size_t n)
{
	for (const char *own = text; own[0] != '\0'; own = strchr(own, '\n') + 1) {
		if (strcspn(own, ":") == n && memcmp(own, line, n) == 0)
			return true;
	}
	return false;
}

/* Leaves the lines of `text` whose names are none of ours, each with its end. */
static size_t keep_others(const struct accounts *file, char *text)
{
	char *to = text;
	bool is_last = *text == '\0';

	for (char *line = text; !is_last;) {
		size_t n = strcspn(line, "\n");
		size_t name = strcspn(line, ":\n");
		char *next = line + n + 1;

		is_last = line[n] == '\0' || *next == '\0';
		if (name > 0 && line[name] == ':' && !is_ours(file->text, line, name)) {
			memmove(to, line, n);
			to[n] = '\n';
			to += n + 1;
		}
		line = next;
	}
	return (size_t)(to - text);
}

static int merge(struct tree *tree, const struct accounts *file)
{
	const struct tree_attributes attributes = {.mode = FILE_MODE,
						   .mtime = {.tv_sec = time(NULL)}};
	AUTO_FREE char *text = read_own(tree, file->name);
	size_t own = strlen(file->text);
	AUTO_CLOSE int fd = -1;
	size_t others;
	int r;

	if (!text)
		return bounds_fail_errno(tree->bounds, -ENOMEM, file->path);
	others = keep_others(file, text);
	fd = tree_make_file(tree, file->path, own + others);
	if (fd < 0)
		return -1;
	r = io_write_all(fd, file->text, own);
	if (r == 0)
		r = io_write_all(fd, text, others);
	if (r < 0)
		return bounds_fail_errno(tree->bounds, r, file->path);
	return tree_end_file(tree, fd, file->path, own + others, &attributes);
}

int accounts_merge(struct tree *tree)
{
	for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
		if (merge(tree, &files[i]) < 0)
			return -1;
	}
	return 0;
}
