#include "supervisor/api/app.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>

#include "base/log.h"

#include "supervisor/api/audit.h"
#include "supervisor/api/canary.h"
#include "supervisor/api/celery.h"
#include "supervisor/api/components.h"
#include "supervisor/api/egress.h"
#include "supervisor/api/events.h"
#include "supervisor/api/file_watch.h"
#include "supervisor/api/http/request.h"
#include "supervisor/api/idle.h"
#include "supervisor/api/live.h"
#include "supervisor/api/names.h"
#include "supervisor/api/observe.h"
#include "supervisor/api/platform.h"
#include "supervisor/api/provider.h"
#include "supervisor/api/quotas.h"
#include "supervisor/api/redis.h"
#include "supervisor/api/settings.h"
#include "supervisor/api/snapshot.h"
#include "supervisor/api/store/postgres.h"
#include "supervisor/api/store/sqlite.h"
#include "supervisor/api/tasks.h"

#define STORE_PATH       WORKER_STATE_DIR "/api.db"
#define STORE_PAGE_BYTES 4096u                  /* of a file that we made */
#define STOP_TIMEOUT     (4 * USEC_PER_SEC)     /* below the supervisor's patience with us */
#define STOP_LATE        (3 * USEC_PER_SEC / 2) /* of it: for the end of what was waited for */
#define LEAVE_TIMEOUT    (1 * USEC_PER_SEC)
#define RETENTION_AGAIN  (20 * USEC_PER_MS) /* while there is something to delete */
#define EVENTS_A_TURN    128
#define TURN_TIME        (2 * USEC_PER_MS)

struct answer_to answer_to(const struct request *request)
{
	return (struct answer_to){.server = request->server, .request = request->id};
}

struct request *answer_get(const struct answer_to *to)
{
	return to->server ? request_get(to->server, to->request) : NULL;
}

/* The end. */

static bool is_ending(const struct app *app)
{
	return app->phase == APP_PHASE_STOPPING || app->phase == APP_PHASE_LEAVING;
}

static bool is_idle(const struct app *app)
{
	uint32_t n = 0;

	for (size_t i = 0; i < APP_SERVER_MAX_; i++)
		n += app->server[i] ? http_server_requests(app->server[i]) : 0;
	return n == 0 && store_stats(app->store).n_waiting == 0 && platform_is_idle(app) &&
	       celery_is_idle(app) &&
	       (app->phase == APP_PHASE_LEAVING || sessions_with_tree(app) == 0);
}

static void quiesce(struct app *app)
{
	for (size_t i = 0; i < APP_SERVER_MAX_; i++)
		if (app->server[i])
			http_server_quiesce(app->server[i]);
}

static void begin_stop(struct app *app)
{
	if (app->phase == APP_PHASE_STOPPING)
		return;
	log_line(LOG_LEVEL_INFO, NULL, "stopping", "sessions=%zu", registry_count(&app->registry));
	app->phase = APP_PHASE_STOPPING;
	app->stop_at = clock_add(clock_boottime(), STOP_TIMEOUT);
	quiesce(app);
	celery_leave(app);
	/* Each task gets its error frame, each stream with it its end. */
	sessions_stop_all(app);
}

/* The service is started again: whoever waits for an answer has it within a moment, streams are cut
 * and can be resumed, and of tasks nothing is said. */
static void leave(struct app *app)
{
	if (is_ending(app))
		return;
	log_line(LOG_LEVEL_INFO, NULL, "leaving", "sessions=%zu", registry_count(&app->registry));
	app->phase = APP_PHASE_LEAVING;
	app->stop_at = clock_add(clock_boottime(), LEAVE_TIMEOUT);
	quiesce(app);
	celery_leave(app);
}

static int on_signal(sd_event_source *source, const struct signalfd_siginfo *info, void *userdata)
{
	(void)source;
	if (info->ssi_signo == SIGUSR2)
		leave(userdata);
	else
		begin_stop(userdata);
	return 0;
}

