/*
 * After a start there is no third state: what lives and has an open row is adopted, what lives
 * without one is killed, a row without a tree is dormant until its next use, an expired one is
 * closed. Only then is a socket served, so that no request sees a half-known registry.
 *
 * What another provider says later than OTHERS_WAIT is adopted when it comes: its rows are dormant
 * until then, and nothing is made of them, as the provider cannot be asked. The same is done where
 * its process was another one meanwhile; then sessions have been here before, and of those that it
 * does not tell of the tree is gone.
 */
#include <errno.h>
#include <string.h>

#include "base/buf.h"
#include "base/launch.h"
#include "base/log.h"
#include "base/str.h"

#include "supervisor/api/creation.h"
#include "supervisor/api/events.h"
#include "supervisor/api/provider.h"
#include "supervisor/api/redis.h"
#include "supervisor/api/row_session.h"
#include "supervisor/api/snapshot.h"
#include "supervisor/api/suspend.h"

struct adoptee {
	struct list link; /* app->adopting */
	struct id id;
	int fd;
	bool taken;
	bool is_frozen;
	bool is_parted;    /* as well, and its shim runs */
	bool incompatible; /* another release had made its tree, which was ended */
	const struct provider *provider;
};

#define OTHERS_WAIT     (3 * USEC_PER_SEC) /* what is not theirs is not served meanwhile */
#define START_MAX_BYTES ((size_t)64 * 1024 * 1024)

/* A row that is closed now. */
struct row_end {
	struct id id;
	enum session_reason reason;
};

/* What the rows ask for; done after the store was read. */
struct start_up {
	struct app *app;
	struct buf ends;  /* struct row_end each */
	struct buf tasks; /* struct task_copy each */
	uint32_t n_adopted;
	uint32_t n_dormant;
	uint32_t n_killed;
};

