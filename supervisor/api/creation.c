#include "supervisor/api/creation.h"

#include <errno.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/launch.h"
#include "base/log.h"
#include "base/str.h"

#include "supervisor/api/egress.h"
#include "supervisor/api/http/actions.h"
#include "supervisor/api/http/reply.h"
#include "supervisor/api/provider.h"
#include "supervisor/api/rebuild.h"
#include "supervisor/api/redis.h"
#include "supervisor/api/session/body_fields.h"
#include "supervisor/api/session/fit.h"

/* Creates with the same key that came before the first one's answer. */
#define CREATION_SAME_MAX 8

struct creation {
	struct answer_to to;
	struct answer_to same[CREATION_SAME_MAX];
	size_t n_same;
	usec_t began; /* boottime: the request */
	char request[REQUEST_ID_BYTES];
	struct refusal refusal;
	bool launched;
	bool row_done;
	bool policy_done; /* its network policy is in force */
};

static void creation_end(struct live *live)
{
	free(live->creation);
	live->creation = NULL;
}

static void answer_created(struct request *request, const struct session *session)
{
	if (!request)
		return;
	if (!session_persisted(session))
		request_add_header(request, "Sandbox-Degraded", "store");
	reply_json(request, MHD_HTTP_CREATED,
		   session->dagster ? action_summary(request, session)
				    : action_sandbox(request, session));
}

static void answer_if_done(struct session *session)
{
	struct live *live = live_of(session);
	struct creation *creation = live->creation;

	if (!creation || !creation->launched || !creation->row_done || !creation->policy_done)
		return;
	answer_created(answer_get(&creation->to), session);
	for (size_t i = 0; i < creation->n_same; i++)
		answer_created(answer_get(&creation->same[i]), session);
	histogram_add(&live->app->metrics.create, clock_boottime() - creation->began);
	creation_end(live);
}

void creation_row_done(struct session *session)
{
	struct live *live = live_of(session);

	if (!live || !live->creation)
		return;
	live->creation->row_done = true;
	answer_if_done(session);
}

static void on_policy(void *userdata, const struct id *id, int error)
{
	struct app *app = userdata;
	struct session *session = registry_find(&app->registry, id);
	struct live *live = session ? live_of(session) : NULL;

	if (!live || !live->creation)
		return;
	if (error == 0) {
		live->creation->policy_done = true;
		answer_if_done(session);
		return;
	}
	live->creation->refusal.status = MHD_HTTP_SERVICE_UNAVAILABLE;
	fit_text(live->creation->refusal.detail, sizeof(live->creation->refusal.detail),
		 "launch failed: its network policy is not in force");
	app->counters.n_launch_failures++;
	sessions_event(app, session, SESSION_EVENT_CLOSE, SESSION_REASON_LAUNCH);
}

void creation_launched(struct session *session)
{
	struct live *live = live_of(session);

	if (!live->creation)
		return;
	live->creation->launched = true;
	live->creation->policy_done = live->policy_in_force;
	if (!live->creation->policy_done &&
	    egress_wait_settled(live->app, session, on_policy, live->app) < 0)
		on_policy(live->app, &session->id, -ENOMEM);
	else
		answer_if_done(session);
}

/* As one item of a 422: whoever asked named it. */
static void reply_secret(struct request *request, const char *name)
{
	const char *loc[] = {"body", "secrets", name};
	json_t *errors = NULL;
	int r = body_item_add(&errors, "value_error", loc,
			      "Value error, no such secret for this workspace");

	reply_spec_error(request, r < 0 ? r : SPEC_E_INVALID, errors);
}

void refusal_reply(const struct refusal *refusal, struct request *request)
{
	if (refusal->quota != QUOTA_OK)
		reply_quota(request, refusal->quota);
	else if (refusal->secret[0] != '\0')
		reply_secret(request, refusal->secret);
	else if (refusal->template == REFUSAL_TEMPLATE_UNKNOWN)
		reply_invalid_body(request, "value_error", "template", "Unknown template");
	else if (refusal->template == REFUSAL_TEMPLATE_GONE)
		reply_runtime_error(request, RUNTIME_NO_TEMPLATE, NULL);
	else if (refusal->is_snapshot_store)
		reply_runtime_error(request, RUNTIME_SNAPSHOT_STORE, refusal->detail);
	else if (refusal->status > 0)
		reply_detail(request, refusal->status, refusal->detail);
	else
		reply_detail(request, MHD_HTTP_SERVICE_UNAVAILABLE, "launch interrupted");
}

