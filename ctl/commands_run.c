/*
 * run, exec and shell: a command in a session, its output as it comes, its status as ours. `run`
 * makes the session and removes it whatever happens, a signal to us included: the signal ends the
 * transfer (which cancels the command, as for every client that leaves), then the session is
 * deleted. One that gets our input is begun in the background, and attached to.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/str.h"

#include "ctl/attach.h"
#include "ctl/commands.h"
#include "ctl/print.h"
#include "ctl/terminal.h"
#include "sandboxd/api.h"

static int perform_command(struct client *client, const char *session, json_t *body,
			   struct command_events *events)
{
	AUTO_REPLY struct client_reply reply = CLIENT_REPLY_NULL;
	char path[512];
	const struct client_request request = {.method = "POST",
					       .path = path,
					       .accept = "application/x-ndjson",
					       .body = body,
					       .line = command_events_line,
					       .userdata = events};
	int r;

	r = client_path(path, sizeof(path), API_PREFIX_RUNTIME, session, "/commands");
	if (r == 0)
		r = client_perform(client, &request, &reply);
	r = client_result(client, r, &reply);
	if (r != EXIT_OK)
		return r;
	if (events->exit_status < 0) {
		(void)fputs("sandboxctl: the session ended before the command did\n", stderr);
		return EXIT_FAILED;
	}
	return events->exit_status;
}

int command_in_session(struct client *client, const char *session, json_t *request,
		       const struct command_output *output, bool *ret_timed_out)
{
	struct command_events events = {
		.output = output, .exit_status = -1, .quiet = ret_timed_out != NULL};
	int r = perform_command(client, session, request, &events);

	if (ret_timed_out)
		*ret_timed_out = events.timed_out;
	return r;
}

static int write_stream(void *userdata, int fd, const char *data, size_t length)
{
	struct print_stream *streams = userdata;

	return print_stream_write(&streams[fd - 1], data, length);
}

/* What a command of `exec` and `run` is begun with besides its words. */
static int add_settings(json_t *body, const struct options *options, bool with_env)
{
	int failed = 0;

	if (options->cwd)
		failed |= json_object_set_new(body, "cwd", json_string(options->cwd));
	if (options->as_root)
		failed |= json_object_set_new(body, "user", json_string("root"));
	if (options->timeout_ms)
		failed |=
			json_object_set_new(body, "timeout_ms", json_integer(options->timeout_ms));
	if (with_env && options->n_env)
		failed |= json_object_set_new(body, "envs",
					      pairs_object(options->env, options->n_env));
	return failed;
}

int request_unsendable(void)
{
	(void)fputs("sandboxctl: the command cannot be sent: not UTF-8, or a file that cannot be "
		    "read\n",
		    stderr);
	return EXIT_USAGE;
}

/* The request of a command line; NULL: no memory, or something that cannot be sent. */
static json_t *command_body(const struct options *options, bool with_env, int first)
{
	json_t *body = json_pack("{s:[]}", "argv");
	json_t *argv = json_object_get(body, "argv");
	int failed = body ? 0 : -1;

	for (int i = first; i < options->n_args; i++)
		failed |= json_array_append_new(argv, json_string(options->args[i]));
	failed |= add_settings(body, options, with_env);
	if (!failed)
		return body;
	json_decref(body);
	(void)request_unsendable();
	return NULL;
}

static int perform_streamed(struct client *client, const struct options *options,
			    const char *session, json_t *body)
{
	struct print_stream streams[2];
	const struct command_output output = {.write = write_stream, .userdata = streams};
	struct command_events events = {
		.output = &output, .exit_status = -1, .json = options->output == OUTPUT_JSON};
	int r;

	print_stream_init(&streams[0], stdout, options->raw);
	print_stream_init(&streams[1], stderr, options->raw);
	r = perform_command(client, session, body, &events);
	print_stream_end(&streams[0]);
	print_stream_end(&streams[1]);
	return r;
}

/* Our terminal for the command's; its kind goes along, as programs draw for it. */
static int add_terminal(json_t *body)
{
	/* One thread. NOLINTNEXTLINE(concurrency-mt-unsafe) */
	const char *kind = getenv("TERM");
	json_t *envs = json_object_get(body, "envs");
	uint16_t rows;
	uint16_t cols;
	int failed = 0;

	terminal_size(&rows, &cols);
	failed |= json_object_set_new(
		body, "pty", json_pack("{s:i, s:i}", "rows", (int)rows, "cols", (int)cols));
	if (!envs) {
		envs = json_object();
		failed |= json_object_set_new(body, "envs", envs);
	}
	if (kind && kind[0] && !json_object_get(envs, "TERM"))
		failed |= json_object_set_new(envs, "TERM", json_string(kind));
	return failed;
}

/* Begin it in the background: its input comes later. What it writes before it is attached to waits.
 * Exit status; the reply is its state. */
