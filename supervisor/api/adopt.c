/*
 * After a start there is no third state: what lives and has an open row is adopted, what lives
 * without one is killed, a row without a live session is closed (`restart`). Only then is a socket
 * served, so that no request sees a half-known registry.
 */
#include <errno.h>
#include <string.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/launch.h"
#include "base/log.h"
#include "base/str.h"

#include "supervisor/api/creation.h"

struct adoptee {
	struct list link; /* app->adopting */
	struct id id;
	int fd;
	bool taken;
};

#define START_MAX_BYTES ((size_t)64 * 1024 * 1024)

/* What the rows ask for; done after the store was read. */
struct start_up {
	struct app *app;
	struct buf close; /* struct id each: rows without a live session */
	struct buf tasks; /* struct task_copy each */
	uint32_t n_adopted;
	uint32_t n_killed;
};

struct task_copy {
	struct store_task task;
	char owner[IDENTITY_MAX + 1];
	char workspace[IDENTITY_MAX + 1];
};

static struct adoptee *find_adoptee(struct app *app, const struct id *id)
{
	LIST_FOR_EACH (entry, &app->adopting) {
		struct adoptee *adoptee = LIST_ENTRY(entry, struct adoptee, link);

		if (id_equal(&adoptee->id, id))
			return adoptee;
	}
	return NULL;
}

static void adoptee_free(struct adoptee *adoptee)
{
	list_remove(&adoptee->link);
	adoptee->fd = fd_close(adoptee->fd);
	free(adoptee);
}

/* From the row to the object. */

static char *take_text(const json_t *value)
{
	return json_is_string(value) ? strndup(json_string_value(value), json_string_length(value))
				     : NULL;
}

static json_t *parse_column(const char *text)
{
	const char *reason;
	json_t *doc = NULL;

	if (!text || doc_parse(text, strlen(text), &doc, &reason) < 0)
		return NULL;
	return doc;
}

static void fill_spec(struct spec_create *spec, const struct store_session *row)
{
	json_t *overrides = parse_column(row->overrides_json);
	json_t *envs = parse_column(row->envs_json);
	size_t n = json_array_size(envs);

	IGNORE_RESULT(str_copy_n(spec->profile, sizeof(spec->profile), row->profile,
				 strnlen(row->profile, sizeof(spec->profile) - 1)));
	spec->ttl_minutes = row->ttl_minutes;
	for (size_t i = 0; i < ENDPOINTS_N; i++)
		spec->endpoint[i] = take_text(json_object_get(overrides, endpoint_name(i)));
	if (n > 0)
		spec->env = calloc(n + 1, sizeof(*spec->env));
	for (size_t i = 0; spec->env && i < n; i++) {
		spec->env[spec->n_env] = take_text(json_array_get(envs, i));
		if (spec->env[spec->n_env])
			spec->n_env++;
	}
	json_decref(overrides);
	json_decref(envs);
}

static int fill_components(struct session *session, const struct store_session *row)
{
	json_t *components = parse_column(row->components_json);
	const char *name;
	json_t *value;
	int r = 0;

	json_object_foreach(components, name, value)
	{
		json_int_t bytes = json_integer_value(value);

		r = session_component_set(session, name, bytes > 0 ? (size_t)bytes : 0);
		if (r < 0)
			break;
	}
	json_decref(components);
	return r;
}

static void fill_log(struct session *session, const struct store_session *row)
{
	json_t *log = parse_column(row->log_summary_json);
	json_t *entry;
	size_t i;

	json_array_foreach(log, i, entry)
	{
		if (session_log_append(session, entry) < 0)
			break; /* a summary for readers: nothing depends on it */
	}
	json_decref(log);
}

static void fill_names(struct session *session, const struct store_session *row)
{
	IGNORE_RESULT(str_copy(session->owner, sizeof(session->owner), row->owner));
	IGNORE_RESULT(str_copy(session->workspace, sizeof(session->workspace), row->workspace));
	IGNORE_RESULT(str_copy(session->project, sizeof(session->project), row->project));
	IGNORE_RESULT(
		str_copy(session->last_run_id, sizeof(session->last_run_id), row->last_run_id));
	session->operator_owned = row->operator_owned;
	session->dagster = row->dagster;
}

