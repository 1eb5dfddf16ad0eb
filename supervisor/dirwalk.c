#include "supervisor/dirwalk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"

#include "sandboxd/kernel.h"

struct pending {
	char **path;
	size_t n;
	size_t n_allocated;
};

int dirwalk_join(char dest[DIRWALK_PATH_BYTES], const char *path, const char *name)
{
	return str_format(dest, DIRWALK_PATH_BYTES, "%s%s%s", path, *path ? "/" : "", name);
}

static int push(struct pending *pending, const char *path)
{
	if (pending->n == pending->n_allocated) {
		size_t n = pending->n_allocated ? pending->n_allocated * 2 : 256;
		char **grown = reallocarray(pending->path, n, sizeof(*grown));
		if (!grown)
			return -ENOMEM;
		pending->path = grown;
		pending->n_allocated = n;
	}
	char *copy = strdup(path);
	if (!copy)
		return -ENOMEM;
	pending->path[pending->n++] = copy;
	return 0;
}

static int open_directory(int root_fd, const char *path, DIR **ret_dir)
{
	struct open_how how = {
		.flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS |
			   RESOLVE_NO_XDEV,
	};
	AUTO_CLOSE int fd = kernel_openat2(root_fd, *path ? path : ".", &how);

	if (fd < 0)
		return -errno;
	DIR *dir = fdopendir(fd);
	if (!dir)
		return -errno;
	(void)TAKE_FD(fd);
	*ret_dir = dir;
	return 0;
}

static int visit_directory(int root_fd, const char *path, struct pending *pending,
			   dirwalk_visit visit, void *userdata)
{
	char below[DIRWALK_PATH_BYTES];
	DIR *dir = NULL;
	const struct dirent *found = NULL;

	int r = open_directory(root_fd, path, &dir);
	/* Removed or replaced since it was listed, or another mount: nothing of it is shown. */
	if (r == -ENOENT || r == -ENOTDIR || r == -ELOOP || r == -EXDEV)
		return 0;
	if (r < 0 || !dir)
		return r;
	while (r == 0 && (found = readdir(dir))) { /* NOLINT(concurrency-mt-unsafe): own stream */
		if (str_equal(found->d_name, ".") || str_equal(found->d_name, ".."))
			continue;
		struct dirwalk_entry entry = {
			.dir_fd = dirfd(dir),
			.path = path,
			.name = found->d_name,
			.type = found->d_type,
		};
		r = visit(userdata, &entry);
		if (r > 0) {
			r = dirwalk_join(below, path, found->d_name);
			if (r == 0)
				r = push(pending, below);
		}
	}
	(void)closedir(dir);
	return r;
}

int dirwalk(int root_fd, dirwalk_visit visit, void *userdata)
{
	struct pending pending = {0};
	int r = push(&pending, "");

	while (r == 0 && pending.n > 0) {
		AUTO_FREE char *path = pending.path[--pending.n];
		r = visit_directory(root_fd, path, &pending, visit, userdata);
	}
	while (pending.n > 0)
		free(pending.path[--pending.n]);
	free(pending.path);
	return r;
}
