/*
 * A stream of tar as files below the workspace.
 */
#pragma once

#include "jail/archive/job.h"

/* From in_fd. 0, or -1 and job->summary says why; what was made until then stays. */
MUST_USE int extract_run(struct archive_job *job, int in_fd);
