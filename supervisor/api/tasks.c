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
#include "base/plant.h"
#include "base/str.h"

#include "supervisor/api/celery.h"
#include "supervisor/api/http/actions.h"
#include "supervisor/api/http/reply.h"
#include "supervisor/api/jobs/progress.h"
#include "supervisor/api/live.h"
#include "supervisor/api/loader_run.h"
#include "supervisor/api/platform.h"
#include "supervisor/api/quotas.h"

#define MAX_HELD_NUMBERS  SHIM_LINK_WINDOW
#define MAX_HELD_BYTES    ((size_t)4 * 1024 * 1024) /* progress.h holds back much less */
#define KEPT_FRAMES_BYTES ((size_t)1024 * 1024)     /* of one task in memory once they are stored */

/* Something of a task on its way to the store. */
struct task_write {
	struct app *app;
	struct id session;
	struct id task;
	uint32_t last_seq; /* of the frames in it; 0: none */
	bool is_degraded;
	size_t n_numbers;
	uint64_t number[];
};

/* Telling the store. */

static void settle_numbers(const struct task_write *write)
{
	struct session *session = registry_find(&write->app->registry, &write->session);
	struct live *live = session ? live_of(session) : NULL;

	for (size_t i = 0; live && i < write->n_numbers; i++)
		live_settle(live, write->number[i]);
}

/* The store has done it, or gave it up. */
static void note_written(struct job *job, enum store_result result)
{
	job->n_owed--;
	if (result != STORE_OK)
		job->is_incomplete = true;
	/* Readers of what leaves memory read the store, so all of it must be there. */
	if (!job->is_incomplete && job->n_owed == 0 && job->frames.bytes > KEPT_FRAMES_BYTES)
		(void)frames_trim(&job->frames);
}

static void on_write(void *userdata, enum store_result result)
{
	struct task_write *write = userdata;
	struct app *app = write->app;
	struct job *job = job_table_find(&app->tasks, &write->task);

	sessions_note_write(registry_find(&app->registry, &write->session), result,
			    &write->is_degraded);
	if (job && write->last_seq > 0) {
		frames_settle(&job->frames, write->last_seq);
		platform_frames(app, job);
	}
	if (write->last_seq > 0)
		task_streams_wake(app, &write->task);
	if (job && write->is_degraded)
		celery_task_stored(app, job);
	if (write->is_degraded)
		return;
	if (job) {
		note_written(job, result);
		celery_task_stored(app, job);
	}
	settle_numbers(write);
	free(write);
}

static struct task_write *write_new(struct app *app, const struct job *job, size_t n_numbers)
{
	struct task_write *write = calloc(1, sizeof(*write) + n_numbers * sizeof(uint64_t));

	if (!write)
		return NULL;
	write->app = app;
	write->session = job->session;
	write->task = job->id;
	write->n_numbers = n_numbers;
	return write;
}

/* A durable frame of the wire, and how much of the loader's output it brought. */
struct held_number {
	uint64_t number;
	uint64_t bytes;
};

static struct held_number held_at(const struct buf *numbers, size_t index)
{
	struct held_number held;

	memcpy(&held, numbers->data + index * sizeof(held), sizeof(held));
	return held;
}

void held_init(struct held *held)
{
	held->numbers = BUF_NULL(MAX_HELD_NUMBERS * sizeof(struct held_number));
	held->data = BUF_NULL(MAX_HELD_BYTES);
}

void held_done(struct held *held, struct live *live)
{
	for (size_t i = 0; i < held->numbers.size / sizeof(struct held_number); i++)
		live_settle(live, held_at(&held->numbers, i).number);
	buf_done(&held->numbers);
	buf_done(&held->data);
}

int held_add(struct held *held, uint64_t number, const void *data, size_t size)
{
	const struct held_number last = {.number = number, .bytes = size};
	int r;

	r = buf_append(&held->data, data, size);
	if (r >= 0)
		r = buf_append(&held->numbers, &last, sizeof(last));
	return r;
}

