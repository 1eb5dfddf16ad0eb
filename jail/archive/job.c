#include "jail/archive/job.h"

#include <errno.h>
#include <string.h>

int job_fail(struct archive_job *job, enum archive_error error, int error_number, const char *name)
{
	struct archive_summary *summary = &job->summary;

	if (summary->error != ARCHIVE_E_NONE)
		return -1;
	summary->error = error;
	summary->error_number = error_number;
	if (name)
		memcpy(summary->name, name, strnlen(name, sizeof(summary->name)));
	return -1;
}

int job_fail_errno(struct archive_job *job, int r, const char *name)
{
	/* openat2's words for what a path may not do. */
	if (r == -ELOOP || r == -EXDEV)
		return job_fail(job, ARCHIVE_E_LINK_ON_WAY, -r, name);
	if (r == -EEXIST)
		return job_fail(job, ARCHIVE_E_DUPLICATE, -r, name);
	if (r == -ENAMETOOLONG)
		return job_fail(job, ARCHIVE_E_NAME, -r, name);
	return job_fail(job, ARCHIVE_E_SYSTEM, -r, name);
}

int job_count_entry(struct archive_job *job, const char *name)
{
	if (job->summary.n_entries >= job->max_entries)
		return job_fail(job, ARCHIVE_E_ENTRIES, 0, name);
	job->summary.n_entries++;
	return 0;
}

int job_count_bytes(struct archive_job *job, uint64_t n, const char *name)
{
	if (n > job->max_bytes - job->summary.n_bytes)
		return job_fail(job, ARCHIVE_E_BYTES, 0, name);
	job->summary.n_bytes += n;
	return 0;
}
