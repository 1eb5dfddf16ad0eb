/*
 * Work in a session that is answered on its own request and has no row: a load. Commands are
 * in command_actions.c.
 */
#include <errno.h>
#include <string.h>

#include "base/frame.h"
#include "base/str.h"

#include "supervisor/api/command_actions.h"
#include "supervisor/api/components.h"
#include "supervisor/api/http/actions.h"
#include "supervisor/api/http/reply.h"
#include "supervisor/api/jobs/progress.h"
#include "supervisor/api/live.h"
#include "supervisor/api/loader_run.h"

void reply_tree_lost(struct request *request, const struct session *session)
{
	if (session_is_visible(session, clock_realtime()))
		reply_detail(
			request, MHD_HTTP_SERVICE_UNAVAILABLE,
			"the session's processes have just ended; the next use starts them again");
	else if ((request->route->flags & ROUTE_V1) && session->reason == SESSION_REASON_EXPIRED)
		reply_runtime_error(request, RUNTIME_EXPIRED, NULL);
	else
		reply_not_found(request);
}

/* Why shim_link_exec or _put said no. */
void reply_link_error(struct request *request, const struct session *session, int error)
{
	switch (error) {
	case -EBUSY:
	case -ENOBUFS:
		reply_quota(request, QUOTA_COMMANDS);
		return;
	case -EAGAIN:
		reply_busy(request, "a git call with credentials is under way");
		return;
	case -EPIPE:
		reply_tree_lost(request, session);
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

bool command_may_work(struct request *request, const struct session *session)
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
			reply_tree_lost(request, session);
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
	if (!command_may_work(request, session))
		return;
	load = calloc(1, sizeof(*load));
	if (!load) {
		reply_detail(request, MHD_HTTP_SERVICE_UNAVAILABLE, "out of memory");
		return;
	}
	r = loader_run(live, LOADER_RUN_LOAD, &wire_job);
	if (r < 0) {
		free(load);
		reply_link_error(request, session, r);
		return;
	}
	load->to = answer_to(request);
	live_add(live, &load->activity, &load_ops, wire_job);
}
