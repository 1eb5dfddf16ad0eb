#include "resolve.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/id.h"
#include "base/session_name.h"
#include "base/str.h"

#include "ctl/print.h"
#include "sandboxd/api.h"

/* Ids are lower case; what cannot begin one goes to the service as it stands. */
static bool is_short_id(const char *word)
{
	size_t n = strlen(word);

	return n < ID_TEXT_BYTES - 1 && n > 0 && strspn(word, "0123456789abcdef-") == n;
}

/* Those of the ids that begin with `prefix`. */
static int list_several(const json_t *ids, const char *prefix)
{
	size_t i;
	json_t *id;

	json_array_foreach(ids, i, id)
	{
		if (!json_is_string(id) || !str_has_prefix(json_string_value(id), prefix))
			continue;
		(void)fputs("  ", stderr);
		print_text(stderr, json_string_value(id));
		(void)fputc('\n', stderr);
	}
	return EXIT_USAGE;
}

/* The one of `ids` that begins with word, or NULL with an exit status. */
static const char *only_match(const json_t *ids, const char *word, const char *what,
			      int *ret_status)
{
	const char *found = NULL;
	size_t i;
	json_t *id;

	json_array_foreach(ids, i, id)
	{
		const char *text = json_string_value(id);

		if (!text || !str_has_prefix(text, word))
			continue;
		if (found) {
			(void)fprintf(stderr, "sandboxctl: %s is the beginning of several ids:\n",
				      word);
			*ret_status = list_several(ids, word);
			return NULL;
		}
		found = text;
	}
	if (!found) {
		(void)fprintf(stderr, "sandboxctl: no %s whose id begins with %s\n", what, word);
		*ret_status = EXIT_NOT_FOUND;
	}
	return found;
}

static void add_tasks(struct client *client, const char *session, json_t *ids)
{
	int status;
	json_t *tasks = task_list(client, session, &status);
	size_t i;
	json_t *task;

	json_array_foreach(tasks, i, task)
	{
		(void)json_array_append(ids, json_object_get(task, "task_id"));
	}
	json_decref(tasks);
}

/* The ids of a session's commands; NULL and an exit status. */
static json_t *command_ids(struct client *client, const char *session, int *ret_status)
{
	json_t *commands = command_list(client, session, ret_status);
	json_t *ids = commands ? json_array() : NULL;
	size_t i;
	json_t *command;

	json_array_foreach(commands, i, command)
	{
		(void)json_array_append(ids, json_object_get(command, "command_id"));
	}
	json_decref(commands);
	return ids;
}

/* The ids of all sessions, or of all their tasks, or of the one session's commands; NULL and an
 * exit status. */
static json_t *all_ids(struct client *client, enum word_kind kind, const char *session_word,
		       int *ret_status)
{
	json_t *sessions;
	json_t *ids;
	size_t i;
	json_t *session;

	if (kind == WORD_COMMAND)
		return command_ids(client, session_word, ret_status);
	sessions = session_list(client, NULL, ret_status);
	ids = sessions ? json_array() : NULL;
	json_array_foreach(sessions, i, session)
	{
		const char *id = session_id(session);

		if (id && kind == WORD_TASK)
			add_tasks(client, id, ids);
		else if (id)
			(void)json_array_append_new(ids, json_string(id));
	}
	json_decref(sessions);
	return ids;
}

static int resolve_to(struct resolved *resolved, const char *id, char **word)
{
	char *copy = strdup(id);

	if (!copy)
		return EXIT_FAILED;
	resolved->word[resolved->n++] = copy;
	*word = copy;
	return EXIT_OK;
}

static int resolve_short_id(struct client *client, enum word_kind kind, const char *session_word,
			    char **word, struct resolved *resolved)
{
	static const char *const what[] = {
		[WORD_TASK] = "task", [WORD_COMMAND] = "command", [WORD_SESSION] = "session"};
	json_t *ids;
	const char *found;
	int status = EXIT_FAILED;

	if (strlen(*word) < SHORT_ID_MIN) {
		(void)fprintf(stderr, "sandboxctl: a short id has at least %d characters\n",
			      SHORT_ID_MIN);
		return EXIT_USAGE;
	}
	ids = all_ids(client, kind, session_word, &status);
	if (!ids)
		return status;
	found = only_match(ids, *word, what[kind], &status);
	if (found)
		status = resolve_to(resolved, found, word);
	json_decref(ids);
	return status;
}

/* The ids of the sessions of that name that are the user's own; user NULL: all that are seen. */
static json_t *ids_of_name(const json_t *sessions, const char *name, const char *user)
{
	json_t *ids = json_array();
	size_t i;
	json_t *session;

	json_array_foreach(sessions, i, session)
	{
		/* The name again: a service of an earlier release does not know this filter. */
		if (session_id(session) && str_equal(session_name(session), name) &&
		    (!user || str_equal(print_member(session, "owner"), user)))
			(void)json_array_append_new(ids, json_string(session_id(session)));
	}
	return ids;
}

static int resolve_name(struct client *client, const char *user, char **word,
			struct resolved *resolved)
{
	AUTO_REPLY struct client_reply reply = CLIENT_REPLY_NULL;
	char path[256];
	const struct client_request request = {.method = "GET", .path = path};
	json_t *ids;
	int status;

	if (str_format(path, sizeof(path), API_PREFIX_DAGSTER "/sessions?limit=500&name=%s",
		       *word) < 0)
		return EXIT_FAILED;
	status = client_ask(client, &request, &reply);
	if (status != EXIT_OK)
		return status;
	ids = ids_of_name(reply.doc, *word, user);
	if (json_array_size(ids) == 1) {
		status = resolve_to(resolved, json_string_value(json_array_get(ids, 0)), word);
	} else if (json_array_size(ids) == 0) {
		(void)fprintf(stderr, "sandboxctl: no session of the name %s\n", *word);
		status = EXIT_NOT_FOUND;
	} else {
		(void)fprintf(stderr, "sandboxctl: %s is the name of several sessions:\n", *word);
		status = list_several(ids, "");
	}
	json_decref(ids);
	return status;
}

int resolve_words(struct client *client, const struct command *command, struct options *options,
		  struct resolved *resolved)
{
	for (int i = 0; i < options->n_args; i++) {
		enum word_kind kind = command->words[i > 0];
		char **word = &options->args[i];
		int r = EXIT_OK;

		if ((kind == WORD_SESSION || kind == WORD_TASK || kind == WORD_COMMAND) &&
		    is_short_id(*word))
			r = resolve_short_id(client, kind, options->args[0], word, resolved);
		else if (kind == WORD_SESSION && session_name_valid(*word, strlen(*word)))
			r = resolve_name(client, options->user, word, resolved);
		if (r != EXIT_OK)
			return r;
	}
	return EXIT_OK;
}

void resolved_done(struct resolved *resolved)
{
	for (size_t i = 0; i < resolved->n; i++)
		free(resolved->word[i]);
	resolved->n = 0;
}
