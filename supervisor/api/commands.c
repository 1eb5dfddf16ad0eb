/*
 * Work in a session that is answered on its own request and has no row: a component written, a
 * load, a foreground command.
 */
#include <errno.h>
#include <sodium.h>
#include <string.h>

#include "base/frame.h"
#include "base/log.h"
#include "base/str.h"

#include "sandboxd/api.h"
#include "supervisor/api/command_stream.h"
#include "supervisor/api/http/actions.h"
#include "supervisor/api/http/reply.h"
#include "supervisor/api/jobs/progress.h"
#include "supervisor/api/live.h"
#include "supervisor/api/loader_run.h"
#include "supervisor/api/session/component_name.h"

#define COMMAND_GRACE_MS  2000u
#define COMPONENT_MODE    0644u
#define NOTED_PROGRAM_MAX 256

/* Why shim_link_exec or _put said no. */
static void reply_link_error(struct request *request, int error)
{
	switch (error) {
	case -EBUSY:
	case -ENOBUFS:
		reply_quota(request, QUOTA_COMMANDS);
		return;
	case -EPIPE:
		reply_not_found(request);
		return;
	case -E2BIG:
		reply_invalid_body(request, "too_long", "argv",
				   "Arguments and environment are too long");
		return;
	default:
		reply_detail(request, MHD_HTTP_SERVICE_UNAVAILABLE, "out of memory");
		return;
	}
}

