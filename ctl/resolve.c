#include "resolve.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/id.h"
#include "base/str.h"

#include "ctl/print.h"

/* Ids are lower case; what cannot begin one goes to the service as it stands. */
static bool is_short_id(const char *word)
{
	size_t n = strlen(word);

	return n < ID_TEXT_BYTES - 1 && n > 0 && strspn(word, "0123456789abcdef-") == n;
}

static int report_ambiguous(const json_t *ids, const char *word)
{
	size_t i;
	json_t *id;

	(void)fprintf(stderr, "sandboxctl: %s is the beginning of several ids:\n", word);
	json_array_foreach(ids, i, id)
	{
		if (!str_has_prefix(json_string_value(id), word))
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
			*ret_status = report_ambiguous(ids, word);
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

/* The ids of all sessions, or of all their tasks; NULL and an exit status. */
static json_t *all_ids(struct client *client, enum word_kind kind, int *ret_status)
{
	json_t *sessions = session_list(client, NULL, ret_status);
	json_t *ids = sessions ? json_array() : NULL;
	size_t i;
	json_t *session;

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

static int resolve_one(struct client *client, enum word_kind kind, char **word,
		       struct resolved *resolved)
{
	json_t *ids;
	const char *found;
	int status = EXIT_FAILED;

	if (strlen(*word) < SHORT_ID_MIN) {
		(void)fprintf(stderr, "sandboxctl: a short id has at least %d characters\n",
			      SHORT_ID_MIN);
		return EXIT_USAGE;
	}
	ids = all_ids(client, kind, &status);
	if (!ids)
		return status;
	found = only_match(ids, *word, kind == WORD_TASK ? "task" : "session", &status);
	if (found) {
		resolved->word[resolved->n] = strdup(found);
		status = resolved->word[resolved->n] ? EXIT_OK : EXIT_FAILED;
		*word = resolved->word[resolved->n++];
	}
	json_decref(ids);
	return status;
}

int resolve_words(struct client *client, const struct command *command, struct options *options,
		  struct resolved *resolved)
{
	for (int i = 0; i < options->n_args; i++) {
		enum word_kind kind = command->words[i > 0];
		int r;

		if ((kind != WORD_SESSION && kind != WORD_TASK) || !is_short_id(options->args[i]))
			continue;
		r = resolve_one(client, kind, &options->args[i], resolved);
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
