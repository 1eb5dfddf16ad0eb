/*
 * Requests that end sessions: one, or all that have expired. Answered when nothing is left of them.
 */
#include "base/str.h"

#include "supervisor/api/creation.h"
#include "supervisor/api/http/actions.h"
#include "supervisor/api/http/reply.h"
#include "supervisor/api/janitor/plan.h"

struct delete_op {
	struct end_waiter waiter;
	struct answer_to to;
	struct id session;
};

static void on_deleted(struct end_waiter *waiter, enum end_result result)
{
	struct delete_op *op = LIST_ENTRY(waiter, struct delete_op, waiter);
	struct request *request = answer_get(&op->to);
	char text[ID_TEXT_BYTES];

	if (request && result == END_UNKNOWN) {
		reply_detail(request, MHD_HTTP_SERVICE_UNAVAILABLE,
			     "the session has not ended yet; its end is still under way");
	} else if (request && result == END_TAKEN) {
		reply_detail(request, MHD_HTTP_CONFLICT, "the session runs on another host");
	} else if (request) {
		id_format(&op->session, text);
		if (result == END_DEGRADED)
			request_add_header(request, "Sandbox-Degraded", "store");
		reply_json(request, MHD_HTTP_OK,
			   json_pack("{s:s, s:I, s:b}", "session_id", text, "redis_keys_dropped",
				     (json_int_t)waiter->n_redis_keys, "folder_removed", 1));
	}
	free(op);
}

void action_delete(struct request *request, struct session *session)
{
	struct delete_op *op = calloc(1, sizeof(*op));

	if (!op) {
		reply_detail(request, MHD_HTTP_SERVICE_UNAVAILABLE, "out of memory");
		return;
	}
	op->waiter.ended = on_deleted;
	op->to = answer_to(request);
	op->session = session->id;
	list_append(&live_of(session)->waiters, &op->waiter.link);
	/* Two at once wait for the same end. */
	if (session->state < SESSION_STATE_CLOSING)
		sessions_event(request_app(request), session, SESSION_EVENT_CLOSE,
			       SESSION_REASON_DELETED);
}

/* The janitor's answer waits until nothing is left of any victim. */
struct janitor_run {
	struct answer_to to;
	json_t *dropped;
	size_t n_left;
};

struct janitor_waiter {
	struct end_waiter waiter;
	struct janitor_run *run;
	struct id session;
};

static void janitor_step(struct janitor_run *run)
{
	struct request *request;

	if (--run->n_left > 0)
		return;
	request = answer_get(&run->to);
	if (request)
		reply_json(request, MHD_HTTP_OK,
			   json_pack("{s:O, s:I}", "dropped", run->dropped, "count",
				     (json_int_t)json_array_size(run->dropped)));
	json_decref(run->dropped);
	free(run);
}

static void on_victim_ended(struct end_waiter *waiter, enum end_result result)
{
	struct janitor_waiter *victim = LIST_ENTRY(waiter, struct janitor_waiter, waiter);
	struct janitor_run *run = victim->run;
	char text[ID_TEXT_BYTES];

	id_format(&victim->session, text);
	if (result == END_DONE || result == END_DEGRADED)
		(void)json_array_append_new(run->dropped, json_string(text));
	free(victim);
	janitor_step(run);
}

static void janitor_add(struct app *app, struct janitor_run *run,
			const struct janitor_victim *victim)
{
	struct session *session = registry_find(&app->registry, &victim->session);
	struct janitor_waiter *waiter;

	if (!session)
		return;
	waiter = calloc(1, sizeof(*waiter));
	if (waiter) {
		waiter->session = victim->session;
		waiter->waiter.ended = on_victim_ended;
		waiter->run = run;
		run->n_left++;
		list_append(&live_of(session)->waiters, &waiter->waiter.link);
	}
	sessions_event(app, session, SESSION_EVENT_CLOSE, victim->reason);
}

void action_janitor(struct request *request)
{
	struct app *app = request_app(request);
	struct janitor_victim victims[256];
	struct janitor_run *run = calloc(1, sizeof(*run));
	size_t n;

	if (run)
		run->dropped = json_array();
	if (!run || !run->dropped) {
		free(run);
		reply_detail(request, MHD_HTTP_SERVICE_UNAVAILABLE, "out of memory");
		return;
	}
	run->to = answer_to(request);
	run->n_left = 1; /* ours, until all victims are in */
	n = janitor_plan_expired(&app->registry, clock_realtime(), victims, ARRAY_SIZE(victims));
	for (size_t i = 0; i < n; i++)
		janitor_add(app, run, &victims[i]);
	janitor_step(run);
	sessions_expire(app);
}
