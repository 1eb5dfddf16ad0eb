#include "options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "base/str.h"

enum option_kind {
	KIND_FLAG,
	KIND_TEXT,
	KIND_LIST,  /* of NAME=VALUE */
	KIND_WORDS, /* a text, the last one given, and a struct option_words with all */
	KIND_U32,
	KIND_OUTPUT,
};

#define AT(member) offsetof(struct options, member)

/* An argument that is a list of words with | between is also what the shells complete. */
/* clang-format off */
static const struct option_row option_table[OPTION_MAX_] = {
	[OPTION_SOCKET] = {"socket", 'S', KIND_TEXT, AT(socket_path), 0, "PATH", "socket to talk to"},
	[OPTION_RUNTIME_DIR] = {"runtime-dir", 0, KIND_TEXT, AT(runtime_dir), 0, "DIR", "where the sockets are (default /run/sandboxd)"},
	[OPTION_USER] = {"user", 'u', KIND_TEXT, AT(user), 0, "NAME", "act as this user (control socket)"},
	[OPTION_WORKSPACE] = {"workspace", 0, KIND_WORDS, AT(workspace), AT(workspaces), "NAME", "workspace of that user; secret put: may be repeated"},
	[OPTION_PROJECT] = {"project", 0, KIND_TEXT, AT(project), 0, "NAME", "project of that user"},
	[OPTION_SCOPES] = {"scopes", 0, KIND_TEXT, AT(scopes), 0, "LIST", "scopes of that user, separated by spaces"},
	[OPTION_OUTPUT] = {"output", 'o', KIND_OUTPUT, AT(output), 0, "json|table|name", "form of the output"},
	[OPTION_RAW] = {"raw", 0, KIND_FLAG, AT(raw), 0, NULL, "do not escape a session's output on a terminal"},
	[OPTION_QUIET] = {"quiet", 'q', KIND_FLAG, AT(quiet), 0, NULL, "print results only"},
	[OPTION_HELP] = {"help", 'h', KIND_FLAG, AT(help), 0, NULL, "print help"},
	[OPTION_PROFILE] = {"profile", 'p', KIND_TEXT, AT(profile), 0, "component|agent", "policy profile"},
	[OPTION_ENV] = {"env", 'e', KIND_LIST, AT(env), AT(n_env), "NAME=VALUE", "environment variable; may be repeated"},
	[OPTION_TTL] = {"ttl", 0, KIND_U32, AT(ttl_minutes), 0, "MINUTES", "life time of the session"},
	[OPTION_ENDPOINT] = {"endpoint", 0, KIND_LIST, AT(endpoint), AT(n_endpoint), "NAME=URL", "override of one of the six endpoints"},
	[OPTION_CWD] = {"cwd", 'C', KIND_TEXT, AT(cwd), 0, "DIR", "working directory of the command"},
	[OPTION_TIMEOUT] = {"timeout", 't', KIND_U32, AT(timeout_ms), 0, "MS", "end the command after that many milliseconds"},
	[OPTION_ROOT] = {"root", 0, KIND_FLAG, AT(as_root), 0, NULL, "as root of the session (profile agent)"},
	[OPTION_STDIN] = {"stdin", 'i', KIND_FLAG, AT(with_stdin), 0, NULL, "give the command our standard input"},
	[OPTION_KEEP] = {"keep", 0, KIND_FLAG, AT(keep), 0, NULL, "leave the session and print its id"},
	[OPTION_NAME] = {"name", 'n', KIND_TEXT, AT(name), 0, "NAME", "name of the session; write: of the component instead of the file's"},
	[OPTION_STATUS] = {"status", 0, KIND_TEXT, AT(status), 0, "open|running|suspended", "only sessions in that state"},
	[OPTION_DEEP] = {"deep", 0, KIND_FLAG, AT(deep), 0, NULL, "also run into the limits from inside"},
	[OPTION_CONFIG] = {"config", 0, KIND_TEXT, AT(config), 0, "FILE", "configuration that the service was started with"},
	[OPTION_FOLLOW] = {"follow", 'f', KIND_FLAG, AT(follow), 0, NULL, "wait for further frames until the task ends"},
	[OPTION_DETACH] = {"detach", 'd', KIND_FLAG, AT(detach), 0, NULL, "print the id and leave it running"},
	[OPTION_INTERVAL] = {"interval", 0, KIND_U32, AT(interval_s), 0, "SECONDS", "time between two looks (default 2)"},
	[OPTION_ONCE] = {"once", '1', KIND_FLAG, AT(once), 0, NULL, "print one table and end"},
	[OPTION_DRY_RUN] = {"dry-run", 0, KIND_FLAG, AT(dry_run), 0, NULL, "only say what would be done"},
	[OPTION_SECRET] = {"secret", 's', KIND_WORDS, AT(secret), AT(secrets), "NAME", "secret of this host for its commands; may be repeated"},
	[OPTION_AS] = {"as", 0, KIND_TEXT, AT(variable), 0, "VARIABLE", "environment variable of the secret instead of its name in upper case"},
	[OPTION_MASK_ENCODINGS] = {"mask-encodings", 0, KIND_FLAG, AT(mask_encodings), 0, NULL, "mask its base64, hexadecimal and URL forms, too"},
	[OPTION_APPLIED] = {"status", 0, KIND_FLAG, AT(applied), 0, NULL, "only print which steps are applied"},
	[OPTION_PRINT_UNDO] = {"print-undo", 0, KIND_FLAG, AT(print_undo), 0, NULL, "only print the SQL that would undo the steps"},
	[OPTION_DSN_FILE] = {"dsn-file", 0, KIND_TEXT, AT(dsn_file), 0, "FILE", "postgresql://… of the schema's owner (default /etc/sandboxd/migrate.dsn)"},
	[OPTION_YES] = {"yes", 'y', KIND_FLAG, AT(yes), 0, NULL, "do not ask"},
	[OPTION_SESSION] = {"session", 0, KIND_TEXT, AT(session), 0, "ID", "only lines about this session (or ids that begin so)"},
	[OPTION_SINCE] = {"since", 0, KIND_TEXT, AT(since), 0, "TIME", "only lines since then: 15min, 24h, or a time in UTC"},
	[OPTION_ALLOW] = {"allow", 0, KIND_WORDS, AT(allow), AT(allows), "RULE", "host:port that it may reach; may be repeated"},
	[OPTION_NO_ALLOW] = {"no-allow", 0, KIND_FLAG, AT(no_allow), 0, NULL, "take all such rules away"},
	[OPTION_TTY] = {"tty", 0, KIND_FLAG, AT(tty), 0, NULL, "on a terminal, which is ours"},
	[OPTION_SIGNAL] = {"signal", 's', KIND_TEXT, AT(signal), 0, "HUP|INT|QUIT|KILL|USR1|USR2|TERM|CONT|STOP", "signal to send, name or number (default TERM)"},
	[OPTION_SCOPE] = {"scope", 0, KIND_TEXT, AT(scope), 0, "group|leader|tree", "whom to signal (default group)"},
	[OPTION_RECURSIVE] = {"recursive", 'r', KIND_FLAG, AT(recursive), 0, NULL, "also in all folders below"},
	[OPTION_REPLACE] = {"replace", 0, KIND_FLAG, AT(replace), 0, NULL, "remove what is there first"},
	[OPTION_BEFORE] = {"before", 0, KIND_TEXT, AT(before), 0, "COMMAND", "line for the shell, run and waited for first; it has to end with 0"},
	[OPTION_SIGNAL_COMMANDS] = {"signal", 0, KIND_TEXT, AT(signal_commands), 0, "none|foreground|all", "commands that get a TERM first (default none)"},
	[OPTION_GRACE] = {"grace", 0, KIND_TEXT, AT(grace), 0, "MS", "time for these to end before they are stopped (default 2000)"},
	[OPTION_REMOVE] = {"remove", 0, KIND_WORDS, AT(remove), AT(removes), "PATH", "file or folder to delete first; may be repeated"},
	[OPTION_DURABLE] = {"durable", 0, KIND_TEXT, AT(durable), 0, "background|wait|never", "snapshot of the workspace (default background)"},
	[OPTION_METADATA] = {"metadata", 0, KIND_LIST, AT(metadata), AT(n_metadata), "KEY=VALUE", "text to find it by; may be repeated"},
	[OPTION_INCLUDE] = {"include", 0, KIND_WORDS, AT(include), AT(includes), "PATH", "path of its workspace, which snapshots keep; may be repeated"},
	[OPTION_EXCLUDE] = {"exclude", 0, KIND_WORDS, AT(exclude), AT(excludes), "PATTERN", "what of it they leave out; may be repeated"},
	[OPTION_ORGANIZATION_UUID] = {"organization-uuid", 0, KIND_TEXT, AT(organization_uuid), 0, "UUID", "whose it is (operator socket)"},
	[OPTION_PROJECT_UUID] = {"project-uuid", 0, KIND_TEXT, AT(project_uuid), 0, "UUID", "project that it is of"},
	[OPTION_TEMPLATE] = {"template", 0, KIND_TEXT, AT(template), 0, "NAME", "root file system that it has (default base)"},
	[OPTION_PROVIDER] = {"provider", 0, KIND_TEXT, AT(provider), 0, "NAME", "what makes its sandbox (docs/providers.md)"},
	[OPTION_BRANCH] = {"branch", 'b', KIND_TEXT, AT(branch), 0, "BRANCH", "branch of the remote"},
	[OPTION_DEPTH] = {"depth", 0, KIND_U32, AT(depth), 0, "COMMITS", "no more of the history than that"},
	[OPTION_REMOTE] = {"remote", 0, KIND_TEXT, AT(remote), 0, "NAME|URL", "remote (default origin)"},
	[OPTION_PRUNE] = {"prune", 0, KIND_FLAG, AT(prune), 0, NULL, "forget branches that the remote no longer has"},
	[OPTION_FORCE] = {"force", 'f', KIND_FLAG, AT(force), 0, NULL, "also where commits of the remote are lost"},
	[OPTION_SET_UPSTREAM] = {"set-upstream", 0, KIND_FLAG, AT(set_upstream), 0, NULL, "make it the branch's upstream"},
	[OPTION_CREDENTIAL_FILE] = {"credential-file", 0, KIND_TEXT, AT(credential_file), 0, "FILE", "lines username=, password= and host=, as git credential fill prints; - is standard input"},
	[OPTION_ASK] = {"ask", 0, KIND_FLAG, AT(ask), 0, NULL, "ask for user and password on the terminal"},
	[OPTION_CA_FILE] = {"ca-file", 0, KIND_TEXT, AT(ca_file), 0, "FILE", "authorities of the server's certificate (PEM)"},
	[OPTION_ALL] = {"all", 'A', KIND_FLAG, AT(all), 0, NULL, "all that changed"},
	[OPTION_MESSAGE] = {"message", 'm', KIND_TEXT, AT(message), 0, "TEXT", "message of the commit"},
	[OPTION_AUTHOR] = {"author", 0, KIND_TEXT, AT(author), 0, "'NAME <ADDRESS>'", "author and committer"},
	[OPTION_ALLOW_EMPTY] = {"allow-empty", 0, KIND_FLAG, AT(allow_empty), 0, NULL, "also where nothing changed"},
	[OPTION_STAGED] = {"staged", 0, KIND_FLAG, AT(staged), 0, NULL, "what the next commit would change"},
	[OPTION_LIMIT] = {"limit", 'n', KIND_U32, AT(limit), 0, "COMMITS", "how many (default 20)"},
	[OPTION_PLATFORM] = {"platform", 0, KIND_TEXT, AT(platform), 0, "OS/ARCHITECTURE", "image to take of several (default linux/amd64)"},
	[OPTION_REF] = {"ref", 0, KIND_TEXT, AT(ref), 0, "TAG", "the same, by its tag"},
	[OPTION_MAX_MIB] = {"max-mib", 0, KIND_U32, AT(max_mib), 0, "MIB", "refuse a larger image (default 16384)"},
	[OPTION_MAX_FILES] = {"max-files", 0, KIND_U32, AT(max_files), 0, "FILES", "refuse one with more files and folders (default 1000000)"},
	[OPTION_STATE_DIR] = {"state-dir", 0, KIND_TEXT, AT(state_dir), 0, "DIR", "state directory of the service (default /var/lib/sandboxd)"},
};
/* clang-format on */

