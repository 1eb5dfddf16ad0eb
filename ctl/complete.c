/*
 * Completion. The scripts for the shells are thin (ctl/completion): they ask `sandboxctl __complete
 * WORD...` what can stand for the last word, one answer a line, "word<tab>text", or ":files" for
 * names of files. So the table of commands and live ids are the only source, for every shell.
 */
#include "ctl/complete.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/str.h"

#include "ctl/commands.h"
#include "ctl/print.h"

/* A shell that waits for us looks dead. */
#define TIME_MAX_S 3

static void offer(const char *current, const char *word, const char *text)
{
	if (!word || !str_has_prefix(word, current))
		return;
	print_text(stdout, word);
	(void)fputs("\t", stdout);
	print_name(text);
}

/* What the words before the current one say. */
struct state {
	struct options options;
	const char *verb;
	const char *sub;
	const struct command *command; /* NULL: not known yet */
	int n_words;                   /* positional ones of the command */
	const char *first_word;        /* of these */
	bool behind_line;              /* words of a command line */
	const struct option_row *value_of;
};

static option_set accepted_options(const struct state *state)
{
	return OPTIONS_COMMON | (state->command ? state->command->options : 0);
}

static const struct command *find(const char *verb, const char *sub)
{
	size_t n;
	const struct command *table = command_table(&n);

	for (size_t i = 0; i < n; i++)
		if (str_equal(table[i].verb, verb) &&
		    (!table[i].sub || (sub && str_equal(table[i].sub, sub))))
			return &table[i];
	return NULL;
}

static void take_word(struct state *state, const char *word)
{
	if (state->command) {
		if (state->n_words++ == 0)
			state->first_word = word;
	} else if (!state->verb) {
		state->verb = word;
		state->command = find(word, NULL);
	} else {
		state->sub = word;
		state->command = find(state->verb, word);
	}
}

/* The option whose value is still missing, where that is why the words do not parse. */
static const struct option_row *missing_value(option_set accepted, const char *word)
{
	for (int i = 0; i < OPTION_MAX_; i++) {
		const struct option_row *row = option_row((enum option_id)i);

		if (!(accepted & OPTION_BIT(i)) || !row->argument)
			continue;
		if ((str_has_prefix(word, "--") && str_equal(word + 2, row->name)) ||
		    (row->letter && word[0] == '-' && word[1] == row->letter && word[2] == '\0'))
			return row;
	}
	return NULL;
}

/* False: they are wrong, and nothing fits. */
static bool take_words_before(struct state *state, int argc, char **argv)
{
	int at = 0;

	while (at < argc) {
		int skipped = 0;

		if (options_parse(&state->options, accepted_options(state), argc - at, argv + at,
				  &skipped) < 0) {
			state->value_of = missing_value(accepted_options(state), argv[argc - 1]);
			return state->value_of != NULL;
		}
		at += skipped;
		if (at >= argc)
			break;
		if (str_equal(argv[at], "--")) {
			state->behind_line = true;
			return true;
		}
		take_word(state, argv[at++]);
		if (state->command && state->command->max_words < 0 &&
		    state->n_words >= state->command->min_words) {
			state->behind_line = true;
			return true;
		}
	}
	return true;
}

/* Values of an option: the words of its argument, or names of files. prefix: "--name=" or "". */
static void offer_values(const struct option_row *row, const char *prefix, const char *current)
{
	const char *at = row->argument;

	if (str_equal(at, "PATH") || str_equal(at, "FILE") || str_equal(at, "DIR")) {
		(void)puts(":files");
		return;
	}
	if (!strchr(at, '|'))
		return;
	while (*at) {
		char word[96];
		size_t n = strcspn(at, "|");

		if (str_format(word, sizeof(word), "%s%.*s", prefix, (int)n, at) == 0)
			offer(current, word, row->text);
		at += n + (at[n] ? 1 : 0);
	}
}

