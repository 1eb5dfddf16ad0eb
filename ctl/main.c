/*
 * sandboxctl: command line client of the two sockets. The table of commands says how many words
 * each takes and what it is for, so usage, help, completion and dispatch cannot differ.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"

#include "ctl/commands.h"
#include "ctl/complete.h"
#include "ctl/resolve.h"

static const struct command *command_find(const char *verb, const char *sub, bool *ret_known)
{
	size_t n;
	const struct command *table = command_table(&n);

	*ret_known = false;
	for (size_t i = 0; i < n; i++) {
		if (!str_equal(table[i].verb, verb))
			continue;
		*ret_known = true;
		if (!table[i].sub || (sub && str_equal(table[i].sub, sub)))
			return &table[i];
	}
	return NULL;
}

static void print_verb(FILE *file, const struct command *command, int width)
{
	char name[48];

	(void)snprintf(name, sizeof(name), "%s%s%s", command->verb, command->sub ? " " : "",
		       command->sub ? command->sub : "");
	(void)fprintf(file, "%-*s", width, name);
}

static int help(FILE *file)
{
	size_t n;
	const struct command *table = command_table(&n);

	(void)fputs("usage: sandboxctl [OPTION...] COMMAND ...\n\n", file);
	for (size_t i = 0; i < n; i++) {
		(void)fputs("  ", file);
		print_verb(file, &table[i], 17);
		(void)fprintf(file, " %s\n", table[i].text);
	}
	if (file != stdout) {
		(void)fputs("\nsandboxctl --help tells more.\n", file);
		return EXIT_USAGE;
	}
	(void)fputs("\nsandboxctl COMMAND --help tells more. Options of every command:\n", file);
	options_print(OPTIONS_COMMON);
	return EXIT_OK;
}

/* After a message that says what is wrong: the long list would hide it. */
static int see_help(void)
{
	(void)fputs("sandboxctl --help lists commands and options\n", stderr);
	return EXIT_USAGE;
}

static int usage(FILE *file, const struct command *command)
{
	(void)fputs("usage: sandboxctl ", file);
	print_verb(file, command, 0);
	(void)fprintf(file, "%s%s\n", command->arguments[0] ? " " : "", command->arguments);
	return EXIT_USAGE;
}

static int help_command(const struct command *command)
{
	(void)usage(stdout, command);
	(void)printf("\n%s\n", command->text);
	options_print(command->options);
	return EXIT_OK;
}

/* A verb alone, where the table has it with a second word only. */
static int usage_of_verb(const char *verb, const char *next)
{
	bool is_help = next && (str_equal(next, "-h") || str_equal(next, "--help"));
	size_t n;
	const struct command *table = command_table(&n);

	for (size_t i = 0; i < n; i++)
		if (str_equal(table[i].verb, verb))
			(void)usage(is_help ? stdout : stderr, &table[i]);
	return is_help ? EXIT_OK : EXIT_USAGE;
}

/* Words of the command; "--" parts them where a command line follows. Options may stand between
 * the words unless the words are a command line. */
static int take_words(const struct command *command, struct options *options, int argc, char **argv)
{
	option_set accepted = OPTIONS_COMMON | command->options;
	bool line = command->max_words < 0;
	int at = 0;

	options->args = argv;
	while (at < argc) {
		int skipped = 0;

		if (options_parse(options, accepted, argc - at, argv + at, &skipped) < 0)
			return usage(stderr, command);
		at += skipped;
		if (at >= argc)
			break;
		if (str_equal(argv[at], "--")) {
			for (at++; at < argc; at++)
				options->args[options->n_args++] = argv[at];
			break;
		}
		/* The last word that must be there begins the command line. */
		if (line && options->n_args >= command->min_words - 1) {
			for (; at < argc; at++)
				options->args[options->n_args++] = argv[at];
			break;
		}
		options->args[options->n_args++] = argv[at++];
	}
	if (options->help)
		return EXIT_OK;
	if (options->n_args < command->min_words || (!line && options->n_args > command->max_words))
		return usage(stderr, command);
	return EXIT_OK;
}

static int run_command(const struct command *command, struct options *options)
{
	struct resolved resolved = {0};
	struct client client;
	int r;

	if (command->offline)
		return command->run(NULL, options);
	r = client_open(&client, options) < 0 ? EXIT_FAILED : EXIT_OK;
	if (r == EXIT_OK)
		r = resolve_words(&client, command, options, &resolved);
	if (r == EXIT_OK)
		r = command->run(&client, options);
	client_close(&client);
	resolved_done(&resolved);
	return r;
}

static int dispatch(struct options *options, int argc, char **argv)
{
	const struct command *command;
	bool known;
	int r;

	command = command_find(argv[0], argc > 1 ? argv[1] : NULL, &known);
	if (!command && known)
		return usage_of_verb(argv[0], argc > 1 ? argv[1] : NULL);
	if (!command) {
		(void)fprintf(stderr, "sandboxctl: unknown command: %s\n", argv[0]);
		return see_help();
	}
	r = command->sub ? 2 : 1;
	r = take_words(command, options, argc - r, argv + r);
	if (r != EXIT_OK)
		return r;
	if (options->help)
		return help_command(command);
	options_from_environment(options);
	return run_command(command, options);
}

int main(int argc, char **argv)
{
	struct options options = {0};
	int at = 0;
	int r;

	/* A reader that went away is an error of a write: `run` must still remove its session. */
	(void)signal(SIGPIPE, SIG_IGN);
	if (argc == 2 && str_equal(argv[1], "--version")) {
		(void)printf("sandboxctl %s\n", SANDBOXD_VERSION);
		return EXIT_OK;
	}
	if (argc > 1 && str_equal(argv[1], "__complete"))
		return complete_words(argc - 2, argv + 2);
	if (options_parse(&options, OPTIONS_COMMON, argc - 1, argv + 1, &at) < 0)
		return see_help();
	at++;
	if (options.help || (at < argc && str_equal(argv[at], "help")))
		return help(stdout);
	if (at >= argc)
		return help(stderr);
	r = dispatch(&options, argc - at, argv + at);
	if ((fflush(stdout) != 0 || ferror(stdout)) && r == EXIT_OK)
		r = EXIT_FAILED;
	return r;
}
