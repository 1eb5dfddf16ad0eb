/*
 * Tasks and life time of a session, what it was refused, and what a tenant may use.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/num.h"
#include "base/str.h"

#include "ctl/commands.h"
#include "ctl/print.h"
#include "sandboxd/api.h"
#include "sandboxd/limits.h"

#define DAGSTER_SESSIONS API_PREFIX_DAGSTER "/sessions"

json_t *task_list(struct client *client, const char *session, int *ret_status)
{
	AUTO_REPLY struct client_reply reply = CLIENT_REPLY_NULL;
	const struct client_object tasks = {DAGSTER_SESSIONS, session, "/tasks"};

	*ret_status = client_ask_about(client, "GET", &tasks, NULL, &reply);
	return *ret_status == EXIT_OK ? json_incref(reply.doc) : NULL;
}

int command_tasks(struct client *client, const struct options *options)
{
	int status;
	json_t *tasks = task_list(client, options->args[0], &status);
	size_t i;
	json_t *task;

	if (!tasks)
		return status;
	if (!print_answer(options, tasks)) {
		bool table = options->output == OUTPUT_TABLE;

		if (table && !options->quiet)
			(void)printf("%-36s  %-8s  %-19s  %s  %s\n", "ID", "STATUS",
				     "CREATED (UTC)", "FRAMES", "CODE");
		json_array_foreach(tasks, i, task)
		{
			print_cell(print_member(task, "task_id"), table ? 36 : 0);
			if (table) {
				print_cell(print_member(task, "status"), 8);
				print_cell(print_member(task, "created_at"), -19);
				(void)printf("  %6lld  ", (long long)json_integer_value(
								  json_object_get(task, "seq")));
				print_cell(print_member(task, "code"), 0);
			}
			(void)putchar('\n');
		}
	}
	json_decref(tasks);
	return EXIT_OK;
}

int command_cancel(struct client *client, const struct options *options)
{
	AUTO_REPLY struct client_reply reply = CLIENT_REPLY_NULL;
	const struct client_object task = {API_PREFIX_DAGSTER "/tasks", options->args[0], NULL};
	int r = client_ask_about(client, "DELETE", &task, NULL, &reply);

	if (r != EXIT_OK || print_answer(options, reply.doc))
		return r;
	if (!options->quiet) {
		print_name(print_member(reply.doc, "status"));
	}
	return EXIT_OK;
}

int command_ttl(struct client *client, const struct options *options)
{
	AUTO_REPLY struct client_reply reply = CLIENT_REPLY_NULL;
	const struct client_object session = {DAGSTER_SESSIONS, options->args[0], NULL};
	uint32_t minutes;
	json_t *body;
	int r;

	if (num_parse_u32(options->args[1], TTL_MIN_MINUTES, INT32_MAX, &minutes) < 0) {
		(void)fprintf(stderr, "sandboxctl: ttl wants a number of minutes, %d to %d\n",
			      TTL_MIN_MINUTES, TTL_MAX_MINUTES);
		return EXIT_USAGE;
	}
	body = json_pack("{s:I}", "ttl_minutes", (json_int_t)minutes);
	r = body ? client_ask_about(client, "PATCH", &session, body, &reply) : EXIT_FAILED;
	json_decref(body);
	if (r != EXIT_OK || print_answer(options, reply.doc))
		return r;
	if (!options->quiet) {
		(void)fputs("expires ", stdout);
		print_name(print_member(reply.doc, "expires_at"));
	}
	return EXIT_OK;
}

static void print_denial(const json_t *denial, const struct options *options)
{
	const json_t *program = json_object_get(denial, "program");
	char count[24];

	(void)snprintf(count, sizeof(count), "%lld",
		       (long long)json_integer_value(json_object_get(denial, "count")));
	print_cell(print_member(denial, "time"), -19);
	(void)fputs("  ", stdout);
	print_cell(print_member(denial, "kind"), 8);
	print_cell(count, 6);
	print_cell(print_member(program, "comm"), 16);
	print_name(print_member(denial, "what"));
	if (options->quiet)
		return;
	(void)fputs("    ", stdout);
	print_text(stdout, print_member(denial, "rule"));
	(void)fputs("; ", stdout);
	print_name(print_member(denial, "advice"));
}

int command_denials(struct client *client, const struct options *options)
{
	AUTO_REPLY struct client_reply reply = CLIENT_REPLY_NULL;
	const struct client_object about = {API_PREFIX_RUNTIME, options->args[0], "/denials"};
	const json_t *denials;
	size_t i;
	json_t *denial;
	int r = client_ask_about(client, "GET", &about, NULL, &reply);

	if (r != EXIT_OK || print_answer(options, reply.doc))
		return r;
	denials = json_is_array(reply.doc) ? reply.doc : json_object_get(reply.doc, "denials");
	if (!options->quiet)
		(void)printf("%-19s  %-8s  %-6s  %-16s  %s\n", "TIME (UTC)", "KIND", "COUNT",
			     "PROGRAM", "WHAT");
	json_array_foreach(denials, i, denial) print_denial(denial, options);
	return EXIT_OK;
}

/* One line per number that has a limit, whatever the service limits. */
static void print_quota(const char *of, json_t *numbers)
{
	const char *name;
	json_t *value;

	json_object_foreach(numbers, name, value)
	{
		const json_t *limit = json_object_get(value, "limit");
		const json_t *used = json_object_get(value, "used");

		if (!limit && !used)
			continue;
		print_cell(of, 10);
		print_cell(name, 20);
		(void)printf("%16lld  ", (long long)json_integer_value(used));
		if (json_is_integer(limit))
			(void)printf("%16lld\n", (long long)json_integer_value(limit));
		else
			(void)printf("%16s\n", "-");
	}
}

int command_quota(struct client *client, const struct options *options)
{
	AUTO_REPLY struct client_reply reply = CLIENT_REPLY_NULL;
	const struct client_request request = {.method = "GET",
					       .path = API_PREFIX_DAGSTER "/quota"};
	const char *of;
	json_t *numbers;
	int r = client_ask(client, &request, &reply);

	if (r != EXIT_OK || print_answer(options, reply.doc))
		return r;
	if (!options->quiet)
		(void)printf("%-10s  %-20s  %16s  %16s\n", "OF", "WHAT", "USED", "LIMIT");
	json_object_foreach(reply.doc, of, numbers) print_quota(of, numbers);
	return EXIT_OK;
}
