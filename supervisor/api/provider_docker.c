/*
 * Containers of a Docker Engine, or sandboxes of a remote service, by way of sandboxd-provider:
 * requests of launch.h over a socket of its own, which the supervisor hands to both. A handle ends
 * with that process, and what it stands for does not: sessions then wait without one, as after a
 * start, and the next process says what lives.
 */
#include <errno.h>

#include "base/log.h"

#include "supervisor/api/creation.h"
#include "supervisor/api/egress.h"
#include "supervisor/api/live.h"
#include "supervisor/api/provider.h"
#include "supervisor/api/snapshot.h"

#define PERSIST_TIMEOUT (60 * USEC_PER_SEC)
/* More than that process takes to say it or to end: what it said later would be lost. */
#define LIST_TIMEOUT    (60 * USEC_PER_SEC)
#define START_WAIT      (3 * USEC_PER_SEC) /* for the first link: what needs no engine waits as long */

static const struct provider *engine_provider(const struct app *app)
{
	return app->service.engine == LAUNCH_ENGINE_REMOTE ? &provider_remote : &provider_docker;
}

static void on_gone(void *userdata, const struct id *session, const struct launch_gone *gone)
{
	if (session_of_provider(userdata, engine_provider(userdata), session))
		sessions_gone(userdata, session, gone);
}

static void on_config(void *userdata, const struct launch_config *state, int fd)
{
	(void)userdata;
	(void)state;
	(void)fd_close(fd); /* the supervisor's to say */
}

/* Before anything is made there it says what lives. */
static void gone(struct app *app)
{
	app->engine_asked = true;
	sessions_unlink(app, engine_provider(app));
}

static void on_closed(void *userdata, int error)
{
	log_line(LOG_LEVEL_ERROR, NULL, "the provider left", "errno=%d", -error);
	gone(userdata);
}

static bool is_gone(const struct live *live)
{
	const struct app *app = live->app;

	return live->engine_link != app->n_engine_links || !app->engine ||
	       supervisor_client_is_gone(app->engine);
}

static const struct supervisor_client_events events = {
	.gone = on_gone,
	.config = on_config,
	.closed = on_closed,
};

/* Of a link that came when this worker was serving already. */
static void on_late(void *userdata, const struct launch_msg *answer, int fd)
{
	struct app *app = userdata;

	if (answer)
		sessions_adopt_late(app, engine_provider(app), answer, fd);
	/* Where it cannot say it ends, and its next link asks again. */
	app->engine_asked = !answer || answer->more || answer->error != LAUNCH_E_NONE;
}

void provider_docker_link(struct app *app, int fd)
{
	app->engine = supervisor_client_free(app->engine);
	app->n_engine_links++;
	gone(app);
	if (supervisor_client_new(app->event, fd, &events, app, &app->engine) < 0) {
		log_line(LOG_LEVEL_ERROR, NULL, "no memory for the provider's socket", NULL);
		(void)fd_close(fd);
	}
	if (app->engine_waits) {
		app->engine_waits = sd_event_source_disable_unref(app->engine_waits);
		app->engine_linked(app);
		return;
	}
	/* Where it cannot be asked it has ended again. */
	if (app->phase == APP_PHASE_SERVING)
		IGNORE_RESULT(engine_provider(app)->connect(app, on_late, app));
}

static int on_wait_over(sd_event_source *source, uint64_t at, void *userdata)
{
	struct app *app = userdata;

	(void)source;
	(void)at;
	app->engine_waits = sd_event_source_disable_unref(app->engine_waits);
	app->engine_linked(app);
	return 0;
}

int provider_docker_await(struct app *app, void (*linked)(struct app *app))
{
	app->engine_linked = linked;
	if (app->engine || app->service.engine == LAUNCH_ENGINE_NONE) {
		linked(app);
		return 0;
	}
	return sd_event_add_time(app->event, &app->engine_waits, CLOCK_BOOTTIME,
				 clock_add(clock_boottime(), START_WAIT), USEC_PER_MS, on_wait_over,
				 app);
}

static bool has_docker(const struct app *app)
{
	return app->service.engine == LAUNCH_ENGINE_DOCKER;
}

static bool has_remote(const struct app *app)
{
	return app->service.engine == LAUNCH_ENGINE_REMOTE;
}

static bool is_reachable(const struct app *app)
{
	return app->engine && !app->engine_asked && !supervisor_client_is_gone(app->engine);
}