/* The plan as it was launched, if this release's policy still has that profile. */
static int fill_plan(const struct app *app, struct session *session,
		     const struct store_session *row)
{
	int profile = spec_find_profile(app->policy.header, row->profile);

	if (profile < 0)
		return -ENOENT;
	session->plan = row->has_plan ? row->plan
				      : spec_plan(&row->id, (uint32_t)profile,
						  image_profile(&app->policy, (uint32_t)profile));
	session->plan.profile = (uint32_t)profile;
	return 0;
}

static int fill_session(const struct app *app, struct session *session,
			const struct store_session *row)
{
	int r;

	session->expires_at = row->expires_at;
	session->row_exists = true;
	flow_init(&session->flow, row->acked);
	fill_names(session, row);
	fill_log(session, row);
	r = fill_plan(app, session, row);
	if (r < 0)
		return r;
	return fill_components(session, row);
}

static int adopt_session(struct app *app, const struct store_session *row, int *fd)
{
	struct spec_create spec = SPEC_CREATE_NULL;
	struct session *session;
	uint32_t actions;
	struct live *live;
	int r;

	fill_spec(&spec, row);
	session = session_new(&row->id, &spec, row->created_at);
	spec_create_done(&spec);
	if (!session)
		return -ENOMEM;
	r = fill_session(app, session, row);
	if (r >= 0)
		r = registry_add(&app->registry, session);
	if (r < 0) {
		(void)session_free(session);
		return r;
	}
	r = live_new(app, session, &live);
	if (r >= 0) {
		live->adopted = true;
		r = live_connect(live, *fd);
		if (r < 0)
			(void)live_free(live);
	}
	if (r < 0) {
		registry_remove(&app->registry, session);
		(void)session_free(session);
		return r;
	}
	(void)TAKE_FD(*fd);
	return session_apply(session, SESSION_EVENT_LAUNCHED, SESSION_REASON_NONE, &actions);
}

/* Reading the store. */

static int on_row(void *userdata, const struct store_session *row)
{
	struct start_up *start = userdata;
	struct adoptee *adoptee = find_adoptee(start->app, &row->id);
	struct janitor_row known = {.session = row->id, .expires_at = row->expires_at};
	struct log_context context = {.session = &row->id};
	int r;

	switch (janitor_plan_start(&known, adoptee != NULL, clock_realtime())) {
	case JANITOR_START_ADOPT:
		ASSERT(adoptee); /* only what lives is adopted */
		r = adopt_session(start->app, row, &adoptee->fd);
		if (r >= 0) {
			adoptee->taken = true;
			start->n_adopted++;
			start->app->metrics.n_adoptions[METRICS_ADOPTION_ADOPTED]++;
			return 0;
		}
		start->app->metrics.n_adoptions[METRICS_ADOPTION_FAILED]++;
		log_line(LOG_LEVEL_WARNING, &context, "session cannot be adopted", "errno=%d", -r);
		break;
	case JANITOR_START_KILL:
	case JANITOR_START_CLOSE_ROW:
		break;
	}
	return buf_append(&start->close, &row->id, sizeof(row->id));
}

static int on_task(void *userdata, const struct store_task *task)
{
	struct start_up *start = userdata;
	struct task_copy copy = {.task = *task};

	if (str_copy(copy.owner, sizeof(copy.owner), task->owner) < 0 ||
	    str_copy(copy.workspace, sizeof(copy.workspace), task->workspace) < 0)
		return 0;
	return buf_append(&start->tasks, &copy, sizeof(copy));
}

static void close_rows(struct start_up *start)
{
	for (size_t at = 0; at < start->close.size; at += sizeof(struct id)) {
		struct id id;

		memcpy(&id, start->close.data + at, sizeof(id));
		start->app->metrics.n_adoptions[METRICS_ADOPTION_CLOSED]++;
		IGNORE_RESULT(store_session_close(start->app->store, &id,
						  session_reason_text(SESSION_REASON_RESTART),
						  clock_realtime(), NULL, NULL));
	}
}

