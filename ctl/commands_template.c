/*
 * template import, ls and rm: sandboxctl becomes sandboxd-template, which alone changes the folder
 * of templates. No socket is asked: whoever may write there is root on this host, and the service
 * may be down.
 */
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "base/str.h"

#include "ctl/commands.h"
#include "ctl/program.h"
#include "sandboxd/template.h"

#define PROGRAM           "sandboxd-template"
#define DEFAULT_STATE_DIR "/var/lib/sandboxd"
#define DEFAULT_PLATFORM  "linux/amd64"
#define DEFAULT_MAX_MIB   16384u
#define DEFAULT_MAX_FILES 1000000u
#define BYTES_A_MIB       (UINT64_C(1024) * 1024)
#define WORDS_MAX         6

/* The words are argv's, which an exec does not change. */
union word {
	const char *in;
	char *out;
};

static int become(const struct options *options, const char *verb, const char *const words[],
		  size_t n_words)
{
	const char *const front[] = {PROGRAM, verb,
				     options->state_dir ? options->state_dir : DEFAULT_STATE_DIR};
	char *argv[ARRAY_SIZE(front) + WORDS_MAX + 1] = {NULL};
	size_t n = 0;

	if (geteuid() != 0) {
		(void)fputs("sandboxctl: template: only root reads and writes them\n", stderr);
		return EXIT_REFUSED;
	}
	for (size_t i = 0; i < ARRAY_SIZE(front); i++)
		argv[n++] = (union word){.in = front[i]}.out;
	for (size_t i = 0; i < n_words && i < WORDS_MAX; i++)
		argv[n++] = (union word){.in = words[i]}.out;
	return program_become(PROGRAM, STDIN_FILENO, argv);
}

int command_template_import(struct client *client, const struct options *options)
{
	uint32_t max_mib = options->max_mib > 0 ? options->max_mib : DEFAULT_MAX_MIB;
	uint32_t max_files = options->max_files > 0 ? options->max_files : DEFAULT_MAX_FILES;
	char bytes[24];
	char files[24];
	const char *const words[WORDS_MAX] = {
		options->args[0],
		options->args[1],
		options->platform ? options->platform : DEFAULT_PLATFORM,
		options->ref ? options->ref : "",
		bytes,
		files,
	};

	(void)client;
	if (str_format(bytes, sizeof(bytes), "%" PRIu64, max_mib * BYTES_A_MIB) < 0 ||
	    str_format(files, sizeof(files), "%" PRIu32, max_files) < 0)
		return EXIT_FAILED;
	return become(options, "import", words, ARRAY_SIZE(words));
}

int command_template_ls(struct client *client, const struct options *options)
{
	static const char *const forms[] = {
		[OUTPUT_TABLE] = "table", [OUTPUT_JSON] = "json", [OUTPUT_NAME] = "name"};

	(void)client;
	return become(options, "ls", &forms[options->output], 1);
}

int command_template_rm(struct client *client, const struct options *options)
{
	const char *const words[] = {options->args[0]};

	(void)client;
	return become(options, "rm", words, 1);
}