static void offer_options(const struct state *state, const char *current)
{
	option_set accepted = accepted_options(state);
	const char *equals = strchr(current, '=');

	for (int i = 0; i < OPTION_MAX_; i++) {
		const struct option_row *row = option_row((enum option_id)i);
		char word[64];

		if (!(accepted & OPTION_BIT(i)) ||
		    str_format(word, sizeof(word), "--%s%s", row->name, equals ? "=" : "") < 0)
			continue;
		if (!equals)
			offer(current, word, row->text);
		else if (str_has_prefix(current, word) && row->argument)
			offer_values(row, word, current);
	}
}

static void offer_verbs(const char *verb, const char *current)
{
	size_t n;
	const struct command *table = command_table(&n);
	const char *last = "";

	for (size_t i = 0; i < n; i++) {
		if (verb && str_equal(table[i].verb, verb))
			offer(current, table[i].sub, table[i].text);
		/* Rows of one verb stand together. */
		else if (!verb && !str_equal(table[i].verb, last))
			offer(current, table[i].verb, table[i].text);
		last = table[i].verb;
	}
}

/* Takes the list. */
static void offer_list(json_t *list, const char *id, const char *text, const char *current)
{
	size_t i;
	json_t *row;

	json_array_foreach(list, i, row)
	{
		offer(current, json_string_value(json_object_get(row, id)),
		      print_member(row, text));
	}
	json_decref(list);
}

static void offer_session(const json_t *session, const char *current)
{
	const char *name = session_name(session);

	offer(current, session_id(session), print_member(session, "status"));
	if (!str_equal(name, "-"))
		offer(current, name, print_member(session, "status"));
}

static void offer_ids(struct state *state, enum word_kind kind, const char *current)
{
	struct client client;
	int status;
	json_t *sessions = NULL;
	size_t i;
	json_t *session;

	options_from_environment(&state->options);
	(void)alarm(TIME_MAX_S);
	if (client_open(&client, &state->options) == 0) {
		if (kind == WORD_COMMAND)
			offer_list(command_list(&client, state->first_word, &status), "command_id",
				   "cmd", current);
		else
			sessions = session_list(&client, NULL, &status);
	}
	json_array_foreach(sessions, i, session)
	{
		const char *id = session_id(session);

		if (id && kind == WORD_TASK)
			offer_list(task_list(&client, id, &status), "task_id", "status", current);
		else
			offer_session(session, current);
	}
	json_decref(sessions);
	client_close(&client);
}

static void offer_words(struct state *state, const char *current)
{
	switch (state->command->words[state->n_words > 0]) {
	case WORD_SESSION:
	case WORD_TASK:
	case WORD_COMMAND:
		offer_ids(state, state->command->words[state->n_words > 0], current);
		break;
	case WORD_FILE:
		(void)puts(":files");
		break;
	case WORD_SHELL:
		for (const struct completion_script *script = completion_scripts; script->shell;
		     script++)
			offer(current, script->shell, "");
		break;
	case WORD_NONE:
	case WORD_TEXT:
		break;
	}
}

int complete_words(int argc, char **argv)
{
	struct state state = {0};
	const char *current = argc > 0 ? argv[argc - 1] : "";

	/* A message would stand in the middle of what is being typed. */
	if (!freopen("/dev/null", "we", stderr))
		return EXIT_FAILED;
	if (argc > 1 && !take_words_before(&state, argc - 1, argv))
		return EXIT_OK;
	if (state.value_of)
		offer_values(state.value_of, "", current);
	else if (state.behind_line)
		(void)puts(":files");
	else if (current[0] == '-')
		offer_options(&state, current);
	else if (!state.command)
		offer_verbs(state.verb, current);
	else if (state.command->max_words < 0 || state.n_words < state.command->max_words)
		offer_words(&state, current);
	return EXIT_OK;
}

int command_completion(struct client *client, const struct options *options)
{
	(void)client; /* needs no service */
	for (const struct completion_script *script = completion_scripts; script->shell; script++)
		if (str_equal(script->shell, options->args[0])) {
			(void)fputs((const char *)script->text, stdout);
			return EXIT_OK;
		}
	(void)fputs("sandboxctl: completion wants bash, zsh or fish\n", stderr);
	return EXIT_USAGE;
}
