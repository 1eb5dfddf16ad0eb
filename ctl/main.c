/*
 * sandboxctl: command line client of the two sockets. One table of commands; each row says how many
 * words it takes and what it is for, so usage, help and dispatch cannot differ.
 */
#include <stdio.h>
#include <string.h>

#include "base/str.h"

#include "ctl/commands.h"

struct command_row {
	const char *name;
	enum command_id id;
	int min_args;
	int max_args; /* -1: any number, options end at the first word */
	bool offline; /* needs no service */
	int (*run)(struct client *client, const struct options *options);
	const char *arguments;
	const char *text;
};

/* clang-format off */
static const struct command_row command_table[] = {
	{"run", COMMAND_RUN, 1, -1, false, command_run, "[OPTION...] -- COMMAND [ARG...]", "make a session, run a command in it, remove it"},
	{"exec", COMMAND_EXEC, 2, -1, false, command_exec, "[OPTION...] SESSION -- COMMAND [ARG...]", "run a command in a session"},
	{"create", COMMAND_CREATE, 0, 0, false, command_create, "[OPTION...]", "make a session and print its id"},
	{"ls", COMMAND_LS, 0, 0, false, command_ls, "[OPTION...]", "list the sessions you can see, newest first"},
	{"show", COMMAND_SHOW, 1, 1, false, command_show, "SESSION", "print a session's summary"},
	{"write", COMMAND_WRITE, 2, 2, false, command_write, "[--name NAME] SESSION FILE", "write a component document (- is standard input)"},
	{"load", COMMAND_LOAD, 1, 1, false, command_load, "SESSION", "load the components and print the asset keys"},
	{"execute", COMMAND_EXECUTE, 1, 1, false, command_execute, "SESSION", "execute the components and follow the frames"},
	{"logs", COMMAND_LOGS, 1, 1, false, command_logs, "[-f] TASK", "print the frames of a task"},
	{"rm", COMMAND_RM, 1, 64, false, command_rm, "SESSION...", "tear sessions down"},
	{"janitor", COMMAND_JANITOR, 0, 0, false, command_janitor, "", "tear down every expired session"},
	{"trace", COMMAND_TRACE, 1, 1, false, command_trace, "SESSION", "print the launch steps with their times"},
	{"proof", COMMAND_PROOF, 1, 1, false, command_proof, "SESSION", "compare the isolation seen from inside and outside"},
	{"doctor", COMMAND_DOCTOR, 0, 0, true, command_doctor, "", "check this host: what is missing, what it costs, what mends it"},
	{"version", COMMAND_VERSION, 0, 0, false, command_version, "", "print the versions of client and service"},
};
/* clang-format on */

static const struct command_row *command_find(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(command_table); i++)
		if (str_equal(command_table[i].name, name))
			return &command_table[i];
	return NULL;
}

static int help(FILE *file)
{
	(void)fputs("usage: sandboxctl [OPTION...] COMMAND ...\n\n", file);
	for (size_t i = 0; i < ARRAY_SIZE(command_table); i++)
		(void)fprintf(file, "  %-8s %s\n", command_table[i].name, command_table[i].text);
	if (file != stdout) {
		(void)fputs("\nsandboxctl --help tells more.\n", file);
		return EXIT_USAGE;
	}
	(void)fputs("\nsandboxctl COMMAND --help tells more. Options of every command:\n", file);
	options_print(COMMANDS_ALL);
	return EXIT_OK;
}

/* After a message that says what is wrong: the long list would hide it. */
static int see_help(void)
{
	(void)fputs("sandboxctl --help lists commands and options\n", stderr);
	return EXIT_USAGE;
}

static int help_command(const struct command_row *row)
{
	(void)printf("usage: sandboxctl %s %s\n\n%s\n", row->name, row->arguments, row->text);
	options_print(COMMAND_BIT(row->id));
	return EXIT_OK;
}

static int usage(const struct command_row *row)
{
	(void)fprintf(stderr, "usage: sandboxctl %s %s\n", row->name, row->arguments);
	return EXIT_USAGE;
}

static bool is_help(const char *word)
{
	return str_equal(word, "--help") || str_equal(word, "-h");
}

/* Words of the command; "--" parts them where a command line follows. Options may stand between
 * the words unless the words are a command line. */
static int take_words(const struct command_row *row, struct options *options, int argc, char **argv)
{
	int n_before = row->id == COMMAND_EXEC ? 1 : 0;
	int at = 0;

	options->args = argv;
	while (at < argc) {
		int skipped = 0;

		if (options_parse(options, COMMAND_BIT(row->id), argc - at, argv + at, &skipped) <
		    0)
			return EXIT_USAGE;
		at += skipped;
		if (at >= argc)
			break;
		if (str_equal(argv[at], "--")) {
			for (at++; at < argc; at++)
				options->args[options->n_args++] = argv[at];
			break;
		}
		if (row->max_args < 0 && options->n_args >= n_before) {
			for (; at < argc; at++)
				options->args[options->n_args++] = argv[at];
			break;
		}
		options->args[options->n_args++] = argv[at++];
	}
	if (options->n_args < row->min_args ||
	    (row->max_args >= 0 && options->n_args > row->max_args))
		return usage(row);
	return EXIT_OK;
}

static int run_command(const struct command_row *row, const struct options *options)
{
	struct client client;
	int r;

	if (row->offline)
		return row->run(NULL, options);
	r = client_open(&client, options);
	if (r == 0)
		r = row->run(&client, options);
	else
		r = EXIT_FAILED;
	client_close(&client);
	return r;
}

int main(int argc, char **argv)
{
	struct options options = {0};
	const struct command_row *row;
	int at = 0;
	int r;

	if (argc > 1 && (is_help(argv[1]) || str_equal(argv[1], "help")))
		return help(stdout);
	if (argc == 2 && str_equal(argv[1], "--version")) {
		(void)printf("sandboxctl %s\n", SANDBOXD_VERSION);
		return EXIT_OK;
	}
	if (argc < 2)
		return help(stderr);
	if (options_parse(&options, COMMANDS_ALL, argc - 1, argv + 1, &at) < 0)
		return see_help();
	at++;
	if (at >= argc)
		return help(stderr);
	row = command_find(argv[at]);
	if (!row) {
		(void)fprintf(stderr, "sandboxctl: unknown command: %s\n", argv[at]);
		return see_help();
	}
	at++;
	if (at < argc && is_help(argv[at]))
		return help_command(row);
	r = take_words(row, &options, argc - at, argv + at);
	if (r != EXIT_OK)
		return r;
	r = run_command(row, &options);
	if (fflush(stdout) != 0 && r == EXIT_OK)
		r = EXIT_FAILED;
	return r;
}
