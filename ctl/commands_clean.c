/*
 * Taking things away: all sessions, what has expired, what dead instances left.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/str.h"

#include "ctl/commands.h"
#include "ctl/print.h"
#include "sandboxd/api.h"

/* Asked on the terminal; without one the answer is no. */
static bool confirmed(const struct options *options, size_t n)
{
	char answer[16];

	if (options->yes)
		return true;
	if (isatty(STDIN_FILENO) != 1) {
		(void)fputs("sandboxctl: purge wants --yes where there is no terminal to ask\n",
			    stderr);
		return false;
	}
	(void)fprintf(stderr, "Tear down %zu sessions? [y/N] ", n);
	return fgets(answer, sizeof(answer), stdin) && (answer[0] == 'y' || answer[0] == 'Y');
}

static int remove_all(struct client *client, const struct options *options, const json_t *sessions)
{
	int worst = EXIT_OK;
	json_t *removed = json_array();
	size_t i;
	json_t *session;

	json_array_foreach(sessions, i, session)
	{
		AUTO_REPLY struct client_reply reply = CLIENT_REPLY_NULL;
		const char *id = session_id(session);
		int r = id ? session_remove(client, id, &reply) : EXIT_FAILED;

		/* Gone already is what we want; its message went out. */
		if (r != EXIT_OK && r != EXIT_NOT_FOUND)
			worst = r;
		if (r == EXIT_UNREACHABLE || client->signal)
			break;
		if (r == EXIT_OK)
			(void)json_array_append_new(removed, json_string(id));
		if (r == EXIT_OK && options->output != OUTPUT_JSON && !options->quiet) {
			print_name(id);
		}
	}
	(void)print_answer(options, removed);
	json_decref(removed);
	return worst;
}

int command_purge(struct client *client, const struct options *options)
{
	int status;
	json_t *sessions = session_list(client, NULL, &status);

	if (!sessions)
		return status;
	if (json_array_size(sessions) > 0 && !confirmed(options, json_array_size(sessions)))
		status = EXIT_USAGE;
	else
		status = remove_all(client, options, sessions);
	json_decref(sessions);
	return status;
}

static int ask_janitor(struct client *client, const char *method, struct client_reply *reply)
{
	const struct client_request request = {.method = method,
					       .path = API_PREFIX_DAGSTER "/janitor"};

	return client_ask(client, &request, reply);
}

static void print_ids(const char *what, const json_t *ids)
{
	size_t i;
	json_t *id;

	json_array_foreach(ids, i, id)
	{
		print_cell(what, what[0] ? 8 : 0);
		print_name(json_string_value(id));
	}
}

int command_janitor(struct client *client, const struct options *options)
{
	AUTO_REPLY struct client_reply reply = CLIENT_REPLY_NULL;
	int r = ask_janitor(client, "POST", &reply);

	if (r == EXIT_OK && !print_answer(options, reply.doc))
		print_ids("", json_object_get(reply.doc, "dropped"));
	return r;
}

int command_gc(struct client *client, const struct options *options)
{
	AUTO_REPLY struct client_reply reply = CLIENT_REPLY_NULL;
	int r = ask_janitor(client, options->dry_run ? "GET" : "POST", &reply);
	json_t *expired = json_object_get(reply.doc, "dropped");
	json_t *groups;
	json_t *doc;

	if (r != EXIT_OK)
		return r;
	groups = leftovers(!options->dry_run);
	doc = json_pack("{s:b,s:O?,s:o?}", "dry_run", options->dry_run, "sessions", expired,
			"groups", groups);
	if (!doc)
		return EXIT_FAILED;
	if (!print_answer(options, doc)) {
		bool names = options->output == OUTPUT_NAME;

		print_ids(names ? "" : "session", json_object_get(doc, "sessions"));
		print_ids(names ? "" : "group", json_object_get(doc, "groups"));
	}
	json_decref(doc);
	return EXIT_OK;
}
