/*
 * A delivery's life. The id of the Celery task is that of ours, so frames, stream and state are
 * where a client looks for them, and a task that comes again is recognised whatever happened in
 * between: in memory, or by its row. A session runs one task at a time; one that waits for that has
 * no row yet and can still be put back.
 *
 * A result is written when the task's last frame is stored, and the message is acknowledged when
 * the result is written. Whoever dies in between makes the same result again from the row.
 */
#include <errno.h>
#include <hiredis.h>
#include <string.h>

#include "base/log.h"
#include "base/str.h"

#include "supervisor/api/audit.h"
#include "supervisor/api/celery_state.h"
#include "supervisor/api/live.h"
#include "supervisor/api/session/quota.h"
#include "supervisor/api/session/tenant_quota.h"
#include "supervisor/api/session_seek.h"
#include "supervisor/api/tasks.h"

#define RESULT_PREFIX  "celery-task-meta-"
#define RESULT_SECONDS "86400"
#define TREES_MAX      3 /* that are asked for in vain */
#define AGAIN          USEC_PER_SEC
#define FRAME_BYTES    ((size_t)256 * 1024)

/* Something asked of the store; the delivery may be gone when the answer comes. */
struct delivery_op {
	struct celery *celery;
	struct id task;
};

static struct delivery_op *op_new(struct delivery *delivery)
{
	struct delivery_op *op = calloc(1, sizeof(*op));

	if (!op)
		return NULL;
	op->celery = delivery->celery;
	op->task = delivery->message.id;
	return op;
}

/* Frees the op. */
static struct delivery *op_delivery(struct delivery_op *op)
{
	struct delivery *delivery = delivery_of_task(op->celery, &op->task, NULL);

	free(op);
	if (delivery)
		delivery->asking = false;
	return delivery;
}

/* The end. */

/* Not done. The server said why, or nothing: then the connection is lost, and the log says that. */
static void try_again(struct celery *celery, const struct redisReply *reply, const char *what)
{
	if (reply && reply->type == REDIS_REPLY_ERROR && !celery->was_refused)
		log_line(LOG_LEVEL_WARNING, NULL, "the server of the queue refuses", "what=\"%s\"",
			 what);
	celery->was_refused |= reply != NULL;
	celery_wake(celery, AGAIN);
}

static void on_acked(void *userdata, const struct redisReply *reply)
{
	struct delivery *delivery = userdata;
	struct celery *celery = delivery->celery;

	delivery->asking = false;
	if (!reply || reply->type != REDIS_REPLY_ARRAY) {
		try_again(celery, reply, "acknowledge");
		return;
	}
	celery->was_refused = false;
	(void)delivery_free(delivery);
	celery_wake(celery, 0);
}

static void acknowledge(struct delivery *delivery)
{
	struct celery *celery = delivery->celery;
	const char *tag = delivery->message.tag;
	const struct redis_command commands[] = {
		REDIS_COMMAND("ZREM", CELERY_UNACKED_INDEX, tag),
		REDIS_COMMAND("HDEL", CELERY_UNACKED, tag),
		REDIS_COMMAND("SREM", celery->held, tag),
	};

	if (!tag[0])
		(void)delivery_free(delivery);
	else
		delivery->asking =
			redis_client_transact(celery->broker, commands, ARRAY_SIZE(commands),
					      on_acked, delivery) >= 0;
}

static void on_result(void *userdata, const struct redisReply *reply)
{
	struct delivery *delivery = userdata;

	delivery->asking = false;
	delivery->written = reply && reply->type == REDIS_REPLY_ARRAY;
	if (delivery->written)
		delivery_write(delivery);
	else
		try_again(delivery->celery, reply, "write the result");
}

static void write_result(struct delivery *delivery)
{
	char key[sizeof(RESULT_PREFIX) + ID_TEXT_BYTES];
	char id[ID_TEXT_BYTES];
	/* Stored for those who ask later, published for those who wait. */
	const struct redis_command commands[] = {
		REDIS_COMMAND("SETEX", key, RESULT_SECONDS, delivery->result),
		REDIS_COMMAND("PUBLISH", key, delivery->result),
	};

	id_format(&delivery->message.id, id);
	IGNORE_RESULT(str_format(key, sizeof(key), RESULT_PREFIX "%s", id));
	delivery->asking = redis_client_transact(celery_results(delivery->celery), commands,
						 ARRAY_SIZE(commands), on_result, delivery) >= 0;
}

