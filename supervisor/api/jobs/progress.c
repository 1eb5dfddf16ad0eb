#include "supervisor/api/jobs/progress.h"

#include <errno.h>
#include <string.h>

#include "base/str.h"

#include "supervisor/api/session/fit.h"

/* Of a result: more problems than these are only counted. */
#define RESULT_MAX_PROBLEMS 100

/* One entry of the session's log_summary: the frame without its number, and whose it is. */
static int log_entry(struct job *job, struct session *session, enum frames_stage stage,
		     const char *message, const json_t *extras, usec_t now)
{
	char session_id[ID_TEXT_BYTES];
	char job_id[ID_TEXT_BYTES];
	json_t *asset_key = json_object_get(extras, "asset_key");
	json_t *metadata = json_object_get(extras, "metadata");
	json_t *entry;
	int r;

	id_format(&session->id, session_id);
	id_format(&job->id, job_id);
	entry = json_pack("{s:s, s:s, s:f, s:O?, s:O?, s:s, s:s}", "stage",
			  frames_stage_text(stage), "message", message, "timestamp",
			  (double)now / (double)USEC_PER_SEC, "asset_key", asset_key, "metadata",
			  metadata, "run_id", job_id, "session_id", session_id);
	r = session_log_append(session, entry);
	json_decref(entry);
	return r;
}

/* Add a frame and its log entry. Takes over the reference to extras. A dropped log frame is no
 * error. */
static int add(struct job *job, struct session *session, enum frames_stage stage,
	       const char *message, json_t *extras, usec_t now)
{
	int r;

	if (!extras)
		return -ENOMEM;
	if ((job->request[0] &&
	     json_object_set_new(extras, "request_id", json_string(job->request)) < 0) ||
	    (job->tags && json_object_set(extras, "tags", job->tags) < 0)) {
		json_decref(extras);
		return -ENOMEM;
	}
	r = frames_add(&job->frames, stage, message, extras, now, NULL);
	/* A summary for readers: nothing depends on it, least of all the end of a task. */
	if (r == 0 && session)
		IGNORE_RESULT(log_entry(job, session, stage, message, extras, now));
	json_decref(extras);
	return r > 0 ? 0 : r;
}

static json_t *endpoint_names(uint32_t which)
{
	json_t *names = json_array();

	for (size_t i = 0; names && i < ENDPOINTS_N; i++)
		if (which & 1u << i)
			(void)json_array_append_new(names, json_string(endpoint_name(i)));
	return names;
}

int progress_start(struct job *job, struct session *session, const struct summary_context *context,
		   usec_t now)
{
	char message[96];
	char id[ID_TEXT_BYTES];

	id_format(&session->id, id);
	fit_text(message, sizeof(message), "sandbox session %s executing", id);
	/* The live loader would run with endpoints that nobody can inject, so it is refused while a
	 * sandbox environment is active, which is always. Names and counts only, never a value. */
	return add(
		job, session, FRAMES_STAGE_START, message,
		json_pack("{s:s, s:[], s:{s:s, s:s, s:s, s:o, s:i, s:o, s:o*}}", "session_id", id,
			  "asset_key", "metadata", "error_code",
			  "sandbox_endpoint_isolation_unavailable", "live_loader", "refused",
			  "fallback_loader", "manifest", "endpoint_names",
			  endpoint_names(UINT32_MAX), "endpoint_count", ENDPOINTS_N,
			  "endpoint_sources", summary_endpoint_sources(session, context),
			  "production_reachable_by_credentials",
			  session->by_credentials ? endpoint_names(session->by_credentials) : NULL),
		now);
}

static json_t *problem_object(const struct load_problem *problem)
{
	return json_pack("{s:s, s:I, s:I, s:s}", "file", problem->file, "line",
			 (json_int_t)problem->line, "column", (json_int_t)problem->column, "text",
			 problem->text);
}

static const struct load_problem *first_problem(const struct load_result *result, const char *file)
{
	for (size_t i = 0; i < result->n_problems; i++)
		if (str_equal(result->problem[i].file, file))
			return &result->problem[i];
	return NULL;
}

