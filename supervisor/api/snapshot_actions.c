/*
 * Requests about snapshots. One that is being made goes on when its client leaves: it is in the
 * list afterwards. A row speaks of a snapshot only when its file is on the disk, and of one that is
 * deleted no more before its file goes.
 */
#include <errno.h>
#include <string.h>

#include "supervisor/api/command_actions.h"
#include "supervisor/api/components.h"
#include "supervisor/api/events.h"
#include "supervisor/api/http/actions.h"
#include "supervisor/api/http/reply.h"
#include "supervisor/api/live.h"
#include "supervisor/api/session/snapshots.h"
#include "supervisor/api/snapshot.h"
#include "supervisor/api/snapshot_failure.h"
#include "supervisor/api/snapshot_remote.h"

struct snapshot_op {
	struct app *app;
	struct answer_to to;
	struct id session;
	json_t *snapshot; /* owned: made, deleted or put back */
	bool deletes;
	bool is_degraded;
};

static struct snapshot_op *op_new(struct request *request, const struct session *session)
{
	struct snapshot_op *op = calloc(1, sizeof(*op));

	if (!op) {
		reply_runtime_error(request, RUNTIME_BUSY, "out of memory");
		return NULL;
	}
	op->app = request_app(request);
	op->to = answer_to(request);
	op->session = session->id;
	return op;
}

static void op_free(struct snapshot_op *op)
{
	json_decref(op->snapshot);
	free(op);
}

/* The reference is ours. What a key is called is the operator's to know. */
static json_t *describe(const struct request *request, const json_t *snapshot)
{
	static const char *const members[] = {"created_at", "content_bytes", "entries", "left_out",
					      "changed"};
	json_t *ref = json_object_get(snapshot, "ref");
	json_t *answer = json_object();

	(void)json_object_set(answer, "snapshot_id", json_object_get(snapshot, "id"));
	for (size_t i = 0; i < ARRAY_SIZE(members); i++)
		(void)json_object_set(answer, members[i], json_object_get(snapshot, members[i]));
	(void)json_object_set(answer, "bytes", json_object_get(ref, "bytes"));
	(void)json_object_set(answer, "digest", json_object_get(ref, "digest"));
	(void)json_object_set(answer, "include", json_object_get(ref, "include"));
	(void)json_object_set(answer, "exclude", json_object_get(ref, "exclude"));
	(void)json_object_set_new(answer, "encrypted", json_boolean(snapshots_encryption_key(ref)));
	if (request->identity.is_operator)
		(void)json_object_set(answer, "key", snapshots_encryption_key(ref));
	return answer;
}

static void reply_failed(struct request *request, const struct session *session, int error,
			 bool makes)
{
	const char *detail;
	enum runtime_error code = snapshot_failure(error, makes, &detail);

	if (error == -EPIPE)
		reply_tree_lost(request, session);
	else
		reply_runtime_error(request, code, detail);
}

/* The row says it, or will. */
static void answer_stored(struct snapshot_op *op, const struct session *session)
{
	struct request *request = answer_get(&op->to);

	op->to = ANSWER_TO_NULL;
	if (!request)
		return;
	if (!session || !session_is_visible(session, clock_realtime())) {
		reply_not_found(request);
		return;
	}
	if (op->is_degraded)
		request_add_header(request, "Sandbox-Degraded", "store");
	if (op->deletes)
		reply_json(request, MHD_HTTP_OK,
			   json_pack("{s:O, s:b}", "snapshot_id",
				     json_object_get(op->snapshot, "id"), "deleted", true));
	else
		reply_json(request, MHD_HTTP_CREATED, describe(request, op->snapshot));
}

static void on_stored(void *userdata, enum store_result result)
{
	struct snapshot_op *op = userdata;
	struct session *session = registry_find(&op->app->registry, &op->session);

	sessions_note_write(session, result, &op->is_degraded);
	answer_stored(op, session);
	if (op->is_degraded)
		return;
	/* What stays is swept. */
	if (op->deletes && result == STORE_OK)
		IGNORE_RESULT(snapshot_remove_reference(op->app, &op->session,
							json_object_get(op->snapshot, "ref")));
	op_free(op);
}

static void store(struct snapshot_op *op, const struct session *session)
{
	if (store_session_runtime(op->app->store, session, clock_realtime(), on_stored, op) < 0)
		on_stored(op, STORE_LOST);
}

/* Making one. */

static json_t *snapshot_of(const struct snapshot_result *result)
{
	char created[CLOCK_ISO_BYTES];
	char text[ID_TEXT_BYTES];

	id_format(&result->id, text);
	clock_format_iso(clock_realtime(), created);
	return json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:O}", "id", text, "created_at", created,
			 "content_bytes", (json_int_t)result->content_bytes, "entries",
			 (json_int_t)result->n_entries, "left_out", (json_int_t)result->n_left_out,
			 "changed", (json_int_t)result->n_changed, "ref", result->reference);
}

