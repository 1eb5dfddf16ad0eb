/*
 * Sessions from create to end: the only caller of session_apply. The domain says what follows from
 * an event; here it is done, by the supervisor, the store and the answers that wait.
 *
 * The launch and the insert of the row run at once; the 201 goes out when both are done. A refusal
 * of the store does not refuse the session: the answer then says persisted false.
 */
#include <stdlib.h>

#include "base/launch.h"
#include "base/log.h"

#include "supervisor/api/audit.h"
#include "supervisor/api/command.h"
#include "supervisor/api/creation.h"
#include "supervisor/api/denials.h"
#include "supervisor/api/egress.h"
#include "supervisor/api/events.h"
#include "supervisor/api/provider.h"
#include "supervisor/api/quotas.h"
#include "supervisor/api/rebuild.h"
#include "supervisor/api/redis.h"
#include "supervisor/api/session/fit.h"
#include "supervisor/api/session_close.h"
#include "supervisor/api/suspend.h"

/* The end. */

struct kill_op {
	struct list link; /* app->kills_owed, or alone */
	struct app *app;
	const struct provider *provider;
	struct id session;
	uint32_t tree;
};

struct session *session_of_provider(struct app *app, const struct provider *provider,
				    const struct id *id)
{
	struct session *session = registry_find(&app->registry, id);

	return session && live_of(session)->provider == provider ? session : NULL;
}

/* What is acknowledged is the shim's to forget, all else it tells again. */
static void unlink_tree(struct session *session)
{
	uint64_t settled = session->flow.settled;

	commands_unlink(live_of(session));
	flow_done(&session->flow);
	flow_init(&session->flow, settled);
}

static void fail_jobs(struct app *app, struct session *session)
{
	tasks_fail(app, session, session_reason_code(session->reason), "session ended");
	live_end_all(live_of(session));
}

/* Its provider did not end it in time, or cannot be asked. Nobody waits longer for that than one
 * deadline, and nothing is forgotten: the tick asks again. */
static void kill_failed(struct app *app, struct session *session)
{
	struct live *live = live_of(session);

	live->kill_asked = false;
	fail_jobs(app, session);
	rebuild_refuse(live, RUNTIME_PROVIDER_UNAVAILABLE, NULL);
	session_close_tell(&live->waiters, END_UNKNOWN, 0);
}

void sessions_tree_gone(struct app *app, struct session *session, const struct launch_gone *gone)
{
	quotas_tree_gone(session, gone ? gone->cpu_us : session->cpu_us);
	denials_tree_gone(app, session, gone);
	sessions_event(app, session, SESSION_EVENT_GONE, SESSION_REASON_LOST);
}

static void on_killed(void *userdata, const struct launch_msg *answer, int fd)
{
	struct kill_op *op = userdata;
	struct app *app = op->app;
	struct id id = op->session;
	struct session *session = session_of_provider(app, op->provider, &id);
	struct log_context context = {.session = &id};
	bool is_of_old_tree = session && live_of(session)->tree != op->tree;

	(void)fd_close(fd);
	if (is_of_old_tree) {
		free(op);
		return; /* its end was known without the answer */
	}
	/* Not found and stopping: there is nothing left of it, or there will not be. */
	if (answer && (answer->error == LAUNCH_E_NONE || answer->error == LAUNCH_E_NOT_FOUND ||
		       answer->error == LAUNCH_E_STOPPING)) {
		if (session)
			sessions_tree_gone(app, session,
					   answer->error == LAUNCH_E_NONE ? &answer->u.gone : NULL);
		free(op);
		return;
	}
	log_line(LOG_LEVEL_ERROR, &context, "session did not end", "error=%s",
		 answer ? launch_error_text(answer->error) : "timeout");
	if (session) {
		kill_failed(app, session);
		free(op);
	} else {
		list_append(&app->kills_owed, &op->link);
	}
}

static struct kill_op *kill_op_new(struct app *app, const struct provider *provider,
				   const struct id *session)
{
	const struct session *known = session_of_provider(app, provider, session);
	struct kill_op *op = calloc(1, sizeof(*op));

	if (!op)
		return NULL;
	list_init(&op->link);
	op->app = app;
	op->provider = provider;
	op->session = *session;
	op->tree = known ? live_of(known)->tree : 0;
	return op;
}

