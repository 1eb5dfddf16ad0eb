#include "supervisor/api/session_seek.h"

#include "base/id.h"
#include "base/log.h"

#include "supervisor/api/http/reply.h"
#include "supervisor/api/http/request.h"

struct seek {
	struct app *app;
	struct answer_to to;
};

#define AWAY_CODE "host_stopped"

static void on_task(void *userdata, enum store_result result, const struct store_task *task)
{
	struct app *app = userdata;

	if (result != STORE_OK || job_state_ended(task->state) ||
	    job_table_find(&app->tasks, &task->id))
		return;
	tasks_take(app, task, AWAY_CODE, "the host that ran the task is away");
}

int session_taken(struct app *app, const struct store_session *row)
{
	struct log_context context = {.session = &row->id};
	int r = sessions_adopt_row(app, row);

	log_line(r < 0 ? LOG_LEVEL_WARNING : LOG_LEVEL_INFO, &context,
		 "row of another writer taken", "errno=%d", -r);
	/* What ran elsewhere ends, with its one last frame. */
	if (r >= 0)
		r = store_tasks_of_session(app->store, &row->id, on_task, app);
	return r;
}

static void on_row(void *userdata, enum store_result result, const struct store_session *row)
{
	struct seek *seek = userdata;
	struct request *request = answer_get(&seek->to);
	struct app *app = seek->app;

	free(seek);
	/* Taken also where nobody waits any more: the row says so. */
	if (row)
		IGNORE_RESULT(session_taken(app, row));
	if (!request)
		return;
	if (result == STORE_DEGRADED)
		reply_detail(request, MHD_HTTP_SERVICE_UNAVAILABLE, "store unavailable");
	else
		request->route->handler(request); /* another one may have taken it meanwhile */
}

bool session_seek(struct request *request, const struct viewer *viewer)
{
	struct app *app = request_app(request);
	const struct store_viewer who = {
		.owner = request->identity.is_operator ? "" : viewer->owner,
		.workspace = viewer->workspace,
		.sees_all = viewer->sees_all,
	};
	struct seek *seek;
	struct id id;

	if (request->sought || app->phase != APP_PHASE_SERVING ||
	    id_parse(request->path_id, &id) < 0)
		return false;
	seek = calloc(1, sizeof(*seek));
	if (!seek)
		return false;
	request->sought = true;
	seek->app = app;
	seek->to = answer_to(request);
	if (store_session_take(app->store, &who, &id, on_row, seek) >= 0)
		return true;
	free(seek);
	return false;
}
