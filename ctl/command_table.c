#include "base/str.h"

#include "ctl/commands.h"

#define BIT(id) OPTION_BIT(OPTION_##id)

#define SESSION_SPEC (BIT(PROFILE) | BIT(ENV) | BIT(TTL))
#define COMMAND_LINE (BIT(CWD) | BIT(TIMEOUT) | BIT(STDIN))

/* clang-format off */
static const struct command table[] = {
	{.verb = "run", .run = command_run, .min_words = 1, .max_words = -1, .words = {WORD_TEXT},
	 .options = SESSION_SPEC | COMMAND_LINE | BIT(KEEP),
	 .arguments = "[OPTION...] -- COMMAND [ARG...]",
	 .text = "make a session, run a command in it, remove it"},
	{.verb = "exec", .run = command_exec, .min_words = 2, .max_words = -1, .words = {WORD_SESSION, WORD_TEXT},
	 .options = BIT(ENV) | COMMAND_LINE,
	 .arguments = "[OPTION...] SESSION -- COMMAND [ARG...]",
	 .text = "run a command in a session"},
	{.verb = "create", .run = command_create,
	 .options = SESSION_SPEC | BIT(ENDPOINT),
	 .arguments = "[OPTION...]",
	 .text = "make a session and print its id"},
	{.verb = "ls", .run = command_ls,
	 .options = BIT(STATUS),
	 .arguments = "[OPTION...]",
	 .text = "list the sessions you can see, newest first"},
	{.verb = "show", .run = command_show, .min_words = 1, .max_words = 1, .words = {WORD_SESSION},
	 .arguments = "SESSION",
	 .text = "print a session's summary"},
	{.verb = "write", .run = command_write, .min_words = 2, .max_words = 2, .words = {WORD_SESSION, WORD_FILE},
	 .options = BIT(NAME),
	 .arguments = "[--name NAME] SESSION FILE",
	 .text = "write a component document (- is standard input)"},
	{.verb = "load", .run = command_load, .min_words = 1, .max_words = 1, .words = {WORD_SESSION},
	 .arguments = "SESSION",
	 .text = "load the components and print the asset keys"},
	{.verb = "execute", .run = command_execute, .min_words = 1, .max_words = 1, .words = {WORD_SESSION},
	 .arguments = "SESSION",
	 .text = "execute the components and follow the frames"},
	{.verb = "logs", .run = command_logs, .min_words = 1, .max_words = 1, .words = {WORD_TASK},
	 .options = BIT(FOLLOW),
	 .arguments = "[-f] TASK",
	 .text = "print the frames of a task"},
	{.verb = "rm", .run = command_rm, .min_words = 1, .max_words = COMMAND_MAX_WORDS, .words = {WORD_SESSION, WORD_SESSION},
	 .arguments = "SESSION...",
	 .text = "tear sessions down"},
	{.verb = "janitor", .run = command_janitor,
	 .arguments = "",
	 .text = "tear down every expired session"},
	{.verb = "trace", .run = command_trace, .min_words = 1, .max_words = 1, .words = {WORD_SESSION},
	 .arguments = "SESSION",
	 .text = "print the launch steps with their times"},
	{.verb = "proof", .run = command_proof, .min_words = 1, .max_words = 1, .words = {WORD_SESSION},
	 .options = BIT(DEEP),
	 .arguments = "[--deep] SESSION",
	 .text = "compare the isolation seen from inside and outside"},
	{.verb = "config", .sub = "check", .run = command_config_check, .max_words = 1, .words = {WORD_FILE}, .offline = true,
	 .options = BIT(CONFIG),
	 .arguments = "[FILE]",
	 .text = "name each mistake of the configuration, or of one file"},
	{.verb = "config", .sub = "show", .run = command_config_show,
	 .options = BIT(CONFIG),
	 .arguments = "",
	 .text = "print each option's value and where it comes from"},
	{.verb = "doctor", .run = command_doctor, .offline = true,
	 .arguments = "",
	 .text = "check this host: what is missing, what it costs, what mends it"},
	{.verb = "version", .run = command_version,
	 .arguments = "",
	 .text = "print the versions of client and service"},
};
/* clang-format on */

const struct command *command_table(size_t *ret_n)
{
	*ret_n = ARRAY_SIZE(table);
	return table;
}