static void reply_put_failed(struct request *request, const struct activity_result *result)
{
	const char *name;
	char detail[128];
	int status = MHD_HTTP_SERVICE_UNAVAILABLE;

	if (result->end != ACTIVITY_FAILED) {
		reply_not_found(request); /* the session ended first */
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

/* A component: into the session first, then into its row, then the answer. */

struct component_put {
	struct activity activity;
	struct app *app;
	struct answer_to to;
	struct id session;
	struct spec_component spec; /* the body waits for the row */
	bool is_degraded;
	char file[COMPONENT_FILE_BYTES];
};

static void put_free(struct component_put *put)
{
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
	};

	live_settle(live, result->number);
	session->coming_bytes -= put->spec.body_length;
	if (result->end != ACTIVITY_PUT_DONE) {
		if (request)
			reply_put_failed(request, result);
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

/* Processor time of the day. False: it was answered. */
static bool may_work(struct request *request, const struct session *session)
{
	struct quota_refusal refusal;

	if (tenant_quota_work(session, &request_config(request)->quota, clock_realtime(), &refusal))
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
		reply_link_error(request, r);
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
	start_put(request, session, put);
}

/* A load: the loader's records are kept on the session; the answer is the summary. */

struct load {
	struct activity activity;
	struct answer_to to;
	struct load_parser parser;
	bool broken;
};

static void load_output(struct activity *activity, uint64_t number, bool is_stderr,
			const uint8_t *data, size_t size)
{
	struct load *load = LIST_ENTRY(activity, struct load, activity);

	live_settle(activity->live, number);
	if (is_stderr || load->broken)
		return;
	if (load_parser_feed(&load->parser, data, size) < 0) {
		load->broken = true;
		shim_link_cancel(activity->live->shim, activity->wire_job);
	}
}

/* Whatever the folder did to the loader is a problem of the folder: it stands in the summary, and
 * the request has done what it was for. */
static int take_load(struct load *load, struct session *session,
		     const struct activity_result *result)
{
	char text[LOAD_TEXT_BYTES];
	const char *name;

	if (load->broken)
		return progress_load_fail(session, "the loader's output is not understood");
	if (result->end == ACTIVITY_EXITED)
		return progress_load_finish(&load->parser, session, result->exit_info);
	name = strerrorname_np(result->failed->error_number);
	IGNORE_RESULT(str_format(text, sizeof(text), "the loader failed at step %s: %s",
				 frame_step_name(result->failed->step), name ? name : "?"));
	return progress_load_fail(session, text);
}

static void answer_load(struct request *request, struct load *load, struct session *session,
			const struct activity_result *result)
{
	if (result->end != ACTIVITY_EXITED && result->end != ACTIVITY_FAILED) {
		if (request)
			reply_not_found(request); /* the session ended first */
		return;
	}
	if (take_load(load, session, result) < 0) {
		if (request)
			reply_detail(request, MHD_HTTP_SERVICE_UNAVAILABLE, "out of memory");
		return;
	}
	if (request)
		reply_json(request, MHD_HTTP_OK, action_summary(request, session));
}

static void load_ended(struct activity *activity, const struct activity_result *result)
{
	struct load *load = LIST_ENTRY(activity, struct load, activity);
	struct live *live = activity->live;

	live_settle(live, result->number);
	answer_load(answer_get(&load->to), load, live->session, result);
	load_parser_done(&load->parser);
	free(load);
	tasks_next(live->app, live->session);
}

static const struct activity_ops load_ops = {
	.output = load_output,
	.ended = load_ended,
};

void action_load(struct request *request, struct session *session)
{
	struct live *live = live_of(session);
	struct load *load;
	uint32_t wire_job;
	int r;

	if (session->state == SESSION_STATE_RUNNING) {
		reply_detail(request, MHD_HTTP_CONFLICT, "sandbox session is running");
		return;
	}
	if (!may_work(request, session))
		return;
	load = calloc(1, sizeof(*load));
	if (!load) {
		reply_detail(request, MHD_HTTP_SERVICE_UNAVAILABLE, "out of memory");
		return;
	}
	r = loader_run(live, LOADER_RUN_LOAD, &wire_job);
	if (r < 0) {
		free(load);
		reply_link_error(request, r);
		return;
	}
	load->to = answer_to(request);
	live_add(live, &load->activity, &load_ops, wire_job);
}

/* A command. */

/* False: it was answered. */
static bool may_be_root(struct request *request, const struct live *live,
			const struct spec_command *spec)
{
	if (!spec->is_root || session_profile(live)->root == POLICY_ROOT_ALLOWED)
		return true;
	reply_invalid_body(request, "value_error", "user",
			   "Value error, the profile of this sandbox has no root commands");
	return false;
}

static void exec_command(struct request *request, struct live *live,
			 const struct spec_command *spec, const struct environment *environment)
{
	const struct policy_limits *limits = session_limits(live);
	uint32_t timeout_ms =
		spec->timeout_ms > 0 ? spec->timeout_ms : limits->command_timeout_s * 1000;
	struct shim_link_command command = {
		.head = {.program = WIRE_PROGRAM_ARGV,
			 .flags = spec->is_root ? WIRE_EXEC_ROOT : 0,
			 .timeout_ms = timeout_ms,
			 .grace_ms = COMMAND_GRACE_MS,
			 .output_rate_bytes = limits->output_rate_bytes,
			 .output_max_bytes = limits->output_max_bytes},
		.cwd = spec->cwd ? spec->cwd : "/session",
		.argv = (const char *const *)spec->argv,
		.env = (const char *const *)environment->entry,
		.stdin_data = spec->stdin_text,
		.stdin_bytes = spec->stdin_length,
	};
	uint32_t wire_job;
	int r;

	r = live->shim ? shim_link_exec(live->shim, &command, &wire_job) : -EPIPE;
	if (r < 0) {
		reply_link_error(request, r);
		return;
	}
	live->app->counters.n_commands++;
	if (command_stream_start(request, live, wire_job) < 0) {
		shim_link_cancel(live->shim, wire_job);
		reply_detail(request, MHD_HTTP_SERVICE_UNAVAILABLE, "out of memory");
	} else {
		live_name(live, wire_job, spec->argv[0]);
	}
}

/* The program alone: arguments are values. */
static void note_program(struct request *request, const struct spec_command *spec)
{
	size_t length = strnlen(spec->argv[0], NOTED_PROGRAM_MAX);

	while (length > 0 && ((unsigned char)spec->argv[0][length] & 0xc0) == 0x80)
		length--; /* not within a character */
	request_note(request, "program", json_stringn(spec->argv[0], length));
}

void action_command(struct request *request, struct session *session, struct spec_command *spec)
{
	struct environment environment = ENVIRONMENT_NULL;
	struct live *live = live_of(session);
	int r;

	note_program(request, spec);
	if (spec->is_root)
		request_note(request, "run_as", json_string("root"));
	if (!may_be_root(request, live, spec) || !may_work(request, session) ||
	    !request_may_stream(request))
		return;
	r = session_environment(live, spec->env, spec->is_root, &environment);
	if (r < 0)
		reply_link_error(request, r);
	else
		exec_command(request, live, spec, &environment);
	environment_done(&environment);
	spec_command_done(spec);
}
