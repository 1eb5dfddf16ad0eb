/*
 * Folders that were made: what they are to be in the end. A mode without write permission would
 * keep out what comes into them, and each entry in one changes its time.
 */
#pragma once

#include <stddef.h>
#include <sys/types.h>
#include <time.h>

#include "jail/archive/job.h"

struct folder_end {
	char *path; /* owned */
	mode_t mode;
	uid_t uid;
	gid_t gid;
	struct timespec mtime;
};

struct folders {
	struct folder_end *end; /* owned */
	size_t n;
	size_t allocated;
};

/* path is copied. 0 or -ENOMEM. */
MUST_USE int folders_add(struct folders *folders, const char *path, const struct folder_end *end);
/* The last first. 0 or -1 (job_fail). */
MUST_USE int folders_apply(const struct folders *folders, struct archive_job *job);
void folders_done(struct folders *folders);