static void end_session(struct app *app, struct session *session)
{
	struct live *live = live_of(session);
	struct kill_op *op;

	if (live->kill_asked)
		return;
	live->kill_later = false;
	live->kill_asked = true;
	op = kill_op_new(app, live->provider, &session->id);
	if (op && live->provider->destroy(app, &session->id, on_killed, op) >= 0)
		return;
	free(op);
	kill_failed(app, session);
}

/* The shim of one that was adopted frozen cannot say anything before it is thawed. */
static bool stands_still(const struct session *session)
{
	return session->suspension.state == SUSPENSION_SUSPENDED ||
	       session->suspension.state == SUSPENSION_RESUMING;
}

void sessions_kill_unknown(struct app *app, const struct provider *provider,
			   const struct id *session)
{
	struct log_context context = {.session = session};
	struct kill_op *op;

	LIST_FOR_EACH (entry, &app->kills_owed) {
		op = LIST_ENTRY(entry, struct kill_op, link);
		if (op->provider == provider && id_equal(&op->session, session))
			return;
	}
	op = kill_op_new(app, provider, session);
	if (!op)
		log_line(LOG_LEVEL_ERROR, &context, "session cannot be ended", NULL);
	else if (provider->destroy(app, session, on_killed, op) < 0)
		list_append(&app->kills_owed, &op->link);
}

/* A session of that id may have come meanwhile; the end of that is not owed. */
static void pay_kills(struct app *app)
{
	struct list owed;

	/* Those that cannot be asked now are owed again. */
	list_init(&owed);
	while (!list_empty(&app->kills_owed)) {
		struct list *entry = app->kills_owed.next;

		list_remove(entry);
		list_append(&owed, entry);
	}
	while (!list_empty(&owed)) {
		struct kill_op *op = LIST_ENTRY(owed.next, struct kill_op, link);

		list_remove(&op->link);
		if (session_of_provider(app, op->provider, &op->session))
			free(op);
		else if (op->provider->destroy(app, &op->session, on_killed, op) < 0)
			list_append(&app->kills_owed, &op->link);
	}
}

/* provider: NULL: of all. */
static void drop_owed(struct app *app, const struct provider *provider)
{
	LIST_FOR_EACH_SAFE (entry, following, &app->kills_owed) {
		struct kill_op *op = LIST_ENTRY(entry, struct kill_op, link);

		if (provider && op->provider != provider)
			continue;
		list_remove(&op->link);
		free(op);
	}
}

void sessions_drop_owed(struct app *app)
{
	drop_owed(app, NULL);
}

void sessions_end_again(struct app *app)
{
	usec_t now = clock_boottime();

	pay_kills(app);
	LIST_FOR_EACH_SAFE (entry, following, &app->lives) {
		struct live *live = LIST_ENTRY(entry, struct live, link);
		struct session *session = live->session;

		if (session->state == SESSION_STATE_CLOSING ||
		    session->state == SESSION_STATE_FALLING)
			end_session(app, session);
		else if (session->state == SESSION_STATE_REBUILDING && !stands_still(session) &&
			 !live->snapshot && now - live->rebuilding_since > APP_REBUILD_TIMEOUT)
			sessions_event(app, session, SESSION_EVENT_LOST, SESSION_REASON_LOST);
	}
}

void sessions_forget(struct app *app, struct session *session)
{
	struct live *live = live_of(session);

	creation_failed(session);
	egress_forget(app, session);
	rebuild_drop(live);
	suspend_drop(live);
	session_close_tell(&live->waiters, END_UNKNOWN, 0);
	if (live->row_close)
		session_close_end(live);
	store_let_go(app->store, &session->id);
	registry_remove(&app->registry, session);
	list_remove(&live->link);
	list_append(&app->forgotten, &live->link);
	/* A launch that failed made no session; it is counted as such. */
	if (session->reason != SESSION_REASON_LAUNCH)
		app->counters.n_ended++;
}

/* Nothing is left of the tree; the row stays. */
static void drop_tree(struct app *app, struct session *session)
{
	struct log_context context = {.session = &session->id};
	char message[96];

	live_drop_tree(live_of(session));
	egress_forget(app, session);
	rebuild_lost(live_of(session));
	if (session->reason == SESSION_REASON_LOST || session->reason == SESSION_REASON_MEMORY) {
		fit_text(message, sizeof(message),
			 "its processes ended (%s); the next use starts it again",
			 session_reason_text(session->reason));
		sessions_note(app, session, session_reason_code(session->reason), message);
	}
	log_line(LOG_LEVEL_INFO, &context, "session is dormant", "reason=%s",
		 session_reason_text(session->reason));
}

