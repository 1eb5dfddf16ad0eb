#include "jail/archive/place.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/path.h"

#define FOLDER_MODE 0755

/* One after the other: a deep path is made once, and found by the last call afterwards. */
static int make_folders(struct archive_job *job, char *path)
{
	for (char *slash = strchr(path, '/');; slash = strchr(slash + 1, '/')) {
		struct place place = PLACE_NULL;
		char *name = path;
		char *before;
		int r;

		if (slash)
			*slash = '\0';
		before = strrchr(path, '/');
		place.folder_fd = job->root_fd;
		if (before) {
			*before = '\0';
			name = before + 1;
			place.folder_fd =
				path_open_beneath(job->root_fd, path, O_PATH | O_DIRECTORY, 0);
			*before = '/';
			if (place.folder_fd < 0)
				return place.folder_fd;
		}
		r = mkdirat(place.folder_fd, name, FOLDER_MODE) < 0 ? -errno : 0;
		if (before)
			(void)fd_close(place.folder_fd);
		/* What is there may be a link or a file: the next one to be opened says so. On the
		 * way to a workspace a folder may not even be ours to try. */
		if (r < 0 && r != -EEXIST && r != -EACCES && r != -EROFS)
			return r;
		if (!slash)
			return 0;
		*slash = '/';
	}
}

static void folder_of(const char *path, char folder[ARCHIVE_PATH_MAX + 1])
{
	const char *slash = strrchr(path, '/');
	size_t length = slash ? (size_t)(slash - path) : 1;

	memcpy(folder, slash ? path : ".", length);
	folder[length] = '\0';
}

int place_find(const struct archive_job *job, const char *path, struct place *ret_place)
{
	const char *slash = strrchr(path, '/');
	char folder[ARCHIVE_PATH_MAX + 1];
	int r;

	*ret_place = PLACE_NULL;
	folder_of(path, folder);
	r = path_open_beneath(job->root_fd, folder, O_PATH | O_DIRECTORY, 0);
	if (r < 0)
		return r == -ENOTDIR ? -ELOOP : r;
	ret_place->folder_fd = r;
	ret_place->name = slash ? slash + 1 : path;
	return 0;
}

int place_open(struct archive_job *job, const char *path, struct place *ret_place)
{
	char folder[ARCHIVE_PATH_MAX + 1];
	int r = place_find(job, path, ret_place);

	if (r == -ENOENT) {
		folder_of(path, folder);
		r = make_folders(job, folder);
		if (r >= 0)
			r = place_find(job, path, ret_place);
	}
	return r < 0 ? job_fail_errno(job, r, path) : 0;
}

void place_done(struct place *place)
{
	place->folder_fd = fd_close(place->folder_fd);
}
