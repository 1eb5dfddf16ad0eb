/*
 * A task that runs: the loader's output on the wire becomes frames, and its end the task's.
 *
 * It outlives the worker. What the shim was told to forget is in the store, with how far the frames
 * had come, in the same transaction as the frames: so the next worker reads it through the parser
 * again, shows nothing twice, and goes on with what the shim sends again.
 */
#include <errno.h>
#include <string.h>

#include "base/frame.h"
#include "base/log.h"
#include "base/str.h"

#include "supervisor/api/jobs/progress.h"
#include "supervisor/api/loader_run.h"
#include "supervisor/api/tasks.h"

/* One running task on the wire. */
struct task_run {
	struct activity activity;
	struct id task;
	struct held held;
};

static void run_output(struct activity *activity, uint64_t number, bool is_stderr,
		       const uint8_t *data, size_t size)
{
	struct task_run *run = LIST_ENTRY(activity, struct task_run, activity);
	struct live *live = activity->live;
	struct app *app = live->app;
	struct job *job = job_table_find(&app->tasks, &run->task);
	uint32_t first;
	int r;

	if (!job || job_state_ended(job->state) || is_stderr) {
		live_settle(live, number);
		return;
	}
	first = job->frames.next_seq;
	r = held_add(&run->held, number, data, size);
	if (r >= 0)
		r = progress_feed(job, live->session, data, size, clock_realtime());
	if (r < 0) {
		shim_link_cancel(live->shim, activity->wire_job);
		tasks_store_frames(app, job, first, NULL);
		tasks_fail_held(app, job, live->session, "loader_output",
				"the loader's output is not understood", &run->held);
		live_settle(live, number);
		return;
	}
	tasks_store_frames(app, job, first, &run->held);
}

static void finish_run(struct task_run *run, struct job *job, const struct activity_result *result)
{
	struct live *live = run->activity.live;
	enum job_state state = JOB_STATE_ERROR;
	uint32_t first = job->frames.next_seq;
	char message[96];

	switch (result->end) {
	case ACTIVITY_EXITED:
		if (progress_finish(job, live->session, result->exit_info, clock_realtime(),
				    &state) >= 0 &&
		    job->frames.terminal) {
			tasks_store_frames(live->app, job, first, &run->held);
			tasks_end(live->app, job, live->session, state);
			return;
		}
		tasks_store_frames(live->app, job, first, NULL);
		IGNORE_RESULT(str_format(message, sizeof(message), "out of memory"));
		break;
	case ACTIVITY_FAILED:
		IGNORE_RESULT(str_format(message, sizeof(message), "the loader failed at step %s",
					 frame_step_name(result->failed->step)));
		break;
	case ACTIVITY_LOST:
		return; /* who ended the tree has failed its jobs; or this worker leaves them */
	case ACTIVITY_PUT_DONE:
	case ACTIVITY_END_MAX_:
		IGNORE_RESULT(str_format(message, sizeof(message), "unexpected end"));
		break;
	}
	tasks_fail_held(live->app, job, live->session, "loader_failed", message, &run->held);
}

static void run_ended(struct activity *activity, const struct activity_result *result)
{
	struct task_run *run = LIST_ENTRY(activity, struct task_run, activity);
	struct live *live = activity->live;
	struct job *job = job_table_find(&live->app->tasks, &run->task);

	if (result->number > 0 && held_add(&run->held, result->number, NULL, 0) < 0)
		live_settle(live, result->number);
	if (job && !job_state_ended(job->state))
		finish_run(run, job, result);
	held_done(&run->held, live);
	free(run);
	tasks_next(live->app, live->session);
}

static const struct activity_ops run_ops = {
	.output = run_output,
	.ended = run_ended,
};

int task_run_start(struct app *app, struct session *session, struct job *job)
{
	struct live *live = live_of(session);
	struct task_run *run;
	uint32_t wire_job;
	uint32_t first;
	int r;

	run = calloc(1, sizeof(*run));
	if (!run)
		return -ENOMEM;
	run->task = job->id;
	held_init(&run->held);
	r = loader_run(live, LOADER_RUN_EXECUTE, &wire_job);
	if (r < 0) {
		free(run);
		return r;
	}
	live_add(live, &run->activity, &run_ops, wire_job);
	job_start(job, wire_job, clock_realtime());
	tasks_store_state(app, job);
	first = job->frames.next_seq;
	r = progress_start(job, session, &app->summary, clock_realtime());
	if (r >= 0)
		tasks_store_frames(app, job, first, NULL);
	else
		shim_link_cancel(live->shim, wire_job); /* the caller ends the task */
	sessions_event(app, session, SESSION_EVENT_JOB_STARTED, SESSION_REASON_NONE);
	return r;
}

/* Another worker's task. */

static int feed_again(void *userdata, const struct store_output *output)
{
	struct job *job = userdata;

	return load_parser_feed(&job->parser, output->data, output->size);
}

static int read_again(const struct app *app, struct job *job, usec_t expires_at)
{
	struct store_progress progress;
	int r;

	r = store_task_progress(app->store, &job->id, &progress, feed_again, job);
	if (r < 0)
		return r;
	if (!progress.resumable)
		return -ESTALE; /* of a release that kept nothing */
	job->n_assets_shown = progress.n_assets_shown;
	job->n_problems_shown = progress.n_problems_shown;
	job->frames.n_dropped = progress.n_dropped;
	job->frames.total_bytes = (size_t)progress.frames_bytes;
	/* What was due has been said. */
	job->warned_minutes = janitor_plan_warning(expires_at, clock_realtime(), 0);
	return 0;
}

int task_run_resume(struct app *app, struct session *session, struct job *job, uint32_t wire_job)
{
	struct log_context context = {.session = &session->id, .job = &job->id};
	struct live *live = live_of(session);
	struct task_run *run;
	int r;

	if (!live->shim || wire_job == 0)
		return -EPIPE;
	r = read_again(app, job, session->expires_at);
	if (r < 0)
		return r;
	run = calloc(1, sizeof(*run));
	if (!run)
		return -ENOMEM;
	r = shim_link_resume(live->shim, wire_job);
	if (r < 0) {
		free(run);
		return r;
	}
	run->task = job->id;
	held_init(&run->held);
	live_add(live, &run->activity, &run_ops, wire_job);
	job->wire_job = wire_job;
	job_enqueue(job, session);
	log_line(LOG_LEVEL_INFO, &context, "task goes on", "frames=%u", job->frames.next_seq - 1);
	return 0;
}