/* What follows for the process tree. Those who wait go on last: they may begin a new one. */
static void do_tree_actions(struct app *app, struct session *session, uint32_t actions)
{
	if (actions & SESSION_ACTION_DROP_TREE)
		drop_tree(app, session);
	if (session->state == SESSION_STATE_DORMANT)
		session->reason = SESSION_REASON_NONE;
	if (actions & SESSION_ACTION_REBUILD)
		rebuild_begin(app, session);
	if (actions & SESSION_ACTION_RESTORE)
		rebuild_restore(app, session);
	if (actions & SESSION_ACTION_GO_ON)
		rebuild_go_on(session);
	if (actions & SESSION_ACTION_DROP_TREE)
		suspend_tree_gone(session);
}

/* What the audit tells of a change of state. Why a tree fell is known when nothing is left of it;
 * where the service stops, nobody may be there to hear of that. */
static void audit_change(struct app *app, const struct session *session, enum session_state before,
			 enum session_event event)
{
	bool is_stopped = session->reason == SESSION_REASON_HOST_STOPPED;
	bool falls = event == SESSION_EVENT_STOP && session->state == SESSION_STATE_FALLING;
	bool is_gone = event == SESSION_EVENT_GONE && session->state == SESSION_STATE_DORMANT;

	/* It never opened: the line of the request has the refusal. */
	if (before == SESSION_STATE_CREATING && event == SESSION_EVENT_LAUNCH_FAILED)
		return;
	if (before < SESSION_STATE_CLOSING && session->state >= SESSION_STATE_CLOSING)
		audit_session_end(app, session, false);
	else if (before != session->state && (is_stopped ? falls : is_gone))
		audit_session_end(app, session, true);
}

static json_t *reason_of(const struct session *session)
{
	return json_pack("{s:s}", "reason", session_reason_text(session->reason));
}

/* What the session's own stream tells of a change of state. Its last word is said when nothing is
 * left of it. */
static void tell_change(struct session *session, enum session_state before)
{
	bool had_tree = before == SESSION_STATE_OPEN || before == SESSION_STATE_RUNNING;

	if (before == session->state)
		return;
	if (before == SESSION_STATE_CREATING && session_has_tree(session))
		events_note(session, "created", NULL);
	if ((before == SESSION_STATE_CREATING || before == SESSION_STATE_REBUILDING) &&
	    session_has_tree(session) && !live_of(session)->adopted)
		events_note(session, "started", NULL);
	if (session->state == SESSION_STATE_CLOSING && session->reason == SESSION_REASON_EXPIRED)
		events_note(session, "expired", NULL);
	if (had_tree && !session_has_tree(session) && session->state < SESSION_STATE_CLOSING &&
	    !live_of(session)->is_away)
		events_note(session, "stopped", reason_of(session));
	if (session->state == SESSION_STATE_CLOSED)
		events_end(session, "destroyed", reason_of(session));
}

void sessions_event(struct app *app, struct session *session, enum session_event event,
		    enum session_reason reason)
{
	struct log_context context = {.session = &session->id};
	enum session_state before = session->state;
	uint32_t actions;

	if (session_apply(session, event, reason, &actions) < 0) {
		log_line(LOG_LEVEL_WARNING, &context, "event is not possible", "state=%s event=%d",
			 session_state_text(before), (int)event);
		return;
	}
	if (event == SESSION_EVENT_ADOPT_TREE)
		redis_begin(app, session);
	if (event == SESSION_EVENT_RESTORED && session->state == SESSION_STATE_OPEN)
		live_of(session)->is_incomplete = false;
	if (before != session->state && session->state == SESSION_STATE_REBUILDING)
		live_of(session)->rebuilding_since = clock_boottime();
	/* The row of an adopted one was written at the start: hundreds would be a commit each. */
	if ((actions & SESSION_ACTION_STATUS_ROW) &&
	    !(event == SESSION_EVENT_RESTORED && live_of(session)->adopted))
		sessions_write_status(app, session);
	if (actions & SESSION_ACTION_UNLINK)
		unlink_tree(session);
	if (actions & SESSION_ACTION_FAIL_JOBS)
		fail_jobs(app, session);
	if (actions & SESSION_ACTION_ANSWER)
		creation_launched(session);
	/* Also one that was launched in this turn and still waits for its row. */
	if (actions & SESSION_ACTION_ANSWER_FAILED || session->state >= SESSION_STATE_CLOSING)
		creation_failed(session);
	if (actions & SESSION_ACTION_CLOSE_ROW)
		session_close_row(app, session);
	if (actions & SESSION_ACTION_KILL &&
	    (event != SESSION_EVENT_LOST || !live_of(session)->kill_later))
		end_session(app, session);
	audit_change(app, session, before, event);
	tell_change(session, before);
	if (before != session->state && session->state >= SESSION_STATE_CLOSING)
		log_line(LOG_LEVEL_INFO, &context, "session ends", "state=%s reason=%s",
			 session_state_text(session->state), session_reason_text(session->reason));
	if (before != session->state && session->state >= SESSION_STATE_CLOSING)
		egress_end_waits(app, session);
	do_tree_actions(app, session, actions);
	if (actions & SESSION_ACTION_FORGET) {
		session_close_end(live_of(session));
		sessions_forget(app, session);
	}
}

