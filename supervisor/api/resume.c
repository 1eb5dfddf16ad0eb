/* The way back. */
#include <errno.h>
#include <stdlib.h>

#include "base/launch.h"
#include "base/log.h"

#include "supervisor/api/command.h"
#include "supervisor/api/egress.h"
#include "supervisor/api/events.h"
#include "supervisor/api/http/actions.h"
#include "supervisor/api/http/reply.h"
#include "supervisor/api/idle.h"
#include "supervisor/api/rebuild.h"
#include "supervisor/api/snapshot.h"
#include "supervisor/api/suspend_persist.h"
#include "supervisor/api/suspend_state.h"

static void resumed(struct live *live, enum suspension_resumed how)
{
	const struct log_context context = {.session = &live->session->id};

	idle_touch(live);
	live->session->suspension.state = SUSPENSION_RUNNING;
	live->session->suspension.resumed = how;
	live->app->counters.n_resumes[how]++;
	live->session->suspension.memory_bytes = 0;
	commands_wake(live);
	log_line(LOG_LEVEL_INFO, &context, "session is resumed", "from=%s",
		 suspension_resumed_text(how));
	events_note(live->session, "resumed",
		    json_pack("{s:s}", "from", suspension_resumed_text(how)));
	suspend_end(live, RUNTIME_ERROR_MAX_, NULL);
	suspend_go_on(live);
}

void suspend_resume_failed(struct live *live, enum runtime_error error, const char *detail)
{
	struct suspension *suspension = &live->session->suspension;

	suspension->state = SUSPENSION_SUSPENDED;
	suspend_set_expiry(live, clock_add(clock_realtime(), idle_keep(live->app)));
	suspend_write_row(live, NULL);
	suspend_end(live, error, detail);
	/* To go on would be to resume it again, which fails again. */
	rebuild_refuse(live, error, detail);
}

static void on_thawed(void *userdata, const struct launch_msg *answer, int fd)
{
	struct live *live = suspend_answered(userdata, fd);

	if (!live)
		return;
	if (answer && (answer->error == LAUNCH_E_NONE || answer->error == LAUNCH_E_STATE)) {
		suspend_tell_thawed(live);
		live->rebuilding_since = clock_boottime(); /* where its shim could say nothing */
		resumed(live, SUSPENSION_RESUMED_MEMORY);
	} else if (answer && answer->error == LAUNCH_E_NOT_FOUND) {
		/* It goes on from its snapshot, whether or not the end of its handle follows. */
		sessions_tree_gone(live->app, live->session, NULL);
	} else {
		/* It may run by now, or soon. */
		if (suspend_ask(live, live->provider->persist, suspend_ignore_answer) < 0)
			log_line(LOG_LEVEL_ERROR, NULL, "the supervisor cannot be asked", NULL);
		suspend_resume_failed(live, RUNTIME_PROVIDER_UNAVAILABLE, NULL);
	}
}

static void thaw(struct live *live)
{
	if (suspend_ask(live, live->provider->resume, on_thawed) < 0)
		suspend_resume_failed(live, RUNTIME_PROVIDER_UNAVAILABLE, NULL);
}

/* Its snapshot is made, or given up. */
static void on_whole(struct live *live, int r)
{
	suspend_note_persisted(live, r);
	if (live->session->suspension.state != SUSPENSION_RESUMING)
		return;
	if (r == -EPROTO)
		suspend_resume_failed(live, RUNTIME_PROVIDER_UNAVAILABLE, NULL);
	else
		thaw(live);
}

void suspend_thaw(struct live *live)
{
	if (!live->persist && !live->is_parted)
		thaw(live);
	else if (suspend_persist_end(live, on_whole) < 0)
		suspend_resume_failed(live, RUNTIME_PROVIDER_UNAVAILABLE, NULL);
}

void suspend_resumed_without(struct live *live)
{
	resumed(live, SUSPENSION_RESUMED_SNAPSHOT);
}

/* Of one that was adopted frozen the shim has said nothing yet. */
static bool has_frozen_tree(const struct live *live)
{
	return session_has_tree(live->session) ||
	       (live->session->state == SESSION_STATE_REBUILDING && live->adopted && live->shim);
}

static void on_rules(void *userdata, const struct id *id, int error)
{
	struct live *live = suspend_step_end(userdata);

	(void)id;
	if (!live || live->session->suspension.state != SUSPENSION_RESUMING)
		return;
	/* -ESHUTDOWN: there is no tree any more, and the next one begins with them. */
	if (error == 0 || error == -ESHUTDOWN)
		suspend_thaw(live);
	else
		suspend_resume_failed(live, RUNTIME_PROVIDER_UNAVAILABLE,
				      "its egress rules are not in force");
}

