#include "supervisor/api/rebuild.h"

#include <errno.h>
#include <string.h>

#include "base/frame.h"
#include "base/log.h"
#include "base/str.h"

#include "supervisor/api/celery.h"
#include "supervisor/api/events.h"
#include "supervisor/api/http/reply.h"
#include "supervisor/api/provider.h"
#include "supervisor/api/session/component_name.h"
#include "supervisor/api/session/fit.h"
#include "supervisor/api/session/tenant_quota.h"
#include "supervisor/api/snapshot.h"
#include "supervisor/api/snapshot_failure.h"

#define COMPONENT_MODE 0644u

struct rebuild {
	struct activity activity; /* the component that is being written */
	struct refusal refusal;
	char *last;                      /* owned: name in the row of the last component read */
	char file[COMPONENT_FILE_BYTES]; /* name in the folder of the one being written */
	size_t body_bytes;
	size_t n_written;
	size_t n_bytes;
	size_t n_left_out;
	bool is_unpacked; /* its snapshot; now come the components that are newer */
	bool failed;
};

/* Something asked of the store; the session may be another one's, or on another tree, when the
 * answer comes. */
struct rebuild_op {
	struct app *app;
	struct id session;
	uint32_t tree;
	bool is_degraded;
};

/* Those who wait. */

struct tree_waiter {
	struct list link; /* live->tree_waiters */
	struct answer_to to;
};

void rebuild_wait(struct request *request, struct session *session)
{
	struct quota_refusal refusal;
	struct tree_waiter *waiter;

	if (session->state == SESSION_STATE_DORMANT &&
	    !snapshot_key_is_there(request, session, session->suspension.snapshot))
		return;
	/* Whoever comes first asks for the launch. */
	if (session->state == SESSION_STATE_DORMANT &&
	    !tenant_quota_launch(session, &request_config(request)->quota, clock_boottime(),
				 clock_realtime(), &refusal)) {
		reply_refusal(request, &refusal);
		return;
	}
	waiter = calloc(1, sizeof(*waiter));
	if (!waiter) {
		reply_detail(request, MHD_HTTP_SERVICE_UNAVAILABLE, "out of memory");
		return;
	}
	waiter->to = answer_to(request);
	list_append(&live_of(session)->tree_waiters, &waiter->link);
	sessions_event(request_app(request), session, SESSION_EVENT_USE, SESSION_REASON_NONE);
}

struct refusal *rebuild_refusal(struct live *live)
{
	return live->rebuild ? &live->rebuild->refusal : NULL;
}

static void rebuild_free(struct live *live)
{
	if (!live->rebuild)
		return;
	free(live->rebuild->last);
	free(live->rebuild);
	live->rebuild = NULL;
}

void rebuild_go_on(struct session *session)
{
	struct live *live = live_of(session);
	struct refusal refusal = {0};
	struct list waiters;
	bool failed = live->rebuild && live->rebuild->failed;

	if (failed)
		refusal = live->rebuild->refusal;
	rebuild_free(live);
	/* What one of them starts may let others wait again. */
	list_init(&waiters);
	while (!list_empty(&live->tree_waiters)) {
		struct list *entry = live->tree_waiters.next;

		list_remove(entry);
		list_append(&waiters, entry);
	}
	while (!list_empty(&waiters)) {
		struct tree_waiter *waiter = LIST_ENTRY(waiters.next, struct tree_waiter, link);
		struct request *request = answer_get(&waiter->to);

		list_remove(&waiter->link);
		free(waiter);
		if (request && failed && session->state == SESSION_STATE_DORMANT)
			refusal_reply(&refusal, request);
		else if (request)
			request->route->handler(request);
	}
	celery_session_ready(live->app, session);
}

/* False: nobody waits. *ret_request: NULL: its client left. */
static bool take_waiter(struct live *live, struct request **ret_request)
{
	struct tree_waiter *waiter;

	if (list_empty(&live->tree_waiters))
		return false;
	waiter = LIST_ENTRY(live->tree_waiters.next, struct tree_waiter, link);
	list_remove(&waiter->link);
	*ret_request = answer_get(&waiter->to);
	free(waiter);
	return true;
}