void sessions_unlink(struct app *app, const struct provider *provider)
{
	/* The next worker finds them all. */
	if (app->phase == APP_PHASE_LEAVING)
		return;
	/* What lives without a row is told of again. */
	drop_owed(app, provider);
	LIST_FOR_EACH_SAFE (entry, following, &app->lives) {
		struct live *live = LIST_ENTRY(entry, struct live, link);

		if (live->provider == provider)
			live_unlink(live);
	}
}

void sessions_gone(struct app *app, const struct id *id, const struct launch_gone *gone)
{
	struct session *session = registry_find(&app->registry, id);
	enum session_reason reason = SESSION_REASON_LOST;

	if (!session || session->state == SESSION_STATE_CLOSED)
		return;
	if (gone->reason == LAUNCH_GONE_OOM)
		reason = SESSION_REASON_MEMORY;
	denials_tree_gone(app, session, gone);
	quotas_tree_gone(session, gone->cpu_us);
	sessions_event(app, session, SESSION_EVENT_GONE, reason);
}

/* Expiry. */

static int on_deadline(sd_event_source *source, uint64_t at, void *userdata)
{
	(void)source;
	(void)at;
	sessions_expire(userdata);
	return 0;
}

void sessions_arm_deadline(struct app *app)
{
	usec_t next = janitor_plan_next(&app->registry);

	if (!app->deadline_timer &&
	    sd_event_add_time(app->event, &app->deadline_timer, CLOCK_REALTIME, next,
			      100 * USEC_PER_MS, on_deadline, app) < 0)
		return; /* the tick calls again */
	(void)sd_event_source_set_time(app->deadline_timer, next);
	(void)sd_event_source_set_enabled(app->deadline_timer,
					  next == USEC_NEVER ? SD_EVENT_OFF : SD_EVENT_ONESHOT);
}

void sessions_expire(struct app *app)
{
	struct janitor_victim victims[64];
	usec_t now = clock_realtime();
	size_t n;

	n = janitor_plan_expired(&app->registry, now, victims, ARRAY_SIZE(victims));
	for (size_t i = 0; i < n; i++) {
		struct session *session = registry_find(&app->registry, &victims[i].session);

		if (session)
			sessions_event(app, session, SESSION_EVENT_CLOSE, victims[i].reason);
	}
	sessions_arm_deadline(app);
}

void sessions_stop_all(struct app *app)
{
	LIST_FOR_EACH_SAFE (entry, following, &app->lives) {
		struct live *live = LIST_ENTRY(entry, struct live, link);

		if (live->session->state < SESSION_STATE_CLOSING && !live->persist)
			sessions_event(app, live->session, SESSION_EVENT_STOP,
				       SESSION_REASON_HOST_STOPPED);
	}
}

void sessions_stop_rest(struct app *app, bool at_once)
{
	LIST_FOR_EACH_SAFE (entry, following, &app->lives) {
		struct live *live = LIST_ENTRY(entry, struct live, link);
		enum session_state state = live->session->state;

		if ((session_has_tree(live->session) || state == SESSION_STATE_REBUILDING) &&
		    (at_once || !live->persist))
			sessions_event(app, live->session, SESSION_EVENT_STOP,
				       SESSION_REASON_HOST_STOPPED);
	}
}

size_t sessions_with_tree(const struct app *app)
{
	size_t n = 0;

	LIST_FOR_EACH (entry, &app->lives)
		n += LIST_ENTRY(entry, struct live, link)->session->state != SESSION_STATE_DORMANT;
	return n;
}
