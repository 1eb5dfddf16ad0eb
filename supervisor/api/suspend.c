/* The way there, and what others ask. */
#include <errno.h>

#include "base/launch.h"
#include "base/log.h"

#include "supervisor/api/command.h"
#include "supervisor/api/command_actions.h"
#include "supervisor/api/events.h"
#include "supervisor/api/file_reply.h"
#include "supervisor/api/http/actions.h"
#include "supervisor/api/http/reply.h"
#include "supervisor/api/idle.h"
#include "supervisor/api/rebuild.h"
#include "supervisor/api/suspend_persist.h"
#include "supervisor/api/suspend_state.h"

/* A process in the kernel's hands (a disk, say) stops when it leaves them: looks at growing
 * distances, for so long in all. */
#define LOOK_FIRST_US  100u
#define LOOK_MAX_US    (2 * USEC_PER_MS)
#define FREEZE_WAIT_US (5 * USEC_PER_SEC)
/* What a shim may take to answer. One that does not is frozen all the same: the time of its own
 * commands is all that it can lose. */
#define PAUSE_WAIT_US  (2 * USEC_PER_SEC)

/* Its life time stands still, and something else may end it. */
static void stop_clock(struct live *live, usec_t now, bool is_wanted)
{
	suspension_begin(&live->session->suspension, now, live->session->expires_at, is_wanted);
	suspend_set_expiry(live, clock_add(now, idle_keep(live->app)));
}

static void suspend_failed(struct live *live, enum runtime_error error, const char *detail)
{
	struct suspension *suspension = &live->session->suspension;
	const struct log_context context = {.session = &live->session->id};

	if (live->session->state >= SESSION_STATE_CLOSING)
		return; /* suspend_drop says so */
	log_line(LOG_LEVEL_WARNING, &context, "session was not suspended", "reason=\"%s\"",
		 detail ? detail : runtime_error_row(error)->code);
	suspend_tell_thawed(live);
	suspension->state = SUSPENSION_RUNNING;
	suspend_set_expiry(live, suspension_expiry(suspension, clock_realtime()));
	suspend_write_row(live, NULL);
	suspend_end(live, error, detail);
	suspend_go_on(live);
}

/* Those who wait for it see whether it is durable. */
static void on_persisted(struct live *live, int r)
{
	suspend_note_persisted(live, r);
	if (live->suspend && live->session->suspension.state == SUSPENSION_SUSPENDED)
		suspend_end(live, RUNTIME_ERROR_MAX_, NULL);
}

static void on_joined_again(struct live *live, int r);

int suspend_persist(struct live *live)
{
	int r;

	if (live->persist)
		return 0;
	r = live->is_parted ? suspend_persist_end(live, on_joined_again)
			    : suspend_persist_begin(live, on_persisted);
	return r < 0 || live->persist ? r : -EIO;
}

static void on_suspended_written(struct live *live, enum store_result result)
{
	int r = 0;

	/* It is frozen and the row says that it is to be: that counts as suspended. */
	(void)result;
	if (!live->suspend->is_durable_first)
		suspend_end(live, RUNTIME_ERROR_MAX_, NULL);
	/* Somebody came meanwhile. */
	if (!list_empty(&live->tree_waiters)) {
		if (suspend_resume(live) >= 0)
			return;
		rebuild_refuse(live, RUNTIME_BUSY, "out of memory");
	}
	if (live->session->suspension.is_wanted)
		r = suspend_persist(live);
	if (r < 0)
		on_persisted(live, r);
}

static void frozen(struct live *live, const struct launch_stat *stat)
{
	struct suspension *suspension = &live->session->suspension;
	const struct log_context context = {.session = &live->session->id};

	suspension->state = SUSPENSION_SUSPENDED;
	suspension->memory_bytes = stat->memory_bytes;
	files_suspended(live, true);
	commands_tell_suspended(live);
	commands_wake(live);
	log_line(LOG_LEVEL_INFO, &context, "session is suspended",
		 "generation=%llu memory_bytes=%llu", (unsigned long long)suspension->generation,
		 (unsigned long long)stat->memory_bytes);
	events_note(live->session, "suspended", NULL);
	suspend_write_row(live, on_suspended_written);
}