void creation_failed(struct session *session)
{
	struct live *live = live_of(session);
	struct creation *creation = live->creation;
	struct request *request;

	if (!creation)
		return;
	request = answer_get(&creation->to);
	if (request)
		refusal_reply(&creation->refusal, request);
	for (size_t i = 0; i < creation->n_same; i++) {
		request = answer_get(&creation->same[i]);
		if (request)
			refusal_reply(&creation->refusal, request);
	}
	creation_end(live);
}

/* The launch. */

struct launch_op {
	struct app *app;
	struct id session;
};

/* A create is told which name is wrong; whoever uses a session that is made again did not name any.
 */
static void note_secret(const struct live *live, struct refusal *refusal, const struct err *err)
{
	static const struct {
		int error_number;
		const char *text;
	} texts[] = {
		{ENOENT,  "is not there for this workspace"                },
		{EBADMSG, "is damaged in the store"                        },
		{E2BIG,   "and the others of this session are over 256 KiB"},
		{0,       "cannot be read: the store cannot be opened"     },
	};
	size_t i = 0;

	refusal->status = MHD_HTTP_SERVICE_UNAVAILABLE;
	if (live->creation && err->error_number == ENOENT &&
	    str_copy(refusal->secret, sizeof(refusal->secret), err->text) >= 0)
		return;
	while (texts[i].error_number != 0 && texts[i].error_number != err->error_number)
		i++;
	fit_text(refusal->detail, sizeof(refusal->detail), "secret %s %s", err->text,
		 texts[i].text);
}

static void note_unsupported(struct refusal *refusal)
{
	const struct runtime_error_row *row = runtime_error_row(RUNTIME_NOT_SUPPORTED);

	refusal->status = row->status;
	fit_text(refusal->detail, sizeof(refusal->detail), "%s", row->detail);
}

static void note_unreachable(struct refusal *refusal)
{
	refusal->status = MHD_HTTP_SERVICE_UNAVAILABLE;
	fit_text(refusal->detail, sizeof(refusal->detail), "its provider cannot be asked");
}

/* What the supervisor said becomes the answer: a ceiling is 429, a step that failed is 503 and
 * names the step, everything else is ours. */
static void note_refusal(struct live *live, const struct launch_msg *answer)
{
	struct log_context context = {
		.session = &live->session->id,
		.request = live->creation ? live->creation->request : NULL,
	};
	struct refusal *refusal = live->creation ? &live->creation->refusal : rebuild_refusal(live);
	struct err err = answer->u.err;
	const char *name;

	err_sanitize(&err);
	if (answer->error == LAUNCH_E_STEP)
		log_err(LOG_LEVEL_ERROR, &context, "launch failed", &err);
	else
		log_line(LOG_LEVEL_WARNING, &context, "launch refused", "error=%s",
			 launch_error_text(answer->error));
	if (!refusal)
		return;
	if (answer->error == LAUNCH_E_UNSUPPORTED) {
		note_unsupported(refusal);
		return;
	}
	refusal->quota = quota_from_launch((enum launch_error)answer->error);
	refusal->status = answer->error == LAUNCH_E_STEP || answer->error == LAUNCH_E_STOPPING
				  ? MHD_HTTP_SERVICE_UNAVAILABLE
				  : MHD_HTTP_INTERNAL_SERVER_ERROR;
	if (answer->error == LAUNCH_E_STEP) {
		name = strerrorname_np(err.error_number);
		if (str_format(refusal->detail, sizeof(refusal->detail),
			       "launch failed at step %s: %s", err.step, name ? name : "?") >= 0)
			return;
	}
	if (answer->error == LAUNCH_E_SECRET) {
		note_secret(live, refusal, &err);
		return;
	}
	if (answer->error == LAUNCH_E_TEMPLATE)
		refusal->template =
			live->creation ? REFUSAL_TEMPLATE_UNKNOWN : REFUSAL_TEMPLATE_GONE;
	IGNORE_RESULT(str_format(refusal->detail, sizeof(refusal->detail), "launch refused: %s",
				 launch_error_text(answer->error)));
}

