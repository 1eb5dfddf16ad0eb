/*
 * Theory. As when an archive is made: each path is opened anew from the root, and no folder on the
 * way may be a link. So whatever is renamed meanwhile, only what lies below the paths goes. Folders
 * are removed last, the deepest first, where nothing has stayed in them.
 */
#include "jail/archive/clear.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/path.h"

#include "jail/archive/name.h"
#include "jail/archive/place.h"
#include "jail/archive/walk.h"

#define FOLDER_MODE 0700

struct clear {
	struct archive_job *job;
	struct walk walk;
	struct walk folders; /* that were emptied: those below come later */
	dev_t dev;           /* of the path under way */
};

/* 0; 1: another mount; -errno. */
static int empty_folder(struct clear *clear, const char *path)
{
	AUTO_CLOSE int fd = path_open_beneath(clear->job->root_fd, path,
					      O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0);
	struct stat st;

	if (fd < 0)
		return fd;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (st.st_dev != clear->dev)
		return 1;
	return walk_push_folder(&clear->walk, path, fd);
}

/* One that its owner has shut to himself. By its name, as it cannot be opened: nothing that `user`
 * may not do anyway. The top of a workspace may be the service's. */
static int unlock_folder(const struct clear *clear, const struct place *place,
			 const struct stat *st)
{
	if (clear->job->is_root || (st->st_mode & FOLDER_MODE) == FOLDER_MODE ||
	    st->st_dev != clear->dev)
		return 0;
	return fchmodat(place->folder_fd, place->name, FOLDER_MODE, 0) < 0 && errno != EPERM
		       ? -errno
		       : 0;
}

static int clear_path(struct clear *clear, const char *path)
{
	struct place place = PLACE_NULL;
	bool is_folder;
	struct stat st;
	int r;

	r = place_find(clear->job, path, &place);
	if (r < 0)
		return r == -ENOENT ? 0 : r;
	r = fstatat(place.folder_fd, place.name, &st, AT_SYMLINK_NOFOLLOW) < 0 ? -errno : 0;
	is_folder = r >= 0 && S_ISDIR(st.st_mode);
	if (is_folder)
		r = unlock_folder(clear, &place, &st);
	else if (r >= 0)
		r = unlinkat(place.folder_fd, place.name, 0) < 0 ? -errno : 0;
	place_done(&place);
	if (is_folder && r >= 0) {
		r = empty_folder(clear, path);
		if (r == 0)
			r = walk_push(&clear->folders, path);
	}
	return r == -ENOENT || r > 0 ? 0 : r;
}

static int clear_tree(struct clear *clear, const char *top)
{
	AUTO_CLOSE int fd = path_open_beneath(clear->job->root_fd, top, O_PATH | O_NOFOLLOW, 0);
	const struct archive_job *job = clear->job;
	struct stat st;
	int r;

	if (fd == -ENOENT || fd == -ENOTDIR)
		return 0;
	if (fd < 0)
		return job_fail_errno(clear->job, fd, top);
	if (fstat(fd, &st) < 0)
		return job_fail_errno(clear->job, -errno, top);
	clear->dev = st.st_dev;
	r = walk_push(&clear->walk, top);
	while (r >= 0) {
		AUTO_FREE char *path = walk_pop(&clear->walk);

		if (!path)
			return 0;
		if (name_is_excluded(path, job->exclude, job->n_excludes))
			continue;
		r = clear_path(clear, path);
		if (r < 0)
			return job_fail_errno(clear->job, r, path);
	}
	return job_fail_errno(clear->job, r, top);
}

static void remove_folders(struct clear *clear)
{
	for (;;) {
		AUTO_FREE char *path = walk_pop(&clear->folders);
		struct place place = PLACE_NULL;

		if (!path)
			return;
		/* Something has stayed in it, or it is a mount or the service's: it is there for
		 * what comes. */
		if (place_find(clear->job, path, &place) >= 0)
			(void)unlinkat(place.folder_fd, place.name, AT_REMOVEDIR);
		place_done(&place);
	}
}

int clear_run(struct archive_job *job)
{
	struct clear clear = {.job = job};
	int r = 0;

	for (size_t i = 0; i < job->n_paths && r >= 0; i++)
		r = clear_tree(&clear, job->path[i]);
	if (r >= 0)
		remove_folders(&clear);
	walk_done(&clear.walk);
	walk_done(&clear.folders);
	return r;
}
