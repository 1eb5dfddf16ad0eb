#include "jail/archive/folders.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/path.h"

#define FOLDERS_FIRST 64

int folders_add(struct folders *folders, const char *path, const struct folder_end *end)
{
	char *copy;

	if (folders->n == folders->allocated) {
		size_t allocated = folders->allocated > 0 ? 2 * folders->allocated : FOLDERS_FIRST;
		struct folder_end *grown = reallocarray(folders->end, allocated, sizeof(*grown));

		if (!grown)
			return -ENOMEM;
		folders->end = grown;
		folders->allocated = allocated;
	}
	copy = strdup(path);
	if (!copy)
		return -ENOMEM;
	folders->end[folders->n] = *end;
	folders->end[folders->n++].path = copy;
	return 0;
}

static int apply(const struct folder_end *end, struct archive_job *job)
{
	const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, end->mtime};
	AUTO_CLOSE int fd = path_open_beneath(job->root_fd, end->path, O_RDONLY | O_DIRECTORY, 0);

	if (fd < 0)
		return job_fail_errno(job, fd, end->path);
	/* The top of a workspace is the service's own in some places: it stays as it is. */
	if (job->is_root && fchown(fd, end->uid, end->gid) < 0 && errno != EPERM)
		return job_fail_errno(job, -errno, end->path);
	if (fchmod(fd, end->mode) < 0 && errno != EPERM)
		return job_fail_errno(job, -errno, end->path);
	if (futimens(fd, times) < 0 && errno != EPERM)
		return job_fail_errno(job, -errno, end->path);
	return 0;
}

int folders_apply(const struct folders *folders, struct archive_job *job)
{
	for (size_t i = folders->n; i > 0; i--) {
		if (apply(&folders->end[i - 1], job) < 0)
			return -1;
	}
	return 0;
}

void folders_done(struct folders *folders)
{
	for (size_t i = 0; i < folders->n; i++)
		free(folders->end[i].path);
	free(folders->end);
	*folders = (struct folders){.end = NULL};
}
