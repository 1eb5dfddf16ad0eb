#include "options.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/num.h"
#include "base/str.h"

enum option_kind {
	OPTION_FLAG,
	OPTION_TEXT,
	OPTION_LIST,
	OPTION_U32,
	OPTION_OUTPUT,
};

struct option_row {
	const char *name;
	char letter;
	enum option_kind kind;
	uint32_t commands;
	size_t offset;   /* of the value in struct options */
	size_t n_offset; /* OPTION_LIST: of its count */
	const char *argument;
	const char *text;
};

#define AT(member) offsetof(struct options, member)

#define WITH_SESSION_SPEC (COMMAND_BIT(COMMAND_RUN) | COMMAND_BIT(COMMAND_CREATE))
#define WITH_ENVIRONMENT  (WITH_SESSION_SPEC | COMMAND_BIT(COMMAND_EXEC))
#define WITH_COMMAND      (COMMAND_BIT(COMMAND_RUN) | COMMAND_BIT(COMMAND_EXEC))

/* clang-format off */
static const struct option_row option_table[] = {
	{"socket", 'S', OPTION_TEXT, COMMANDS_ALL, AT(socket_path), 0, "PATH", "socket to talk to"},
	{"runtime-dir", 0, OPTION_TEXT, COMMANDS_ALL, AT(runtime_dir), 0, "DIR", "where the sockets are (default /run/sandboxd)"},
	{"user", 'u', OPTION_TEXT, COMMANDS_ALL, AT(user), 0, "NAME", "act as this user (control socket)"},
	{"workspace", 0, OPTION_TEXT, COMMANDS_ALL, AT(workspace), 0, "NAME", "workspace of that user"},
	{"project", 0, OPTION_TEXT, COMMANDS_ALL, AT(project), 0, "NAME", "project of that user"},
	{"scopes", 0, OPTION_TEXT, COMMANDS_ALL, AT(scopes), 0, "LIST", "scopes of that user, separated by spaces"},
	{"output", 'o', OPTION_OUTPUT, COMMANDS_ALL, AT(json), 0, "json|table", "form of the output"},
	{"raw", 0, OPTION_FLAG, COMMANDS_ALL, AT(raw), 0, NULL, "do not escape a session's output on a terminal"},
	{"quiet", 'q', OPTION_FLAG, COMMANDS_ALL, AT(quiet), 0, NULL, "print results only"},
	{"profile", 'p', OPTION_TEXT, WITH_SESSION_SPEC, AT(profile), 0, "NAME", "policy profile (component, agent)"},
	{"env", 'e', OPTION_LIST, WITH_ENVIRONMENT, AT(env), AT(n_env), "NAME=VALUE", "environment variable; may be repeated"},
	{"ttl", 0, OPTION_U32, WITH_SESSION_SPEC, AT(ttl_minutes), 0, "MINUTES", "life time of the session"},
	{"endpoint", 0, OPTION_LIST, COMMAND_BIT(COMMAND_CREATE), AT(endpoint), AT(n_endpoint), "NAME=URL", "override of one of the six endpoints"},
	{"cwd", 'C', OPTION_TEXT, WITH_COMMAND, AT(cwd), 0, "DIR", "working directory of the command"},
	{"timeout", 't', OPTION_U32, WITH_COMMAND, AT(timeout_ms), 0, "MS", "end the command after that many milliseconds"},
	{"stdin", 'i', OPTION_FLAG, WITH_COMMAND, AT(with_stdin), 0, NULL, "give the command our standard input (text, 1 MiB)"},
	{"keep", 0, OPTION_FLAG, COMMAND_BIT(COMMAND_RUN), AT(keep), 0, NULL, "leave the session and print its id"},
	{"name", 'n', OPTION_TEXT, COMMAND_BIT(COMMAND_WRITE), AT(name), 0, "NAME", "component name instead of the file's"},
	{"status", 0, OPTION_TEXT, COMMAND_BIT(COMMAND_LS), AT(status), 0, "open|running", "only sessions in that state"},
	{"deep", 0, OPTION_FLAG, COMMAND_BIT(COMMAND_PROOF), AT(deep), 0, NULL, "also run into the limits from inside"},
	{"follow", 'f', OPTION_FLAG, COMMAND_BIT(COMMAND_LOGS), AT(follow), 0, NULL, "wait for further frames until the task ends"},
};
/* clang-format on */