const struct option_row *option_row(enum option_id id)
{
	return &option_table[id];
}

static const struct option_row *option_find(const char *word, size_t length, option_set accepted)
{
	for (size_t i = 0; i < ARRAY_SIZE(option_table); i++) {
		const struct option_row *row = &option_table[i];
		bool same;

		if (!(accepted & OPTION_BIT(i)))
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

static int option_store_word(const struct option_row *row, struct option_words *words,
			     const char *value)
{
	if (words->n >= ARRAY_SIZE(words->word))
		return option_bad_value(row);
	words->word[words->n++] = value;
	return 0;
}

static int option_store_output(const struct option_row *row, enum output_form *ret_form,
			       const char *value)
{
	static const char *const names[] = {
		[OUTPUT_TABLE] = "table", [OUTPUT_JSON] = "json", [OUTPUT_NAME] = "name"};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (str_equal(value, names[i])) {
			*ret_form = (enum output_form)i;
			return 0;
		}
	return option_bad_value(row);
}

static int option_store(const struct option_row *row, struct options *options, const char *value)
{
	char *base = (char *)options;
	void *field = base + row->offset;

	switch ((enum option_kind)row->kind) {
	case KIND_FLAG:
		*(bool *)field = true;
		return 0;
	case KIND_TEXT:
		*(const char **)field = value;
		return 0;
	case KIND_WORDS:
		*(const char **)field = value;
		return option_store_word(row, (struct option_words *)(void *)(base + row->n_offset),
					 value);
	case KIND_LIST:
		return option_store_list(row, base, value);
	case KIND_U32:
		if (num_parse_u32(value, 1, INT32_MAX, field) < 0)
			return option_bad_value(row);
		return 0;
	case KIND_OUTPUT:
		return option_store_output(row, field, value);
	}
	return -EINVAL;
}

int options_parse(struct options *options, option_set accepted, int argc, char **argv,
		  int *ret_index)
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
		row = option_find(word, value ? (size_t)(value - word) : strlen(word), accepted);
		if (!row) {
			(void)fprintf(stderr, "sandboxctl: unknown option here: %s\n", word);
			return -EINVAL;
		}
		if (row->kind == KIND_FLAG && value)
			return option_bad_value(row);
		if (value) {
			value++;
		} else if (row->kind != KIND_FLAG) {
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

void options_from_environment(struct options *options)
{
	static const struct {
		const char *variable;
		enum option_id id;
	} rows[] = {
		{"SANDBOXCTL_SOCKET",      OPTION_SOCKET     },
		{"SANDBOXCTL_RUNTIME_DIR", OPTION_RUNTIME_DIR},
		{"SANDBOXCTL_USER",        OPTION_USER       },
		{"SANDBOXCTL_WORKSPACE",   OPTION_WORKSPACE  },
		{"SANDBOXCTL_PROJECT",     OPTION_PROJECT    },
		{"SANDBOXCTL_SCOPES",      OPTION_SCOPES     },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		/* One thread. NOLINTNEXTLINE(concurrency-mt-unsafe) */
		const char *value = getenv(rows[i].variable);
		void *field = (char *)options + option_table[rows[i].id].offset;

		if (value && value[0] != '\0' && !*(const char **)field)
			*(const char **)field = value;
	}
}

void options_print(option_set ids)
{
	for (size_t i = 0; i < ARRAY_SIZE(option_table); i++) {
		const struct option_row *row = &option_table[i];
		char left[48];

		if (!(ids & OPTION_BIT(i)))
			continue;
		(void)snprintf(left, sizeof(left), "--%s%s%s", row->name, row->argument ? " " : "",
			       row->argument ? row->argument : "");
		if (row->letter)
			(void)printf("  -%c, %-26s %s\n", row->letter, left, row->text);
		else
			(void)printf("      %-26s %s\n", left, row->text);
	}
}
