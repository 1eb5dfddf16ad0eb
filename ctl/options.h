/*
 * The command line of sandboxctl as one struct, filled from one table of options.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/auto.h"

#define OPTIONS_MAX_ENV 64

/* Which commands accept an option: one bit per command, in the order of the command table. */
enum command_id {
	COMMAND_RUN,
	COMMAND_EXEC,
	COMMAND_CREATE,
	COMMAND_LS,
	COMMAND_SHOW,
	COMMAND_WRITE,
	COMMAND_LOAD,
	COMMAND_EXECUTE,
	COMMAND_LOGS,
	COMMAND_RM,
	COMMAND_JANITOR,
	COMMAND_TRACE,
	COMMAND_PROOF,
	COMMAND_DOCTOR,
	COMMAND_VERSION,
	COMMAND_HELP,
	COMMAND_MAX_,
};

enum exit_status {
	EXIT_OK = 0,
	EXIT_FAILED = 1,
	EXIT_USAGE = 2,
	EXIT_NOT_FOUND = 3,
	EXIT_REFUSED = 4,
	EXIT_UNREACHABLE = 5,
	EXIT_COMMAND_NOT_STARTED = 126,
	EXIT_COMMAND_NOT_FOUND = 127,
	EXIT_SIGNAL_BASE = 128,
};

struct options {
	const char *socket_path; /* NULL: chosen from runtime_dir and identity */
	const char *runtime_dir;
	const char *user; /* identity for the control socket; NULL: not sent */
	const char *workspace;
	const char *project;
	const char *scopes;
	bool json;
	bool raw;
	bool follow;
	bool with_stdin;
	bool keep; /* run: leave the session */
	bool quiet;
	bool deep; /* proof: run into the limits as well */
	const char *profile;
	const char *cwd;
	const char *name;   /* write: component name instead of the file's */
	const char *status; /* ls: filter */
	uint32_t ttl_minutes;
	uint32_t timeout_ms;
	const char *env[OPTIONS_MAX_ENV]; /* NAME=VALUE */
	size_t n_env;
	const char *endpoint[OPTIONS_MAX_ENV]; /* create: NAME=URL, one of the six names */
	size_t n_endpoint;
	int n_args; /* what is left: session, file, command */
	char **args;
};

/*
 * Take the options of `command` out of argv (argv[0] is the first word behind the command or
 * program name). Stops at "--" and at the first word that is no option where stop_at_word is set.
 * 0 and the index of the first word left in *ret_index, or -EINVAL with a message printed.
 */
MUST_USE int options_parse(struct options *options, uint32_t commands, int argc, char **argv,
			   int *ret_index);

/* Print every option that one of `commands` (bit mask) accepts, one per line. */
void options_print(uint32_t commands);

#define COMMANDS_ALL   UINT32_MAX
#define COMMAND_BIT(c) (1u << (c))