struct task_copy {
	struct store_task task;
	char owner[IDENTITY_MAX + 1];
	char workspace[IDENTITY_MAX + 1];
	enum session_reason reason; /* of its end, where it cannot go on */
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

/* provider: whose session it is; what another one says of that id is no tree of it. NULL: any. */
static struct adoptee *find_tree(struct app *app, const struct id *id,
				 const struct provider *provider)
{
	LIST_FOR_EACH (entry, &app->adopting) {
		struct adoptee *adoptee = LIST_ENTRY(entry, struct adoptee, link);

		if (id_equal(&adoptee->id, id) && !adoptee->incompatible &&
		    (!provider || adoptee->provider == provider))
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

/* One row: what becomes of it. */

static int end_row(struct start_up *start, const struct id *id, enum session_reason reason)
{
	const struct row_end end = {.id = *id, .reason = reason};

	return buf_append(&start->ends, &end, sizeof(end));
}

/* A session in the registry, in CREATING. */
static int take_row(struct app *app, const struct store_session *row, struct session **ret_session)
{
	struct session *session = NULL;
	struct live *live;
	int r;

	r = row_session(app, row, &session);
	if (r < 0)
		return r;
	r = store_hold(app->store, &row->id, row->fence);
	if (r >= 0)
		r = registry_add(&app->registry, session);
	if (r >= 0) {
		r = live_new(app, session, &live);
		if (r < 0)
			registry_remove(&app->registry, session);
	}
	if (r < 0) {
		(void)session_free(session);
		return r;
	}
	*ret_session = session;
	return 0;
}

int sessions_adopt_row(struct app *app, const struct store_session *row)
{
	struct session *session;
	int r = take_row(app, row, &session);

	if (r < 0)
		return r;
	sessions_event(app, session, SESSION_EVENT_ADOPT_ROW, SESSION_REASON_NONE);
	session->limits_missing = app->facts.limits_missing;
	sessions_write_status(app, session); /* it may say running */
	sessions_expire(app);
	return 0;
}

/* Its tree lives. usable: and may be the session's. False: it is ended. */
static bool take_tree(struct app *app, struct session *session, struct adoptee *adoptee,
		      bool usable)
{
	struct log_context context = {.session = &session->id};
	struct live *live = live_of(session);
	int r = usable ? 0 : -ESTALE;

	adoptee->taken = true;
	live->adopted = true;
	session->cpu_from_before |= !live->is_away; /* else this worker saw it */
	live->is_away = false;
	if (r >= 0)
		r = adoptee->fd < 0 ? -ENOTCONN : live_connect(live, adoptee->fd);
	sessions_event(app, session, SESSION_EVENT_ADOPT_TREE, SESSION_REASON_NONE);
	if (r >= 0) {
		(void)TAKE_FD(adoptee->fd);
		app->metrics.n_adoptions[METRICS_ADOPTION_ADOPTED]++;
		suspend_adopted(session, adoptee->is_frozen, adoptee->is_parted);
		return true;
	}
	/* The handle may have ended because its provider has. */
	if (usable && adoptee->fd >= 0 && live->provider->is_gone) {
		live_lost(live, r);
		return false;
	}
	/* The row stays, and the next use makes another tree. */
	log_line(LOG_LEVEL_WARNING, &context, "session cannot be adopted", "errno=%d", -r);
	app->metrics.n_adoptions[METRICS_ADOPTION_FAILED]++;
	sessions_event(app, session, SESSION_EVENT_LOST, SESSION_REASON_RESTART);
	return false;
}

/* Reading the store. */

static int on_row(void *userdata, const struct store_session *row)
{
	struct start_up *start = userdata;
	struct adoptee *adoptee = find_tree(start->app, &row->id, NULL);
	struct janitor_row known = {
		.session = row->id, .expires_at = row->expires_at, .restoring = row->restoring};
	enum janitor_start plan = janitor_plan_start(&known, adoptee != NULL, clock_realtime());
	struct session *session;
	int r;

	if (plan == JANITOR_START_KILL || plan == JANITOR_START_CLOSE_ROW)
		return end_row(start, &row->id, SESSION_REASON_EXPIRED);
	r = take_row(start->app, row, &session);
	if (r == -ENOENT)
		return end_row(start, &row->id, SESSION_REASON_INCOMPATIBLE);
	if (r < 0)
		return r;
	adoptee = find_tree(start->app, &row->id, live_of(session)->provider);
	if (adoptee) {
		start->n_adopted +=
			take_tree(start->app, session, adoptee, plan == JANITOR_START_ADOPT);
		return 0;
	}
	live_of(session)->is_incomplete = row->restoring;
	sessions_event(start->app, session, SESSION_EVENT_ADOPT_ROW, SESSION_REASON_NONE);
	start->n_dormant++;
	return 0;
}

/* Why a task whose session has no tree now cannot go on. */
static enum session_reason ended_by(const struct start_up *start, const struct id *session)
{
	const struct adoptee *adoptee;

	for (size_t at = 0; at < start->ends.size; at += sizeof(struct row_end)) {
		struct row_end end;

		memcpy(&end, start->ends.data + at, sizeof(end));
		if (id_equal(&end.id, session))
			return end.reason;
	}
	adoptee = find_adoptee(start->app, session);
	return adoptee && adoptee->incompatible ? SESSION_REASON_INCOMPATIBLE
						: SESSION_REASON_RESTART;
}

static int on_task(void *userdata, const struct store_task *task)
{
	struct start_up *start = userdata;
	struct task_copy copy = {.task = *task, .reason = ended_by(start, &task->session)};

	if (str_copy(copy.owner, sizeof(copy.owner), task->owner) < 0 ||
	    str_copy(copy.workspace, sizeof(copy.workspace), task->workspace) < 0)
		return 0;
	return buf_append(&start->tasks, &copy, sizeof(copy));
}

static void end_rows(struct start_up *start)
{
	for (size_t at = 0; at < start->ends.size; at += sizeof(struct row_end)) {
		struct row_end end;

		memcpy(&end, start->ends.data + at, sizeof(end));
		(void)redis_drop(start->app, &end.id, NULL, NULL);
		IGNORE_RESULT(store_session_close(start->app->store, &end.id,
						  session_reason_text(end.reason), clock_realtime(),
						  NULL, NULL));
		start->app->metrics.n_adoptions[METRICS_ADOPTION_CLOSED]++;
	}
}

static void end_tasks(struct start_up *start)
{
	for (size_t at = 0; at < start->tasks.size; at += sizeof(struct task_copy)) {
		struct task_copy copy;

		memcpy(&copy, start->tasks.data + at, sizeof(copy));
		copy.task.owner = copy.owner;
		copy.task.workspace = copy.workspace;
		tasks_take(start->app, &copy.task, session_reason_code(copy.reason),
			   "the service was restarted while the task ran");
	}
}

static void finish_adoption(struct app *app)
{
	struct start_up start = {
		.app = app,
		.ends = BUF_NULL(START_MAX_BYTES),
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
			sessions_kill_unknown(app, adoptee->provider, &adoptee->id);
			app->metrics.n_adoptions[METRICS_ADOPTION_KILLED]++;
			start.n_killed++;
		}
		adoptee_free(adoptee);
	}
	if (r < 0) {
		/* The supervisor starts us again, later and later. */
		log_line(LOG_LEVEL_ERROR, NULL, "the store cannot be read", "errno=%d", -r);
		(void)sd_event_exit(app->event, EXIT_FAILURE);
		buf_done(&start.ends);
		buf_done(&start.tasks);
		return;
	}
	end_rows(&start);
	end_tasks(&start);
	LIST_FOR_EACH (entry, &app->lives) {
		struct session *session = LIST_ENTRY(entry, struct live, link)->session;

		sessions_write_status(app, session); /* a row may say running */
		session->limits_missing = app->facts.limits_missing;
	}
	log_line(LOG_LEVEL_INFO, NULL, "adopted",
		 "sessions=%u dormant=%u killed=%u rows_closed=%zu", start.n_adopted,
		 start.n_dormant, start.n_killed, start.ends.size / sizeof(struct row_end));
	snapshots_tell_missing_keys(app);
	buf_done(&start.ends);
	buf_done(&start.tasks);
	app_serve(app);
}

/* Asking the supervisor. */

static struct adoptee adoptee_of(const struct provider *provider, const struct launch_msg *answer,
				 int fd)
{
	struct adoptee adoptee = {.fd = fd, .provider = provider};

	memcpy(adoptee.id.bytes, answer->session, ID_BYTES);
	adoptee.is_frozen = answer->error == LAUNCH_E_NONE && answer->u.adopted.is_frozen != 0;
	adoptee.is_parted = adoptee.is_frozen && answer->u.adopted.is_parted != 0;
	adoptee.incompatible = adoptee.taken = answer->error == LAUNCH_E_INCOMPATIBLE;
	return adoptee;
}

static void note_adoptee(struct app *app, const struct provider *provider,
			 const struct launch_msg *answer, int fd)
{
	struct adoptee *adoptee = malloc(sizeof(*adoptee));

	if (!adoptee) {
		/* Its row would seem to have no tree. The next worker asks again. */
		log_line(LOG_LEVEL_ERROR, NULL, "no memory to adopt", NULL);
		(void)sd_event_exit(app->event, EXIT_FAILURE);
		(void)fd_close(fd);
		return;
	}
	*adoptee = adoptee_of(provider, answer, fd);
	list_append(&app->adopting, &adoptee->link);
}

static void adopt_one(struct app *app, const struct provider *provider,
		      const struct launch_msg *answer, int fd)
{
	struct adoptee adoptee = adoptee_of(provider, answer, fd);
	struct session *session = session_of_provider(app, provider, &adoptee.id);

	/* Its row was closed while nobody could end it. */
	if (!session) {
		sessions_kill_unknown(app, provider, &adoptee.id);
	} else if (session->state == SESSION_STATE_DORMANT) {
		IGNORE_RESULT(take_tree(app, session, &adoptee, !live_of(session)->is_incomplete));
		sessions_write_status(app, session);
		session->limits_missing = app->facts.limits_missing;
	}
	/* Any other is being ended, or made again in its place. */
	(void)fd_close(adoptee.fd);
}

/* As one that ended by itself: its provider is asked for its end, and says there is nothing. */
static void end_missing(struct app *app, const struct provider *provider)
{
	LIST_FOR_EACH_SAFE (entry, following, &app->lives) {
		struct live *live = LIST_ENTRY(entry, struct live, link);
		struct session *session = live->session;

		if (live->provider != provider || !live->is_away)
			continue;
		live->is_away = false;
		if (session->state != SESSION_STATE_DORMANT)
			continue;
		sessions_event(app, session, SESSION_EVENT_ADOPT_TREE, SESSION_REASON_NONE);
		sessions_event(app, session, SESSION_EVENT_LOST, SESSION_REASON_LOST);
		events_note(session, "stopped",
			    json_pack("{s:s}", "reason", session_reason_text(SESSION_REASON_LOST)));
	}
}

void sessions_adopt_late(struct app *app, const struct provider *provider,
			 const struct launch_msg *answer, int fd)
{
	if (answer->more) {
		adopt_one(app, provider, answer, fd);
		return;
	}
	(void)fd_close(fd);
	if (answer->error == LAUNCH_E_NONE)
		end_missing(app, provider);
}

/* Who is asked at the start. */
struct asking {
	struct app *app;
	const struct provider *provider;
	sd_event_source *timer;
	bool is_late; /* the others are served by now */
};

static void adopt_others(struct app *app);

static void asking_end(struct asking *asking, bool is_said)
{
	struct app *app = asking->app;

	asking->provider->asked(app, is_said);
	if (asking->is_late)
		return;
	asking->timer = sd_event_source_disable_unref(asking->timer);
	asking->is_late = true;
	adopt_others(app);
}

/* Nobody else waits longer for it. */
static int on_asking_timer(sd_event_source *source, uint64_t at, void *userdata)
{
	struct asking *asking = userdata;

	(void)source;
	(void)at;
	log_line(LOG_LEVEL_WARNING, NULL, "the provider does not say at once what lives",
		 "provider=%s", asking->provider->name);
	asking_end(asking, false);
	return 0;
}

/* Without an answer what lives there is asked for again, before anything is made there. */
static void on_adopt_other(void *userdata, const struct launch_msg *answer, int fd)
{
	struct asking *asking = userdata;
	const struct provider *provider = asking->provider;
	bool is_said = answer && answer->error == LAUNCH_E_NONE;

	if (answer && asking->is_late)
		sessions_adopt_late(asking->app, provider, answer, TAKE_FD(fd));
	else if (answer && answer->more)
		note_adoptee(asking->app, provider, answer, TAKE_FD(fd));
	if (answer && answer->more)
		return;
	(void)fd_close(fd);
	if (!is_said)
		log_line(LOG_LEVEL_ERROR, NULL, "the provider does not say what lives",
			 "provider=%s error=%s", provider->name,
			 answer ? launch_error_text(answer->error) : "timeout");
	asking_end(asking, is_said);
	free(asking);
}

/* 0: its answer, or the end of its time, follows. */
static int begin_asking(struct app *app, const struct provider *provider)
{
	struct asking *asking = calloc(1, sizeof(*asking));
	int r = asking ? 0 : -ENOMEM;

	if (r < 0)
		return r;
	*asking = (struct asking){.app = app, .provider = provider};
	r = sd_event_add_time_relative(app->event, &asking->timer, CLOCK_BOOTTIME, OTHERS_WAIT,
				       USEC_PER_MS, on_asking_timer, asking);
	if (r >= 0)
		r = provider->connect(app, on_adopt_other, asking);
	if (r >= 0)
		return 0;
	asking->timer = sd_event_source_disable_unref(asking->timer);
	free(asking);
	return r;
}

/* Those behind the native one, one after the other. The end of a worker answers them, too: nothing
 * goes on then. */
static void adopt_others(struct app *app)
{
	if (app->phase != APP_PHASE_GREETING)
		return;
	while (providers[++app->adopts_from])
		if (provider_is_configured(app, providers[app->adopts_from]) &&
		    begin_asking(app, providers[app->adopts_from]) >= 0)
			return;
	finish_adoption(app);
}

static void on_adopt(void *userdata, const struct launch_msg *answer, int fd)
{
	struct app *app = userdata;
	AUTO_CLOSE int shim_fd = fd;

	if (answer && answer->more) {
		note_adoptee(app, &provider_native, answer, TAKE_FD(shim_fd));
		return;
	}
	if (!answer || answer->error != LAUNCH_E_NONE) {
		log_line(LOG_LEVEL_ERROR, NULL, "the supervisor does not say what lives",
			 "error=%s", answer ? launch_error_text(answer->error) : "timeout");
		(void)sd_event_exit(app->event, EXIT_FAILURE);
		return;
	}
	if (provider_docker_await(app, adopt_others) < 0)
		adopt_others(app);
}

static void on_hello(void *userdata, const struct launch_msg *answer, int fd)
{
	struct app *app = userdata;

	(void)fd_close(fd);
	if (!answer || answer->error != LAUNCH_E_NONE ||
	    provider_native.connect(app, on_adopt, app) < 0) {
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
