/*
 * A component: into the session first, then into its row, then the answer.
 */
#include "supervisor/api/components.h"

#include <errno.h>
#include <sodium.h>
#include <string.h>

#include "base/frame.h"
#include "base/log.h"
#include "base/str.h"

#include "sandboxd/api.h"
#include "supervisor/api/http/actions.h"
#include "supervisor/api/http/reply.h"
#include "supervisor/api/live.h"
#include "supervisor/api/session/component_name.h"

#define COMPONENT_MODE 0644u

static void reply_put_failed(struct request *request, const struct session *session,
			     const struct activity_result *result)
{
	const char *name;
	char detail[128];
	int status = MHD_HTTP_SERVICE_UNAVAILABLE;

	if (result->end != ACTIVITY_FAILED) {
		reply_tree_lost(request, session);
		return;
	}
	if (result->failed->error_number == ENOSPC || result->failed->error_number == EDQUOT)
		status = MHD_HTTP_INSUFFICIENT_STORAGE;
	name = strerrorname_np(result->failed->error_number);
	if (str_format(detail, sizeof(detail), "component was not written at step %s: %s",
		       frame_step_name(result->failed->step), name ? name : "?") < 0)
		detail[0] = '\0';
	reply_detail(request, status, detail);
}

struct component_put {
	struct activity activity;
	struct list link; /* app.puts */
	struct app *app;
	struct answer_to to;
	struct id session;
	struct spec_component spec; /* the body waits for the row */
	bool is_degraded;
	char file[COMPONENT_FILE_BYTES];
};

static void put_free(struct component_put *put)
{
	list_remove(&put->link);
	spec_component_done(&put->spec);
	free(put);
}

static void answer_put(struct component_put *put)
{
	struct session *session = registry_find(&put->app->registry, &put->session);
	struct request *request = answer_get(&put->to);

	put->to = ANSWER_TO_NULL;
	if (!request)
		return;
	if (!session || !session_is_visible(session, clock_realtime())) {
		reply_not_found(request);
		return;
	}
	if (!session_persisted(session))
		request_add_header(request, "Sandbox-Degraded", "store");
	reply_json(request, MHD_HTTP_OK, action_summary(request, session));
}

static void on_component_row(void *userdata, enum store_result result)
{
	struct component_put *put = userdata;

	sessions_note_write(registry_find(&put->app->registry, &put->session), result,
			    &put->is_degraded);
	answer_put(put);
	if (!put->is_degraded)
		put_free(put);
}

static void put_ended(struct activity *activity, const struct activity_result *result)
{
	struct component_put *put = LIST_ENTRY(activity, struct component_put, activity);
	struct live *live = activity->live; /* activity is a part of put, which is freed below */
	struct session *session = live->session;
	struct request *request = answer_get(&put->to);
	const struct store_component component = {
		.file = put->file,
		.body = put->spec.body,
		.body_length = put->spec.body_length,
		.origin = put->spec.origin[0] != '\0' ? put->spec.origin : NULL,
		.generation = session->suspension.generation,
	};

	live_settle(live, result->number);
	session->coming_bytes -= put->spec.body_length;
	if (result->end != ACTIVITY_PUT_DONE) {
		if (request)
			reply_put_failed(request, session, result);
		put_free(put);
	} else if (session_component_set(session, put->file, put->spec.body_length) < 0 ||
		   store_session_component(put->app->store, &session->id, &component,
					   clock_realtime(), on_component_row, put) < 0) {
		on_component_row(put, STORE_LOST);
	}
	tasks_next(live->app, session);
}

static const struct activity_ops put_ops = {
	.output = activity_ignore_output,
	.ended = put_ended,
};

/* As quota_component, with the files that are on their way: they count when they are written, and
 * many at once must not pass the bound together. */
static enum quota_reason quota_put(const struct session *session, const struct component_put *put,
				   size_t body_bytes)
{
	struct live *live = live_of(session);
	bool is_new = !session_component_find(session, put->file);
	size_t n = session->n_components;

	LIST_FOR_EACH (entry, &live->activities) {
		struct activity *activity = LIST_ENTRY(entry, struct activity, link);
		const struct component_put *other;

		if (activity->ops != &put_ops)
			continue;
		other = LIST_ENTRY(activity, struct component_put, activity);
		if (str_equal(other->file, put->file))
			continue;
		body_bytes += other->spec.body_length;
		if (!session_component_find(session, other->file))
			n++;
	}
	if (is_new && n >= COMPONENTS_MAX)
		return QUOTA_COMPONENTS;
	return quota_component(session, put->file, body_bytes);
}