void delivery_write(struct delivery *delivery)
{
	if (delivery->asking || delivery->state != DELIVERY_FINISHING)
		return;
	if (!delivery->entered && delivery->message.tag[0])
		delivery_enter(delivery);
	if (delivery->written || delivery->message.ignore_result)
		acknowledge(delivery);
	else
		write_result(delivery);
}

void delivery_finish(struct delivery *delivery, const struct celery_result *result)
{
	static const enum celery_count counts[CELERY_STATE_MAX_] = {
		[CELERY_STATE_SUCCESS] = CELERY_COUNT_SUCCESS,
		[CELERY_STATE_FAILURE] = CELERY_COUNT_FAILURE,
		[CELERY_STATE_REVOKED] = CELERY_COUNT_REVOKED,
	};
	struct log_context context = {.job = &delivery->message.id};
	char *text = celery_result_format(&delivery->message.id, result, clock_realtime());

	if (!text) {
		celery_wake(delivery->celery, AGAIN);
		return;
	}
	delivery->result = text;
	delivery->state = DELIVERY_FINISHING;
	delivery->celery->n[counts[result->state]]++;
	log_line(LOG_LEVEL_INFO, &context, "queued task ends", "state=%s",
		 celery_state_text(result->state));
	delivery_write(delivery);
}

static void finish_with(struct delivery *delivery, enum celery_state state, const char *type,
			const char *text)
{
	const struct celery_result result = {
		.state = state,
		.type = type,
		.text = text,
		.module = state == CELERY_STATE_REVOKED ? CELERY_EXCEPTIONS : "sandboxd"};

	delivery_finish(delivery, &result);
}

static void finish_frame(struct delivery *delivery, const char *text, size_t size)
{
	struct celery_result result;
	json_t *frame = NULL;

	if (celery_result_of_frame(text, size, delivery->terminated, &frame, &result) < 0) {
		finish_with(delivery, CELERY_STATE_FAILURE, "SandboxTaskError",
			    "the result of the task is not kept any more");
		return;
	}
	delivery_finish(delivery, &result);
	json_decref(frame);
}

static void on_last_frame(void *userdata, enum store_result result,
			  const struct store_frame *frames, size_t n, bool more)
{
	struct delivery *delivery = op_delivery(userdata);

	(void)more;
	if (!delivery || delivery->state == DELIVERY_FINISHING)
		return;
	if (result == STORE_DEGRADED)
		celery_wake(delivery->celery, AGAIN);
	else if (n > 0 && frames_stage_terminal(frames[n - 1].stage))
		finish_frame(delivery, frames[n - 1].text, frames[n - 1].size);
	else
		finish_frame(delivery, "", 0);
}

/* The task has ended; its last frame has that number. */
static void finish_ended(struct delivery *delivery, const struct job *job, uint32_t last_seq)
{
	const struct frames_line *line =
		job && last_seq > 0 ? frames_after(&job->frames, last_seq - 1) : NULL;
	struct delivery_op *op;

	if (line) {
		finish_frame(delivery, line->text, line->size);
		return;
	}
	op = op_new(delivery);
	if (op && store_frames_get(delivery->celery->app->store, &op->task,
				   last_seq > 0 ? last_seq - 1 : 0, FRAME_BYTES, on_last_frame,
				   op) >= 0) {
		delivery->asking = true;
		return;
	}
	free(op);
	celery_wake(delivery->celery, AGAIN);
}

void celery_task_stored(struct app *app, const struct job *job)
{
	struct delivery *delivery;

	if (!app->celery || !job_state_ended(job->state) ||
	    job->frames.settled_seq + 1 != job->frames.next_seq)
		return;
	delivery = delivery_of_task(app->celery, &job->id, NULL);
	if (delivery && delivery->state == DELIVERY_RUNNING && !delivery->asking)
		finish_ended(delivery, job, job->frames.next_seq - 1);
}

/* The beginning. */