static int begin_command(struct client *client, const struct options *options, const char *session,
			 json_t *body, struct client_reply *reply)
{
	struct command_events events = {.exit_status = -1};
	const char *code;
	char path[512];
	const struct client_request request = {
		.method = "POST", .path = path, .body = body, .answer_first = true};
	int r;

	r = json_object_set_new(body, "background", json_true()) < 0 ||
			    json_object_set_new(body, "hold_output",
						json_boolean(!options->detach)) < 0
		    ? -ENOMEM
		    : 0;
	if (r == 0)
		r = client_path(path, sizeof(path), API_PREFIX_RUNTIME, session, "/commands");
	if (r == 0)
		r = client_perform(client, &request, reply);
	code = json_string_value(json_object_get(reply->doc, "code"));
	if (r == 0 && reply->status == 422 && code && str_equal(code, "command_failed")) {
		command_events_failed(&events, reply->doc);
		return events.exit_status;
	}
	return client_result(client, r, reply);
}

static int run_attached(struct client *client, const struct options *options, const char *session,
			json_t *body, const struct attach_mode *mode)
{
	AUTO_REPLY struct client_reply reply = CLIENT_REPLY_NULL;
	int r = begin_command(client, options, session, body, &reply);

	if (r != EXIT_OK)
		return r;
	return attach_command(client, options, session, print_member(reply.doc, "command_id"),
			      mode);
}

static int run_in(struct client *client, const struct options *options, const char *session,
		  bool with_env, int first)
{
	const struct attach_mode mode = {
		.is_terminal = options->tty, .has_input = true, .kills = true};
	json_t *body;
	int r;

	if (options->tty && isatty(STDIN_FILENO) != 1) {
		(void)fputs("sandboxctl: --tty: standard input is no terminal\n", stderr);
		return EXIT_USAGE;
	}
	body = command_body(options, with_env, first);
	if (!body)
		return EXIT_USAGE;
	if (options->tty)
		r = add_terminal(body) ? EXIT_FAILED
				       : run_attached(client, options, session, body, &mode);
	else if (options->with_stdin)
		r = json_object_set_new(body, "stdin_open", json_true())
			    ? EXIT_FAILED
			    : run_attached(client, options, session, body, &mode);
	else
		r = perform_streamed(client, options, session, body);
	json_decref(body);
	return r;
}

static int exec_detached(struct client *client, const struct options *options)
{
	AUTO_REPLY struct client_reply reply = CLIENT_REPLY_NULL;
	json_t *body = command_body(options, true, 1);
	int failed = 0;
	int r;

	if (!body)
		return EXIT_USAGE;
	if (options->tty)
		failed = add_terminal(body);
	else if (options->with_stdin)
		failed = json_object_set_new(body, "stdin_open", json_true());
	r = failed ? EXIT_FAILED : begin_command(client, options, options->args[0], body, &reply);
	json_decref(body);
	if (r == EXIT_OK && !print_answer(options, reply.doc))
		print_name(print_member(reply.doc, "command_id"));
	return r;
}

int command_exec(struct client *client, const struct options *options)
{
	if (options->detach)
		return exec_detached(client, options);
	return run_in(client, options, options->args[0], true, 1);
}

int command_shell(struct client *client, const struct options *options)
{
	static const char shell[] =
		"if command -v bash >/dev/null; then exec bash; else exec sh; fi";
	struct attach_mode mode = {.is_terminal = isatty(STDIN_FILENO) == 1 &&
						  options->output != OUTPUT_JSON,
				   .has_input = true,
				   .kills = true};
	json_t *body = json_pack("{s:s}", "cmd", shell);
	int failed = body ? add_settings(body, options, true) : -1;
	int r;

	if (!failed)
		failed = mode.is_terminal ? add_terminal(body)
					  : json_object_set_new(body, "stdin_open", json_true());
	r = failed ? EXIT_FAILED : run_attached(client, options, options->args[0], body, &mode);
	json_decref(body);
	return r;
}

static int delete_session(struct client *client, const char *id)
{
	AUTO_REPLY struct client_reply reply = CLIENT_REPLY_NULL;
	char path[512];
	const struct client_request request = {.method = "DELETE", .path = path};
	int r;

	r = client_path(path, sizeof(path), API_PREFIX_RUNTIME, id, "");
	if (r == 0)
		r = client_perform(client, &request, &reply);
	/* Gone already (expired, or removed by somebody else) is what we want. */
	return r == 0 && reply.status == 404 ? EXIT_OK : client_result(client, r, &reply);
}

int command_run(struct client *client, const struct options *options)
{
	AUTO_REPLY struct client_reply reply = CLIENT_REPLY_NULL;
	struct options spec = *options;
	const char *id;
	int status;
	int r;

	/* Always a session of the runtime API: components are of no interest here. A template is
	 * for agents alone. */
	if (!spec.profile)
		spec.profile = spec.template ? "agent" : "component";
	r = session_create(client, &spec, &reply);
	if (r != EXIT_OK)
		return r;
	id = session_id(reply.doc);
	if (!id)
		return EXIT_FAILED;
	/* A signal that came while it was made: the session is there, and ours to remove. */
	status = client->signal ? EXIT_SIGNAL_BASE + client->signal
				: run_in(client, options, id, false, 0);
	if (options->keep) {
		(void)fprintf(stderr, "session %s\n", id);
		return status;
	}
	r = delete_session(client, id);
	return status == EXIT_OK ? r : status;
}