/* Whatever of it has stopped. */
static void thaw_again(struct live *live, enum runtime_error error, const char *detail)
{
	if (suspend_ask(live, live->provider->resume, suspend_ignore_answer) < 0)
		log_line(LOG_LEVEL_ERROR, NULL, "the supervisor cannot be asked", NULL);
	suspend_failed(live, error, detail);
}

static void look_again(struct live *live);

static void on_look(void *userdata, const struct launch_msg *answer, int fd)
{
	struct live *live = suspend_answered(userdata, fd);

	if (!live)
		return;
	if (answer && answer->error == LAUNCH_E_NONE && answer->u.stat.frozen) {
		frozen(live, &answer->u.stat);
	} else if (answer && answer->error == LAUNCH_E_NOT_FOUND) {
		sessions_tree_gone(live->app, live->session, NULL);
	} else if (answer && answer->error == LAUNCH_E_NONE &&
		   clock_boottime() < live->suspend->deadline) {
		look_again(live);
	} else {
		thaw_again(live, RUNTIME_TIMEOUT, "its processes did not stop in time");
	}
}

static int on_look_timer(sd_event_source *source, uint64_t at, void *userdata)
{
	struct suspend *suspend = userdata;

	(void)source;
	(void)at;
	if (suspend_ask(suspend->live, suspend->live->provider->stat, on_look) < 0)
		thaw_again(suspend->live, RUNTIME_PROVIDER_UNAVAILABLE, NULL);
	return 0;
}

static void look_again(struct live *live)
{
	struct suspend *suspend = live->suspend;
	usec_t look_us = suspend->look_us;

	suspend->timer = sd_event_source_disable_unref(suspend->timer);
	if (look_us < LOOK_MAX_US)
		suspend->look_us *= 2;
	/* At once may be the end of it. */
	if (sd_event_add_time_relative(live->app->event, &suspend->timer, CLOCK_BOOTTIME, look_us,
				       1, on_look_timer, suspend) < 0)
		(void)on_look_timer(NULL, 0, suspend);
}

static void on_frozen(void *userdata, const struct launch_msg *answer, int fd)
{
	struct live *live = suspend_answered(userdata, fd);

	if (!live)
		return;
	if (answer && answer->error == LAUNCH_E_NONE && answer->u.stat.frozen)
		frozen(live, &answer->u.stat);
	else if (answer && (answer->error == LAUNCH_E_NONE || answer->error == LAUNCH_E_STATE))
		look_again(live); /* STATE: an earlier worker had asked for it */
	else if (answer && answer->error == LAUNCH_E_NOT_FOUND)
		sessions_tree_gone(live->app, live->session, NULL);
	else if (answer && answer->error == LAUNCH_E_UNSUPPORTED)
		suspend_failed(live, RUNTIME_NOT_SUPPORTED, NULL);
	else
		thaw_again(live, RUNTIME_PROVIDER_UNAVAILABLE, NULL);
}

static void freeze(struct live *live)
{
	struct suspend *suspend = live->suspend;
	int r;

	suspend->is_telling = false;
	suspend->timer = sd_event_source_disable_unref(suspend->timer);
	suspend->deadline = clock_add(clock_boottime(), FREEZE_WAIT_US);
	suspend->look_us = LOOK_FIRST_US;
	r = suspend_ask(live, live->provider->persist, on_frozen);
	if (r < 0)
		suspend_failed(live,
			       r == -EOPNOTSUPP ? RUNTIME_NOT_SUPPORTED
						: RUNTIME_PROVIDER_UNAVAILABLE,
			       NULL);
}

static int on_pause_timer(sd_event_source *source, uint64_t at, void *userdata)
{
	struct suspend *suspend = userdata;

	(void)source;
	(void)at;
	log_line(LOG_LEVEL_WARNING, &(struct log_context){.session = &suspend->live->session->id},
		 "the shim does not answer", NULL);
	freeze(suspend->live);
	return 0;
}

/* First what of files would be half done, so that none of it is in the snapshot; then the clocks of
 * its jobs, then the jobs. */
static void stop(struct live *live)
{
	struct suspend *suspend = live->suspend;
	int r;

	files_suspended(live, false);
	r = live->shim ? shim_link_pause(live->shim, true) : -EPIPE;

	if (r == -EOPNOTSUPP) {
		freeze(live);
		return;
	}
	suspend->is_telling = true;
	if (r >= 0)
		r = sd_event_add_time_relative(live->app->event, &suspend->timer, CLOCK_BOOTTIME,
					       PAUSE_WAIT_US, 0, on_pause_timer, suspend);
	if (r < 0)
		suspend_failed(live, RUNTIME_PROVIDER_UNAVAILABLE, NULL);
}