static void end_tasks(struct start_up *start)
{
	for (size_t at = 0; at < start->tasks.size; at += sizeof(struct task_copy)) {
		struct task_copy copy;

		memcpy(&copy, start->tasks.data + at, sizeof(copy));
		copy.task.owner = copy.owner;
		copy.task.workspace = copy.workspace;
		tasks_abandon(start->app, &copy.task);
	}
}

static void finish_adoption(struct app *app)
{
	struct start_up start = {
		.app = app,
		.close = BUF_NULL(START_MAX_BYTES),
		.tasks = BUF_NULL(START_MAX_BYTES),
	};
	int r;

	r = store_each_open_session(app->store, on_row, &start);
	if (r >= 0)
		r = store_each_open_task(app->store, on_task, &start);
	LIST_FOR_EACH_SAFE (entry, following, &app->adopting) {
		struct adoptee *adoptee = LIST_ENTRY(entry, struct adoptee, link);

		/* Where the rows could not be read nothing is known of it: it lives on. */
		if (!adoptee->taken && r >= 0) {
			sessions_kill_unknown(app, &adoptee->id);
			app->metrics.n_adoptions[METRICS_ADOPTION_KILLED]++;
			start.n_killed++;
		}
		adoptee_free(adoptee);
	}
	if (r < 0) {
		/* The supervisor starts us again, later and later. */
		log_line(LOG_LEVEL_ERROR, NULL, "the store cannot be read", "errno=%d", -r);
		(void)sd_event_exit(app->event, EXIT_FAILURE);
		buf_done(&start.close);
		buf_done(&start.tasks);
		return;
	}
	close_rows(&start);
	end_tasks(&start);
	LIST_FOR_EACH (entry, &app->lives) {
		struct session *session = LIST_ENTRY(entry, struct live, link)->session;

		sessions_write_status(app, session); /* no task of it runs any more */
		session->limits_missing = app->facts.limits_missing;
	}
	log_line(LOG_LEVEL_INFO, NULL, "adopted", "sessions=%u killed=%u rows_closed=%zu",
		 start.n_adopted, start.n_killed, start.close.size / sizeof(struct id));
	buf_done(&start.close);
	buf_done(&start.tasks);
	app_serve(app);
}

/* Asking the supervisor. */

static void on_adopt(void *userdata, const struct launch_msg *answer, int fd)
{
	struct app *app = userdata;
	AUTO_CLOSE int shim_fd = fd;
	struct adoptee *adoptee;

	if (answer && answer->more) {
		adoptee = calloc(1, sizeof(*adoptee));
		if (!adoptee)
			return;
		memcpy(adoptee->id.bytes, answer->session, ID_BYTES);
		adoptee->fd = TAKE_FD(shim_fd);
		list_append(&app->adopting, &adoptee->link);
		return;
	}
	if (!answer || answer->error != LAUNCH_E_NONE) {
		log_line(LOG_LEVEL_ERROR, NULL, "the supervisor does not say what lives",
			 "error=%s", answer ? launch_error_text(answer->error) : "timeout");
		(void)sd_event_exit(app->event, EXIT_FAILURE);
		return;
	}
	finish_adoption(app);
}

static void on_hello(void *userdata, const struct launch_msg *answer, int fd)
{
	struct app *app = userdata;

	(void)fd_close(fd);
	if (!answer || answer->error != LAUNCH_E_NONE ||
	    supervisor_client_request(app->supervisor,
				      &(struct supervisor_request){.type = LAUNCH_ADOPT,
								   .timeout = APP_REQUEST_TIMEOUT},
				      on_adopt, app) < 0) {
		log_line(LOG_LEVEL_ERROR, NULL, "the supervisor does not answer", "error=%s",
			 answer ? launch_error_text(answer->error) : "timeout");
		(void)sd_event_exit(app->event, EXIT_FAILURE);
		return;
	}
	app->facts = answer->u.hello;
}

int sessions_adopt(struct app *app)
{
	return supervisor_client_request(
		app->supervisor,
		&(struct supervisor_request){.type = LAUNCH_HELLO, .timeout = APP_REQUEST_TIMEOUT},
		on_hello, app);
}