/* How many of the held numbers brought nothing that is still waiting for its frame. */
static size_t count_shown(const struct job *job, const struct buf *numbers)
{
	uint64_t waiting = job->frames.terminal ? 0 : progress_held_bytes(job);
	size_t n = numbers->size / sizeof(struct held_number);

	for (; n > 0 && waiting > 0; n--) {
		uint64_t bytes = held_at(numbers, n - 1).bytes;

		waiting -= bytes < waiting ? bytes : waiting;
	}
	return n;
}

static uint64_t bytes_of(const struct buf *numbers, size_t n)
{
	uint64_t bytes = 0;

	for (size_t i = 0; i < n; i++)
		bytes += held_at(numbers, i).bytes;
	return bytes;
}

/* Frames from first_seq on, and the numbers that are shown by them or by those before (may be
 * none; held may be NULL). */
void tasks_store_frames(struct app *app, struct job *job, uint32_t first_seq, struct held *held)
{
	size_t n = held ? count_shown(job, &held->numbers) : 0;
	struct store_batch batch = {.first_seq = first_seq};
	struct store_output output = {0};
	struct task_write *write;
	uint64_t highest = 0;
	int r;

	if (job->frames.next_seq == first_seq && n == 0)
		return;
	write = write_new(app, job, n);
	if (!write) {
		/* No memory: readers still get their frames. */
		job->is_incomplete = true;
		frames_settle(&job->frames, job->frames.next_seq - 1);
		platform_frames(app, job);
		task_streams_wake(app, &job->id);
		return;
	}
	quotas_charge_frames(app, job, first_seq);
	write->last_seq = job->frames.next_seq - 1;
	for (size_t i = 0; i < n; i++)
		write->number[i] = highest = held_at(&held->numbers, i).number;
	if (n > 0) {
		output.data = held->data.data;
		output.size = (size_t)bytes_of(&held->numbers, n);
	}
	job->n_owed++;
	batch.wire_number = highest;
	if (n > 0 && !job->frames.terminal)
		batch.output = &output;
	r = store_frames_put(app->store, job, &batch, on_write, write);
	if (n > 0) {
		buf_consume(&held->data, output.size);
		buf_consume(&held->numbers, n * sizeof(struct held_number));
	}
	if (r < 0)
		on_write(write, STORE_LOST);
}

void tasks_store_state(struct app *app, struct job *job)
{
	struct task_write *write = write_new(app, job, 0);

	if (write && store_task_state(app->store, job, on_write, write) >= 0)
		job->n_owed++;
	else
		free(write);
}

/* After the terminal frame was added. */
void tasks_end(struct app *app, struct job *job, struct session *session, enum job_state state)
{
	struct log_context context = {
		.session = &job->session,
		.job = &job->id,
		.request = job->request[0] ? job->request : NULL,
	};

	job_end(job, session, state, clock_realtime());
	job_table_note_ended(&app->tasks, job);
	tasks_store_state(app, job);
	if (session)
		sessions_write_log(app, session);
	task_cancel_ended(app, job);
	log_line(LOG_LEVEL_INFO, &context, "task ended", "state=%s duration_us=%llu",
		 job_state_text(state),
		 (unsigned long long)(job->ended_at -
				      (job->started_at ? job->started_at : job->created_at)));
}

void tasks_fail_held(struct app *app, struct job *job, struct session *session, const char *code,
		     const char *message, struct held *held)
{
	uint32_t first = job->frames.next_seq;

	if (job_state_ended(job->state))
		return;
	progress_fail(job, session, code, message, clock_realtime());
	tasks_store_frames(app, job, first, held);
	tasks_end(app, job, session, JOB_STATE_ERROR);
}

void tasks_fail(struct app *app, struct session *session, const char *code, const char *message)
{
	LIST_FOR_EACH_SAFE (entry, following, &session->jobs)
		tasks_fail_held(app, LIST_ENTRY(entry, struct job, queue_link), session, code,
				message, NULL);
}

void tasks_leave(struct session *session)
{
	while (!list_empty(&session->jobs))
		list_remove(session->jobs.next);
	session->n_jobs = 0;
}

/* Running. */

