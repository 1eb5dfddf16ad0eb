/*
 * Tasks: execute jobs with a row, frames and an end that a client was promised.
 *
 * The row is committed before the id is told. Frames become visible to readers when they are
 * durable (or the store has said that it cannot now); the wire numbers that they came from are
 * settled only when they are durable, so that the shim sends again what a crash of this worker
 * loses. Whatever ends a task, it ends with exactly one terminal frame.
 */
#include "supervisor/api/tasks.h"

#include <errno.h>
#include <string.h>

#include "base/frame.h"
#include "base/log.h"
#include "base/str.h"

#include "supervisor/api/http/actions.h"
#include "supervisor/api/http/reply.h"
#include "supervisor/api/jobs/progress.h"
#include "supervisor/api/live.h"
#include "supervisor/api/loader_run.h"

#define MAX_HELD_NUMBERS SHIM_LINK_WINDOW

/* One running task on the wire. */
struct task_run {
	struct activity activity;
	struct id task;
	struct buf numbers; /* uint64_t each: fed, not yet handed to the store */
};

/* Frames on their way to the store. */
struct frames_op {
	struct app *app;
	struct id session;
	struct id task;
	uint32_t last_seq;
	bool is_degraded;
	size_t n_numbers;
	uint64_t number[];
};

/* Telling the store. */

static void settle_numbers(const struct frames_op *op)
{
	struct session *session = registry_find(&op->app->registry, &op->session);
	struct live *live = session ? live_of(session) : NULL;

	for (size_t i = 0; live && i < op->n_numbers; i++)
		live_settle(live, op->number[i]);
}

static void on_frames(void *userdata, enum store_result result)
{
	struct frames_op *op = userdata;
	struct app *app = op->app;
	struct job *job = job_table_find(&app->tasks, &op->task);
	struct session *session = registry_find(&app->registry, &op->session);
	bool was_degraded = op->is_degraded;

	op->is_degraded = result == STORE_DEGRADED;
	if (session && op->is_degraded && !was_degraded)
		session->n_degraded++;
	else if (session && was_degraded && !op->is_degraded)
		session->n_degraded--;
	if (job)
		frames_settle(&job->frames, op->last_seq);
	task_streams_wake(app, &op->task);
	if (op->is_degraded)
		return;
	settle_numbers(op);
	free(op);
}

/* Frames from first_seq on, and the numbers they came from (may be none). */
static void store_frames(struct app *app, struct job *job, uint32_t first_seq, struct buf *numbers)
{
	size_t n_numbers = numbers ? numbers->size / sizeof(uint64_t) : 0;
	struct frames_op *op;
	uint64_t highest = 0;

	if (job->frames.next_seq == first_seq && n_numbers == 0)
		return;
	op = calloc(1, sizeof(*op) + n_numbers * sizeof(uint64_t));
	if (op) {
		op->app = app;
		op->session = job->session;
		op->task = job->id;
		op->last_seq = job->frames.next_seq - 1;
		op->n_numbers = n_numbers;
		if (n_numbers > 0) {
			memcpy(op->number, numbers->data, n_numbers * sizeof(uint64_t));
			highest = op->number[n_numbers - 1];
			buf_reset(numbers);
		}
		if (store_frames_put(app->store, job, first_seq, highest, on_frames, op) >= 0)
			return;
		settle_numbers(op);
		free(op);
	}
	/* No memory: readers still get their frames. */
	frames_settle(&job->frames, job->frames.next_seq - 1);
	task_streams_wake(app, &job->id);
}

static void store_state(struct app *app, const struct job *job)
{
	void *op = sessions_write(app, &job->session);

	if (op && store_task_state(app->store, job, sessions_write_done(), op) < 0)
		free(op);
}

static void store_log(struct app *app, const struct session *session)
{
	void *op = sessions_write(app, &session->id);

	if (op &&
	    store_session_log(app->store, session, clock_realtime(), sessions_write_done(), op) < 0)
		free(op);
}

/* After the terminal frame was added. */
static void end_task(struct app *app, struct job *job, struct session *session,
		     enum job_state state)
{
	struct log_context context = {.session = &job->session, .job = &job->id};

	job_end(job, session, state, clock_realtime());
	job_table_note_ended(&app->tasks, job);
	store_state(app, job);
	if (session)
		store_log(app, session);
	log_line(LOG_LEVEL_INFO, &context, "task ended", "state=%s duration_us=%llu",
		 job_state_text(state),
		 (unsigned long long)(job->ended_at -
				      (job->started_at ? job->started_at : job->created_at)));
}