static void on_launch(void *userdata, const struct launch_msg *answer, int fd)
{
	struct launch_op *op = userdata;
	struct app *app = op->app;
	struct session *session = registry_find(&app->registry, &op->session);
	AUTO_CLOSE int shim_fd = fd;
	struct live *live;

	free(op);
	if (!session || session->state == SESSION_STATE_CLOSED)
		return;
	live = live_of(session);
	if (answer && answer->error != LAUNCH_E_NONE) {
		note_refusal(live, answer);
		/* A secret or a template that is not there is the caller's mistake. */
		if (!live->creation ||
		    (!live->creation->refusal.secret[0] && !live->creation->refusal.template))
			app->counters.n_launch_failures++;
		sessions_event(app, session, SESSION_EVENT_LAUNCH_FAILED, SESSION_REASON_LAUNCH);
		return;
	}
	if (session->state != SESSION_STATE_CREATING && session->state != SESSION_STATE_REBUILDING)
		return; /* it is being ended already; the kill covers it */
	if (!answer || shim_fd < 0 || live_connect(live, shim_fd) < 0) {
		app->counters.n_launch_failures++;
		sessions_event(app, session,
			       session->state == SESSION_STATE_CREATING ? SESSION_EVENT_CLOSE
									: SESSION_EVENT_LOST,
			       SESSION_REASON_LAUNCH);
		return;
	}
	(void)TAKE_FD(shim_fd);
	app->counters.n_created++;
	if (session->state == SESSION_STATE_REBUILDING)
		app->metrics.n_adoptions[METRICS_ADOPTION_REBUILT]++;
	metrics_add_launch(&app->metrics, &answer->u.trace);
	session->limits_missing = app->facts.limits_missing;
	sessions_event(app, session, SESSION_EVENT_LAUNCHED, SESSION_REASON_NONE);
}

/* The same at each launch, the first and those from the row. */
static void fill_secrets(const struct session *session, struct secret_request *ret_secrets)
{
	struct secret_request secrets = {.flags = session->operator_owned ? SECRET_REQUEST_OPERATOR
									  : 0};

	IGNORE_RESULT(str_copy(secrets.workspace, sizeof(secrets.workspace), session->workspace));
	for (size_t i = 0; i < session->spec.n_secrets && i < SECRETS_SESSION_MAX; i++) {
		IGNORE_RESULT(
			str_copy(secrets.name[i], SECRET_NAME_BYTES, session->spec.secret[i]));
		secrets.n++;
	}
	*ret_secrets = secrets;
}

int creation_launch(struct app *app, struct session *session)
{
	const struct creation *creation = live_of(session)->creation;
	const struct provider *provider = live_of(session)->provider;
	struct launch_op *op = calloc(1, sizeof(*op));
	struct secret_request secrets;
	int r;

	if (!op)
		return -ENOMEM;
	op->app = app;
	op->session = session->id;
	redis_begin(app, session);
	fill_secrets(session, &secrets);
	r = provider->create(
		app, session,
		&(struct provider_create){.secrets = &secrets,
					  .request_id = creation ? creation->request : NULL},
		on_launch, op);
	if (r < 0)
		free(op);
	return r;
}

/* The body's, or that of the configuration. */
static const struct provider *provider_asked(const struct app *app, const struct spec_create *spec)
{
	if (spec->runtime.provider[0] != '\0')
		return provider_find(spec->runtime.provider);
	return provider_by_default(app);
}

/* False: it was answered. */
static bool has_provider(struct request *request, const struct spec_create *spec)
{
	const struct app *app = request_app(request);

	if (provider_is_configured(app, provider_asked(app, spec)))
		return true;
	reply_invalid_body(request, "value_error", "provider", "Unknown provider");
	return false;
}

static void fill_session(struct session *session, const struct request *request, bool dagster)
{
	const struct identity *identity = &request->identity;

	session->dagster = dagster;
	session->operator_owned = identity->is_operator;
	memcpy(session->owner, identity->user, sizeof(session->owner));
	memcpy(session->workspace, identity->workspace, sizeof(session->workspace));
	memcpy(session->project, identity->project, sizeof(session->project));
}

