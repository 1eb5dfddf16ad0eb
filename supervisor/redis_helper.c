/*
 * Theory. It keeps the host's network, for one connection, and is asked nothing while it runs: its
 * report lies in the pipe when it ends.
 */
#include "supervisor/redis_helper.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/io.h"

#include "supervisor/helper_run.h"

#define TIMEOUT      (60 * USEC_PER_SEC)
/* To the end of the keys of a large server, else it begins again for ever. */
#define DROP_TIMEOUT (600 * USEC_PER_SEC)

struct redis_helper {
	struct helper_run run;
	redis_helper_done done;
	void *userdata;
};

static void release(struct redis_helper *helper)
{
	helper_run_done(&helper->run);
	free(helper);
}

static bool report_valid(const struct redis_report *report)
{
	return report->magic == REDIS_MAGIC && report->version == REDIS_VERSION &&
	       report->status < REDIS_STATUS_MAX_ && report->n_sessions <= REDIS_LIST_MAX;
}

static void on_ended(void *userdata)
{
	struct redis_helper *helper = userdata;
	redis_helper_done done = helper->done;
	void *done_userdata = helper->userdata;
	struct redis_report report;
	bool valid = io_read(helper->run.report_fd, &report, sizeof(report)) ==
			     (ssize_t)sizeof(report) &&
		     report_valid(&report);

	release(helper);
	done(done_userdata, valid ? &report : NULL);
}

int redis_helper_start(const struct redis_helper_place *place, const struct redis_request *request,
		       redis_helper_done done, void *userdata, struct redis_helper **ret_helper,
		       struct err *err)
{
	struct redis_helper *helper = calloc(1, sizeof(*helper));
	const struct helper_start start = {
		.loop = place->loop,
		.host = place->host,
		.mode = "redis",
		.not_started = "the helper for Redis was not started",
		.request = request,
		.request_bytes = sizeof(*request),
		.worker = {.fds = {{place->null_fd, STDOUT_FILENO},
				   {place->null_fd, STDERR_FILENO}},
			   .n_fds = 2},
		.timeout = request->action == REDIS_DROP ? DROP_TIMEOUT : TIMEOUT,
		.ended = on_ended,
		.userdata = helper,
	};
	int r;

	if (!helper)
		return err_fail(err, -ENOMEM, "redis", "memory");
	helper->run = HELPER_RUN_NULL;
	helper->done = done;
	helper->userdata = userdata;
	r = helper_run_start(&helper->run, &start, err);
	if (r < 0) {
		release(helper);
		return r;
	}
	*ret_helper = helper;
	return 0;
}

struct redis_helper *redis_helper_cancel(struct redis_helper *helper)
{
	if (!helper)
		return NULL;
	helper_run_end(&helper->run);
	free(helper);
	return NULL;
}
