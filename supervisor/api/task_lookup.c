/*
 * Requests about a task: it is looked up in memory, then in the store; who may not see it gets the
 * 404 of one that is not.
 *
 * Where tasks come from a queue, a client may know an id before any row says it: its stream waits
 * for a while. A task of somebody else's takes the same path and the same time.
 */
#include <string.h>

#include "base/str.h"

#include "supervisor/api/http/actions.h"
#include "supervisor/api/http/reply.h"
#include "supervisor/api/tasks.h"

#define LOOK_EVERY    (250 * USEC_PER_MS)
#define ENQUEUED_WAIT 10u  /* seconds */
#define WAITING_MAX   256u /* each of them asks the store */
#define OWNER_MAX     64u  /* of them, of one caller: the others have places left */

enum lookup_kind {
	LOOKUP_STATE,
	LOOKUP_EVENTS,
	LOOKUP_LINES,
	LOOKUP_CANCEL,
};

struct lookup {
	struct list link; /* app->lookups: it waits for the next look */
	struct app *app;
	struct answer_to to;
	struct id task;
	char owner[IDENTITY_MAX + 1]; /* who asks */
	enum lookup_kind kind;
	uint32_t after;
	usec_t until; /* boottime; 0: it does not wait */
};

static void free_lookup(struct lookup *lookup)
{
	if (!list_empty(&lookup->link))
		lookup->app->n_lookups--;
	list_remove(&lookup->link);
	free(lookup);
}

static int on_timer(sd_event_source *source, uint64_t at, void *userdata);

static bool has_place(const struct lookup *lookup)
{
	unsigned int n = 0;

	LIST_FOR_EACH (link, &lookup->app->lookups) {
		const struct lookup *other = LIST_ENTRY(link, struct lookup, link);

		n += str_equal(other->owner, lookup->owner);
	}
	return n < OWNER_MAX && lookup->app->n_lookups < WAITING_MAX;
}

/* False: it is not looked at again. */
static bool wait_on(struct lookup *lookup)
{
	struct app *app = lookup->app;
	usec_t now = clock_boottime();
	int r = 0;

	if (now >= lookup->until || app->phase != APP_PHASE_SERVING || !has_place(lookup))
		return false;
	if (!app->lookup_timer)
		r = sd_event_add_time(app->event, &app->lookup_timer, CLOCK_BOOTTIME, 0,
				      USEC_PER_MS, on_timer, app);
	if (r >= 0 && list_empty(&app->lookups)) {
		r = sd_event_source_set_time(app->lookup_timer, clock_add(now, LOOK_EVERY));
		if (r >= 0)
			r = sd_event_source_set_enabled(app->lookup_timer, SD_EVENT_ONESHOT);
	}
	if (r < 0)
		return false;
	list_append(&app->lookups, &lookup->link);
	app->n_lookups++;
	return true;
}

static bool may_see(const struct request *request, const struct job *job)
{
	const struct viewer viewer = {
		.owner = request->identity.user,
		.workspace = request->identity.workspace,
		.sees_all = request->identity.is_operator,
	};

	return registry_may_see(job->owner, job->workspace, &viewer);
}

static void answer(struct request *request, const struct lookup *lookup, struct job *job)
{
	if (lookup->kind == LOOKUP_CANCEL && !job_state_ended(job->state))
		task_cancel(request, job);
	else if (lookup->kind == LOOKUP_STATE || lookup->kind == LOOKUP_CANCEL)
		reply_json(request, MHD_HTTP_OK,
			   job_describe(job, lookup->app->config->stream_url));
	else
		task_stream_start(request, &lookup->task, lookup->after,
				  lookup->kind == LOOKUP_LINES);
}

static void on_task_read(void *userdata, enum store_result result, const struct store_task *task)
{
	struct lookup *lookup = userdata;
	struct request *request = answer_get(&lookup->to);
	struct job *job = request && result == STORE_OK ? tasks_stored(task) : NULL;

	if (!request) {
		free_lookup(lookup);
		return;
	}
	if (job && may_see(request, job))
		answer(request, lookup, job);
	else if (result == STORE_OK && !job)
		reply_detail(request, MHD_HTTP_SERVICE_UNAVAILABLE, "out of memory");
	else if (result != STORE_OK && result != STORE_NOT_FOUND)
		reply_detail(request, MHD_HTTP_SERVICE_UNAVAILABLE, "store unavailable");
	else if (wait_on(lookup))
		lookup = NULL;
	else
		reply_not_found(request);
	(void)job_free(job);
	if (lookup)
		free_lookup(lookup);
}

/* Memory, then the store. Takes the lookup. */
static void look(struct request *request, struct lookup *lookup)
{
	struct job *job = job_table_find(&lookup->app->tasks, &lookup->task);

	if (job && may_see(request, job)) {
		answer(request, lookup, job);
		free_lookup(lookup);
		return;
	}
	if (store_task_get(lookup->app->store, &lookup->task, on_task_read, lookup) >= 0)
		return;
	free_lookup(lookup);
	reply_detail(request, MHD_HTTP_SERVICE_UNAVAILABLE, "out of memory");
}

static int on_timer(sd_event_source *source, uint64_t at, void *userdata)
{
	struct app *app = userdata;

	(void)source;
	(void)at;
	/* Those that wait on arm it again. */
	LIST_FOR_EACH_SAFE (link, following, &app->lookups) {
		struct lookup *lookup = LIST_ENTRY(link, struct lookup, link);
		struct request *request = answer_get(&lookup->to);

		list_remove(&lookup->link);
		app->n_lookups--;
		if (request)
			look(request, lookup);
		else
			free_lookup(lookup);
	}
	return 0;
}

void task_lookups_drop(struct app *app)
{
	LIST_FOR_EACH_SAFE (link, following, &app->lookups)
		free_lookup(LIST_ENTRY(link, struct lookup, link));
	app->lookup_timer = sd_event_source_disable_unref(app->lookup_timer);
}

static void look_up(struct request *request, enum lookup_kind kind, uint32_t after, uint32_t wait_s)
{
	struct app *app = request_app(request);
	struct lookup *lookup;
	struct id task;

	if (id_parse(request->path_id, &task) < 0) {
		reply_not_found(request);
		return;
	}
	lookup = calloc(1, sizeof(*lookup));
	if (!lookup) {
		reply_detail(request, MHD_HTTP_SERVICE_UNAVAILABLE, "out of memory");
		return;
	}
	list_init(&lookup->link);
	lookup->app = app;
	lookup->to = answer_to(request);
	lookup->task = task;
	IGNORE_RESULT(str_copy(lookup->owner, sizeof(lookup->owner), request->identity.user));
	lookup->kind = kind;
	lookup->after = after;
	lookup->until = wait_s ? clock_add(clock_boottime(), wait_s * USEC_PER_SEC) : 0;
	look(request, lookup);
}

void action_task(struct request *request)
{
	look_up(request, LOOKUP_STATE, 0, 0);
}

void action_task_cancel(struct request *request)
{
	look_up(request, LOOKUP_CANCEL, 0, 0);
}

void action_task_stream(struct request *request, bool as_lines, uint32_t after, bool is_chat)
{
	const struct api_config *config = request_config(request);
	uint32_t wait_s = config->stream_wait_s;

	/* A task that was enqueued has no row before a worker takes it. */
	if (wait_s == 0 && config->celery.executes != 0)
		wait_s = ENQUEUED_WAIT;
	look_up(request, as_lines ? LOOKUP_LINES : LOOKUP_EVENTS, after,
		is_chat ? config->chat_stream_wait_s : wait_s);
}