static void on_gone(void *userdata, const struct id *session, const struct launch_gone *gone)
{
	sessions_gone(userdata, session, gone);
}

static void on_supervisor_closed(void *userdata, int error)
{
	struct app *app = userdata;

	log_line(is_ending(app) ? LOG_LEVEL_INFO : LOG_LEVEL_ERROR, NULL, "the supervisor left",
		 "errno=%d", -error);
	(void)sd_event_exit(app->event, is_ending(app) ? EXIT_SUCCESS : EXIT_FAILURE);
}

static void on_facts(void *userdata, const struct launch_facts *facts)
{
	observe_facts(userdata, facts);
}

static void on_config(void *userdata, const struct launch_config *state, int fd)
{
	settings_take(userdata, state, fd);
}

static void on_egress_link(void *userdata, uint32_t egress, int fd)
{
	if (egress == LAUNCH_LINK_PROVIDER)
		provider_docker_link(userdata, fd);
	else
		egress_take_link(userdata, egress, fd);
}

static const struct supervisor_client_events supervisor_events = {
	.gone = on_gone,
	.facts = on_facts,
	.config = on_config,
	.egress_link = on_egress_link,
	.closed = on_supervisor_closed,
};

/* Clocks. */

static int on_store_timer(sd_event_source *source, uint64_t at, void *userdata)
{
	(void)source;
	(void)at;
	(void)userdata; /* the end of the turn flushes */
	return 0;
}

static usec_t retention_every(const struct app *app)
{
	return app->config->janitor_interval_s * USEC_PER_SEC;
}

static void on_retained(void *userdata, enum store_result result)
{
	struct app *app = userdata;
	usec_t delay = result == STORE_OK ? RETENTION_AGAIN : retention_every(app);

	if (result == STORE_DEGRADED)
		return; /* a second answer follows */
	if (result != STORE_OK && quotas_count_frames(app) < 0)
		log_line(LOG_LEVEL_ERROR, NULL, "task frames not counted", "reason=store");
	(void)sd_event_source_set_time(app->retention_timer, clock_add(clock_boottime(), delay));
	(void)sd_event_source_set_enabled(app->retention_timer, SD_EVENT_ONESHOT);
}

static int on_retention(sd_event_source *source, uint64_t at, void *userdata)
{
	struct app *app = userdata;
	struct janitor_retention retention;

	(void)source;
	(void)at;
	retention = janitor_plan_retention(clock_realtime(), app->config->frames_keep_s,
					   app->config->rows_keep_s, app->config->bodies_keep_s);
	snapshots_sweep(app);
	if (store_retain(app->store, &retention, on_retained, app) < 0)
		on_retained(app, STORE_LOST);
	return 0;
}

static int on_tick(sd_event_source *source, uint64_t at, void *userdata)
{
	struct app *app = userdata;
	usec_t now = clock_boottime();

	(void)at;
	for (size_t i = 0; i < APP_SERVER_MAX_; i++)
		if (app->server[i])
			http_server_sweep(app->server[i], now);
	tasks_heartbeat(app, now);
	command_streams_heartbeat(app, now);
	events_heartbeat(app, now);
	file_watches_heartbeat(app, now);
	audit_tick(app);
	job_table_shrink(&app->tasks);
	sessions_expire(app);
	tasks_warn(app);
	sessions_end_again(app);
	quotas_tick(app);
	idle_tick(app);
	canary_tick(app);
	redis_tick(app);
	LIST_FOR_EACH_SAFE (entry, following, &app->lives)
		tasks_next(app, LIST_ENTRY(entry, struct live, link)->session);
	(void)sd_event_source_set_time(source, clock_add(now, APP_TICK));
	return sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
}

/* Those whose snapshot was waited for. */
static void stop_rest(struct app *app)
{
	if (app->phase == APP_PHASE_STOPPING)
		sessions_stop_rest(app, clock_add(clock_boottime(), STOP_LATE) >= app->stop_at);
}

/* A turn. */

