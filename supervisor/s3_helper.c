#include "supervisor/s3_helper.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "supervisor/helper_run.h"

/* For one that hangs. Of itself it ends soon after whoever waits for it is gone. */
#define TIMEOUT (240 * USEC_PER_MINUTE)

struct s3_helper {
	struct helper_run run;
	s3_helper_ended ended;
	void *userdata;
};

static void release(struct s3_helper *helper)
{
	helper_run_done(&helper->run);
	free(helper);
}

static void on_ended(void *userdata)
{
	struct s3_helper *helper = userdata;
	s3_helper_ended ended = helper->ended;
	void *ended_userdata = helper->userdata;

	release(helper);
	ended(ended_userdata);
}

int s3_helper_start(const struct s3_helper_place *place, const struct s3_request *request,
		    s3_helper_ended ended, void *userdata, struct s3_helper **ret_helper,
		    struct err *err)
{
	struct s3_helper *helper = calloc(1, sizeof(*helper));
	const struct helper_start start = {
		.loop = place->loop,
		.host = place->host,
		.program = "sandboxd-s3",
		.mode = "s3",
		.not_started = "the helper for the object store was not started",
		.request = request,
		.request_bytes = sizeof(*request),
		.worker = {.fds = {{place->null_fd, STDOUT_FILENO},
				   {place->null_fd, STDERR_FILENO},
				   {place->job_fd, S3_FD_JOB}},
			   .n_fds = 3},
		.timeout = TIMEOUT,
		.ended = on_ended,
		.userdata = helper,
	};
	int r;

	if (!helper)
		return err_fail(err, -ENOMEM, "s3", "memory");
	helper->run = HELPER_RUN_NULL;
	helper->ended = ended;
	helper->userdata = userdata;
	r = helper_run_start(&helper->run, &start, err);
	if (r < 0) {
		release(helper);
		return r;
	}
	*ret_helper = helper;
	return 0;
}

struct s3_helper *s3_helper_cancel(struct s3_helper *helper)
{
	if (!helper)
		return NULL;
	helper_run_end(&helper->run);
	free(helper);
	return NULL;
}