void rebuild_refuse(struct live *live, enum runtime_error error, const char *detail)
{
	struct request *request;

	while (take_waiter(live, &request))
		if (request)
			reply_runtime_error(request, error, detail);
}

void rebuild_drop(struct live *live)
{
	struct request *request;

	rebuild_free(live);
	while (take_waiter(live, &request))
		if (request)
			reply_not_found(request);
}

/* How it fails. */

static void refuse(struct live *live, const char *detail)
{
	struct refusal *refusal = &live->rebuild->refusal;

	live->rebuild->failed = true;
	if (refusal->status > 0 || refusal->quota != QUOTA_OK)
		return;
	refusal->status = MHD_HTTP_SERVICE_UNAVAILABLE;
	fit_text(refusal->detail, sizeof(refusal->detail), "%s", detail);
}

void rebuild_lost(struct live *live)
{
	if (live->rebuild)
		refuse(live, "launch interrupted");
}

/* Before the supervisor was asked. */
static void fail_early(struct app *app, struct session *session, const char *detail)
{
	if (live_of(session)->rebuild)
		refuse(live_of(session), detail);
	sessions_event(app, session, SESSION_EVENT_LAUNCH_FAILED, SESSION_REASON_LAUNCH);
}

/* There is a tree, and it cannot be made what the row says. */
static void fail_late(struct app *app, struct session *session, const char *detail)
{
	struct log_context context = {.session = &session->id};

	log_line(LOG_LEVEL_WARNING, &context, "session cannot be rebuilt", "reason=\"%s\"", detail);
	refuse(live_of(session), detail);
	sessions_event(app, session, SESSION_EVENT_LOST, SESSION_REASON_LAUNCH);
}

/* Asking the store. */

static struct rebuild_op *op_new(struct app *app, const struct session *session)
{
	struct rebuild_op *op = calloc(1, sizeof(*op));

	if (!op)
		return NULL;
	op->app = app;
	op->session = session->id;
	op->tree = live_of(session)->tree;
	return op;
}

/* The session of an answer, if it still waits for it. */
static struct session *op_session(const struct rebuild_op *op)
{
	struct session *session = registry_find(&op->app->registry, &op->session);

	if (!session || session->state != SESSION_STATE_REBUILDING ||
	    live_of(session)->tree != op->tree)
		return NULL;
	return session;
}

/* Marking the row, then the launch. */

static void on_marked(void *userdata, enum store_result result)
{
	struct rebuild_op *op = userdata;
	struct session *session = op_session(op);
	struct app *app = op->app;
	bool is_first = !op->is_degraded;

	sessions_note_write(registry_find(&app->registry, &op->session), result, &op->is_degraded);
	if (!op->is_degraded)
		free(op);
	if (!session || !is_first)
		return;
	/* The components could not be read either. */
	if (result != STORE_OK)
		fail_early(app, session, "the session cannot be rebuilt now: store unavailable");
	else if (creation_launch(app, session) < 0)
		fail_early(app, session, "its provider cannot be asked");
}

void rebuild_begin(struct app *app, struct session *session)
{
	struct live *live = live_of(session);
	struct rebuild_op *op = op_new(app, session);
	struct log_context context = {.session = &session->id};

	rebuild_free(live);
	live->rebuild = calloc(1, sizeof(*live->rebuild));
	/* Before the row is marked: it may have a tree that cannot be seen now. */
	if (live->rebuild && !provider_is_reachable(app, live->provider)) {
		free(op);
		fail_early(app, session, "its provider cannot be asked");
		return;
	}
	/* The new shim numbers from one again. */
	flow_done(&session->flow);
	flow_init(&session->flow, 0);
	if (live->rebuild && op &&
	    store_session_tree(app->store, &session->id, STORE_TREE_RESTORING, on_marked, op) >=
		    0) {
		live->is_incomplete = true;
		log_line(LOG_LEVEL_INFO, &context, "session is rebuilt", "components=%zu",
			 session->n_components);
		return;
	}
	free(op);
	fail_early(app, session, "out of memory");
}

