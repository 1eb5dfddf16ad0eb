/*
 * Work in a session that is answered on its own request and has no row: a load, a foreground
 * command.
 */
#include <errno.h>
#include <string.h>

#include "base/frame.h"
#include "base/str.h"

#include "supervisor/api/command_stream.h"
#include "supervisor/api/components.h"
#include "supervisor/api/http/actions.h"
#include "supervisor/api/http/reply.h"
#include "supervisor/api/jobs/progress.h"
#include "supervisor/api/live.h"
#include "supervisor/api/loader_run.h"

#define COMMAND_GRACE_MS  2000u
#define NOTED_PROGRAM_MAX 256

/* Why shim_link_exec or _put said no. */
void reply_link_error(struct request *request, int error)
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

/* Processor time of the day. False: it was answered. */
static bool may_work(struct request *request, const struct session *session)
{
	struct quota_refusal refusal;

	if (tenant_quota_work(session, &request_config(request)->quota, clock_realtime(), &refusal))
		return true;
	reply_refusal(request, &refusal);
	return false;
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
