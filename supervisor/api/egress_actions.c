/*
 * GET and PUT of a session's egress rules. The answer is what is in force; it names no host of an
 * endpoint or a companion.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/log.h"

#include "supervisor/api/egress.h"
#include "supervisor/api/http/actions.h"
#include "supervisor/api/http/reply.h"
#include "supervisor/api/live.h"
#include "supervisor/api/provider.h"

struct egress_op {
	struct app *app;
	struct answer_to to;
	struct id session;
	size_t n_rules; /* of the policy whose counters were asked for */
	bool is_degraded;
	bool is_stored;
	bool is_settled;
	int error;
};

static struct egress_op *op_new(struct request *request, const struct session *session)
{
	struct egress_op *op = calloc(1, sizeof(*op));

	if (!op) {
		reply_detail(request, MHD_HTTP_SERVICE_UNAVAILABLE, "out of memory");
		return NULL;
	}
	op->app = request_app(request);
	op->to = answer_to(request);
	op->session = session->id;
	return op;
}

static json_t *describe(const struct app *app, const struct session *session,
			const struct egress_counters *counters, size_t n)
{
	struct net_policy policy = NET_POLICY_NULL;
	char id[ID_TEXT_BYTES];
	json_t *document;

	if (egress_policy_of(app, session, &policy) < 0)
		return NULL;
	id_format(&session->id, id);
	document = policy_describe(&policy, n == policy.n_rules + 1 ? counters : NULL);
	policy_done(&policy);
	if (document) {
		(void)json_object_set_new(document, "session_id", json_string(id));
		(void)json_object_set_new(document, "in_force",
					  json_boolean(live_of(session)->policy_in_force));
	}
	return document;
}

static void on_counted(void *userdata, const struct id *id, const struct egress_counters *counters,
		       size_t n)
{
	struct egress_op *op = userdata;
	struct request *request = answer_get(&op->to);
	const struct session *session = registry_find(&op->app->registry, id);

	if (request && session && session_is_visible(session, clock_realtime()))
		reply_json(request, MHD_HTTP_OK, describe(op->app, session, counters, n));
	else if (request)
		reply_not_found(request);
	free(op);
}

void action_egress(struct request *request, struct session *session)
{
	struct egress_op *op = op_new(request, session);

	if (!op)
		return;
	if (!session_has_tree(session) || egress_wait_counted(op->app, session, on_counted, op) < 0)
		on_counted(op, &session->id, NULL, 0);
}

static void finish_set(struct egress_op *op)
{
	struct session *session = registry_find(&op->app->registry, &op->session);
	struct request *request = answer_get(&op->to);

	if (!op->is_stored || !op->is_settled)
		return;
	op->to = ANSWER_TO_NULL;
	if (request && (!session || !session_is_visible(session, clock_realtime()))) {
		reply_not_found(request);
	} else if (request && op->error != 0) {
		reply_detail(request, MHD_HTTP_SERVICE_UNAVAILABLE,
			     "the rules are kept, and not in force yet: the egress worker does not "
			     "answer");
	} else if (request) {
		if (!session_persisted(session))
			request_add_header(request, "Sandbox-Degraded", "store");
		reply_json(request, MHD_HTTP_OK, describe(op->app, session, NULL, 0));
	}
	if (!op->is_degraded)
		free(op);
}

static void on_stored(void *userdata, enum store_result result)
{
	struct egress_op *op = userdata;
	bool was_stored = op->is_stored;

	sessions_note_write(registry_find(&op->app->registry, &op->session), result,
			    &op->is_degraded);
	op->is_stored = true;
	if (!was_stored)
		finish_set(op);
	else if (!op->is_degraded && op->is_settled)
		free(op); /* answered long ago */
}

static void on_settled(void *userdata, const struct id *id, int error)
{
	struct egress_op *op = userdata;

	(void)id;
	op->is_settled = true;
	/* Without a tree there is nothing for them to be in force in. */
	op->error = error == -ESHUTDOWN ? 0 : error;
	finish_set(op);
}

void action_egress_set(struct request *request, struct session *session, struct spec_egress *spec)
{
	struct log_context context = {.session = &session->id, .request = request->request_id};
	struct egress_op *op = op_new(request, session);
	struct app *app = request_app(request);

	if (!op)
		return;
	if (spec->n_allow > 0 && !live_of(session)->provider->can.egress) {
		free(op);
		reply_runtime_error(request, RUNTIME_NOT_SUPPORTED, NULL);
		return;
	}
	request_note(request, "allow", json_integer((json_int_t)spec->n_allow));
	spec_egress_done(&session->spec.egress);
	session->spec.egress = *spec;
	*spec = SPEC_EGRESS_NULL;
	log_line(LOG_LEVEL_INFO, &context, "egress rules are set", "n=%zu",
		 session->spec.egress.n_allow);
	/* Rules that are taken away end at once, whatever the store says. An egress worker that has
	 * just died is awaited: nothing tells it from one that still relays by the old ones. */
	op->is_settled = !egress_is_wanted(session);
	if (!op->is_settled) {
		egress_push(app, session);
		if (egress_wait_settled(app, session, on_settled, op) < 0) {
			op->is_settled = true;
			op->error = -ENOMEM;
		}
	}
	if (store_session_egress(app->store, session, clock_realtime(), on_stored, op) < 0)
		on_stored(op, STORE_LOST);
}
