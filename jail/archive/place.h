/*
 * Where an entry goes: a name in a folder that is opened, with no link on the way.
 */
#pragma once

#include <sys/types.h>

#include "base/auto.h"

#include "jail/archive/job.h"

struct place {
	int folder_fd;
	const char *name; /* within the path that was given */
};
#define PLACE_NULL ((struct place){.folder_fd = -1})

/* The folder of path, as it is. 0 or -errno; -ELOOP: a link is on the way, or no folder. */
MUST_USE int place_find(const struct archive_job *job, const char *path, struct place *ret_place);
/* The same, where the missing ones on the way are made. 0 or -1 (job_fail). */
MUST_USE int place_open(struct archive_job *job, const char *path, struct place *ret_place);
void place_done(struct place *place);