static void free_forgotten(struct app *app)
{
	while (!list_empty(&app->forgotten)) {
		struct live *live = LIST_ENTRY(app->forgotten.next, struct live, link);
		struct session *session = live->session;

		(void)live_free(live);
		(void)session_free(session);
	}
}

static void arm_store_timer(struct app *app)
{
	usec_t next = store_next_wakeup(app->store);

	(void)sd_event_source_set_time(app->store_timer, next);
	(void)sd_event_source_set_enabled(app->store_timer,
					  next == USEC_NEVER ? SD_EVENT_OFF : SD_EVENT_ONESHOT);
}

static void send_credits(struct app *app)
{
	LIST_FOR_EACH_SAFE (entry, following, &app->crediting) {
		struct live *live = LIST_ENTRY(entry, struct live, credit);

		if (shim_link_flush(live->shim) < 0)
			continue;
		list_remove(entry);
		tasks_next(app, live->session); /* there may be room again */
	}
}

static void end_turn(struct app *app)
{
	store_flush(app->store, clock_boottime());
	sessions_drop_taken(app);
	lease_tell(app);
	send_credits(app);
	for (size_t i = 0; i < APP_SERVER_MAX_; i++)
		if (app->server[i])
			http_server_run(app->server[i]);
	/* What clients took just now: nothing else may wake us for a command that waits for it. */
	send_credits(app);
	free_forgotten(app);
	arm_store_timer(app);
}

static bool must_exit(struct app *app)
{
	if (!is_ending(app))
		return false;
	return is_idle(app) || clock_boottime() >= app->stop_at;
}

/* All events that are there, within bounds: peers that answer as fast as they are asked would make
 * a turn without an end, and nothing is committed or acknowledged before that. */
static int run_turn(struct app *app)
{
	uint64_t wait = is_ending(app) ? 100 * USEC_PER_MS : UINT64_MAX;
	int r = sd_event_run(app->event, wait);
	usec_t end = clock_add(clock_boottime(), TURN_TIME);

	for (unsigned int n = 1; r > 0 && n < EVENTS_A_TURN && clock_boottime() < end; n++) {
		if (sd_event_get_state(app->event) == SD_EVENT_FINISHED)
			break;
		r = sd_event_run(app->event, 0);
	}
	return r;
}

static int run_loop(struct app *app)
{
	int code = EXIT_SUCCESS;

	while (sd_event_get_state(app->event) != SD_EVENT_FINISHED) {
		int r = run_turn(app);

		if (r < 0)
			return EXIT_FAILURE;
		end_turn(app);
		stop_rest(app);
		if (sd_event_get_exit_code(app->event, &code) >= 0)
			break;
		if (must_exit(app))
			break;
	}
	return code;
}

/* The start. */

void app_serve(struct app *app)
{
	static const int listen_fd[APP_SERVER_MAX_] = {
		[APP_SERVER_CONTROL] = WORKER_FD_CONTROL,
		[APP_SERVER_OPERATOR] = WORKER_FD_OPERATOR,
	};
	const char *reason;
	int r;

	for (size_t i = 0; i < APP_SERVER_MAX_; i++) {
		struct http_server_options options = {
			.app = app,
			.config = app->config,
			.counters = &app->http_counters,
			.answered = audit_request,
			.is_operator = i == APP_SERVER_OPERATOR,
			.max_connections = HTTP_MAX_CONNECTIONS,
			.max_streams = APP_MAX_STREAMS,
		};

		r = http_server_new(app->event, listen_fd[i], &options, &app->server[i], &reason);
		if (r < 0) {
			log_line(LOG_LEVEL_ERROR, NULL, "no server", "reason=\"%s\" errno=%d",
				 reason, -r);
			(void)sd_event_exit(app->event, EXIT_FAILURE);
			return;
		}
	}
	app->phase = APP_PHASE_SERVING;
	sessions_expire(app);
	canary_start(app);
	celery_serve(app);
	log_line(LOG_LEVEL_INFO, NULL, "serving", "sessions=%zu", registry_count(&app->registry));
}