/* Its id is that of another session's task: what that one says is not this one's to read. */
static void finish_foreign(struct delivery *delivery)
{
	delivery->celery->n[CELERY_COUNT_DUPLICATE]++;
	finish_with(delivery, CELERY_STATE_FAILURE, "SandboxTaskError",
		    "another session has a task of this id");
}

static void on_session(void *userdata, enum store_result result, const struct store_session *row)
{
	struct delivery_op *op = userdata;
	struct app *app = op->celery->app;
	struct delivery *delivery = op_delivery(op);

	if (row)
		IGNORE_RESULT(session_taken(app, row));
	if (!delivery)
		return;
	delivery->sought = result != STORE_DEGRADED;
	celery_wake(delivery->celery, row ? 0 : AGAIN);
}

/* It may be a host's that is away. */
static void seek(struct delivery *delivery)
{
	static const struct store_viewer everybody = {
		.owner = "", .workspace = "", .sees_all = true};
	struct delivery_op *op = op_new(delivery);
	int r = op ? store_session_take(delivery->celery->app->store, &everybody,
					&delivery->message.session, on_session, op)
		   : -ENOMEM;

	delivery->asking = r >= 0;
	if (r >= 0)
		return;
	free(op);
	/* The embedded store: nobody else writes. */
	delivery->sought = r == -EOPNOTSUPP;
	celery_wake(delivery->celery, delivery->sought ? 0 : AGAIN);
}

static void on_task(void *userdata, enum store_result result, const struct store_task *task)
{
	struct delivery *delivery = op_delivery(userdata);

	if (!delivery || delivery->state != DELIVERY_WAITING)
		return;
	if (result == STORE_OK && !id_equal(&task->session, &delivery->message.session)) {
		finish_foreign(delivery);
		return;
	}
	if (result == STORE_OK && job_state_ended(task->state)) {
		delivery->celery->n[CELERY_COUNT_DUPLICATE]++;
		finish_ended(delivery, NULL, task->last_seq);
		return;
	}
	delivery->known = result == STORE_NOT_FOUND;
	/* Another host's, or the store cannot say: later. */
	if (delivery->known)
		delivery_next(delivery);
	else if (result == STORE_OK &&
		 !registry_find(&delivery->celery->app->registry, &delivery->message.session))
		seek(delivery);
	else
		celery_wake(delivery->celery, AGAIN);
}

static void look_up(struct delivery *delivery)
{
	struct delivery_op *op = op_new(delivery);

	if (op && store_task_get(delivery->celery->app->store, &op->task, on_task, op) >= 0) {
		delivery->asking = true;
		return;
	}
	free(op);
	celery_wake(delivery->celery, AGAIN);
}

static void run(struct delivery *delivery, struct session *session)
{
	struct app *app = delivery->celery->app;
	struct log_context context = {.session = &session->id, .job = &delivery->message.id};
	struct quota_refusal refusal;

	if (quota_job(session, app->config->queue_max_jobs) != QUOTA_OK ||
	    !tenant_quota_job(session, &app->config->quota, clock_realtime(), &refusal) ||
	    tasks_begin(app, session, &delivery->message.id,
			celery_message_labels(&delivery->message)) < 0) {
		celery_wake(delivery->celery, AGAIN);
		return;
	}
	delivery->state = DELIVERY_RUNNING;
	delivery->started_at = clock_realtime();
	audit_queued(app, "session.execute", &session->id, &delivery->message.id);
	log_line(LOG_LEVEL_INFO, &context, "queued task begins", "node=%s", delivery->celery->node);
}

static void ask_tree(struct delivery *delivery, struct session *session)
{
	struct app *app = delivery->celery->app;
	struct quota_refusal refusal;

	celery_wake(delivery->celery, AGAIN);
	if (session->state != SESSION_STATE_DORMANT ||
	    !tenant_quota_launch(session, &app->config->quota, clock_boottime(), clock_realtime(),
				 &refusal))
		return;
	if (delivery->n_trees++ < TREES_MAX)
		sessions_event(app, session, SESSION_EVENT_USE, SESSION_REASON_NONE);
	else
		finish_with(delivery, CELERY_STATE_FAILURE, "SandboxTaskError",
			    "the session cannot be rebuilt now");
}