void tasks_next(struct app *app, struct session *session)
{
	struct job *job;
	int r;

	/* Another host may run it by now; the tick comes again. */
	if (store_lease_lapsed(app->store, clock_boottime()))
		return;
	while (session->state == SESSION_STATE_OPEN || session->state == SESSION_STATE_RUNNING) {
		if (job_running(session) && !planted("skip-lock"))
			return;
		job = job_next(session);
		if (!job) {
			if (session->state == SESSION_STATE_RUNNING)
				sessions_event(app, session, SESSION_EVENT_JOBS_IDLE,
					       SESSION_REASON_NONE);
			celery_session_ready(app, session);
			return;
		}
		r = task_run_start(app, session, job);
		if (r >= 0 || r == -EBUSY || r == -ENOBUFS)
			return; /* it runs, or the end of other work calls again */
		tasks_fail_held(app, job, session, "loader_failed",
				"the loader could not be started", NULL);
	}
}

static struct job *restore(const struct store_task *task)
{
	struct job *job = job_restore(&task->id, &task->session, task->owner, task->workspace,
				      task->state, task->last_seq);

	if (!job)
		return NULL;
	job->created_at = task->created_at;
	job->started_at = task->started_at;
	job->ended_at = task->ended_at;
	IGNORE_RESULT(str_copy(job->code, sizeof(job->code), task->code));
	return job;
}

struct job *tasks_stored(const struct store_task *task)
{
	struct job *job = restore(task);

	if (job && !job_state_ended(job->state))
		job->state = JOB_STATE_ERROR;
	return job;
}

/* 0: it goes on, or waits for its turn as before. */
static int resume(struct app *app, struct job *job, const struct store_task *task)
{
	struct session *session = registry_find(&app->registry, &job->session);

	/* The tree that it ran in. One that is being made, for a session that ran elsewhere, is
	 * not. */
	if (!session || session->state != SESSION_STATE_REBUILDING || !live_of(session)->adopted)
		return -ENOENT;
	if (job->state == JOB_STATE_RUNNING)
		return task_run_resume(app, session, job, task->wire_job);
	job_enqueue(job, session);
	return 0;
}

void tasks_take(struct app *app, const struct store_task *task, const char *code,
		const char *message)
{
	struct job *job = restore(task);
	int r;

	if (!job)
		return;
	if (job_table_add(&app->tasks, job) < 0) {
		(void)job_free(job);
		return;
	}
	/* Its last frame was stored, the state of its row was not. */
	if (job_state_ended(job->state)) {
		tasks_store_state(app, job);
		return;
	}
	r = resume(app, job, task);
	if (r >= 0)
		return;
	tasks_fail_held(app, job, NULL, r == -ENOENT ? code : "worker_restarted", message, NULL);
}

void tasks_warn(struct app *app)
{
	usec_t now = clock_realtime();

	LIST_FOR_EACH (entry, &app->lives) {
		struct session *session = LIST_ENTRY(entry, struct live, link)->session;
		struct job *job = job_running(session);
		uint32_t first;
		uint32_t minutes;

		if (!job)
			continue;
		minutes = janitor_plan_warning(session->expires_at, now, job->warned_minutes);
		first = job->frames.next_seq;
		if (minutes == 0 || progress_warn(job, session, minutes, now) < 0)
			continue;
		job->warned_minutes = minutes;
		tasks_store_frames(app, job, first, NULL);
	}
}

void tasks_go_on(struct app *app, struct session *session)
{
	if (session_has_tree(session) && job_running(session))
		sessions_event(app, session, SESSION_EVENT_JOB_STARTED, SESSION_REASON_NONE);
	tasks_next(app, session);
}

/* Execute. */

struct execute_op {
	struct app *app;
	struct answer_to to;
	struct id task;
	struct id session;
	bool is_degraded;
};

void task_reply_accepted(struct request *request, const struct id *task)
{
	char text[ID_TEXT_BYTES];
	char url[CONFIG_TEXT_BYTES + ID_TEXT_BYTES];

	id_format(task, text);
	if (str_format(url, sizeof(url), "%s%s", request_config(request)->stream_url, text) < 0)
		url[0] = '\0';
	reply_json(request, MHD_HTTP_OK,
		   json_pack("{s:s, s:s, s:s}", "task_id", text, "status", "queued", "stream_url",
			     url));
}