/* The folder. */

static void read_next(struct app *app, struct session *session);

static void put_ended(struct activity *activity, const struct activity_result *result)
{
	struct live *live = activity->live;
	struct session *session = live->session;
	struct rebuild *rebuild = live->rebuild;
	const char *name;
	char detail[128];

	live_settle(live, result->number);
	/* Otherwise the tree has ended first, and whoever ended it tells those who wait. */
	if (session->state != SESSION_STATE_REBUILDING)
		return;
	if (result->end == ACTIVITY_PUT_DONE) {
		rebuild->n_written++;
		rebuild->n_bytes += rebuild->body_bytes;
		if (session_component_set(session, rebuild->file, rebuild->body_bytes) < 0)
			fail_late(live->app, session, "out of memory");
		else
			read_next(live->app, session);
	} else if (result->end == ACTIVITY_FAILED) {
		name = strerrorname_np(result->failed->error_number);
		fit_text(detail, sizeof(detail), "component was not written at step %s: %s",
			 frame_step_name(result->failed->step), name ? name : "?");
		fail_late(live->app, session, detail);
	}
}

static const struct activity_ops put_ops = {
	.output = activity_ignore_output,
	.ended = put_ended,
};

/* The rules in force for a write, for what an older or another program put into the row. */
static bool is_allowed(const struct app *app, const struct rebuild *rebuild,
		       const struct store_component *component, char file[COMPONENT_FILE_BYTES])
{
	enum component_name_mode mode = app->config->component_names_compatible
						? COMPONENT_NAME_COMPATIBLE
						: COMPONENT_NAME_STRICT;

	return component->body_length <= (size_t)COMPONENT_BODY_MAX_BYTES &&
	       rebuild->n_written < COMPONENTS_MAX &&
	       rebuild->n_bytes + component->body_length <= (size_t)COMPONENTS_MAX_BYTES &&
	       !memchr(component->body, '\0', component->body_length) &&
	       component_name_check(component->file, strlen(component->file), mode, file, NULL) ==
		       0;
}

/* 1: it is being written; 0: it is left out; or -errno. */
static int write_one(struct app *app, struct session *session,
		     const struct store_component *component)
{
	struct live *live = live_of(session);
	struct rebuild *rebuild = live->rebuild;
	uint32_t wire_job;
	int r;

	free(rebuild->last);
	rebuild->last = strdup(component->file);
	if (!rebuild->last)
		return -ENOMEM;
	if (!is_allowed(app, rebuild, component, rebuild->file)) {
		session_component_remove(session, component->file);
		rebuild->n_left_out++;
		return 0;
	}
	if (!str_equal(component->file, rebuild->file))
		session_component_remove(session, component->file);
	rebuild->body_bytes = component->body_length;
	r = shim_link_put(live->shim, rebuild->file, COMPONENT_MODE, component->body,
			  component->body_length, &wire_job);
	if (r < 0)
		return r;
	live_add(live, &rebuild->activity, &put_ops, wire_job);
	return 1;
}

static void on_restored(void *userdata, enum store_result result)
{
	struct rebuild_op *op = userdata;
	struct session *session = op_session(op);
	struct app *app = op->app;

	sessions_note_write(registry_find(&app->registry, &op->session), result, &op->is_degraded);
	if (!op->is_degraded)
		free(op);
	/* Not durable: the worst is that the next worker fills another folder. */
	if (!session)
		return;
	/* What a program inside is given must be known. */
	if (live_of(session)->redis == LIVE_REDIS_PENDING)
		live_of(session)->restored_waits = true;
	else
		sessions_event(app, session, SESSION_EVENT_RESTORED, SESSION_REASON_NONE);
}

