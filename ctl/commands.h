/*
 * The command table, and one function per command. Each returns the exit status. A new command is
 * a row in command_table.c, its options are rows in options.c; usage, help, dispatch, short ids
 * and completion follow from these.
 */
#pragma once

#include "ctl/client.h"
#include "ctl/command_events.h"
#include "ctl/options.h"

/* What a word of a command is. */
enum word_kind {
	WORD_NONE,
	WORD_TEXT,
	WORD_SESSION, /* a short id or a name becomes the id before the command runs */
	WORD_TASK,
	WORD_COMMAND, /* of the session that is the first word */
	WORD_FILE,
	WORD_SHELL,
};
#define COMMAND_MAX_WORDS 64

struct command {
	const char *verb;
	const char *sub; /* second word of the verb, or NULL */
	int (*run)(struct client *client, const struct options *options);
	int min_words;
	int max_words;           /* -1: a command line ends them */
	enum word_kind words[2]; /* the last one stands for all that follow */
	bool offline;            /* needs no service: client is NULL */
	option_set options;      /* OPTION_BITs beside OPTIONS_COMMON */
	const char *arguments;   /* for usage */
	const char *text;
};
const struct command *command_table(size_t *ret_n);

/* clang-format off */
int command_run(struct client *client, const struct options *options);
int command_exec(struct client *client, const struct options *options);
int command_cp(struct client *client, const struct options *options);
int command_changes(struct client *client, const struct options *options);
int command_shell(struct client *client, const struct options *options);
int command_attach(struct client *client, const struct options *options);
int command_ps(struct client *client, const struct options *options);
int command_kill(struct client *client, const struct options *options);
int command_create(struct client *client, const struct options *options);
int command_ls(struct client *client, const struct options *options);
int command_show(struct client *client, const struct options *options);
int command_write(struct client *client, const struct options *options);
int command_load(struct client *client, const struct options *options);
int command_execute(struct client *client, const struct options *options);
int command_logs(struct client *client, const struct options *options);
int command_rm(struct client *client, const struct options *options);
int command_tasks(struct client *client, const struct options *options);
int command_cancel(struct client *client, const struct options *options);
int command_ttl(struct client *client, const struct options *options);
int command_suspend(struct client *client, const struct options *options);
int command_resume(struct client *client, const struct options *options);
int command_watch(struct client *client, const struct options *options);
int command_top(struct client *client, const struct options *options);
int command_denials(struct client *client, const struct options *options);
/* A new array of the words, or NULL. */
json_t *words_array(const char *const words[], size_t n);
int command_egress(struct client *client, const struct options *options);
int command_quota(struct client *client, const struct options *options);
int command_gc(struct client *client, const struct options *options);
int command_purge(struct client *client, const struct options *options);
int command_janitor(struct client *client, const struct options *options);
int command_trace(struct client *client, const struct options *options);
int command_proof(struct client *client, const struct options *options);
int command_config_check(struct client *client, const struct options *options);
int command_migrate(struct client *client, const struct options *options);
int command_git_clone(struct client *client, const struct options *options);
int command_git_fetch(struct client *client, const struct options *options);
int command_git_pull(struct client *client, const struct options *options);
int command_git_push(struct client *client, const struct options *options);
int command_git_branch(struct client *client, const struct options *options);
int command_git_checkout(struct client *client, const struct options *options);
int command_git_add(struct client *client, const struct options *options);
int command_git_commit(struct client *client, const struct options *options);
int command_git_status(struct client *client, const struct options *options);
int command_git_diff(struct client *client, const struct options *options);
int command_git_log(struct client *client, const struct options *options);
int command_snapshot_create(struct client *client, const struct options *options);
int command_snapshot_ls(struct client *client, const struct options *options);
int command_snapshot_keys(struct client *client, const struct options *options);
int command_snapshot_rm(struct client *client, const struct options *options);
int command_snapshot_restore(struct client *client, const struct options *options);
int command_secret_put(struct client *client, const struct options *options);
int command_secret_ls(struct client *client, const struct options *options);
int command_secret_rm(struct client *client, const struct options *options);
int command_template_import(struct client *client, const struct options *options);
int command_template_ls(struct client *client, const struct options *options);
int command_template_rm(struct client *client, const struct options *options);
int command_airbyte_import(struct client *client, const struct options *options);
int command_airbyte_ls(struct client *client, const struct options *options);
int command_airbyte_rm(struct client *client, const struct options *options);
int command_airbyte_write(struct client *client, const struct options *options);
int command_config_show(struct client *client, const struct options *options);
int command_log_level(struct client *client, const struct options *options);
int command_audit(struct client *client, const struct options *options);
int command_doctor(struct client *client, const struct options *options);
int command_completion(struct client *client, const struct options *options);
int command_version(struct client *client, const struct options *options);
/* clang-format on */

/* {"NAME": "value", ...} of NAME=value words. A value behind `@` is a file's content: what stands
 * on a command line, every user of the host can read in the process list. NULL: one is not UTF-8,
 * or its file cannot be read, which was said. */
json_t *pairs_object(const char *const *pairs, size_t n);
/* Says that a request cannot be made of what was given. EXIT_USAGE. */
int request_unsendable(void);
/* The content of a file without its last newline; NULL: said why, or it is no UTF-8. */
json_t *text_of_file(const char *path, size_t max_bytes);
/* Shared by create and run. Exit status; the reply is the summary. */
int session_create(struct client *client, const struct options *options,
		   struct client_reply *reply);
/* The id in a summary of either prefix, or NULL. */
const char *session_id(const json_t *summary);
/* What its owner calls it in a summary of the list, or "-". */
const char *session_name(const json_t *summary);
/* Every session that the caller can see, newest first: a new array, or NULL with the exit status
 * in *ret_status. status: "open", "running", "suspended" or NULL. */
json_t *session_list(struct client *client, const char *status, int *ret_status);
/* The header of a list and its rows, without the quiet options' header. */
void session_list_print(const json_t *sessions, const struct options *options, size_t max_rows);
/* The tasks of one session, newest first, as session_list. */
json_t *task_list(struct client *client, const char *session, int *ret_status);
/* The commands that a session has, as session_list. */
json_t *command_list(struct client *client, const char *session, int *ret_status);
/* DELETE under either prefix. Exit status. */
int session_remove(struct client *client, const char *id, struct client_reply *reply);
/* The control groups of instances that are gone, a new array of paths; remove: those that could be
 * removed. */
json_t *leftovers(bool remove);
/* Follow a task's frames to the end. */
int task_follow(struct client *client, const struct options *options, const char *task_id,
		size_t n_assets);
/* Run one command in a session: its output goes to the callbacks of `output`. Exit status.
 * *ret_timed_out: it had no time to end by itself; NULL: the caller does not care. */
int command_in_session(struct client *client, const char *session, json_t *request,
		       const struct command_output *output, bool *ret_timed_out);