void suspend_paused(struct live *live)
{
	if (live->suspend && live->suspend->is_telling)
		freeze(live);
}

static void on_prepared(struct live *live, enum runtime_error error, const char *detail)
{
	struct suspend *suspend = live->suspend;

	if (error != RUNTIME_ERROR_MAX_) {
		suspend_failed(live, error, detail);
		return;
	}
	suspend->prepare = suspend_prepare_free(suspend->prepare);
	stop(live);
}

static void on_suspending_written(struct live *live, enum store_result result)
{
	if (result == STORE_OK && live->suspend->prepare)
		suspend_prepare_start(live->suspend->prepare);
	else if (result == STORE_OK)
		stop(live);
	else
		suspend_failed(live, RUNTIME_PROVIDER_UNAVAILABLE, "store unavailable");
}

/* A tree of an earlier release cannot be told: where a command runs its time would be over. */
static bool is_able(const struct live *live)
{
	return live->shim &&
	       (shim_link_has(live->shim, WIRE_FEATURE_PAUSE) || shim_link_jobs(live->shim) == 0);
}

/* What comes before. False: it was answered. */
static bool take_prepare(struct request *request, struct live *live, struct spec_suspend *spec)
{
	if (!spec->before.argv && spec->commands == SPEC_SUSPEND_NONE && spec->n_remove == 0)
		return true;
	if (spec->before.argv && (!command_may_be_root(request, live, &spec->before) ||
				  !command_may_work(request, live->session)))
		return false;
	if (suspend_prepare_new(live, spec, on_prepared, &live->suspend->prepare) >= 0)
		return true;
	reply_runtime_error(request, RUNTIME_BUSY, "out of memory");
	return false;
}

void suspend_idle(struct live *live)
{
	if (!is_able(live) || suspend_begin(live) < 0)
		return;
	/* Where it fails the next try is not in the next tick: each one is written. */
	idle_touch(live);
	log_line(LOG_LEVEL_INFO, &(struct log_context){.session = &live->session->id},
		 "session is not used and is suspended", NULL);
	stop_clock(live, clock_realtime(), true);
	suspend_write_row(live, on_suspending_written);
}

/* Of one that is suspended: its snapshot may be missing. */
static void suspend_again(struct request *request, struct live *live,
			  const struct spec_suspend *spec)
{
	bool waits = spec->durable == SPEC_DURABLE_WAIT;
	struct suspension *suspension = &live->session->suspension;
	bool is_missing = spec->durable != SPEC_DURABLE_NEVER && live->shim &&
			  !suspension_is_durable(suspension);

	if (is_missing && !suspension->is_wanted) {
		suspension->is_wanted = true;
		sessions_write_registry(live->app, live->session);
	}
	if (is_missing && suspend_persist(live) >= 0 && waits &&
	    (live->suspend || suspend_begin(live) >= 0))
		(void)suspend_wait_for(request, live->suspend);
	else
		suspend_reply(request, live->session);
}

void action_suspend(struct request *request, struct session *session, struct spec_suspend *spec)
{
	enum spec_suspend_durable durable = spec->durable; /* which is taken over */
	struct live *live = live_of(session);

	switch (session->suspension.state) {
	case SUSPENSION_SUSPENDED:
		suspend_again(request, live, spec);
		return;
	case SUSPENSION_SUSPENDING:
		(void)suspend_wait_for(request, live->suspend);
		return;
	case SUSPENSION_RESUMING:
		reply_runtime_error(request, RUNTIME_BUSY, "it is being resumed");
		return;
	case SUSPENSION_RUNNING:
	case SUSPENSION_MAX_:
		break;
	}
	if (session->n_jobs > 0) {
		reply_runtime_error(request, RUNTIME_CONFLICT, "a task of it runs");
		return;
	}
	if (!is_able(live)) {
		reply_runtime_error(request, RUNTIME_OLDER_TREE, NULL);
		return;
	}
	/* Half of it may be put back. */
	if (live->snapshot) {
		reply_runtime_error(request, RUNTIME_BUSY,
				    "a snapshot of the sandbox is being made or put back");
		return;
	}
	if (suspend_begin(live) < 0) {
		reply_runtime_error(request, RUNTIME_BUSY, "out of memory");
		return;
	}
	live->suspend->is_durable_first = spec->durable == SPEC_DURABLE_WAIT;
	if (!take_prepare(request, live, spec) || !suspend_wait_for(request, live->suspend)) {
		suspend_free(live->suspend);
		live->suspend = NULL;
		return;
	}
	stop_clock(live, clock_realtime(), durable != SPEC_DURABLE_NEVER);
	suspend_write_row(live, on_suspending_written);
}

