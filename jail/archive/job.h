/*
 * What both ways share: the bounds, what was done so far, and why it ended.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/auto.h"

#include "sandboxd/archive.h"

struct archive_job {
	int root_fd; /* not owned; all paths are relative to it */
	uint64_t max_bytes;
	uint64_t max_entries;
	/* Without their leading slash; not owned. */
	const char *const *path;
	size_t n_paths;
	const char *const *exclude;
	size_t n_excludes;
	int is_root; /* owners are kept */
	struct archive_summary summary;
};

/* Note why and where it ends, unless that is known already. -1, always. */
int job_fail(struct archive_job *job, enum archive_error error, int error_number, const char *name);
/* The same of a negative errno of a call: what it means for a path. */
int job_fail_errno(struct archive_job *job, int r, const char *name);
/* One more entry; so many more bytes. 0 or -1. */
MUST_USE int job_count_entry(struct archive_job *job, const char *name);
MUST_USE int job_count_bytes(struct archive_job *job, uint64_t n, const char *name);
