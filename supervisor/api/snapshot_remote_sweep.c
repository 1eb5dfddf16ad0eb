/*
 * Theory. What the instance has in the object store, and no row speaks of, is deleted. A session of
 * ours says itself what it needs. One that is not here is another host's, or gone, which only the
 * store knows where hosts share one: it is asked, some of them at a time, and whatever it does not
 * say is gone stays. An object counts from the time that the server says, which of a large one is
 * when its upload began: what is on its way is never looked at.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/io.h"
#include "base/log.h"

#include "supervisor/api/session/snapshots.h"
#include "supervisor/api/snapshot_state.h"

#define REMOVED_MAX  256u                   /* in one sweep */
#define LOOKED_AT    1024u                  /* in one turn */
#define ASKED_MAX    64u                    /* at a time */
#define SWEEP_EVERY  (10 * USEC_PER_MINUTE) /* servers count what they are asked */
#define CLOCKS_APART (60 * USEC_PER_MINUTE) /* at most: the object store's and the other one's */

struct snapshot_remote_sweep {
	struct app *app;
	int fd;                /* struct s3_object of each object */
	sd_event_source *turn; /* looks at some of them */
	usec_t now;            /* realtime: when they were looked for */
	uint32_t n_removed;
	uint32_t n_uploads;
	uint32_t n_asked;
	struct asked {
		struct s3_object object;
		struct id sandbox;
	} asked[ASKED_MAX];
};

static void sweep_free(struct snapshot_remote_sweep *sweep)
{
	sweep->app->remote_sweep = NULL;
	sweep->turn = sd_event_source_disable_unref(sweep->turn);
	sweep->fd = fd_close(sweep->fd);
	free(sweep);
}

static void finish(struct snapshot_remote_sweep *sweep)
{
	if (sweep->n_removed > 0 || sweep->n_uploads > 0)
		log_line(LOG_LEVEL_INFO, NULL, "objects of snapshots removed", "n=%u uploads=%u",
			 sweep->n_removed, sweep->n_uploads);
	sweep_free(sweep);
}

static void again(struct snapshot_remote_sweep *sweep)
{
	(void)sd_event_source_set_enabled(sweep->turn, SD_EVENT_ONESHOT);
}

static void remove_object(struct snapshot_remote_sweep *sweep, const struct s3_object *object)
{
	snapshot_remove_remote(sweep->app, object->key);
	sweep->n_removed++;
}

/* Those that the store says are gone. */

static void take_gone(struct snapshot_remote_sweep *sweep, const struct store_gone *gone)
{
	const struct app *app = sweep->app;
	usec_t from = gone->not_before > 0 ? clock_add(gone->not_before, CLOCKS_APART) : 0;

	/* It may have come meanwhile. */
	if (registry_find(&app->registry, &gone->session) || snapshot_is_sent(app, &gone->session))
		return;
	for (uint32_t i = 0; i < sweep->n_asked; i++)
		if (id_equal(&sweep->asked[i].sandbox, &gone->session) &&
		    sweep->asked[i].object.written_at >= from)
			remove_object(sweep, &sweep->asked[i].object);
}

static void on_gone(void *userdata, enum store_result result, const struct store_gone *gone)
{
	struct snapshot_remote_sweep *sweep = userdata;

	if (result == STORE_OK) {
		take_gone(sweep, gone);
		return;
	}
	sweep->n_asked = 0;
	if (result == STORE_NOT_FOUND && sweep->app->phase == APP_PHASE_SERVING)
		again(sweep);
	else
		finish(sweep);
}

static int ask(struct snapshot_remote_sweep *sweep)
{
	struct id sessions[ASKED_MAX];
	size_t n = 0;

	/* Those of one session are next to each other. */
	for (uint32_t i = 0; i < sweep->n_asked; i++)
		if (n == 0 || !id_equal(&sessions[n - 1], &sweep->asked[i].sandbox))
			sessions[n++] = sweep->asked[i].sandbox;
	return store_sessions_gone(sweep->app->store, sessions, n, on_gone, sweep);
}

/* The helper's word, and the server's: of each object no more follows than that it is deleted. */

static void note_asked(struct snapshot_remote_sweep *sweep, const struct s3_object *object,
		       const struct id *sandbox)
{
	struct asked *asked = &sweep->asked[sweep->n_asked++];

	asked->object = *object;
	asked->sandbox = *sandbox;
}

static void look_at(struct snapshot_remote_sweep *sweep, const struct s3_object *object)
{
	const struct app *app = sweep->app;
	const struct session *session;
	const char *name;
	struct id sandbox;

	name = memchr(object->key, '\0', sizeof(object->key)) ? strrchr(object->key, '/') : NULL;
	/* Of others, whoever they are. */
	if (!name || snapshot_name_parse(name + 1, &sandbox) < 0)
		return;
	session = registry_find(&app->registry, &sandbox);
	if (clock_add(object->written_at, snapshot_sweep_age(app, session)) > sweep->now ||
	    snapshot_is_sent(app, &sandbox))
		return;
	if (!session && app->config->store_dsn[0] != '\0')
		note_asked(sweep, object, &sandbox);
	else if (!session ||
		 (session_persisted(session) && !snapshots_have_key(session, object->key)))
		remove_object(sweep, object);
}

static int on_turn(sd_event_source *source, void *userdata)
{
	struct snapshot_remote_sweep *sweep = userdata;
	struct s3_object object;
	bool is_end = sweep->app->phase != APP_PHASE_SERVING;

	(void)source;
	for (uint32_t i = 0; !is_end && i < LOOKED_AT && sweep->n_asked < ASKED_MAX; i++) {
		is_end = sweep->n_removed >= REMOVED_MAX ||
			 io_read_exact(sweep->fd, &object, sizeof(object)) < 0;
		if (!is_end)
			look_at(sweep, &object);
	}
	if (sweep->n_asked > 0) {
		if (ask(sweep) < 0)
			finish(sweep);
	} else if (is_end) {
		finish(sweep);
	} else {
		again(sweep);
	}
	return 0;
}

/* What was listed before a failure is as good. */
static void on_listed(void *userdata, int error, const struct s3_report *report, json_t *reference)
{
	struct snapshot_remote_sweep *sweep = userdata;

	(void)reference;
	sweep->n_uploads = report ? report->n_given_up : 0;
	if (error == -ECANCELED || lseek(sweep->fd, 0, SEEK_SET) < 0)
		finish(sweep);
	else
		again(sweep);
}

void snapshots_sweep_remote(struct app *app)
{
	struct snapshot_remote_sweep *sweep;
	usec_t now = clock_boottime();
	int r;

	if (!snapshot_goes_away(app) || app->remote_sweep || now < app->remote_sweep_at)
		return;
	app->remote_sweep_at = clock_add(now, SWEEP_EVERY);
	sweep = calloc(1, sizeof(*sweep));
	if (!sweep)
		return;
	app->remote_sweep = sweep;
	sweep->app = app;
	sweep->fd = -1;
	sweep->now = clock_realtime();
	r = sd_event_add_defer(app->event, &sweep->turn, on_turn, sweep);
	if (r >= 0)
		r = sd_event_source_set_enabled(sweep->turn, SD_EVENT_OFF);
	if (r >= 0)
		r = snapshot_list(app, on_listed, sweep, &sweep->fd);
	if (r < 0)
		sweep_free(sweep);
}

void snapshots_sweep_remote_end(struct app *app)
{
	if (!app->remote_sweep)
		return;
	store_forget(app->store, app->remote_sweep);
	sweep_free(app->remote_sweep);
}