/* One error frame and the end, whatever state the task is in. */
static void fail_task(struct app *app, struct job *job, struct session *session, const char *code,
		      const char *message, struct buf *numbers)
{
	uint32_t first = job->frames.next_seq;

	if (job_state_ended(job->state))
		return;
	if (progress_fail(job, session, code, message, clock_realtime()) < 0 ||
	    !job->frames.terminal)
		return; /* no memory: the next restart of this worker ends it */
	store_frames(app, job, first, numbers);
	end_task(app, job, session, JOB_STATE_ERROR);
}

void tasks_fail(struct app *app, struct session *session, const char *code, const char *message)
{
	LIST_FOR_EACH_SAFE (entry, following, &session->jobs)
		fail_task(app, LIST_ENTRY(entry, struct job, queue_link), session, code, message,
			  NULL);
}

/* Running. */

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
	r = buf_append(&run->numbers, &number, sizeof(number));
	if (r >= 0)
		r = progress_feed(job, live->session, data, size, clock_realtime());
	if (r < 0) {
		shim_link_cancel(live->shim, activity->wire_job);
		fail_task(app, job, live->session, "loader_output",
			  "the loader's output is not understood", &run->numbers);
		live_settle(live, number);
		return;
	}
	if (!progress_holds(job))
		store_frames(app, job, first, &run->numbers);
	else
		store_frames(app, job, first, NULL);
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
			store_frames(live->app, job, first, &run->numbers);
			end_task(live->app, job, live->session, state);
			return;
		}
		IGNORE_RESULT(str_format(message, sizeof(message), "out of memory"));
		break;
	case ACTIVITY_FAILED:
		IGNORE_RESULT(str_format(message, sizeof(message), "the loader failed at step %s",
					 frame_step_name(result->failed->step)));
		break;
	case ACTIVITY_LOST:
		IGNORE_RESULT(str_format(message, sizeof(message), "session ended"));
		break;
	case ACTIVITY_PUT_DONE:
	case ACTIVITY_END_MAX_:
		IGNORE_RESULT(str_format(message, sizeof(message), "unexpected end"));
		break;
	}
	fail_task(live->app, job, live->session,
		  result->end == ACTIVITY_LOST ? "session_lost" : "loader_failed", message,
		  &run->numbers);
}

static void run_ended(struct activity *activity, const struct activity_result *result)
{
	struct task_run *run = LIST_ENTRY(activity, struct task_run, activity);
	struct live *live = activity->live;
	struct job *job = job_table_find(&live->app->tasks, &run->task);

	if (result->number > 0 &&
	    buf_append(&run->numbers, &result->number, sizeof(result->number)) < 0)
		live_settle(live, result->number);
	if (job && !job_state_ended(job->state))
		finish_run(run, job, result);
	for (size_t at = 0; at < run->numbers.size; at += sizeof(uint64_t)) {
		uint64_t number;

		memcpy(&number, run->numbers.data + at, sizeof(number));
		live_settle(live, number);
	}
	buf_done(&run->numbers);
	free(run);
	tasks_next(live->app, live->session);
}

static const struct activity_ops run_ops = {
	.output = run_output,
	.ended = run_ended,
};

/* 0; -EBUSY or -ENOBUFS: later; other: the task cannot run. */
static int start_run(struct app *app, struct session *session, struct job *job)
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
	run->numbers = BUF_NULL(MAX_HELD_NUMBERS * sizeof(uint64_t));
	r = loader_run(live, LOADER_RUN_EXECUTE, &wire_job);
	if (r < 0) {
		free(run);
		return r;
	}
	live_add(live, &run->activity, &run_ops, wire_job);
	job_start(job, wire_job, clock_realtime());
	store_state(app, job);
	first = job->frames.next_seq;
	r = progress_start(job, session, &app->summary, clock_realtime());
	if (r >= 0)
		store_frames(app, job, first, NULL);
	sessions_event(app, session, SESSION_EVENT_JOB_STARTED, SESSION_REASON_NONE);
	return r;
}