static int add_materialize(struct job *job, struct session *session, const struct load_asset *asset,
			   usec_t now)
{
	const struct load_problem *problem = first_problem(&job->parser.result, asset->file);
	int stem = (int)load_stem_length(asset->file);
	char message[LOAD_FILE_BYTES + 32];
	char id[ID_TEXT_BYTES];
	json_t *metadata;

	id_format(&session->id, id);
	fit_text(message, sizeof(message), "materialising sandbox/%.*s", stem, asset->file);
	metadata = json_pack("{s:b}", "sandbox", 1);
	if (metadata && problem &&
	    json_object_set_new(metadata, "problem", problem_object(problem)) < 0) {
		json_decref(metadata);
		return -ENOMEM;
	}
	return add(job, session, FRAMES_STAGE_MATERIALIZE, message,
		   json_pack("{s:s, s:[s, s%], s:o}", "session_id", id, "asset_key", "sandbox",
			     asset->file, (size_t)stem, "metadata", metadata),
		   now);
}

static int add_problem(struct job *job, struct session *session, const struct load_problem *problem,
		       usec_t now)
{
	char message[LOAD_FILE_BYTES + LOAD_TEXT_BYTES + 32];
	char id[ID_TEXT_BYTES];

	id_format(&session->id, id);
	if (problem->file[0] == '\0')
		fit_text(message, sizeof(message), "%s", problem->text);
	else if (problem->line == 0)
		fit_text(message, sizeof(message), "%s: %s", problem->file, problem->text);
	else
		fit_text(message, sizeof(message), "%s:%u:%u: %s", problem->file, problem->line,
			 problem->column, problem->text);
	return add(job, session, FRAMES_STAGE_LOG, message,
		   json_pack("{s:s, s:[], s:s, s:{s:o}}", "session_id", id, "asset_key", "level",
			     "warning", "metadata", "problem", problem_object(problem)),
		   now);
}

/* Frames for what the parser has and nobody has seen: all assets, then all problems. */
static int show(struct job *job, struct session *session, usec_t now)
{
	const struct load_result *result = &job->parser.result;
	int r;

	for (; job->n_assets_shown < result->n_assets; job->n_assets_shown++) {
		r = add_materialize(job, session, &result->asset[job->n_assets_shown], now);
		if (r < 0)
			return r;
	}
	for (; job->n_problems_shown < result->n_problems; job->n_problems_shown++) {
		r = add_problem(job, session, &result->problem[job->n_problems_shown], now);
		if (r < 0)
			return r;
	}
	return 0;
}

int progress_feed(struct job *job, struct session *session, const void *data, size_t size,
		  usec_t now)
{
	int r;

	r = load_parser_feed(&job->parser, data, size);
	if (r < 0)
		return r;
	job->held_bytes += size;
	job->n_held_feeds++;
	if (!job->parser.result.complete && job->held_bytes < (size_t)PROGRESS_HOLD_BYTES &&
	    job->n_held_feeds < PROGRESS_HOLD_FEEDS)
		return 0;
	r = show(job, session, now);
	if (r < 0)
		return r;
	/* What is cut in the middle of a record stays held. */
	job->held_bytes = job->parser.partial_bytes;
	job->n_held_feeds = 0;
	return 0;
}

uint64_t progress_held_bytes(const struct job *job)
{
	return job->held_bytes;
}

json_t *progress_problems(const struct load_result *load, size_t max)
{
	json_t *problems = json_array();

	for (size_t i = 0; problems && i < load->n_problems && i < max; i++)
		if (json_array_append_new(problems, problem_object(&load->problem[i])) < 0) {
			json_decref(problems);
			return NULL;
		}
	return problems;
}

static int add_done(struct job *job, struct session *session, usec_t now)
{
	const struct load_result *load = &session->load;
	char id[ID_TEXT_BYTES];

	id_format(&session->id, id);
	return add(job, session, FRAMES_STAGE_DONE, "Task complete",
		   json_pack("{s:s, s:[], s:{s:I}, s:{s:b, s:s, s:I, s:o, s:I, s:I, s:s, s:b}}",
			     "session_id", id, "asset_key", "metadata", "asset_count",
			     (json_int_t)load->n_assets, "result", "ok", 1, "session_id", id,
			     "asset_count", (json_int_t)load->n_assets, "problems",
			     progress_problems(load, RESULT_MAX_PROBLEMS), "problem_count",
			     (json_int_t)load->n_problems, "document_count",
			     (json_int_t)load->n_documents, "loader", "manifest", "materialized",
			     0),
		   now);
}

/* Why the loader failed: NULL if it did not, else a code, and words without a byte of the session.
 */