static void answer_execute(struct execute_op *op, bool degraded)
{
	struct request *request = answer_get(&op->to);

	if (!request)
		return;
	if (degraded)
		request_add_header(request, "Sandbox-Degraded", "store");
	task_reply_accepted(request, &op->task);
}

static void answer_taken(struct execute_op *op)
{
	struct request *request = answer_get(&op->to);

	if (request)
		reply_detail(request, MHD_HTTP_CONFLICT, "the session runs on another host");
}

/* What there is to say of it, another host says: in the store. */
static void give_up(struct app *app, struct job *job, struct session *session)
{
	struct id task = job->id;

	task_cancel_ended(app, job);
	job_drop(&app->tasks, job, session);
	task_streams_wake(app, &task);
}

void tasks_give_up(struct app *app, struct session *session)
{
	LIST_FOR_EACH_SAFE (entry, following, &session->jobs)
		give_up(app, LIST_ENTRY(entry, struct job, queue_link), session);
}

static void on_task_row(void *userdata, enum store_result result)
{
	struct execute_op *op = userdata;
	struct app *app = op->app;
	struct job *job = job_table_find(&app->tasks, &op->task);
	struct session *session = registry_find(&app->registry, &op->session);
	bool is_first = !op->is_degraded;

	sessions_note_write(session, result, &op->is_degraded);
	if (result == STORE_DUPLICATE || result == STORE_FENCED) {
		answer_taken(op);
		if (job)
			give_up(app, job, session);
		free(op);
		return;
	}
	if (job && !op->is_degraded)
		note_written(job, result);
	if (job && is_first)
		answer_execute(op, result != STORE_OK);
	if (session && is_first)
		tasks_next(app, session);
	if (!op->is_degraded)
		free(op);
}

/* Into the queue, and its row on its way. */
static void enqueue(struct execute_op *op, struct job *job, struct session *session)
{
	struct app *app = op->app;
	void *write;

	op->task = job->id;
	op->session = session->id;
	if (!planted_nth("forget-job", 3))
		job_enqueue(job, session);
	app->counters.n_tasks++;
	id_format(&job->id, session->last_run_id);
	write = sessions_write(app, &session->id);
	if (write && store_session_status(app->store, session, clock_realtime(),
					  sessions_write_done(), write) < 0)
		free(write);
	job->n_owed++;
	if (store_task_insert(app->store, job, on_task_row, op) < 0)
		on_task_row(op, STORE_LOST);
}

static struct job *new_job(struct app *app, const struct id *id, const struct session *session)
{
	struct job *job = job_new(id, session, clock_realtime());

	if (!job)
		return NULL;
	if (job_table_add(&app->tasks, job) < 0)
		return job_free(job);
	return job;
}

int tasks_begin(struct app *app, struct session *session, const struct id *task, json_t *tags)
{
	struct execute_op *op = calloc(1, sizeof(*op));
	struct job *job = op ? new_job(app, task, session) : NULL;

	if (!job) {
		free(op);
		json_decref(tags);
		return -ENOMEM;
	}
	job->tags = tags;
	op->app = app;
	enqueue(op, job, session);
	return 0;
}

void action_execute(struct request *request, struct session *session)
{
	struct app *app = request_app(request);
	enum quota_reason quota = quota_job(session, app->config->queue_max_jobs);
	struct quota_refusal refusal;
	struct execute_op *op;
	struct job *job = NULL;
	struct id id;

	if (quota != QUOTA_OK) {
		reply_quota(request, quota);
		return;
	}
	if (!tenant_quota_job(session, &app->config->quota, clock_realtime(), &refusal)) {
		reply_refusal(request, &refusal);
		return;
	}
	op = calloc(1, sizeof(*op));
	if (op && id_random(&id) >= 0)
		job = new_job(app, &id, session);
	if (!job) {
		free(op);
		reply_detail(request, MHD_HTTP_SERVICE_UNAVAILABLE, "out of memory");
		return;
	}
	IGNORE_RESULT(str_copy_n(job->request, sizeof(job->request), request->request_id,
				 strnlen(request->request_id, sizeof(job->request) - 1)));
	op->app = app;
	op->to = answer_to(request);
	request_note_id(request, "task", &job->id);
	enqueue(op, job, session);
}
