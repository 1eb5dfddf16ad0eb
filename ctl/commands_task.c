#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "base/str.h"

#include "ctl/commands.h"
#include "ctl/print.h"
#include "sandboxd/api.h"

/* How long `logs` without --follow waits for a frame that the service has already kept. */
#define KEPT_FRAMES_IDLE_MS 400

/* What one followed task has shown so far. */
struct follow {
	const struct options *options;
	size_t n_assets; /* expected; 0: unknown */
	size_t n_materialized;
	size_t n_problems; /* documents, assets or not, with at least one problem */
	bool terminal;
	bool ok;
	bool progress_shown;
};

static void progress_clear(struct follow *follow)
{
	if (follow->progress_shown)
		(void)fputs("\r\033[K", stderr);
	follow->progress_shown = false;
}

/* One line at the bottom of a terminal; a file or pipe gets the counts within the frames' lines. */
static void progress_show(struct follow *follow)
{
	if (follow->options->quiet || isatty(STDERR_FILENO) != 1 || isatty(STDOUT_FILENO) != 1)
		return;
	(void)fprintf(stderr, "materialised %zu", follow->n_materialized);
	if (follow->n_assets)
		(void)fprintf(stderr, " of %zu", follow->n_assets);
	(void)fputs(" ...", stderr);
	(void)fflush(stderr);
	follow->progress_shown = true;
}

static void print_problem(const json_t *problem)
{
	const json_t *line = json_object_get(problem, "line");
	const json_t *column = json_object_get(problem, "column");
	const char *text = json_is_string(problem)
				   ? json_string_value(problem)
				   : json_string_value(json_object_get(problem, "text"));

	(void)fputs("  problem", stdout);
	/* Line 0: of the document as a whole. */
	if (json_integer_value(line) > 0)
		(void)printf(" at line %lld", (long long)json_integer_value(line));
	if (json_integer_value(line) > 0 && json_integer_value(column) > 0)
		(void)printf(" column %lld", (long long)json_integer_value(column));
	(void)fputs(": ", stdout);
	print_text(stdout, text);
}

static void print_frame(struct follow *follow, const json_t *frame, const char *stage)
{
	const json_t *seq = json_object_get(frame, "seq");
	const json_t *problem = json_object_get(json_object_get(frame, "metadata"), "problem");

	(void)printf("%4lld  %-12s", (long long)json_integer_value(seq), stage);
	if (str_equal(stage, "materialize")) {
		(void)printf("[%zu", follow->n_materialized);
		if (follow->n_assets)
			(void)printf("/%zu", follow->n_assets);
		(void)fputs("] ", stdout);
	}
	print_text(stdout, print_member(frame, "message"));
	/* A log frame's message says it already. */
	if (problem && !json_is_null(problem) && !str_equal(stage, "log"))
		print_problem(problem);
	(void)putchar('\n');
	(void)fflush(stdout);
}

static bool is_new_file(const json_t *problems, size_t until)
{
	const json_t *file = json_object_get(json_array_get(problems, until), "file");

	for (size_t i = 0; i < until; i++)
		if (json_equal(json_object_get(json_array_get(problems, i), "file"), file))
			return false;
	return true;
}

/* The result counts problems or lists them; several of one file are one document. */
static void take_result(struct follow *follow, const json_t *result)
{
	const json_t *problems = json_object_get(result, "problems");
	size_t n = 0;

	follow->ok = json_is_true(json_object_get(result, "ok"));
	if (json_is_integer(problems))
		n = (size_t)json_integer_value(problems);
	for (size_t i = 0; i < json_array_size(problems); i++)
		n += is_new_file(problems, i) ? 1 : 0;
	if (n > follow->n_problems)
		follow->n_problems = n;
}

static void take_frame(struct follow *follow, const json_t *frame, const char *stage)
{
	const json_t *metadata = json_object_get(frame, "metadata");

	if (str_equal(stage, "materialize")) {
		follow->n_materialized++;
		if (json_is_true(json_object_get(metadata, "problem")) ||
		    json_is_object(json_object_get(metadata, "problem")) ||
		    json_is_string(json_object_get(metadata, "problem")))
			follow->n_problems++;
	} else if (str_equal(stage, "done")) {
		follow->terminal = true;
		take_result(follow, json_object_get(frame, "result"));
	} else if (str_equal(stage, "error")) {
		follow->terminal = true;
	}
}

