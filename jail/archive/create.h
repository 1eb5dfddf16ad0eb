/*
 * The workspace as tar in zstd.
 */
#pragma once

#include "jail/archive/job.h"

/* Everything at job->path, to out_fd. 0, or -1 and job->summary says why. */
MUST_USE int create_run(struct archive_job *job, int out_fd);