static int open_postgres(struct app *app, struct err *err)
{
	char instance[ID_TEXT_BYTES];
	struct postgres_options options = {
		.event = app->event,
		.names = app->names,
		.dsn = app->config->store_dsn,
		.password = app->config->store_password,
		.instance = instance,
		.host = app->summary.host,
	};
	int r = postgres_instance(WORKER_FD_STATE, instance);

	if (r < 0)
		return err_fail(err, r, "store", "the instance's name");
	return store_open_postgres(&options, &app->store, err);
}

static int open_sqlite(struct app *app, struct err *err)
{
	const struct sqlite_options options = {
		.path = STORE_PATH,
		.host = app->summary.host,
		.max_pages = (uint32_t)(app->config->store_max_bytes / STORE_PAGE_BYTES),
	};

	return store_open_sqlite(&options, &app->store, err);
}

static int open_store(struct app *app)
{
	struct err err = ERR_NULL;
	int r = app->config->store_dsn[0] ? open_postgres(app, &err) : open_sqlite(app, &err);

	if (r < 0)
		log_err(LOG_LEVEL_ERROR, NULL, "the store cannot be opened", &err);
	return r;
}

static int add_sources(struct app *app)
{
	sigset_t mask;
	int r;

	(void)sigemptyset(&mask);
	(void)sigaddset(&mask, SIGTERM);
	(void)sigaddset(&mask, SIGINT);
	(void)sigaddset(&mask, SIGUSR2);
	/* NOLINTNEXTLINE(concurrency-mt-unsafe): this process has one thread */
	if (sigprocmask(SIG_BLOCK, &mask, NULL) < 0 ||
	    sigaction(SIGPIPE, &(struct sigaction){.sa_handler = SIG_IGN}, NULL) < 0)
		return -errno;
	r = sd_event_add_signal(app->event, NULL, SIGTERM, on_signal, app);
	if (r >= 0)
		r = sd_event_add_signal(app->event, NULL, SIGINT, on_signal, app);
	if (r >= 0)
		r = sd_event_add_signal(app->event, NULL, SIGUSR2, on_signal, app);
	if (r >= 0)
		r = sd_event_add_time(app->event, &app->tick_timer, CLOCK_BOOTTIME,
				      clock_add(clock_boottime(), APP_TICK), USEC_PER_SEC, on_tick,
				      app);
	if (r >= 0)
		r = sd_event_add_time(app->event, &app->retention_timer, CLOCK_BOOTTIME,
				      clock_add(clock_boottime(), retention_every(app)),
				      USEC_PER_MS, on_retention, app);
	if (r >= 0)
		r = sd_event_add_time(app->event, &app->store_timer, CLOCK_BOOTTIME, USEC_NEVER,
				      USEC_PER_MS, on_store_timer, app);
	if (r >= 0)
		r = sd_event_source_set_enabled(app->store_timer, SD_EVENT_OFF);
	return r;
}

/* How many descriptors sessions and connections may take together: what lies below is ours. */
static void count_descriptors(struct app *app)
{
	struct rlimit limit = {.rlim_cur = 1024};

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
		limit.rlim_cur = 1024;
	app->max_descriptors = (size_t)limit.rlim_cur;
	app->n_descriptors_fixed = 64;
}

/* What `stop` may walk wherever `start` ended. */
static void init_lists(struct app *app)
{
	list_init(&app->lives);
	list_init(&app->forgotten);
	list_init(&app->crediting);
	list_init(&app->streams);
	list_init(&app->command_streams);
	list_init(&app->event_streams);
	list_init(&app->file_watches);
	list_init(&app->snapshot_runs);
	list_init(&app->transfers);
	list_init(&app->cancels);
	list_init(&app->lookups);
	list_init(&app->puts);
	list_init(&app->airbyte);
	list_init(&app->adopting);
	list_init(&app->redis_drops);
	list_init(&app->kills_owed);
}