static void finish_missing(struct delivery *delivery)
{
	/* As the platform's own task answers. */
	json_t *value = json_pack("{s:b, s:s}", "ok", 0, "error", "session not found");
	const struct celery_result result = {.state = CELERY_STATE_SUCCESS, .value = value};

	delivery_finish(delivery, &result);
	json_decref(value);
}

/* None of the session's came before it and waits: they run in the order of their taking. */
static bool is_first(const struct delivery *delivery)
{
	usec_t now = clock_realtime();

	LIST_FOR_EACH (entry, &delivery->celery->deliveries) {
		const struct delivery *other = LIST_ENTRY(entry, struct delivery, link);

		if (other == delivery)
			return true;
		if (other->state == DELIVERY_WAITING && !celery_is_scheduled(other, now) &&
		    id_equal(&other->message.session, &delivery->message.session))
			return false;
	}
	return true;
}

static void start(struct delivery *delivery)
{
	struct app *app = delivery->celery->app;
	struct session *session = registry_find(&app->registry, &delivery->message.session);

	if (!session && !delivery->sought)
		seek(delivery);
	else if (!session || !session_is_visible(session, clock_realtime()))
		finish_missing(delivery);
	else if (!session_has_tree(session) && session->suspension.state == SUSPENSION_RUNNING)
		ask_tree(delivery, session);
	else if (session_is_usable(session) && session->n_jobs == 0 && is_first(delivery))
		run(delivery, session);
	/* else celery_session_ready */
}

void delivery_next(struct delivery *delivery)
{
	struct celery *celery = delivery->celery;
	struct job *job;
	usec_t now = clock_realtime();

	if (delivery->asking)
		return;
	job = job_table_find(&celery->app->tasks, &delivery->message.id);
	/* Its row was another one's (STORE_DUPLICATE): who has it is asked again, later. */
	if (delivery->state == DELIVERY_RUNNING && !job) {
		delivery->state = DELIVERY_WAITING;
		delivery->known = false;
		return;
	}
	if (delivery->state != DELIVERY_WAITING)
		return;
	if (celery->leaving) {
		/* Else we would take it again ourselves. */
		if (!celery->taking)
			delivery_return(delivery);
		return;
	}
	if (celery->app->phase != APP_PHASE_SERVING)
		return;
	if (job && !id_equal(&job->session, &delivery->message.session)) {
		finish_foreign(delivery);
	} else if (job) {
		delivery->state = DELIVERY_RUNNING;
		delivery->started_at = job->started_at;
		if (!job->tags) /* an earlier worker began it */
			job->tags = celery_message_labels(&delivery->message);
		celery_task_stored(celery->app, job);
	} else if (!delivery->known) {
		look_up(delivery);
	} else if (celery_is_revoked(celery, &delivery->message.id)) {
		finish_with(delivery, CELERY_STATE_REVOKED, "TaskRevokedError", "revoked");
	} else if (delivery->message.expires > 0 && delivery->message.expires <= now) {
		finish_with(delivery, CELERY_STATE_REVOKED, "TaskRevokedError", "expired");
	} else if (!celery_is_scheduled(delivery, now)) {
		start(delivery);
	}
}

void delivery_revoke(struct delivery *delivery, bool terminate)
{
	struct app *app = delivery->celery->app;
	struct job *job;

	if (delivery->state == DELIVERY_WAITING) {
		delivery_next(delivery);
		return;
	}
	job = job_table_find(&app->tasks, &delivery->message.id);
	if (!terminate || delivery->state != DELIVERY_RUNNING || !job ||
	    job_state_ended(job->state))
		return;
	delivery->terminated = true;
	audit_queued(app, "task.cancel", &job->session, &job->id);
	task_cancel_ask(app, job);
}

void celery_session_ready(struct app *app, const struct session *session)
{
	if (!app->celery)
		return;
	LIST_FOR_EACH (entry, &app->celery->deliveries) {
		const struct delivery *delivery = LIST_ENTRY(entry, struct delivery, link);

		/* Not from in here: the caller is in the middle of something. */
		if (delivery->state == DELIVERY_WAITING &&
		    id_equal(&delivery->message.session, &session->id)) {
			celery_wake(app->celery, 0);
			return;
		}
	}
}
