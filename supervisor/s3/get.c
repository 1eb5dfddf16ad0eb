/* Getting and deleting one object. */
#include "base/str.h"

#include "supervisor/s3/s3_state.h"

enum s3_status s3_get(struct s3 *s3)
{
	const struct s3_job *job = &s3->job;
	struct s3_call call = {.method = "GET", .key = job->key, .query = "", .text = ""};
	enum s3_status status;

	call.max_bytes = job->bytes > 0 ? job->bytes : job->max_bytes;
	if (call.max_bytes == 0)
		return S3_E_SIZE;
	status = s3_call(s3, &call);
	buf_done(&call.answer);
	s3->report.bytes = call.bytes;
	if (status == S3_DONE && job->bytes > 0 && call.bytes != job->bytes)
		status = S3_E_SIZE;
	return status;
}

enum s3_status s3_delete(struct s3 *s3)
{
	struct s3_call call = {.method = "DELETE", .key = s3->job.key, .query = "", .text = ""};
	enum s3_status status = s3_call(s3, &call);

	buf_done(&call.answer);
	return status == S3_E_MISSING ? S3_DONE : status;
}
