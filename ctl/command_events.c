#include "command_events.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "base/str.h"

#include "ctl/options.h"
#include "ctl/print.h"

static int take_output(struct command_events *events, int fd, const json_t *line)
{
	const json_t *text = json_object_get(line, "text");
	const char *data = json_string_value(json_object_get(line, "data"));
	size_t length = data ? strlen(data) : 0;
	AUTO_FREE char *bytes = NULL;
	size_t size = 0;
	int r;

	if (json_is_string(text))
		return events->output->write(events->output->userdata, fd, json_string_value(text),
					     json_string_length(text));
	bytes = malloc(length + 1);
	if (!bytes)
		return -ENOMEM;
	r = str_base64_decode(bytes, length + 1, data ? data : "", length, &size);
	if (r < 0)
		return -EBADMSG;
	return events->output->write(events->output->userdata, fd, bytes, size);
}

static void take_exit(struct command_events *events, const json_t *line)
{
	const json_t *code = json_object_get(line, "code");
	const json_t *signo = json_object_get(line, "signal");

	events->timed_out = json_is_true(json_object_get(line, "timed_out"));
	if (events->timed_out && !events->quiet)
		(void)fputs("sandboxctl: the command's time was up\n", stderr);
	if (json_is_true(json_object_get(line, "truncated")))
		(void)fputs("sandboxctl: output beyond the limit was dropped\n", stderr);
	if (json_is_integer(code))
		events->exit_status = (int)json_integer_value(code) & 0xff;
	else if (json_is_integer(signo))
		events->exit_status = EXIT_SIGNAL_BASE + ((int)json_integer_value(signo) & 0x7f);
	else
		events->exit_status = EXIT_FAILED;
}

/* Nothing comes meanwhile. A terminal may be raw. */
static void say_standing(bool is_suspended)
{
	(void)fputs(is_suspended ? "sandboxctl: the sandbox is suspended, and its command with it"
				 : "sandboxctl: the sandbox goes on",
		    stderr);
	(void)fputs(isatty(STDERR_FILENO) ? "\r\n" : "\n", stderr);
}

void command_events_failed(struct command_events *events, const json_t *line)
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
	if (events->started)
		events->exit_status = EXIT_FAILED;
	else
		events->exit_status = not_found ? EXIT_COMMAND_NOT_FOUND : EXIT_COMMAND_NOT_STARTED;
}

int command_events_line(void *userdata, const char *text, size_t length)
{
	struct command_events *events = userdata;
	json_t *line = NULL;
	const char *reason = NULL;
	const char *type;
	int r = 0;

	if (length == 0)
		return 0;
	if (doc_parse(text, length, &line, &reason) < 0)
		return -EBADMSG;
	if (events->json) {
		print_json_line(line);
		r = print_flush(stdout);
	}
	type = json_string_value(json_object_get(line, "type"));
	if (!type)
		type = json_string_value(json_object_get(line, "event"));
	if (r < 0 || !type)
		; /* nobody reads; or a heartbeat */
	else if (str_equal(type, "stdout") && !events->json)
		r = take_output(events, STDOUT_FILENO, line);
	else if (str_equal(type, "stderr") && !events->json)
		r = take_output(events, STDERR_FILENO, line);
	else if (str_equal(type, "start"))
		events->started = true;
	else if (str_equal(type, "suspended") || str_equal(type, "resumed"))
		say_standing(str_equal(type, "suspended"));
	else if (str_equal(type, "exit"))
		take_exit(events, line);
	else if (str_equal(type, "error") || str_equal(type, "failed"))
		command_events_failed(events, line);
	json_decref(line);
	return r;
}
