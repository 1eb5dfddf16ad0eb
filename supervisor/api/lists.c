/*
 * Lists for operators: the tasks of a session, and what the janitor would end.
 */
#include <stdlib.h>

#include "base/str.h"

#include "supervisor/api/app.h"
#include "supervisor/api/http/actions.h"
#include "supervisor/api/http/reply.h"
#include "supervisor/api/janitor/plan.h"

#define PLAN_MAX 256

struct task_list {
	struct app *app;
	struct answer_to to;
	struct id session;
	json_t *tasks;
};

static void add_task(struct task_list *list, const struct job *job)
{
	json_t *task = job_describe(job, list->app->config->stream_url);

	if (task)
		(void)json_array_append_new(list->tasks, task);
}

static bool has_task(const struct task_list *list, const struct job *job)
{
	char id[ID_TEXT_BYTES];
	size_t i;
	json_t *task;

	id_format(&job->id, id);
	json_array_foreach(list->tasks, i, task)
	{
		if (str_equal(json_string_value(json_object_get(task, "task_id")), id))
			return true;
	}
	return false;
}

/* Tasks that the store does not have yet; usually none. */
static void add_unstored(struct task_list *list)
{
	const struct idmap *map = &list->app->tasks.by_id;

	for (size_t i = 0; i < map->n_slots; i++) {
		const struct job *job = map->entry[i].object;

		if (job && id_equal(&job->session, &list->session) && !has_task(list, job))
			add_task(list, job);
	}
}

static void add_stored(struct task_list *list, const struct store_task *task)
{
	const struct job *job = job_table_find(&list->app->tasks, &task->id);
	struct job *restored;

	if (job) {
		add_task(list, job);
		return;
	}
	restored = job_restore(&task->id, &task->session, task->owner, task->workspace, task->state,
			       task->last_seq);
	if (!restored)
		return;
	restored->created_at = task->created_at;
	restored->started_at = task->started_at;
	restored->ended_at = task->ended_at;
	add_task(list, restored);
	(void)job_free(restored);
}

static void on_task(void *userdata, enum store_result result, const struct store_task *task)
{
	struct task_list *list = userdata;
	struct request *request;

	if (result == STORE_OK) {
		add_stored(list, task);
		return;
	}
	add_unstored(list);
	request = answer_get(&list->to);
	if (request) {
		if (result == STORE_DEGRADED)
			request_add_header(request, "Sandbox-Degraded", "store");
		reply_json(request, MHD_HTTP_OK, json_incref(list->tasks));
	}
	json_decref(list->tasks);
	free(list);
}

void action_session_tasks(struct request *request, const struct session *session)
{
	struct app *app = request_app(request);
	struct task_list *list = calloc(1, sizeof(*list));

	if (list) {
		list->app = app;
		list->to = answer_to(request);
		list->session = session->id;
		list->tasks = json_array();
		if (list->tasks &&
		    store_tasks_of_session(app->store, &session->id, on_task, list) >= 0)
			return;
		json_decref(list->tasks);
		free(list);
	}
	reply_detail(request, MHD_HTTP_SERVICE_UNAVAILABLE, "out of memory");
}

void action_janitor_plan(struct request *request)
{
	struct app *app = request_app(request);
	struct janitor_victim victims[PLAN_MAX];
	json_t *ids = json_array();
	size_t n = janitor_plan_expired(&app->registry, clock_realtime(), victims, PLAN_MAX);

	for (size_t i = 0; i < n; i++) {
		char id[ID_TEXT_BYTES];

		id_format(&victims[i].session, id);
		(void)json_array_append_new(ids, json_string(id));
	}
	reply_json(request, MHD_HTTP_OK,
		   json_pack("{s:o, s:I}", "dropped", ids, "count", (json_int_t)n));
}