static void complete(struct app *app, struct session *session)
{
	struct rebuild_op *op = op_new(app, session);

	if (op &&
	    store_session_tree(app->store, &session->id, STORE_TREE_COMPLETE, on_restored, op) >= 0)
		return;
	free(op);
	fail_late(app, session, "out of memory");
}

/* The snapshot has what programs did to older ones; of these it knows nothing. */
static void write_later(struct app *app, struct session *session)
{
	struct rebuild *rebuild = live_of(session)->rebuild;

	free(rebuild->last);
	rebuild->last = NULL;
	rebuild->n_written = 0;
	rebuild->n_bytes = 0;
	rebuild->is_unpacked = true;
	read_next(app, session);
}

/* A store that is away is back later, and the snapshot is in it. */
static void fail_unpack(struct app *app, struct session *session, int error)
{
	const char *detail;
	bool is_store = snapshot_failure(error, false, &detail) == RUNTIME_SNAPSHOT_STORE;

	if (is_store && detail)
		live_of(session)->rebuild->refusal.is_snapshot_store = true;
	fail_late(app, session, is_store && detail ? detail : "its snapshot cannot be restored");
}

static void on_unpacked(void *userdata, struct session *gone, const struct snapshot_result *result)
{
	struct rebuild_op *op = userdata;
	struct session *session = op_session(op);
	struct app *app = op->app;
	struct log_context context = {.session = &op->session};

	(void)gone;
	if (session && result->error != 0)
		log_line(LOG_LEVEL_ERROR, &context, "a snapshot cannot be restored", "errno=%d",
			 -result->error);
	free(op);
	if (!session)
		return;
	if (result->error != 0) {
		fail_unpack(app, session, result->error);
		return;
	}
	events_note(session, "restored",
		    json_pack("{s:I}", "generation",
			      (json_int_t)session->suspension.durable_generation));
	write_later(app, session);
}

/* What it had when it was suspended last. */
static void unpack(struct app *app, struct session *session)
{
	struct rebuild_op *op = op_new(app, session);
	int r = -ENOMEM;

	if (op)
		r = snapshot_restore(live_of(session), &session->id, session->suspension.snapshot,
				     true, on_unpacked, op);
	if (r >= 0)
		return;
	free(op);
	fail_late(app, session, "its snapshot cannot be restored");
}

/* All that there was to write is written. */
static void finish(struct app *app, struct session *session)
{
	struct rebuild *rebuild = live_of(session)->rebuild;
	char message[96];

	if (rebuild->is_unpacked) {
		complete(app, session);
		return;
	}
	if (rebuild->n_left_out > 0) {
		fit_text(message, sizeof(message),
			 "%zu components were left out: their names or sizes are not allowed",
			 rebuild->n_left_out);
		sessions_note(app, session, "components_left_out", message);
	}
	if (session->suspension.snapshot)
		unpack(app, session);
	else
		complete(app, session);
}

static void on_component(void *userdata, enum store_result result,
			 const struct store_component *component)
{
	struct rebuild_op *op = userdata;
	struct session *session = op_session(op);
	struct app *app = op->app;
	int r;

	free(op);
	if (!session)
		return;
	if (result == STORE_NOT_FOUND) {
		finish(app, session);
		return;
	}
	if (result != STORE_OK) {
		fail_late(app, session, "the session cannot be rebuilt now: store unavailable");
		return;
	}
	r = write_one(app, session, component);
	if (r == 0)
		read_next(app, session);
	else if (r < 0)
		fail_late(app, session, r == -ENOMEM ? "out of memory" : "launch interrupted");
}

static void read_next(struct app *app, struct session *session)
{
	const struct rebuild *rebuild = live_of(session)->rebuild;
	struct rebuild_op *op = op_new(app, session);
	uint64_t from = rebuild->is_unpacked ? session->suspension.durable_generation : 0;

	if (op && store_component_get(app->store, &session->id, rebuild->last, from, on_component,
				      op) >= 0)
		return;
	free(op);
	fail_late(app, session, "out of memory");
}

void rebuild_restore(struct app *app, struct session *session)
{
	read_next(app, session);
}
