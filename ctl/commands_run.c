/*
 * run and exec: a command in a session, its output as it comes, its status as ours. `run` makes the
 * session and removes it whatever happens, a signal to us included: the signal ends the transfer
 * (which cancels the command, as for every client that leaves), then the session is deleted.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"
#include "base/json.h"
#include "base/str.h"

#include "ctl/commands.h"
#include "ctl/print.h"
#include "sandboxd/api.h"

#define STDIN_MAX_BYTES ((size_t)1024 * 1024)

struct run {
	const struct command_output *output;
	int exit_status; /* -1 until the exit line came */
	bool json;
	bool quiet;     /* the caller says itself that the time was up */
	bool timed_out; /* of the exit line */
	bool started;
};

static int take_output(struct run *run, int fd, const json_t *line)
{
	const json_t *text = json_object_get(line, "text");
	const char *data = json_string_value(json_object_get(line, "data"));
	size_t length = data ? strlen(data) : 0;
	AUTO_FREE char *bytes = NULL;
	size_t size = 0;
	int r;

	if (json_is_string(text))
		return run->output->write(run->output->userdata, fd, json_string_value(text),
					  json_string_length(text));
	bytes = malloc(length + 1);
	if (!bytes)
		return -ENOMEM;
	r = str_base64_decode(bytes, length + 1, data ? data : "", length, &size);
	if (r < 0)
		return -EBADMSG;
	return run->output->write(run->output->userdata, fd, bytes, size);
}

static void take_exit(struct run *run, const json_t *line)
{
	const json_t *code = json_object_get(line, "code");
	const json_t *signo = json_object_get(line, "signal");

	run->timed_out = json_is_true(json_object_get(line, "timed_out"));
	if (run->timed_out && !run->quiet)
		(void)fputs("sandboxctl: the command's time was up\n", stderr);
	if (json_is_true(json_object_get(line, "truncated")))
		(void)fputs("sandboxctl: output beyond the limit was dropped\n", stderr);
	if (json_is_integer(code))
		run->exit_status = (int)json_integer_value(code) & 0xff;
	else if (json_is_integer(signo))
		run->exit_status = EXIT_SIGNAL_BASE + ((int)json_integer_value(signo) & 0x7f);
	else
		run->exit_status = EXIT_FAILED;
}

/* A command that never started has the status that env(1) gives; one that ran lost its session. */
static void take_error(struct run *run, const json_t *line)
{
	const char *detail = json_string_value(json_object_get(line, "detail"));
	const char *errno_name = json_string_value(json_object_get(line, "errno"));
	const char *step = json_string_value(json_object_get(line, "step"));
	bool not_found =
		step && errno_name && str_equal(step, "exec") && str_equal(errno_name, "ENOENT");

	if (not_found)
		detail = "the command, or the interpreter that it names, is not there";
	if (!detail)
		detail = json_string_value(json_object_get(line, "message"));
	(void)fputs("sandboxctl: ", stderr);
	print_text(stderr, detail ? detail : "the command did not start");
	(void)fputc('\n', stderr);
	if (run->started)
		run->exit_status = EXIT_FAILED;
	else
		run->exit_status = not_found ? EXIT_COMMAND_NOT_FOUND : EXIT_COMMAND_NOT_STARTED;
}

static int on_line(void *userdata, const char *text, size_t length)
{
	struct run *run = userdata;
	json_t *line = NULL;
	const char *reason = NULL;
	const char *type;
	int r = 0;

	if (length == 0)
		return 0;
	if (doc_parse(text, length, &line, &reason) < 0)
		return -EBADMSG;
	if (run->json) {
		print_json_line(line);
		r = print_flush(stdout);
	}
	type = json_string_value(json_object_get(line, "type"));
	if (!type)
		type = json_string_value(json_object_get(line, "event"));
	if (r < 0 || !type)
		; /* nobody reads; or a heartbeat */
	else if (str_equal(type, "stdout") && !run->json)
		r = take_output(run, STDOUT_FILENO, line);
	else if (str_equal(type, "stderr") && !run->json)
		r = take_output(run, STDERR_FILENO, line);
	else if (str_equal(type, "start"))
		run->started = true;
	else if (str_equal(type, "exit"))
		take_exit(run, line);
	else if (str_equal(type, "error") || str_equal(type, "failed"))
		take_error(run, line);
	json_decref(line);
	return r;
}

static int perform_command(struct client *client, const char *session, json_t *body,
			   struct run *run)
{
	AUTO_REPLY struct client_reply reply = CLIENT_REPLY_NULL;
	char path[512];
	const struct client_request request = {.method = "POST",
					       .path = path,
					       .accept = "application/x-ndjson",
					       .body = body,
					       .line = on_line,
					       .userdata = run};
	int r;

	r = client_path(path, sizeof(path), API_PREFIX_RUNTIME, session, "/commands");
	if (r == 0)
		r = client_perform(client, &request, &reply);
	r = client_result(client, r, &reply);
	if (r != EXIT_OK)
		return r;
	if (run->exit_status < 0) {
		(void)fputs("sandboxctl: the session ended before the command did\n", stderr);
		return EXIT_FAILED;
	}
	return run->exit_status;
}

int command_in_session(struct client *client, const char *session, json_t *request,
		       const struct command_output *output, bool *ret_timed_out)
{
	struct run run = {.output = output, .exit_status = -1, .quiet = ret_timed_out != NULL};
	int r = perform_command(client, session, request, &run);

	if (ret_timed_out)
		*ret_timed_out = run.timed_out;
	return r;
}

static int write_stream(void *userdata, int fd, const char *data, size_t length)
{
	struct print_stream *streams = userdata;

	return print_stream_write(&streams[fd - 1], data, length);
}

/* The request of a command line; NULL: no memory, or something that cannot be sent. */
static json_t *command_body(const struct options *options, bool with_env, int first)
{
	json_t *body = json_pack("{s:[]}", "argv");
	json_t *argv = json_object_get(body, "argv");
	int failed = body ? 0 : -1;

	for (int i = first; i < options->n_args; i++)
		failed |= json_array_append_new(argv, json_string(options->args[i]));
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
	if (options->with_stdin) {
		AUTO_FREE char *text = NULL;
		size_t size = 0;

		failed |= io_read_file(STDIN_FILENO, STDIN_MAX_BYTES, &text, &size);
		if (!failed)
			failed |= json_object_set_new(body, "stdin", json_stringn(text, size));
	}
	if (failed) {
		json_decref(body);
		return NULL;
	}
	return body;
}

static int run_in(struct client *client, const struct options *options, const char *session,
		  bool with_env, int first)
{
	struct print_stream streams[2];
	const struct command_output output = {.write = write_stream, .userdata = streams};
	struct run run = {
		.output = &output, .exit_status = -1, .json = options->output == OUTPUT_JSON};
	json_t *body = command_body(options, with_env, first);
	int r;

	if (!body) {
		(void)fputs("sandboxctl: the command or its input cannot be sent: not UTF-8, a "
			    "file that cannot be read, or more than 1 MiB of input\n",
			    stderr);
		return EXIT_USAGE;
	}
	print_stream_init(&streams[0], stdout, options->raw);
	print_stream_init(&streams[1], stderr, options->raw);
	r = perform_command(client, session, body, &run);
	print_stream_end(&streams[0]);
	print_stream_end(&streams[1]);
	json_decref(body);
	return r;
}

int command_exec(struct client *client, const struct options *options)
{
	return run_in(client, options, options->args[0], true, 1);
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

	/* Always a session of the runtime API: components are of no interest here. */
	if (!spec.profile)
		spec.profile = "component";
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