static const char *loader_failure(const struct wire_exit *exit_info, char *text, size_t text_bytes)
{
	if (exit_info->flags & WIRE_EXIT_TIMED_OUT) {
		fit_text(text, text_bytes, "the loader ran out of time");
		return "timeout";
	}
	if (exit_info->flags & WIRE_EXIT_CANCELLED) {
		fit_text(text, text_bytes, "cancelled");
		return "cancelled";
	}
	if (exit_info->signal != 0) {
		fit_text(text, text_bytes, "the loader was ended by signal %d", exit_info->signal);
		return "loader_failed";
	}
	if (exit_info->code != 0) {
		fit_text(text, text_bytes, "the loader ended with status %d", exit_info->code);
		return "loader_failed";
	}
	if (exit_info->flags & WIRE_EXIT_TRUNCATED) {
		fit_text(text, text_bytes, "the loader wrote too much");
		return "loader_output";
	}
	return NULL;
}

/* The session takes the parser's result; false: it is incomplete. */
static bool take_result(struct load_parser *parser, struct session *session)
{
	struct load_result result;

	if (load_parser_take(parser, &result) < 0)
		return false;
	load_result_done(&session->load);
	session->load = result;
	session->loaded = true;
	return true;
}

int progress_finish(struct job *job, struct session *session, const struct wire_exit *exit_info,
		    usec_t now, enum job_state *ret_state)
{
	const char *code;
	char text[64];
	int r;

	code = loader_failure(exit_info, text, sizeof(text));
	r = show(job, session, now);
	if (r < 0)
		return r;
	job->held_bytes = 0;
	if (!code && !take_result(&job->parser, session)) {
		fit_text(text, sizeof(text), "the loader's output is incomplete");
		code = "loader_output";
	}
	if (code)
		progress_fail(job, session, code, text, now);
	else
		r = add_done(job, session, now);
	if (r < 0)
		return r;
	*ret_state = code ? JOB_STATE_ERROR : JOB_STATE_DONE;
	return 0;
}

void progress_fail(struct job *job, struct session *session, const char *code, const char *message,
		   usec_t now)
{
	char id[ID_TEXT_BYTES];
	int r;

	if (job->frames.terminal)
		return;
	fit_text(job->code, sizeof(job->code), "%s", code);
	id_format(&job->session, id);
	r = add(job, session, FRAMES_STAGE_ERROR, message,
		json_pack("{s:s, s:s, s:[], s:{}}", "session_id", id, "code", code, "asset_key",
			  "metadata"),
		now);
	if (r < 0)
		frames_end_plain(&job->frames, &job->session, code, message, now);
}

int progress_warn(struct job *job, struct session *session, uint32_t minutes, usec_t now)
{
	char expires[CLOCK_ISO_BYTES];
	char id[ID_TEXT_BYTES];
	char message[64];

	id_format(&session->id, id);
	clock_format_iso(session->expires_at, expires);
	fit_text(message, sizeof(message), "the session expires in less than %u minute%s", minutes,
		 minutes == 1 ? "" : "s");
	return add(job, session, FRAMES_STAGE_LOG, message,
		   json_pack("{s:s, s:[], s:s, s:{s:s, s:I}}", "session_id", id, "asset_key",
			     "level", "warning", "metadata", "expires_at", expires, "minutes",
			     (json_int_t)minutes),
		   now);
}

int progress_denied(struct job *job, struct session *session, const struct denial *denial,
		    usec_t now)
{
	char id[ID_TEXT_BYTES];
	char message[DENIAL_TEXT_BYTES + 16];

	id_format(&session->id, id);
	IGNORE_RESULT(str_format(message, sizeof(message), "refused: %s", denial->what));
	return add(job, session, FRAMES_STAGE_LOG, message,
		   json_pack("{s:s, s:[], s:s, s:{s:s, s:o}}", "session_id", id, "asset_key",
			     "level", "warning", "metadata", "code", "refused", "denial",
			     denial_describe(denial)),
		   now);
}

int progress_load_fail(struct session *session, const char *text)
{
	int r = load_result_fail(&session->load, text);

	if (r >= 0)
		session->loaded = true;
	return r;
}

int progress_load_finish(struct load_parser *parser, struct session *session,
			 const struct wire_exit *exit_info)
{
	char text[64];
	int r = 0;

	if (loader_failure(exit_info, text, sizeof(text)))
		r = progress_load_fail(session, text);
	else if (!take_result(parser, session))
		r = progress_load_fail(session, "the loader's output is incomplete");
	load_parser_done(parser);
	return r;
}
