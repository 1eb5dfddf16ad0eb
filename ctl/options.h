/*
 * The command line of sandboxctl as one struct, filled from one table of options.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/auto.h"

#define OPTIONS_MAX_ENV 64

/* One row of the option table each. A command names those that it takes (command_table.c). */
enum option_id {
	OPTION_SOCKET,
	OPTION_RUNTIME_DIR,
	OPTION_USER,
	OPTION_WORKSPACE,
	OPTION_PROJECT,
	OPTION_SCOPES,
	OPTION_OUTPUT,
	OPTION_RAW,
	OPTION_QUIET,
	OPTION_HELP,
	OPTION_PROFILE,
	OPTION_ENV,
	OPTION_TTL,
	OPTION_ENDPOINT,
	OPTION_CWD,
	OPTION_TIMEOUT,
	OPTION_STDIN,
	OPTION_ROOT,
	OPTION_KEEP,
	OPTION_NAME,
	OPTION_STATUS,
	OPTION_DEEP,
	OPTION_FOLLOW,
	OPTION_CONFIG,
	OPTION_DETACH,
	OPTION_INTERVAL,
	OPTION_ONCE,
	OPTION_DRY_RUN,
	OPTION_YES,
	OPTION_SESSION,
	OPTION_SINCE,
	OPTION_STATE_DIR,
	OPTION_ALLOW,
	OPTION_NO_ALLOW,
	OPTION_SECRET,
	OPTION_AS,
	OPTION_MASK_ENCODINGS,
	OPTION_APPLIED,
	OPTION_PRINT_UNDO,
	OPTION_DSN_FILE,
	OPTION_TTY,
	OPTION_SIGNAL,
	OPTION_SCOPE,
	OPTION_RECURSIVE,
	OPTION_REPLACE,
	OPTION_BEFORE,
	OPTION_SIGNAL_COMMANDS,
	OPTION_GRACE,
	OPTION_REMOVE,
	OPTION_DURABLE,
	OPTION_METADATA,
	OPTION_INCLUDE,
	OPTION_EXCLUDE,
	OPTION_ORGANIZATION_UUID,
	OPTION_PROJECT_UUID,
	OPTION_TEMPLATE,
	OPTION_PROVIDER,
	OPTION_BRANCH,
	OPTION_DEPTH,
	OPTION_REMOTE,
	OPTION_PRUNE,
	OPTION_FORCE,
	OPTION_SET_UPSTREAM,
	OPTION_CREDENTIAL_FILE,
	OPTION_ASK,
	OPTION_CA_FILE,
	OPTION_ALL,
	OPTION_MESSAGE,
	OPTION_AUTHOR,
	OPTION_ALLOW_EMPTY,
	OPTION_STAGED,
	OPTION_LIMIT,
	OPTION_PLATFORM,
	OPTION_REF,
	OPTION_MAX_MIB,
	OPTION_MAX_FILES,
	OPTION_MAX_,
};
/* A bit for each. */
__extension__ typedef unsigned __int128 option_set;
#define OPTION_BIT(id) ((option_set)1 << (id))
_Static_assert(OPTION_MAX_ <= 8 * sizeof(option_set), "one bit each");

/* What every command takes, before and behind its name. */
#define OPTIONS_COMMON (OPTION_BIT(OPTION_PROFILE) - 1)

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

enum output_form {
	OUTPUT_TABLE,
	OUTPUT_JSON,
	OUTPUT_NAME, /* ids and names only, one a line */
};

/* Of an option that may be repeated. */
struct option_words {
	size_t n;
	const char *word[OPTIONS_MAX_ENV];
};

struct options {
	const char *socket_path; /* NULL: chosen from runtime_dir and identity */
	const char *runtime_dir;
	const char *user; /* identity for the control socket; NULL: not sent */
	const char *workspace;
	struct option_words workspaces; /* all that were given; `workspace` is the last */
	const char *project;
	const char *scopes;
	enum output_form output;
	bool raw;
	bool help;
	bool follow;
	bool detach; /* execute, exec: print the id and leave it */
	bool tty;
	bool once;    /* top: one table */
	bool dry_run; /* gc, migrate */
	bool applied; /* migrate: say which steps are */
	bool print_undo;
	const char *dsn_file;
	bool yes; /* purge: do not ask */
	bool with_stdin;
	bool as_root;
	bool keep; /* run: leave the session */
	bool quiet;
	bool deep; /* proof: run into the limits as well */
	const char *profile;
	const char *cwd;
	const char *name;    /* write: component name instead of the file's */
	const char *status;  /* ls: filter */
	const char *config;  /* config: the service's file; NULL: the default one */
	const char *session; /* audit: beginning of an id */
	const char *since;
	const char *state_dir; /* audit, secret, template */
	const char *secret;    /* the last of `secrets` */
	struct option_words secrets;
	const char *allow; /* create, egress: the last of `allows` */
	struct option_words allows;
	bool no_allow;        /* egress: take all rules away */
	const char *variable; /* secret put: NULL: made of the name */
	bool mask_encodings;
	const char *signal; /* kill: NULL: TERM */
	bool replace;
	const char *scope;
	bool recursive;              /* changes: below the folder, too */
	const char *before;          /* suspend: a line for the shell */
	const char *signal_commands; /* suspend: which commands are signalled */
	const char *grace;
	const char *remove; /* the last of `removes` */
	struct option_words removes;
	const char *durable;
	const char *metadata[OPTIONS_MAX_ENV]; /* create: KEY=VALUE */
	size_t n_metadata;
	const char *include; /* create: the last of `includes` */
	struct option_words includes;
	const char *exclude;
	struct option_words excludes;
	const char *organization_uuid;
	const char *project_uuid;
	const char *template;
	const char *provider;
	const char *branch; /* git, from here on */
	uint32_t depth;
	const char *remote; /* a name, or a URL */
	bool prune;
	bool force;
	bool set_upstream;
	const char *credential_file; /* "-": standard input */
	bool ask;                    /* for the credential, on the terminal */
	const char *ca_file;
	bool all;
	const char *message;
	const char *author; /* NAME <ADDRESS> */
	bool allow_empty;
	bool staged;
	uint32_t limit;
	const char *platform; /* template import, with the next three */
	const char *ref;
	uint32_t max_mib;
	uint32_t max_files;
	uint32_t ttl_minutes;
	uint32_t timeout_ms;
	uint32_t interval_s;              /* watch, top; 0: the default */
	const char *env[OPTIONS_MAX_ENV]; /* NAME=VALUE */
	size_t n_env;
	const char *endpoint[OPTIONS_MAX_ENV]; /* create: NAME=URL, one of the six names */
	size_t n_endpoint;
	int n_args; /* what is left: session, file, command */
	char **args;
};

struct option_row {
	const char *name;
	char letter;
	int kind;        /* options.c */
	size_t offset;   /* of the value in struct options */
	size_t n_offset; /* of a list's count */
	const char *argument;
	const char *text;
};
const struct option_row *option_row(enum option_id id);

/*
 * Take options out of argv, as long as words are options of `accepted` (OPTION_BITs); "--" is no
 * option. 0 and the index of the first word left in *ret_index, or -EINVAL with a message printed.
 */
MUST_USE int options_parse(struct options *options, option_set accepted, int argc, char **argv,
			   int *ret_index);
/* Values of the options that were not given, from SANDBOXCTL_… variables of the environment. */
void options_from_environment(struct options *options);

/* Print each option of `ids`, one per line. */
void options_print(option_set ids);
