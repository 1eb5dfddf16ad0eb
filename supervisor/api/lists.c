/*
 * Lists for operators: the tasks of a session, and what the janitor would end.
 */
#include <stdlib.h>
#include <string.h>

#include "base/str.h"

#include "supervisor/api/app.h"
#include "supervisor/api/http/actions.h"
#include "supervisor/api/http/reply.h"
#include "supervisor/api/janitor/plan.h"
#include "supervisor/api/tasks.h"

#define PLAN_MAX 256

struct task_list {
	struct app *app;
	struct answer_to to;
	struct id session;
	json_t *tasks;
};

static void add_task(struct task_list *list, const struct job *job, size_t at)
{
	json_t *task = job_describe(job, list->app->config->stream_url);

	if (task)
		(void)json_array_insert_new(list->tasks, at, task);
}

static const char *text_of(json_t *task, const char *key)
{
	const char *text = json_string_value(json_object_get(task, key));

	return text ? text : "";
}

static bool has_task(const struct task_list *list, const struct job *job)
{
	char id[ID_TEXT_BYTES];
	size_t i;
	json_t *task;

	id_format(&job->id, id);
	json_array_foreach(list->tasks, i, task)
	{
		if (str_equal(text_of(task, "task_id"), id))
			return true;
	}
	return false;
}

/* Behind all that are newer. */
static size_t place_of(const struct task_list *list, const struct job *job)
{
	char created[CLOCK_ISO_BYTES];
	size_t i;
	json_t *task;

	clock_format_iso(job->created_at, created);
	json_array_foreach(list->tasks, i, task)
	{
		if (strcmp(text_of(task, "created_at"), created) < 0)
			return i;
	}
	return json_array_size(list->tasks);
}

/* Tasks that the store does not have, or not yet; usually none. all: it cannot be read. */
static void add_unstored(struct task_list *list, bool all)
{
	const struct idmap *map = &list->app->tasks.by_id;

	for (size_t i = 0; i < map->n_slots; i++) {
		const struct job *job = map->entry[i].object;

		if (job && id_equal(&job->session, &list->session) &&
		    (all || job->n_owed > 0 || job->is_incomplete) && !has_task(list, job))
			add_task(list, job, place_of(list, job));
	}
	while (json_array_size(list->tasks) > STORE_TASKS_MAX)
		(void)json_array_remove(list->tasks, json_array_size(list->tasks) - 1);
}

static void add_stored(struct task_list *list, const struct store_task *task)
{
	const struct job *job = job_table_find(&list->app->tasks, &task->id);
	struct job *stored = job ? NULL : tasks_stored(task);

	if (!job)
		job = stored;
	if (job)
		add_task(list, job, json_array_size(list->tasks));
	(void)job_free(stored);
}

static void on_task(void *userdata, enum store_result result, const struct store_task *task)
{
	struct task_list *list = userdata;
	struct request *request;

	if (result == STORE_OK) {
		add_stored(list, task);
		return;
	}
	add_unstored(list, result == STORE_DEGRADED);
	request = answer_get(&list->to);
	/* No task in memory says nothing about those that only the store has. */
	if (request && result == STORE_DEGRADED && json_array_size(list->tasks) == 0) {
		reply_detail(request, MHD_HTTP_SERVICE_UNAVAILABLE, "store unavailable");
	} else if (request) {
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