/* A session in the registry, in CREATING. NULL: no memory. */
static struct session *new_session(struct request *request, struct spec_create *spec, bool dagster,
				   uint32_t profile_index)
{
	struct app *app = request_app(request);
	struct session *session;
	struct live *live;
	struct id id;

	if (id_random(&id) < 0)
		return NULL;
	session = session_new(&id, spec, clock_realtime());
	if (!session)
		return NULL;
	fill_session(session, request, dagster);
	memcpy(session->provider, provider_asked(app, &session->spec)->name,
	       strlen(provider_asked(app, &session->spec)->name) + 1);
	session->plan = spec_plan(&id, profile_index, image_profile(&app->policy, profile_index));
	if (app->facts.n_egress > 0)
		session->plan.egress = id_hash(&id) % app->facts.n_egress;
	if (registry_add(&app->registry, session) < 0) {
		(void)session_free(session);
		return NULL;
	}
	if (live_new(app, session, &live) < 0) {
		registry_remove(&app->registry, session);
		(void)session_free(session);
		return NULL;
	}
	live->creation = calloc(1, sizeof(*live->creation));
	if (!live->creation) {
		registry_remove(&app->registry, session);
		(void)live_free(live);
		(void)session_free(session);
		return NULL;
	}
	return session;
}

/* Names of what was asked for; what it was set to is nobody's business. */
static void note_creation(struct request *request, const struct session *session)
{
	json_t *endpoints = json_array();

	for (size_t i = 0; i < ENDPOINTS_N; i++)
		if (session->spec.endpoint[i])
			(void)json_array_append_new(endpoints, json_string(endpoint_name(i)));
	request_note_id(request, "session", &session->id);
	request_note(request, "profile", json_string(session->spec.profile));
	request_note(request, "ttl_minutes", json_integer(session->spec.ttl_minutes));
	request_note(request, "endpoints", endpoints);
	if (session->spec.runtime.template[0] != '\0')
		request_note(request, "template", json_string(session->spec.runtime.template));
}

/* Also of a create that fails. */
static void note_secrets(struct request *request, const struct spec_create *spec)
{
	json_t *names = spec->n_secrets > 0 ? json_array() : NULL;

	for (size_t i = 0; names && i < spec->n_secrets; i++)
		(void)json_array_append_new(names, json_string(spec->secret[i]));
	if (names)
		request_note(request, "secrets", names);
}

/* False: it was answered. What is asked for is entered in this same turn, by registry_add. */
static bool within_quotas(struct request *request, uint32_t profile_index)
{
	struct app *app = request_app(request);
	const struct identity *identity = &request->identity;
	const struct quota_asker asker = {
		.owner = identity->is_operator ? "" : identity->user,
		.workspace = identity->workspace,
		.memory_bytes = image_profile(&app->policy, profile_index)->limits.memory_bytes,
		.now = clock_boottime(),
		.realtime = clock_realtime(),
	};
	struct quota_refusal refusal;

	if (tenant_quota_session(&app->registry.tenants, &app->config->quota, &asker, &refusal))
		return true;
	reply_refusal(request, &refusal);
	return false;
}

/* False: it was answered. As with the quotas, registry_add enters the name in this same turn. */
static bool name_is_free(struct request *request, const char *name)
{
	const struct identity *identity = &request->identity;

	if (name[0] == '\0' || !registry_find_named(&request_app(request)->registry, identity->user,
						    identity->is_operator, name, clock_realtime()))
		return true;
	reply_detail(request, MHD_HTTP_CONFLICT, "a session of this name exists");
	return false;
}

/* The caller's own. The operator has none: the body says whose the session is. False: it was
 * answered. */
static bool is_of_organization(struct request *request, const struct spec_create *spec)
{
	struct identity *identity = &request->identity;
	char own[SPEC_ORGANIZATION_MAX + 1];

	if (spec->organization[0] == '\0')
		return true;
	if (identity->is_operator && strlen(spec->organization) <= IDENTITY_MAX) {
		memcpy(identity->workspace, spec->organization, strlen(spec->organization) + 1);
		return true;
	}
	session_organization(identity->user, identity->workspace, own);
	if (!identity->is_operator && str_equal(spec->organization, own))
		return true;
	reply_runtime_error(request, RUNTIME_DENIED, "organization_uuid is of another one");
	return false;
}

/* As with the organisation; a caller who comes for no project may name one. False: it was answered.
 */
static bool is_of_project(struct request *request, const struct spec_create *spec)
{
	struct identity *identity = &request->identity;

	if (spec->runtime.project[0] == '\0')
		return true;
	if (identity->project[0] == '\0')
		memcpy(identity->project, spec->runtime.project, sizeof(identity->project));
	if (str_equal(identity->project, spec->runtime.project))
		return true;
	reply_runtime_error(request, RUNTIME_DENIED, "project_uuid is of another one");
	return false;
}