static const struct option_row *option_find(const char *word, size_t length, uint32_t commands)
{
	for (size_t i = 0; i < ARRAY_SIZE(option_table); i++) {
		const struct option_row *row = &option_table[i];
		bool same;

		/* Before the command only what every command takes. */
		if (commands == COMMANDS_ALL ? row->commands != COMMANDS_ALL
					     : !(row->commands & commands))
			continue;
		if (word[1] == '-')
			same = strlen(row->name) == length - 2 &&
			       strncmp(row->name, word + 2, length - 2) == 0;
		else
			same = length == 2 && row->letter && row->letter == word[1];
		if (same)
			return row;
	}
	return NULL;
}

static int option_bad_value(const struct option_row *row)
{
	if (row->argument)
		(void)fprintf(stderr, "sandboxctl: --%s wants %s\n", row->name, row->argument);
	else
		(void)fprintf(stderr, "sandboxctl: --%s takes no value\n", row->name);
	return -EINVAL;
}

static int option_store_list(const struct option_row *row, char *base, const char *value)
{
	size_t *n = (size_t *)(void *)(base + row->n_offset);
	const char **list = (const char **)(void *)(base + row->offset);
	const char *equals = strchr(value, '=');

	if (!equals || equals == value || *n >= OPTIONS_MAX_ENV)
		return option_bad_value(row);
	list[(*n)++] = value;
	return 0;
}

static int option_store(const struct option_row *row, struct options *options, const char *value)
{
	char *base = (char *)options;
	void *field = base + row->offset;

	switch (row->kind) {
	case OPTION_FLAG:
		*(bool *)field = true;
		return 0;
	case OPTION_TEXT:
		*(const char **)field = value;
		return 0;
	case OPTION_LIST:
		return option_store_list(row, base, value);
	case OPTION_U32:
		if (num_parse_u32(value, 1, INT32_MAX, field) < 0)
			return option_bad_value(row);
		return 0;
	case OPTION_OUTPUT:
		if (!str_equal(value, "json") && !str_equal(value, "table"))
			return option_bad_value(row);
		*(bool *)field = str_equal(value, "json");
		return 0;
	}
	return -EINVAL;
}

int options_parse(struct options *options, uint32_t commands, int argc, char **argv, int *ret_index)
{
	int i;

	for (i = 0; i < argc; i++) {
		const char *word = argv[i];
		const struct option_row *row;
		const char *value;
		int r;

		if (word[0] != '-' || word[1] == '\0' || str_equal(word, "--"))
			break;
		value = word[1] == '-' ? strchr(word, '=') : NULL;
		row = option_find(word, value ? (size_t)(value - word) : strlen(word), commands);
		if (!row) {
			(void)fprintf(stderr, "sandboxctl: unknown option here: %s\n", word);
			return -EINVAL;
		}
		if (row->kind == OPTION_FLAG && value)
			return option_bad_value(row);
		if (value) {
			value++;
		} else if (row->kind != OPTION_FLAG) {
			if (i + 1 >= argc)
				return option_bad_value(row);
			value = argv[++i];
		}
		r = option_store(row, options, value);
		if (r < 0)
			return r;
	}
	*ret_index = i;
	return 0;
}

void options_print(uint32_t commands)
{
	for (size_t i = 0; i < ARRAY_SIZE(option_table); i++) {
		const struct option_row *row = &option_table[i];
		char left[48];

		/* Options that all commands take are printed once, by the general help. */
		if ((commands == COMMANDS_ALL) != (row->commands == COMMANDS_ALL))
			continue;
		if (!(row->commands & commands))
			continue;
		(void)snprintf(left, sizeof(left), "--%s%s%s", row->name, row->argument ? " " : "",
			       row->argument ? row->argument : "");
		if (row->letter)
			(void)printf("  -%c, %-26s %s\n", row->letter, left, row->text);
		else
			(void)printf("      %-26s %s\n", left, row->text);
	}
}
