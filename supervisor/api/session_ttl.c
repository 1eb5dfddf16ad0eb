/*
 * A new life time for a session, from now on. Answered when the row has it: an expiry that a
 * restart would forget was no promise.
 */
#include "base/log.h"
#include "base/str.h"

#include "supervisor/api/http/actions.h"
#include "supervisor/api/http/reply.h"
#include "supervisor/api/live.h"

struct ttl_op {
	struct app *app;
	struct answer_to to;
	struct id session;
	bool is_degraded;
	bool is_sandbox;
};

static void on_stored(void *userdata, enum store_result result)
{
	struct ttl_op *op = userdata;
	struct session *session = registry_find(&op->app->registry, &op->session);
	struct request *request = answer_get(&op->to);

	sessions_note_write(session, result, &op->is_degraded);
	op->to = ANSWER_TO_NULL;
	if (request && (!session || !session_is_visible(session, clock_realtime()))) {
		reply_not_found(request);
	} else if (request) {
		if (!session_persisted(session))
			request_add_header(request, "Sandbox-Degraded", "store");
		reply_json(request, MHD_HTTP_OK,
			   op->is_sandbox ? action_sandbox(request, session)
					  : action_summary(request, session));
	}
	if (!op->is_degraded)
		free(op);
}

static void set_ttl(struct request *request, struct session *session, uint32_t ttl_minutes,
		    bool is_sandbox)
{
	struct app *app = request_app(request);
	struct log_context context = {.session = &session->id, .request = request->request_id};
	struct ttl_op *op = calloc(1, sizeof(*op));
	usec_t now = clock_realtime();
	void *row;

	if (!op) {
		reply_detail(request, MHD_HTTP_SERVICE_UNAVAILABLE, "out of memory");
		return;
	}
	request_note(request, "ttl_minutes", json_integer(ttl_minutes));
	op->app = app;
	op->to = answer_to(request);
	op->session = session->id;
	op->is_sandbox = is_sandbox;
	session->spec.ttl_minutes = ttl_minutes;
	/* While it is suspended no time of it passes; what is left is in a row of its own. */
	if (session->suspension.state == SUSPENSION_RUNNING ||
	    session->suspension.state == SUSPENSION_RESUMING)
		session->expires_at = clock_add(now, ttl_minutes * USEC_PER_MINUTE);
	session->suspension.ttl_left = ttl_minutes * USEC_PER_MINUTE;
	row = sessions_write(app, &session->id);
	if (row && store_registry_put(app->store, session, now, sessions_write_done(), row) < 0)
		free(row);
	LIST_FOR_EACH (entry, &session->jobs)
		LIST_ENTRY(entry, struct job, queue_link)->warned_minutes = 0;
	registry_deadline_changed(&app->registry, session);
	sessions_expire(app);
	log_line(LOG_LEVEL_INFO, &context, "session expires at another time", "ttl_minutes=%u",
		 ttl_minutes);
	if (store_session_status(app->store, session, now, on_stored, op) < 0)
		on_stored(op, STORE_LOST);
}

void action_ttl(struct request *request, struct session *session, uint32_t ttl_minutes)
{
	set_ttl(request, session, ttl_minutes, false);
}

void action_timeout(struct request *request, struct session *session, uint32_t ttl_minutes)
{
	bool is_component = str_equal(session->spec.profile, "component");

	if (is_component && ttl_minutes > TTL_MAX_MINUTES)
		reply_invalid_body(request, "less_than_equal", "timeout_ms",
				   "Input should be less than or equal to 43200000");
	else
		set_ttl(request, session, ttl_minutes, true);
}