void tasks_next(struct app *app, struct session *session)
{
	struct job *job;
	int r;

	while (session->state == SESSION_STATE_OPEN || session->state == SESSION_STATE_RUNNING) {
		if (job_running(session))
			return;
		job = job_next(session);
		if (!job) {
			if (session->state == SESSION_STATE_RUNNING)
				sessions_event(app, session, SESSION_EVENT_JOBS_IDLE,
					       SESSION_REASON_NONE);
			return;
		}
		r = start_run(app, session, job);
		if (r >= 0 || r == -EBUSY || r == -ENOBUFS)
			return; /* it runs, or the end of other work calls again */
		fail_task(app, job, session, "loader_failed", "the loader could not be started",
			  NULL);
	}
}

void tasks_abandon(struct app *app, const struct store_task *task)
{
	struct job *job;

	job = job_restore(&task->id, &task->session, task->owner, task->workspace, task->state,
			  task->last_seq);
	if (!job)
		return;
	job->created_at = task->created_at;
	job->started_at = task->started_at;
	if (job_table_add(&app->tasks, job) < 0) {
		(void)job_free(job);
		return;
	}
	fail_task(app, job, NULL, session_reason_code(SESSION_REASON_RESTART),
		  "the service was restarted while the task ran", NULL);
}

/* Execute. */

struct execute_op {
	struct app *app;
	struct answer_to to;
	struct id task;
	struct id session;
	bool is_degraded;
};

static void answer_execute(struct execute_op *op, struct job *job, bool degraded)
{
	struct request *request = answer_get(&op->to);
	char text[ID_TEXT_BYTES];
	char url[CONFIG_TEXT_BYTES + ID_TEXT_BYTES];

	if (!request)
		return;
	id_format(&job->id, text);
	if (degraded)
		request_add_header(request, "Sandbox-Degraded", "store");
	if (str_format(url, sizeof(url), "%s%s", op->app->config->stream_url, text) < 0)
		url[0] = '\0';
	reply_json(request, MHD_HTTP_OK,
		   json_pack("{s:s, s:s, s:s}", "task_id", text, "status", "queued", "stream_url",
			     url));
}

static void on_task_row(void *userdata, enum store_result result)
{
	struct execute_op *op = userdata;
	struct app *app = op->app;
	struct job *job = job_table_find(&app->tasks, &op->task);
	struct session *session = registry_find(&app->registry, &op->session);
	bool is_first = !op->is_degraded;

	op->is_degraded = result == STORE_DEGRADED;
	if (session && is_first && op->is_degraded)
		session->n_degraded++;
	else if (session && !is_first && !op->is_degraded)
		session->n_degraded--;
	if (job && result == STORE_OK)
		job->row_exists = true;
	if (job && is_first)
		answer_execute(op, job, result != STORE_OK);
	if (session && is_first)
		tasks_next(app, session);
	if (!op->is_degraded)
		free(op);
}

static struct job *new_job(struct app *app, const struct request *request,
			   const struct session *session)
{
	struct job *job;
	struct id id;

	if (id_random(&id) < 0)
		return NULL;
	job = job_new(&id, session, clock_realtime());
	if (!job)
		return NULL;
	IGNORE_RESULT(str_copy_n(job->request, sizeof(job->request), request->request_id,
				 strnlen(request->request_id, sizeof(job->request) - 1)));
	if (job_table_add(&app->tasks, job) < 0)
		return job_free(job);
	return job;
}

void action_execute(struct request *request, struct session *session)
{
	struct app *app = request_app(request);
	enum quota_reason quota = quota_job(session, app->config->queue_max_jobs);
	struct execute_op *op;
	struct job *job;
	void *write;

	if (quota != QUOTA_OK) {
		reply_quota(request, quota);
		return;
	}
	op = calloc(1, sizeof(*op));
	job = op ? new_job(app, request, session) : NULL;
	if (!job) {
		free(op);
		reply_detail(request, MHD_HTTP_SERVICE_UNAVAILABLE, "out of memory");
		return;
	}
	op->app = app;
	op->to = answer_to(request);
	op->task = job->id;
	op->session = session->id;
	job_enqueue(job, session);
	app->counters.n_tasks++;
	id_format(&job->id, session->last_run_id);
	write = sessions_write(app, &session->id);
	if (write && store_session_status(app->store, session, clock_realtime(),
					  sessions_write_done(), write) < 0)
		free(write);
	if (store_task_insert(app->store, job, on_task_row, op) < 0)
		on_task_row(op, STORE_LOST);
}
