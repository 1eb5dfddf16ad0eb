#include "jail/archive/walk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"

#include "sandboxd/archive.h"

#define WALK_FIRST 64

static int push_owned(struct walk *walk, char *path)
{
	if (walk->n == walk->allocated) {
		size_t allocated = walk->allocated > 0 ? 2 * walk->allocated : WALK_FIRST;
		char **grown = reallocarray(walk->path, allocated, sizeof(*grown));

		if (!grown)
			return -ENOMEM;
		walk->path = grown;
		walk->allocated = allocated;
	}
	walk->path[walk->n++] = path;
	return 0;
}

int walk_push(struct walk *walk, const char *path)
{
	AUTO_FREE char *copy = strdup(path);
	int r = copy ? push_owned(walk, copy) : -ENOMEM;

	if (r >= 0)
		TAKE_PTR(copy);
	return r;
}

char *walk_pop(struct walk *walk)
{
	return walk->n > 0 ? walk->path[--walk->n] : NULL;
}

static int push_child(struct walk *walk, const char *folder, const char *name)
{
	size_t length = strlen(folder);
	size_t size = strlen(name) + 1;
	AUTO_FREE char *path = NULL;
	int r;

	if (length + size > ARCHIVE_PATH_MAX)
		return -ENAMETOOLONG;
	path = malloc(length + 1 + size);
	if (!path)
		return -ENOMEM;
	memcpy(path, folder, length);
	path[length] = '/';
	memcpy(path + length + 1, name, size);
	r = push_owned(walk, path);
	if (r >= 0)
		TAKE_PTR(path);
	return r;
}

/* The last in order first: it is popped last. */
static int compare(const void *a, const void *b)
{
	const char *const *left = a;
	const char *const *right = b;

	return strcmp(*right, *left);
}

int walk_push_folder(struct walk *walk, const char *path, int folder_fd)
{
	AUTO_CLOSE int fd = openat(folder_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *entry;
	size_t first = walk->n;
	int r = 0;

	if (!dir)
		return -errno;
	(void)TAKE_FD(fd);
	errno = 0;
	/* One thread; the entry is copied at once. */
	while (r >= 0 && (entry = readdir(dir))) { /* NOLINT(concurrency-mt-unsafe) */
		if (!str_equal(entry->d_name, ".") && !str_equal(entry->d_name, ".."))
			r = push_child(walk, path, entry->d_name);
	}
	/* Half a folder would pass for a whole one. */
	if (r >= 0 && errno != 0)
		r = -errno;
	(void)closedir(dir);
	if (walk->n - first > 1)
		qsort(walk->path + first, walk->n - first, sizeof(*walk->path), compare);
	return r;
}

void walk_done(struct walk *walk)
{
	while (walk->n > 0)
		free(walk_pop(walk));
	free(walk->path);
	*walk = (struct walk){.path = NULL};
}
