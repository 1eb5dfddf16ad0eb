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

/* A stream that was cut is taken up again that often without a new frame. */
#define RECONNECTS   50
#define RECONNECT_MS 200

#define BAR_WIDTH 24

/* What one followed task has shown so far. */
struct follow {
	const struct options *options;
	size_t n_assets; /* expected; 0: unknown */
	size_t n_materialized;
	size_t n_problems; /* documents, assets or not, with at least one problem */
	uint64_t last_seq;
	bool terminal;
	bool ok;
	bool manifest_only; /* the documents were read, nothing was computed from them */
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
	size_t done = follow->n_materialized;
	size_t all = follow->n_assets;

	if (follow->options->quiet || isatty(STDERR_FILENO) != 1 || isatty(STDOUT_FILENO) != 1)
		return;
	if (all >= done && all > 0) {
		int filled = (int)(done * BAR_WIDTH / all);

		(void)fprintf(stderr, "[%.*s%*s] %zu of %zu", filled, "########################",
			      BAR_WIDTH - filled, "", done, all);
	} else {
		(void)fprintf(stderr, "materialised %zu ...", done);
	}
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
	const char *code = json_string_value(json_object_get(frame, "code"));

	(void)printf("%4lld  ", (long long)json_integer_value(seq));
	print_cell(stage, 11);
	if (str_equal(stage, "materialize")) {
		(void)printf("[%zu", follow->n_materialized);
		if (follow->n_assets)
			(void)printf("/%zu", follow->n_assets);
		(void)fputs("] ", stdout);
	}
	print_text(stdout, print_member(frame, "message"));
	if (code) {
		(void)fputs(" (", stdout);
		print_text(stdout, code);
		(void)fputc(')', stdout);
	}
	/* A log frame's message says it already. */
	if (problem && !json_is_null(problem) && !str_equal(stage, "log"))
		print_problem(problem);
	(void)putchar('\n');
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
	follow->manifest_only = json_is_false(json_object_get(result, "materialized"));
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
	int r = 0;

	if (length == 0)
		return 0;
	if (doc_parse(line, length, &frame, &reason) < 0)
		return -EBADMSG;
	stage = json_string_value(json_object_get(frame, "stage"));
	/* A heartbeat line carries no stage. */
	if (stage) {
		progress_clear(follow);
		follow->last_seq = (uint64_t)json_integer_value(json_object_get(frame, "seq"));
		take_frame(follow, frame, stage);
		if (follow->options->output == OUTPUT_JSON)
			print_json_line(frame);
		else
			print_frame(follow, frame, stage);
		r = print_flush(stdout);
		if (!follow->terminal)
			progress_show(follow);
	}
	json_decref(frame);
	return r;
}

/* One connection: frames behind the last one that was seen. As client_perform, but a stream that
 * was silent for idle_ms is at its end. */
static int read_frames(struct client *client, struct follow *follow, const char *task_id,
		       long idle_ms, struct client_reply *reply)
{
	char suffix[48];
	char path[512];
	const struct client_request request = {.method = "GET",
					       .path = path,
					       .accept = "application/x-ndjson",
					       .line = on_frame_line,
					       .userdata = follow,
					       .idle_ms = idle_ms};
	int r;

	(void)snprintf(suffix, sizeof(suffix), "/stream?after=%llu",
		       (unsigned long long)follow->last_seq);
	r = client_path(path, sizeof(path), API_PREFIX_DAGSTER "/tasks", task_id, suffix);
	if (r == 0)
		r = client_perform(client, &request, reply);
	progress_clear(follow);
	return r == -ETIMEDOUT && idle_ms ? 0 : r;
}

/* The service was started again, or is just now: frames are kept, so that nothing is missed. */
static bool is_cut(const struct follow *follow, int r, const struct client_reply *reply)
{
	return !follow->terminal && (r == -EPIPE || r == -ECONNREFUSED ||
				     (r == 0 && (reply->status == 200 || reply->status == 503)));
}

static int follow_stream(struct client *client, struct follow *follow, const char *task_id,
			 long idle_ms)
{
	for (int tries = 0;; tries++) {
		AUTO_REPLY struct client_reply reply = CLIENT_REPLY_NULL;
		uint64_t before = follow->last_seq;
		int r = read_frames(client, follow, task_id, idle_ms, &reply);

		if (follow->last_seq > before)
			tries = 0;
		if (idle_ms || !is_cut(follow, r, &reply) || tries == RECONNECTS)
			return client_result(client, r, &reply);
		client_wait(client, RECONNECT_MS);
		if (client->signal)
			return EXIT_SIGNAL_BASE + client->signal;
	}
}

static void print_result(const struct follow *follow)
{
	if (follow->options->output != OUTPUT_JSON)
		(void)printf("result: %s, %zu asset%s, %zu document%s with problems%s\n",
			     follow->ok ? "ok" : "failed", follow->n_materialized,
			     follow->n_materialized == 1 ? "" : "s", follow->n_problems,
			     follow->n_problems == 1 ? "" : "s",
			     follow->manifest_only ? "; manifest only: nothing was materialised"
						   : "");
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

static void cancel_task(struct client *client, const char *task_id)
{
	AUTO_REPLY struct client_reply reply = CLIENT_REPLY_NULL;
	const struct client_object task = {API_PREFIX_DAGSTER "/tasks", task_id, NULL};

	if (client_ask_about(client, "DELETE", &task, NULL, &reply) == EXIT_OK)
		(void)fputs("sandboxctl: the task was cancelled\n", stderr);
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
	if (options->detach) {
		if (!print_answer(options, reply.doc))
			print_name(task_id);
		return EXIT_OK;
	}
	if (options->output == OUTPUT_TABLE && !options->quiet)
		(void)printf("task %s\n", task_id);
	r = task_follow(client, options, task_id, n_assets);
	/* Who interrupts it means the task; `logs -f` only looks. */
	if (client->signal)
		cancel_task(client, task_id);
	return r;
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