/* Otherwise the next engine process is asked, as of any link that comes later. */
static void asked(struct app *app, bool is_said)
{
	app->engine_asked = !is_said;
}

static int ask(struct app *app, enum launch_type type, const struct id *id, usec_t timeout,
	       supervisor_answer answer, void *userdata)
{
	if (!app->engine)
		return -ENODEV;
	return supervisor_client_request(
		app->engine,
		&(struct supervisor_request){.type = type, .session = id, .timeout = timeout},
		answer, userdata);
}

/* Rules that nobody would enforce: what cannot be kept is not promised. */
static bool has_rules(const struct app *app, const struct session *session)
{
	struct net_policy policy = NET_POLICY_NULL;
	bool has = egress_policy_of(app, session, &policy) < 0 || policy.n_rules > 0;

	policy_done(&policy);
	return has;
}

static int create(struct app *app, const struct session *session,
		  const struct provider_create *create, supervisor_answer answer, void *userdata)
{
	/* Its root is the operator's image. */
	if ((create->secrets && create->secrets->n > 0) || has_rules(app, session) ||
	    session->spec.runtime.template[0] != '\0')
		return -EOPNOTSUPP;
	if (!is_reachable(app))
		return -ENODEV;
	return supervisor_client_request(
		app->engine,
		&(struct supervisor_request){.type = LAUNCH_START,
					     .session = &session->id,
					     .plan = &session->plan,
					     .request_id = create->request_id,
					     .timeout = APP_LAUNCH_TIMEOUT},
		answer, userdata);
}

static int connect_all(struct app *app, supervisor_answer answer, void *userdata)
{
	return ask(app, LAUNCH_ADOPT, NULL, LIST_TIMEOUT, answer, userdata);
}

static int destroy(struct app *app, const struct id *id, supervisor_answer answer, void *userdata)
{
	return ask(app, LAUNCH_KILL, id, APP_KILL_TIMEOUT, answer, userdata);
}

static int persist(struct app *app, const struct id *id, supervisor_answer answer, void *userdata)
{
	return ask(app, LAUNCH_FREEZE, id, APP_REQUEST_TIMEOUT, answer, userdata);
}

static int resume(struct app *app, const struct id *id, supervisor_answer answer, void *userdata)
{
	return ask(app, LAUNCH_THAW, id, APP_REQUEST_TIMEOUT, answer, userdata);
}

static int stat_of(struct app *app, const struct id *id, supervisor_answer answer, void *userdata)
{
	return ask(app, LAUNCH_STAT, id, APP_REQUEST_TIMEOUT, answer, userdata);
}

/* Its commands were stopped when it was paused. */
static int persist_open(struct app *app, const struct id *id, supervisor_answer answer,
			void *userdata)
{
	return ask(app, LAUNCH_PART, id, PERSIST_TIMEOUT, answer, userdata);
}

static int persist_close(struct app *app, const struct id *id, supervisor_answer answer,
			 void *userdata)
{
	return ask(app, LAUNCH_JOIN, id, PERSIST_TIMEOUT, answer, userdata);
}

/* What is in force is the engine's to say. */
static int refuse(struct app *app, const struct id *id, supervisor_answer answer, void *userdata)
{
	(void)app;
	(void)id;
	(void)answer;
	(void)userdata;
	return -EOPNOTSUPP;
}

/* Which of the two it is, sandboxd-provider alone knows. */
/* clang-format off */
#define ENGINE_PROVIDER(its_name, has_it, elsewhere)                                               \
	{                                                                                          \
		.name = (its_name),                                                                \
		.is_elsewhere = (elsewhere),                                                       \
		.can = {.pause_resume = true},                                                     \
		.is_configured = (has_it),                                                         \
		.is_reachable = is_reachable,                                                      \
		.create = create,                                                                  \
		.connect = connect_all,                                                            \
		.asked = asked,                                                                    \
		.destroy = destroy,                                                                \
		.persist = persist,                                                                \
		.persist_open = persist_open,                                                      \
		.persist_close = persist_close,                                                    \
		.resume = resume,                                                                  \
		.stat = stat_of,                                                                   \
		.proof = refuse,                                                                   \
		.trace = refuse,                                                                   \
		.is_gone = is_gone,                                                                \
		.gone = gone,                                                                      \
		.delete_snapshot = snapshot_remove_reference,                                      \
	}
/* clang-format on */

const struct provider provider_docker = ENGINE_PROVIDER("docker", has_docker, false);
const struct provider provider_remote = ENGINE_PROVIDER("remote", has_remote, true);
