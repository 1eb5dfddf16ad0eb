/*
 * Commands that are in a session already: ps, attach and kill.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/num.h"
#include "base/str.h"

#include "ctl/attach.h"
#include "ctl/commands.h"
#include "ctl/print.h"
#include "sandboxd/api.h"

json_t *command_list(struct client *client, const char *session, int *ret_status)
{
	AUTO_REPLY struct client_reply reply = CLIENT_REPLY_NULL;
	const struct client_object commands = {API_PREFIX_RUNTIME, session, "/commands"};
	json_t *list;

	*ret_status = client_ask_about(client, "GET", &commands, NULL, &reply);
	if (*ret_status != EXIT_OK)
		return NULL;
	list = json_object_get(reply.doc, "commands");
	return list ? json_incref(list) : json_array();
}

static void print_end(const json_t *command)
{
	const json_t *end = json_object_get(command, "exit");
	const json_t *code = json_object_get(end, "code");
	const json_t *signo = json_object_get(end, "signal");
	char text[24] = "-";

	if (json_is_integer(code))
		(void)snprintf(text, sizeof(text), "%d", (int)json_integer_value(code));
	else if (json_is_integer(signo))
		(void)snprintf(text, sizeof(text), "signal %d", (int)json_integer_value(signo));
	print_cell(text, 9);
}

static void print_command(const json_t *command, bool table)
{
	print_cell(print_member(command, "command_id"), table ? 36 : 0);
	if (table) {
		const json_t *pid = json_object_get(command, "pid");

		print_cell(print_member(command, "status"), 8);
		print_end(command);
		(void)printf("%7lld  ", (long long)json_integer_value(pid));
		print_cell(print_member(command, "created_at"), -19);
		(void)fputs("  ", stdout);
		print_text(stdout, print_member(command, "cmd"));
	}
	(void)putchar('\n');
}

int command_ps(struct client *client, const struct options *options)
{
	bool table = options->output == OUTPUT_TABLE;
	int status;
	json_t *list = command_list(client, options->args[0], &status);
	size_t i;
	json_t *command;

	if (!list)
		return status;
	if (!print_answer(options, list)) {
		if (table && !options->quiet)
			(void)printf("%-36s  %-8s  %-9s  %7s  %-19s  %s\n", "ID", "STATUS", "EXIT",
				     "PID", "CREATED (UTC)", "COMMAND");
		json_array_foreach(list, i, command)
		{
			print_command(command, table);
		}
	}
	json_decref(list);
	return EXIT_OK;
}

/* Prefix of what is asked about one command. */
static int commands_path(char *path, size_t path_bytes, const char *session)
{
	return client_path(path, path_bytes, API_PREFIX_RUNTIME, session, "/commands");
}

int command_kill(struct client *client, const struct options *options)
{
	AUTO_REPLY struct client_reply reply = CLIENT_REPLY_NULL;
	char prefix[256];
	const struct client_object command = {prefix, options->args[1], "/signal"};
	const char *name = options->signal ? options->signal : "TERM";
	uint32_t number;
	json_t *body;
	int r;

	r = commands_path(prefix, sizeof(prefix), options->args[0]);
	if (r < 0)
		return client_result(client, r, &reply);
	body = json_pack("{s:o, s:s*}", "signal",
			 num_parse_u32(name, 1, 64, &number) == 0 ? json_integer(number)
								  : json_string(name),
			 "scope", options->scope);
	r = client_ask_about(client, "POST", &command, body, &reply);
	json_decref(body);
	return r;
}

int command_attach(struct client *client, const struct options *options)
{
	AUTO_REPLY struct client_reply reply = CLIENT_REPLY_NULL;
	char prefix[256];
	const struct client_object command = {prefix, options->args[1], NULL};
	struct attach_mode mode = {.has_input = options->with_stdin};
	int r;

	r = commands_path(prefix, sizeof(prefix), options->args[0]);
	if (r < 0)
		return client_result(client, r, &reply);
	r = client_ask_about(client, "GET", &command, NULL, &reply);
	if (r != EXIT_OK)
		return r;
	mode.is_terminal = json_is_object(json_object_get(reply.doc, "pty")) &&
			   isatty(STDIN_FILENO) == 1 && options->output != OUTPUT_JSON;
	mode.has_input |= mode.is_terminal;
	return attach_command(client, options, options->args[0], options->args[1], &mode);
}