/* Where it goes, or it did not. reference: NULL: there is nothing. */
static void made(struct snapshot_op *op, struct session *session, int r, json_t *reference)
{
	struct request *request = answer_get(&op->to);

	if (r == 0) {
		if (!session || session->state >= SESSION_STATE_CLOSING)
			r = -EPIPE;
		else if (!op->snapshot || snapshots_add(session, json_incref(op->snapshot)) < 0)
			r = -ENOMEM;
	}
	if (r < 0 && reference)
		IGNORE_RESULT(snapshot_remove_reference(op->app, &op->session, reference));
	if (r == 0) {
		events_note(session, "snapshot",
			    json_pack("{s:O}", "snapshot_id", json_object_get(op->snapshot, "id")));
		store(op, session);
		return;
	}
	if (request && session)
		reply_failed(request, session, r, true);
	else if (request)
		reply_not_found(request);
	op_free(op);
}

static void on_sent(void *userdata, int error, const struct s3_report *report, json_t *reference)
{
	struct snapshot_op *op = userdata;

	(void)report;
	if (error == 0 && json_object_set(op->snapshot, "ref", reference) < 0)
		error = -ENOMEM;
	made(op, registry_find(&op->app->registry, &op->session), error,
	     json_object_get(op->snapshot, "ref"));
}

static void on_made(void *userdata, struct session *session, const struct snapshot_result *result)
{
	struct snapshot_op *op = userdata;
	struct snapshot_transfer *transfer;
	int r = result->error;

	op->snapshot = r == 0 ? snapshot_of(result) : NULL;
	if (op->snapshot && session && snapshot_goes_away(op->app)) {
		r = snapshot_upload(op->app, &op->session, result->reference, on_sent, op,
				    &transfer);
		if (r >= 0)
			return;
	}
	made(op, session, r, result->reference);
}

void action_snapshot(struct request *request, struct session *session)
{
	struct snapshot_op *op;
	int r;

	if (!command_may_work(request, session))
		return;
	if (snapshots_count(session) >= SNAPSHOTS_MAX) {
		reply_runtime_error(request, RUNTIME_QUOTA, "the sandbox has 16 snapshots");
		return;
	}
	/* Else what waits for a slow store has no bound. */
	if (snapshot_is_sent(request_app(request), &session->id)) {
		reply_failed(request, session, -EBUSY, true);
		return;
	}
	op = op_new(request, session);
	if (!op)
		return;
	r = snapshot_make(live_of(session), on_made, op);
	if (r >= 0)
		return;
	reply_failed(request, session, r, true);
	op_free(op);
}

/* What is there. */

void action_snapshot_list(struct request *request, struct session *session)
{
	json_t *list = json_array();
	const json_t *snapshot;
	size_t i;

	json_array_foreach(session->spec.runtime.snapshots, i, snapshot)
	{
		(void)json_array_append_new(list, describe(request, snapshot));
	}
	reply_json(request, MHD_HTTP_OK, json_pack("{s:o}", "snapshots", list));
}

void action_snapshot_delete(struct request *request, struct session *session)
{
	struct snapshot_op *op = op_new(request, session);

	if (!op)
		return;
	op->deletes = true;
	op->snapshot = snapshots_take(session, request->path_cid);
	if (op->snapshot) {
		store(op, session);
		return;
	}
	reply_runtime_error(request, RUNTIME_NO_SNAPSHOT, NULL);
	op_free(op);
}

/* Putting one back. */

static void on_restored(void *userdata, struct session *session,
			const struct snapshot_result *result)
{
	struct snapshot_op *op = userdata;
	struct request *request = answer_get(&op->to);

	if (session && result->error == 0)
		events_note(session, "restored",
			    json_pack("{s:O}", "snapshot_id", json_object_get(op->snapshot, "id")));
	if (request && !session)
		reply_not_found(request);
	else if (request && result->error < 0)
		reply_failed(request, session, result->error, false);
	else if (request)
		reply_json(request, MHD_HTTP_OK,
			   json_pack("{s:O, s:I, s:I}", "snapshot_id",
				     json_object_get(op->snapshot, "id"), "content_bytes",
				     (json_int_t)result->content_bytes, "entries",
				     (json_int_t)result->n_entries));
	op_free(op);
}

void action_snapshot_restore(struct request *request, struct session *session,
			     const struct spec_restore *spec)
{
	const struct session *from = session;
	struct snapshot_op *op;
	json_t *reference;
	int r;

	if (!command_may_work(request, session))
		return;
	if (spec->sandbox[0] != '\0')
		from = action_find_other(request, spec->sandbox);
	if (!from) {
		reply_not_found(request);
		return;
	}
	op = op_new(request, session);
	if (!op)
		return;
	op->snapshot = json_incref(snapshots_find(from, spec->snapshot));
	if (!op->snapshot) {
		reply_runtime_error(request, RUNTIME_NO_SNAPSHOT, NULL);
		op_free(op);
		return;
	}
	reference = json_object_get(op->snapshot, "ref");
	if (!snapshot_key_is_there(request, from, reference)) {
		op_free(op);
		return;
	}
	r = snapshot_restore(live_of(session), &from->id, reference, spec->replaces, on_restored,
			     op);
	if (r >= 0)
		return;
	reply_failed(request, session, r, false);
	op_free(op);
}
