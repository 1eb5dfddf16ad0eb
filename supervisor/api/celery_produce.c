/*
 * The client's side: a task that was asked for over HTTP is put into the queue, complete, and
 * answered as soon as it is there. It has no row before a worker takes it.
 */
#include <errno.h>
#include <hiredis.h>
#include <string.h>

#include "base/str.h"

#include "supervisor/api/celery_state.h"
#include "supervisor/api/http/actions.h"
#include "supervisor/api/http/reply.h"
#include "supervisor/api/tasks.h"

struct produce_op {
	struct app *app;
	struct answer_to to;
	struct id task;
};

static void on_queued(void *userdata, const struct redisReply *reply)
{
	struct produce_op *op = userdata;
	struct request *request = answer_get(&op->to);
	bool queued = reply && reply->type == REDIS_REPLY_ARRAY;

	if (queued)
		op->app->counters.n_tasks++;
	if (request && queued)
		task_reply_accepted(request, &op->task);
	else if (request)
		reply_detail(request, MHD_HTTP_SERVICE_UNAVAILABLE,
			     "the task queue did not take the task");
	free(op);
}

/* The first of the configured names. */
static int task_name(const struct celery *celery, char name[CELERY_NAME_BYTES])
{
	const char *names = celery->app->config->celery.task_name;

	return str_copy_n(name, CELERY_NAME_BYTES, names, strcspn(names, " "));
}

static char *format_call(const struct celery *celery, const struct id *task,
			 const struct id *session)
{
	char name[CELERY_NAME_BYTES];
	struct id tag;
	struct id reply_to;

	if (id_random(&tag) < 0 || id_random(&reply_to) < 0 || task_name(celery, name) < 0)
		return NULL;
	return celery_call_format(
		&(struct celery_call){.id = task,
				      .tag = &tag,
				      .reply_to = &reply_to,
				      .session = session,
				      .task = name,
				      .queue = celery->app->config->celery.queue});
}

void action_execute_queued(struct request *request, const struct session *session)
{
	struct app *app = request_app(request);
	struct celery *celery = app->celery;
	struct produce_op *op;
	AUTO_FREE char *text = NULL;

	if (!celery || !redis_client_is_up(celery->broker)) {
		reply_detail(request, MHD_HTTP_SERVICE_UNAVAILABLE,
			     "the task queue cannot be reached");
		return;
	}
	op = calloc(1, sizeof(*op));
	if (op && id_random(&op->task) >= 0)
		text = format_call(celery, &op->task, &session->id);
	if (!text) {
		free(op);
		reply_detail(request, MHD_HTTP_SERVICE_UNAVAILABLE, "out of memory");
		return;
	}
	op->app = app;
	op->to = answer_to(request);
	request_note_id(request, "task", &op->task);
	if (celery_push(celery, text, on_queued, op) < 0) {
		free(op);
		reply_detail(request, MHD_HTTP_SERVICE_UNAVAILABLE,
			     "the task queue cannot be reached");
	}
}
