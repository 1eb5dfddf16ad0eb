/*
 * secret put, ls and rm: sandboxctl becomes sandboxd-helper, which alone knows the store and its
 * key. No socket is asked: whoever may write the store is root on this host. The value stays on
 * standard input, which the helper reads; it is in no argument.
 */
#include <stdio.h>
#include <unistd.h>

#include "ctl/commands.h"
#include "ctl/program.h"
#include "sandboxd/secret.h"

#define HELPER            "sandboxd-helper"
#define DEFAULT_STATE_DIR "/var/lib/sandboxd"

/* The words are argv's, which an exec does not change. */
union word {
	const char *in;
	char *out;
};

static int become(const struct options *options, const char *mode, const char *const words[],
		  size_t n_words)
{
	char *argv[8 + SECRET_WORKSPACES_MAX + 1] = {NULL};
	const char *const front[] = {HELPER, mode,
				     options->state_dir ? options->state_dir : DEFAULT_STATE_DIR};
	size_t n = 0;

	if (geteuid() != 0) {
		(void)fputs("sandboxctl: secret: only root reads and writes the store\n", stderr);
		return EXIT_REFUSED;
	}
	for (size_t i = 0; i < ARRAY_SIZE(front); i++)
		argv[n++] = (union word){.in = front[i]}.out;
	for (size_t i = 0; i < n_words && n < ARRAY_SIZE(argv) - 1; i++)
		argv[n++] = (union word){.in = words[i]}.out;
	return program_become(HELPER, STDIN_FILENO, argv);
}

int command_secret_put(struct client *client, const struct options *options)
{
	const char *words[3 + SECRET_WORKSPACES_MAX] = {
		options->args[0],
		options->variable ? options->variable : "",
		options->mask_encodings ? "1" : "0",
	};
	const struct option_words *workspaces = &options->workspaces;

	(void)client;
	if (workspaces->n > SECRET_WORKSPACES_MAX) {
		(void)fprintf(stderr, "sandboxctl: secret: at most %d workspaces\n",
			      SECRET_WORKSPACES_MAX);
		return EXIT_USAGE;
	}
	for (size_t i = 0; i < workspaces->n; i++)
		words[3 + i] = workspaces->word[i];
	if (isatty(STDIN_FILENO))
		(void)fputs("sandboxctl: the value from standard input, which shows it; end with "
			    "Ctrl-D\n",
			    stderr);
	return become(options, "put", words, 3 + workspaces->n);
}

int command_secret_ls(struct client *client, const struct options *options)
{
	static const char *const forms[] = {
		[OUTPUT_TABLE] = "table", [OUTPUT_JSON] = "json", [OUTPUT_NAME] = "name"};

	(void)client;
	return become(options, "ls", &forms[options->output], 1);
}

int command_secret_rm(struct client *client, const struct options *options)
{
	const char *const words[] = {options->args[0]};

	(void)client;
	return become(options, "rm", words, 1);
}