/* Nothing of it runs by the rules that it had. */
static void wait_rules(struct live *live)
{
	struct suspend_step *step;

	if (live->policy_in_force) {
		suspend_thaw(live); /* they were quicker than the store */
		return;
	}
	step = suspend_step_new(live, NULL);
	if (step && egress_wait_settled(live->app, live->session, on_rules, step) >= 0)
		return;
	free(step);
	suspend_resume_failed(live, RUNTIME_BUSY, "out of memory");
}

static void on_running_written(struct live *live, enum store_result result)
{
	if (result != STORE_OK)
		suspend_resume_failed(live, RUNTIME_PROVIDER_UNAVAILABLE, "store unavailable");
	else if (!has_frozen_tree(live))
		resumed(live, SUSPENSION_RESUMED_SNAPSHOT);
	else if (live->suspend->has_rules)
		wait_rules(live);
	else
		suspend_thaw(live);
}

int suspend_resume(struct live *live)
{
	struct session *session = live->session;
	int r;

	/* Those who wait for its snapshot. */
	suspend_end(live, RUNTIME_ERROR_MAX_, NULL);
	r = suspend_begin(live);
	if (r < 0)
		return r;
	session->suspension.state = SUSPENSION_RESUMING;
	suspend_set_expiry(live, suspension_expiry(&session->suspension, clock_realtime()));
	suspend_write_row(live, on_running_written);
	return 0;
}

/* In place of what it had; in the store with the row that says running. */
static void take_spec(struct live *live, struct spec_resume *spec)
{
	struct spec_create *own = &live->session->spec;

	if (spec->has_egress) {
		spec_egress_done(&own->egress);
		own->egress = spec->egress;
		spec->egress = SPEC_EGRESS_NULL;
		if (egress_is_wanted(live->session))
			egress_push(live->app, live->session);
	}
	if (spec->has_envs) {
		char **env = own->env;
		size_t n_env = own->n_env;

		own->env = spec->env;
		own->n_env = spec->n_env;
		spec->env = env;
		spec->n_env = n_env;
	}
	if (spec->has_egress || spec->has_envs)
		sessions_write_egress(live->app, live->session);
}

bool suspend_may_resume(struct request *request, struct live *live)
{
	if (has_frozen_tree(live))
		return true;
	/* Its tree may be there, where that cannot be asked. */
	if (!provider_is_reachable(live->app, live->provider)) {
		reply_runtime_error(request, RUNTIME_PROVIDER_UNAVAILABLE, NULL);
		return false;
	}
	return snapshot_key_is_there(request, live->session, live->session->suspension.snapshot);
}

bool suspend_is_resuming(struct request *request, const struct session *session)
{
	if (session->state >= SESSION_STATE_CLOSING)
		reply_not_found(request); /* nothing is left of its life time */
	else if (session->suspension.state == SUSPENSION_SUSPENDED)
		reply_runtime_error(request, RUNTIME_PROVIDER_UNAVAILABLE, "store unavailable");
	else
		return true;
	return false;
}

void action_resume(struct request *request, struct session *session, struct spec_resume *spec)
{
	struct live *live = live_of(session);
	bool has_rules = spec->has_egress;

	switch (session->suspension.state) {
	case SUSPENSION_SUSPENDING:
		reply_runtime_error(request, RUNTIME_BUSY, "it is being suspended");
		return;
	case SUSPENSION_RESUMING:
		take_spec(live, spec);
		live->suspend->has_rules |= has_rules;
		(void)suspend_wait_for(request, live->suspend);
		return;
	case SUSPENSION_SUSPENDED:
		if (!suspend_may_resume(request, live))
			return;
		take_spec(live, spec);
		if (suspend_resume(live) < 0) {
			reply_runtime_error(request, RUNTIME_BUSY, "out of memory");
			return;
		}
		if (!suspend_is_resuming(request, session))
			return;
		live->suspend->has_rules = has_rules;
		(void)suspend_wait_for(request, live->suspend);
		return;
	case SUSPENSION_RUNNING:
	case SUSPENSION_MAX_:
		break;
	}
	take_spec(live, spec);
	/* A tree that is gone comes back with the answer, not after it. */
	if (session_has_tree(session))
		suspend_reply(request, session);
	else
		rebuild_wait(request, session);
}