static int start(struct app *app)
{
	int r;

	init_lists(app);
	app->snapshots.dir_fd = -1;
	job_table_init(&app->tasks, (size_t)JOB_TABLE_MAX_BYTES);
	settings_spread(app);
	count_descriptors(app);
	app->scratch = malloc(WIRE_FRAME_MAX_BYTES);
	if (!app->scratch)
		return -ENOMEM;
	r = registry_init(&app->registry);
	if (r >= 0)
		r = sd_event_new(&app->event);
	if (r >= 0)
		r = add_sources(app);
	if (r >= 0 && app->names)
		r = names_watch(app->names, app->event);
	audit_start(app);
	if (r >= 0)
		r = snapshots_start(app);
	if (r >= 0)
		r = open_store(app);
	if (r >= 0)
		r = quotas_load(app);
	if (r >= 0)
		r = redis_start(app);
	if (r >= 0)
		r = platform_start(app);
	if (r >= 0)
		r = celery_start(app);
	if (r >= 0)
		r = egress_hub_new(app, &app->egress);
	if (r >= 0)
		r = supervisor_client_new(app->event, WORKER_FD_SUPERVISOR, &supervisor_events, app,
					  &app->supervisor);
	if (r >= 0)
		r = sessions_adopt(app);
	return r;
}

/* What still lives is the supervisor's; here only memory and sockets end. Where the service does
 * not stop, the next worker adopts the sessions and goes on with their jobs. */
static void drop_sessions(struct app *app)
{
	while (!list_empty(&app->lives)) {
		struct live *live = LIST_ENTRY(app->lives.next, struct live, link);

		if (app->phase == APP_PHASE_STOPPING)
			tasks_fail(app, live->session,
				   session_reason_code(SESSION_REASON_HOST_STOPPED),
				   "the service stopped");
		live_end_all(live);
		tasks_leave(live->session);
		sessions_forget(app, live->session);
	}
	store_flush(app->store, clock_boottime());
	free_forgotten(app);
}

static void stop(struct app *app)
{
	/* Also where it could not start: what is answered from here on begins nothing. */
	if (app->phase != APP_PHASE_STOPPING)
		app->phase = APP_PHASE_LEAVING;
	canary_stop(app);
	app->supervisor = supervisor_client_free(app->supervisor);
	app->engine_waits = sd_event_source_disable_unref(app->engine_waits);
	app->engine = supervisor_client_free(app->engine);
	canary_free(app);
	if (app->store) {
		lease_give_back(app);
		drop_sessions(app);
	}
	snapshots_give_up(app);
	celery_stop(app);
	app->egress = egress_hub_free(app->egress);
	for (size_t i = 0; i < APP_SERVER_MAX_; i++)
		app->server[i] = http_server_free(app->server[i]);
	snapshots_stop(app);
	app->store = store_close(app->store);
	platform_stop(app);
	app->names = names_free(app->names);
	components_drop(app);
	airbyte_drop_asked(app);
	task_cancel_drop(app);
	task_lookups_drop(app);
	audit_stop(app);
	job_table_done(&app->tasks);
	registry_done(&app->registry);
	sessions_drop_owed(app);
	buf_done(&app->redis_owed);
	app->deadline_timer = sd_event_source_disable_unref(app->deadline_timer);
	app->tick_timer = sd_event_source_disable_unref(app->tick_timer);
	app->store_timer = sd_event_source_disable_unref(app->store_timer);
	app->retention_timer = sd_event_source_disable_unref(app->retention_timer);
	app->event = sd_event_unref(app->event);
	free(app->scratch);
	app->scratch = NULL;
}

int app_run(struct api_config *config, struct image *policy, struct names *names)
{
	static struct app the_app; /* too big for a stack */
	struct app *app = &the_app;
	int code = EXIT_FAILURE;
	int r;

	app->config = config;
	app->policy = *policy;
	app->names = names;
	r = start(app);
	if (r < 0)
		log_line(LOG_LEVEL_ERROR, NULL, "cannot start", "errno=%d", -r);
	else
		code = run_loop(app);
	stop(app);
	return code;
}
