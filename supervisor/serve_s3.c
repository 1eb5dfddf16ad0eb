/*
 * Theory. The object store's credential is in the configuration in force and goes to a helper, one
 * for each job. Its job comes from the api worker, over a socket pair whose other end is the
 * answer: no descriptor and no name comes to the supervisor. A helper ends by itself, soon after
 * the api worker closed its end; the timer is for one that hangs.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/sockmsg.h"
#include "base/str.h"

#include "sandboxd/s3.h"
#include "supervisor/s3_helper.h"
#include "supervisor/serve_state.h"
#include "supervisor/unseal.h"

/* Those whose asker has gone are on their way out. */
#define RUNS_MAX (2u * S3_AT_ONCE)

struct s3_run {
	struct list link; /* serve->s3_runs */
	struct serve *serve;
	struct s3_helper *helper;
};

static void release(struct s3_run *run)
{
	list_remove(&run->link);
	run->serve->n_s3_runs--;
	free(run);
}

static void on_ended(void *userdata)
{
	release(userdata);
}

static int start(struct s3_run *run, int job_fd, struct err *err)
{
	const struct serve_options *options = &run->serve->options;
	struct s3_request request = {
		.magic = S3_MAGIC,
		.version = S3_VERSION,
		.config = options->config->s3,
	};
	const struct s3_helper_place place = {options->loop, options->host,
					      options->unsealer->null_fd, job_fd};
	int r;

	IGNORE_RESULT(str_copy(request.instance, sizeof(request.instance), options->instance));
	r = s3_helper_start(&place, &request, on_ended, run, &run->helper, err);
	explicit_bzero(&request, sizeof(request));
	return r;
}

static int start_new(struct serve *serve, int *ret_fd, struct err *err)
{
	AUTO_CLOSE int job_fd = -1;
	AUTO_CLOSE int asker_fd = -1;
	struct s3_run *run;
	int fds[2];
	int r = sockmsg_pair(fds, 0);

	if (r < 0)
		return err_fail(err, r, "s3", "socket pair");
	job_fd = fds[0];
	asker_fd = fds[1];
	run = calloc(1, sizeof(*run));
	if (!run)
		return err_fail(err, -ENOMEM, "s3", "memory");
	run->serve = serve;
	list_append(&serve->s3_runs, &run->link);
	serve->n_s3_runs++;
	r = start(run, job_fd, err);
	if (r < 0) {
		release(run);
		return r;
	}
	*ret_fd = TAKE_FD(asker_fd);
	return 0;
}

int serve_s3(struct serve_client *client, const struct launch_msg *request)
{
	struct serve *serve = client->serve;
	const struct config_answer *config = serve->options.config;
	struct launch_msg answer = serve_answer(request, LAUNCH_E_NONE);
	int fd = -1;

	if (!config || config->s3.host[0] == '\0' || !serve->options.unsealer) {
		answer.error = LAUNCH_E_STATE;
	} else if (serve->n_s3_runs >= RUNS_MAX) {
		answer.error = LAUNCH_E_RATE;
	} else if (start_new(serve, &fd, &answer.u.err) < 0) {
		answer.error = LAUNCH_E_STEP;
		log_err(LOG_LEVEL_ERROR, NULL, "the helper for the object store", &answer.u.err);
	}
	peer_send(&client->peer, &answer, fd);
	return 0;
}

void serve_drop_s3(struct serve *serve)
{
	LIST_FOR_EACH_SAFE (link, following, &serve->s3_runs) {
		struct s3_run *run = LIST_ENTRY(link, struct s3_run, link);

		run->helper = s3_helper_cancel(run->helper);
		release(run);
	}
}
