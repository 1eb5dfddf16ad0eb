/*
 * Cancelling a task. One that waits ends at once. One that runs is asked to end inside its session
 * (TERM to its process tree, after the grace KILL, see shim/job.c), and its end is the answer:
 * whatever it is, the task has ended then. Asking again is no error.
 */
#include "base/log.h"

#include "supervisor/api/http/reply.h"
#include "supervisor/api/live.h"
#include "supervisor/api/tasks.h"

struct cancel_waiter {
	struct list link; /* app->cancels */
	struct answer_to to;
	struct id task;
};

void task_cancel_ask(struct app *app, struct job *job)
{
	struct session *session = registry_find(&app->registry, &job->session);

	if (job->state == JOB_STATE_QUEUED)
		tasks_fail_held(app, job, session, "cancelled", "cancelled", NULL);
	else if (session && live_of(session)->shim)
		shim_link_cancel(live_of(session)->shim, job->wire_job);
}

void task_cancel(struct request *request, struct job *job)
{
	struct app *app = request_app(request);
	struct log_context context = {
		.session = &job->session, .job = &job->id, .request = request->request_id};
	struct cancel_waiter *waiter = calloc(1, sizeof(*waiter));

	if (!waiter) {
		reply_detail(request, MHD_HTTP_SERVICE_UNAVAILABLE, "out of memory");
		return;
	}
	waiter->to = answer_to(request);
	waiter->task = job->id;
	list_append(&app->cancels, &waiter->link);
	log_line(LOG_LEVEL_INFO, &context, "task is cancelled", "state=%s",
		 job_state_text(job->state));
	task_cancel_ask(app, job);
}

void task_cancel_ended(struct app *app, const struct job *job)
{
	LIST_FOR_EACH_SAFE (entry, following, &app->cancels) {
		struct cancel_waiter *waiter = LIST_ENTRY(entry, struct cancel_waiter, link);
		struct request *request;

		if (!id_equal(&waiter->task, &job->id))
			continue;
		list_remove(&waiter->link);
		request = answer_get(&waiter->to);
		if (request)
			reply_json(request, MHD_HTTP_OK,
				   job_describe(job, app->config->stream_url));
		free(waiter);
	}
}

void task_cancel_drop(struct app *app)
{
	while (!list_empty(&app->cancels)) {
		struct cancel_waiter *waiter =
			LIST_ENTRY(app->cancels.next, struct cancel_waiter, link);

		list_remove(&waiter->link);
		free(waiter);
	}
}
