/*
 * migrate: sandboxctl becomes sandboxd-migrate, which alone links the library of the server. No
 * socket is asked: whoever may change the schema has a role of his own there, and its password is
 * in a file or on standard input, in no argument.
 */
#include <stdio.h>
#include <unistd.h>

#include "ctl/commands.h"
#include "ctl/program.h"

#define PROGRAM "sandboxd-migrate"

/* The words are argv's, which an exec does not change. */
union word {
	const char *in;
	char *out;
};

int command_migrate(struct client *client, const struct options *options)
{
	const struct {
		bool given;
		const char *word;
	} modes[] = {
		{options->dry_run,    "--dry-run"   },
		{options->applied,    "--status"    },
		{options->print_undo, "--print-undo"},
	};
	char *argv[8] = {(union word){.in = PROGRAM}.out};
	size_t n = 1;

	(void)client;
	for (size_t i = 0; i < ARRAY_SIZE(modes); i++)
		if (modes[i].given)
			argv[n++] = (union word){.in = modes[i].word}.out;
	if (n > 2) {
		(void)fputs("sandboxctl: migrate: one of --dry-run, --status, --print-undo\n",
			    stderr);
		return EXIT_USAGE;
	}
	if (options->dsn_file) {
		argv[n++] = (union word){.in = "--dsn-file"}.out;
		argv[n++] = (union word){.in = options->dsn_file}.out;
	}
	return program_become(PROGRAM, STDIN_FILENO, argv);
}