static int on_frame_line(void *userdata, const char *line, size_t length)
{
	struct follow *follow = userdata;
	json_t *frame = NULL;
	const char *reason = NULL;
	const char *stage;

	if (length == 0)
		return 0;
	if (doc_parse(line, length, &frame, &reason) < 0)
		return -EBADMSG;
	stage = json_string_value(json_object_get(frame, "stage"));
	/* A heartbeat line carries no stage. */
	if (stage) {
		progress_clear(follow);
		take_frame(follow, frame, stage);
		if (follow->options->output == OUTPUT_JSON)
			print_json_line(frame);
		else
			print_frame(follow, frame, stage);
		if (!follow->terminal)
			progress_show(follow);
	}
	json_decref(frame);
	return 0;
}

static int follow_stream(struct client *client, struct follow *follow, const char *task_id,
			 long idle_ms)
{
	AUTO_REPLY struct client_reply reply = CLIENT_REPLY_NULL;
	char path[512];
	const struct client_request request = {.method = "GET",
					       .path = path,
					       .accept = "application/x-ndjson",
					       .line = on_frame_line,
					       .userdata = follow,
					       .idle_ms = idle_ms};
	int r;

	r = client_path(path, sizeof(path), API_PREFIX_DAGSTER "/tasks", task_id, "/stream");
	if (r == 0)
		r = client_perform(client, &request, &reply);
	progress_clear(follow);
	if (r == -ETIMEDOUT && idle_ms)
		return EXIT_OK;
	return client_result(client, r, &reply);
}

static void print_result(const struct follow *follow)
{
	if (follow->options->output != OUTPUT_JSON)
		(void)printf("result: %s, %zu assets, %zu documents with problems\n",
			     follow->ok ? "ok" : "failed", follow->n_materialized,
			     follow->n_problems);
}

int task_follow(struct client *client, const struct options *options, const char *task_id,
		size_t n_assets)
{
	struct follow follow = {.options = options, .n_assets = n_assets};
	int r = follow_stream(client, &follow, task_id, 0);

	if (r != EXIT_OK)
		return r;
	if (!follow.terminal) {
		(void)fputs("sandboxctl: the stream ended before the task did\n", stderr);
		return EXIT_FAILED;
	}
	print_result(&follow);
	return follow.ok ? EXIT_OK : EXIT_FAILED;
}

static size_t count_assets(struct client *client, const char *session)
{
	AUTO_REPLY struct client_reply reply = CLIENT_REPLY_NULL;
	char path[512];
	const struct client_request request = {.method = "GET", .path = path};

	if (client_path(path, sizeof(path), API_PREFIX_DAGSTER "/sessions", session, "") < 0 ||
	    client_perform(client, &request, &reply) < 0)
		return 0;
	return json_array_size(json_object_get(reply.doc, "asset_keys"));
}

int command_execute(struct client *client, const struct options *options)
{
	AUTO_REPLY struct client_reply reply = CLIENT_REPLY_NULL;
	const struct client_object execute = {API_PREFIX_DAGSTER "/sessions", options->args[0],
					      "/execute"};
	size_t n_assets = count_assets(client, options->args[0]);
	const char *task_id;
	int r;

	r = client_ask_about(client, "POST", &execute, NULL, &reply);
	if (r != EXIT_OK)
		return r;
	task_id = json_string_value(json_object_get(reply.doc, "task_id"));
	if (!task_id)
		return EXIT_FAILED;
	if (options->output != OUTPUT_JSON && !options->quiet)
		(void)printf("task %s\n", task_id);
	return task_follow(client, options, task_id, n_assets);
}

int command_logs(struct client *client, const struct options *options)
{
	struct follow follow = {.options = options};
	int r;

	if (options->follow)
		return task_follow(client, options, options->args[0], 0);
	r = follow_stream(client, &follow, options->args[0], KEPT_FRAMES_IDLE_MS);
	if (r == EXIT_OK && follow.terminal)
		print_result(&follow);
	return r;
}