/* Of what the body says, however it is written. False: no memory. */
static bool digest_body(const struct buf *body, char ret_digest[SPEC_DIGEST_BYTES])
{
	unsigned char sum[crypto_hash_sha256_BYTES];
	const char *reason;
	json_t *doc = NULL;
	char *text = NULL;

	_Static_assert(SPEC_DIGEST_BYTES == 2 * sizeof(sum) + 1, "hexadecimal digits and a NUL");
	if (doc_parse((const char *)body->data, body->size, &doc, &reason) == 0)
		text = json_dumps(doc, JSON_COMPACT | JSON_SORT_KEYS | JSON_ENCODE_ANY);
	json_decref(doc);
	if (!text)
		return false;
	(void)crypto_hash_sha256(sum, (const unsigned char *)text, strlen(text));
	(void)sodium_bin2hex(ret_digest, SPEC_DIGEST_BYTES, sum, sizeof(sum));
	free(text);
	return true;
}

/* What a create with this key has made, or makes, is its answer too. False: it was answered. */
static bool is_first_of_key(struct request *request, struct spec_create *spec)
{
	const struct identity *identity = &request->identity;
	struct spec_runtime *runtime = &spec->runtime;
	const struct viewer viewer = {
		.owner = identity->is_operator ? "" : identity->user,
		.workspace = identity->workspace,
		.project = identity->project,
	};
	const struct session *session;
	struct creation *creation;

	if (runtime->idempotency_key[0] == '\0')
		return true;
	if (!digest_body(&request->body, runtime->idempotency_digest)) {
		reply_detail(request, MHD_HTTP_SERVICE_UNAVAILABLE, "out of memory");
		return false;
	}
	session = registry_find_idempotent(&request_app(request)->registry, &viewer,
					   runtime->idempotency_key, clock_realtime());
	if (!session)
		return true;
	request_note_id(request, "session", &session->id);
	creation = live_of(session)->creation;
	if (!str_equal(session->spec.runtime.idempotency_digest, runtime->idempotency_digest))
		reply_runtime_error(request, RUNTIME_CONFLICT,
				    "another request has used this idempotency_key");
	else if (!creation)
		answer_created(request, session);
	else if (creation->n_same == CREATION_SAME_MAX)
		reply_runtime_error(request, RUNTIME_BUSY, NULL);
	else
		creation->same[creation->n_same++] = answer_to(request);
	return false;
}

void action_create(struct request *request, struct spec_create *spec, bool dagster)
{
	struct app *app = request_app(request);
	enum quota_reason quota;
	struct session *session;
	int profile;
	int r;

	profile = spec_find_profile(app->policy.header, spec->profile);
	if (profile < 0) {
		reply_invalid_body(request, "value_error", "profile", "Unknown profile");
		return;
	}
	if (!has_provider(request, spec))
		return;
	if (spec->runtime.template[0] != '\0' &&
	    image_profile(&app->policy, (uint32_t)profile)->root != POLICY_ROOT_ALLOWED) {
		reply_invalid_body(request, "value_error", "template",
				   "A profile without root commands has no template");
		return;
	}
	if (!is_of_organization(request, spec) || !is_of_project(request, spec) ||
	    !is_first_of_key(request, spec) || !name_is_free(request, spec->name))
		return;
	quota = quota_session(registry_count(&app->registry), app->config->max_sessions,
			      app->n_descriptors_fixed + registry_count(&app->registry) +
				      app->http_counters.n_connections,
			      app->max_descriptors);
	if (quota != QUOTA_OK) {
		reply_quota(request, quota);
		return;
	}
	if (!within_quotas(request, (uint32_t)profile))
		return;
	note_secrets(request, spec);
	session = new_session(request, spec, dagster, (uint32_t)profile);
	if (!session) {
		reply_detail(request, MHD_HTTP_SERVICE_UNAVAILABLE, "out of memory");
		return;
	}
	live_of(session)->creation->to = answer_to(request);
	live_of(session)->creation->began = request->began;
	memcpy(live_of(session)->creation->request, request->request_id, REQUEST_ID_BYTES);
	note_creation(request, session);
	sessions_insert(app, session);
	r = creation_launch(app, session);
	if (r == -EOPNOTSUPP)
		note_unsupported(&live_of(session)->creation->refusal);
	else if (r == -ENODEV)
		note_unreachable(&live_of(session)->creation->refusal);
	if (r < 0)
		sessions_event(app, session, SESSION_EVENT_LAUNCH_FAILED, SESSION_REASON_LAUNCH);
	else
		sessions_expire(app);
}