/* What others ask. */

bool suspend_may_wait(struct request *request, struct session *session)
{
	struct live *live = live_of(session);

	switch (session->suspension.state) {
	case SUSPENSION_RUNNING:
	case SUSPENSION_RESUMING:
	case SUSPENSION_MAX_:
		return true;
	case SUSPENSION_SUSPENDING:
		if (idle_resumes(live->app))
			return true;
		break;
	case SUSPENSION_SUSPENDED:
		if (!idle_resumes(live->app))
			break;
		if (!suspend_may_resume(request, live))
			return false;
		if (suspend_resume(live) < 0)
			break;
		return suspend_is_resuming(request, session);
	}
	reply_runtime_error(request, RUNTIME_SUSPENDED, NULL);
	return false;
}

static bool is_missed(const struct suspension *suspension)
{
	return suspension->state == SUSPENSION_SUSPENDED && suspension->is_wanted &&
	       !suspension_is_durable(suspension);
}

/* What was left half-way, by an earlier worker mostly, is begun again. */
static void on_joined_again(struct live *live, int r)
{
	if (r == -EPROTO || !is_missed(&live->session->suspension) || suspend_persist(live) < 0)
		on_persisted(live, r);
}

void suspend_adopted(struct session *session, bool is_frozen, bool is_parted)
{
	struct live *live = live_of(session);

	live->is_parted = is_parted;
	if (is_parted && session->suspension.state != SUSPENSION_RUNNING)
		IGNORE_RESULT(suspend_persist_end(live, on_joined_again));
	else if (is_frozen && is_missed(&session->suspension))
		IGNORE_RESULT(suspend_persist(live));
	if (is_frozen == (session->suspension.state != SUSPENSION_RUNNING))
		return;
	if (suspend_begin(live) < 0)
		return; /* the next worker does it */
	if (is_frozen) {
		/* The row said running, and the thaw was not asked for, or not answered. */
		session->suspension.state = SUSPENSION_RESUMING;
		suspend_thaw(live);
	} else {
		session->suspension.state = SUSPENSION_SUSPENDING; /* suspend_known goes on */
	}
}

void suspend_known(struct live *live)
{
	switch (live->session->suspension.state) {
	case SUSPENSION_RUNNING:
	case SUSPENSION_RESUMING:
		/* An earlier worker may have died before it said so. */
		suspend_tell_thawed(live);
		break;
	case SUSPENSION_SUSPENDING:
		stop(live);
		break;
	case SUSPENSION_SUSPENDED:
		suspend_persist_known(live);
		break;
	case SUSPENSION_MAX_:
		break;
	}
}

void suspend_tree_gone(struct session *session)
{
	struct live *live = live_of(session);
	struct suspension *suspension = &session->suspension;

	suspension->memory_bytes = 0;
	suspend_persist_drop(live);
	live->is_parted = false;
	if (!live->suspend)
		return;
	if (suspension->state == SUSPENSION_SUSPENDED)
		suspend_end(live, RUNTIME_ERROR_MAX_, NULL);
	else if (suspension->state == SUSPENSION_RESUMING && live->is_away)
		suspend_resume_failed(live, RUNTIME_PROVIDER_UNAVAILABLE, NULL);
	else if (suspension->state == SUSPENSION_RESUMING)
		suspend_resumed_without(live);
	else if (suspension->state == SUSPENSION_SUSPENDING && live->is_away)
		suspend_failed(live, RUNTIME_PROVIDER_UNAVAILABLE, NULL);
	else if (suspension->state == SUSPENSION_SUSPENDING)
		suspend_failed(live, RUNTIME_PROVIDER_UNAVAILABLE, "its processes ended");
}
