/*
 * What is at the paths of a job, removed: for an archive that takes its place.
 */
#pragma once

#include "base/auto.h"

#include "jail/archive/job.h"

/* What is excluded, and the folders above it, stays; so does a folder that is a mount. 0 or -1
 * (job_fail). */
MUST_USE int clear_run(struct archive_job *job);