/* False: it was answered. */
static bool within_quotas(struct request *request, const struct session *session, const char *file,
			  size_t body_bytes)
{
	const struct session_component *old = session_component_find(session, file);
	size_t old_bytes = old ? old->body_bytes : 0;
	struct quota_refusal refusal;

	if (tenant_quota_store(session, &request_config(request)->quota,
			       body_bytes > old_bytes ? body_bytes - old_bytes : 0, body_bytes,
			       clock_boottime(), &refusal))
		return true;
	reply_refusal(request, &refusal);
	return false;
}

static void start_put(struct request *request, struct session *session, struct component_put *put)
{
	struct live *live = live_of(session);
	uint32_t wire_job;
	int r;

	r = live->shim ? shim_link_put(live->shim, put->file, COMPONENT_MODE, put->spec.body,
				       put->spec.body_length, &wire_job)
		       : -EPIPE;
	if (r < 0) {
		reply_link_error(request, session, r);
		put_free(put);
		return;
	}
	session->coming_bytes += put->spec.body_length;
	live_add(live, &put->activity, &put_ops, wire_job);
}

static void note_component(struct request *request, const char *file,
			   const struct spec_component *spec)
{
	unsigned char sum[crypto_hash_sha256_BYTES];
	char text[2 * sizeof(sum) + 1];

	(void)crypto_hash_sha256(sum, (const unsigned char *)spec->body, spec->body_length);
	str_hex(text, sum, sizeof(sum));
	request_note(request, "component", json_string(file));
	request_note(request, "bytes", json_integer((json_int_t)spec->body_length));
	request_note(request, "sha256", json_string(text));
}

void action_component(struct request *request, struct session *session, struct spec_component *spec)
{
	struct log_context context = {.session = &session->id, .request = request->request_id};
	enum component_name_mode mode = request_config(request)->component_names_compatible
						? COMPONENT_NAME_COMPATIBLE
						: COMPONENT_NAME_STRICT;
	enum component_name_reason reason;
	struct component_put *put = calloc(1, sizeof(*put));
	enum quota_reason quota;

	if (!put) {
		reply_detail(request, MHD_HTTP_SERVICE_UNAVAILABLE, "out of memory");
		return;
	}
	list_init(&put->link);
	if (component_name_check(spec->name, spec->name_length, mode, put->file, &reason) != 0) {
		log_line(LOG_LEVEL_INFO, &context, "component name refused", "length=%zu reason=%s",
			 spec->name_length, component_name_reason_text(reason));
		free(put);
		reply_detail(request, MHD_HTTP_BAD_REQUEST, API_DETAIL_COMPONENT_NAME);
		return;
	}
	quota = quota_put(session, put, spec->body_length);
	if (quota != QUOTA_OK) {
		free(put);
		reply_quota(request, quota);
		return;
	}
	note_component(request, put->file, spec);
	if (!within_quotas(request, session, put->file, spec->body_length)) {
		free(put);
		return;
	}
	put->app = request_app(request);
	put->to = answer_to(request);
	put->session = session->id;
	put->spec = *spec;
	*spec = SPEC_COMPONENT_NULL;
	list_append(&put->app->puts, &put->link);
	start_put(request, session, put);
}

bool component_is_coming(const struct session *session, const char *file, const char *origin)
{
	LIST_FOR_EACH (entry, &live_of(session)->activities) {
		struct activity *activity = LIST_ENTRY(entry, struct activity, link);
		const struct component_put *put;

		if (activity->ops != &put_ops)
			continue;
		put = LIST_ENTRY(activity, struct component_put, activity);
		if (str_equal(put->file, file) && !str_equal(put->spec.origin, origin))
			return true;
	}
	return false;
}

void components_drop(struct app *app)
{
	LIST_FOR_EACH_SAFE (link, following, &app->puts)
		put_free(LIST_ENTRY(link, struct component_put, link));
}
