/*
 * git in a session, by its routes: git itself runs there. The working tree is SESSION:PATH. What a
 * repository says is its author's (C6): it is escaped on a terminal, like a command's output.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/str.h"

#include "ctl/commands.h"
#include "ctl/git_credential.h"
#include "ctl/place.h"
#include "ctl/print.h"
#include "sandboxd/api.h"
#include "sandboxd/git.h"

#define PATH_MAX_BYTES ((size_t)32 * 1024)

/* A parameter of a route that looks. */
struct parameter {
	const char *name;
	const char *value; /* NULL: it is left out */
};

/* One call of git: the working tree, and what is sent. */
struct call {
	struct client *client;
	const struct options *options;
	const char *act;
	struct place place;
	json_t *body; /* of an act; NULL: it only looks */
	struct parameter look[2];
	struct client_reply reply;
};

static int call_init(struct call *call, struct client *client, const struct options *options,
		     const char *act)
{
	*call = (struct call){
		.client = client, .options = options, .act = act, .reply = CLIENT_REPLY_NULL};
	if (!place_split(options->args[0], &call->place)) {
		(void)fputs("sandboxctl: the working tree is SESSION:PATH\n", stderr);
		return EXIT_USAGE;
	}
	if (call->place.path[0] == '\0')
		call->place.path = ".";
	return place_resolve(client, options, &call->place);
}

static void call_done(struct call *call)
{
	json_decref(call->body);
	client_reply_done(&call->reply);
}
#define AUTO_CALL __attribute__((cleanup(call_done)))

static int add_parameter(struct buf *path, const char *name, const char *value)
{
	char *escaped = curl_easy_escape(NULL, value, 0);
	int r = escaped ? buf_printf(path, "%c%s=%s", str_equal(name, "path") ? '?' : '&', name,
				     escaped)
			: -ENOMEM;

	curl_free(escaped);
	return r;
}

static int format_path(const struct call *call, struct buf *path)
{
	char prefix[512];
	int r = client_path(prefix, sizeof(prefix), API_PREFIX_RUNTIME, call->place.session,
			    "/git/");

	if (r == 0)
		r = buf_printf(path, "%s%s", prefix, call->act);
	if (call->body || r < 0)
		return r;
	r = add_parameter(path, "path", call->place.path);
	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(call->look); i++)
		if (call->look[i].value)
			r = add_parameter(path, call->look[i].name, call->look[i].value);
	return r;
}

static void print_member_text(const json_t *doc, const char *name)
{
	size_t size;
	AUTO_FREE char *text = print_member_bytes(doc, name, &size);

	print_text(stdout, text ? text : "-");
}

/* EXIT_OK and the answer in call->reply, or the exit status; git's own words where it has any. */
static int call_perform(struct call *call)
{
	struct buf path = BUF_NULL(PATH_MAX_BYTES);
	struct client_request request = {.method = call->body ? "POST" : "GET", .body = call->body};
	int r = format_path(call, &path);

	request.path = buf_text(&path);
	if (r == 0)
		r = request.path ? client_perform(call->client, &request, &call->reply) : -ENOMEM;
	buf_done(&path);
	if (r < 0 || call->reply.status < 300)
		return client_result(call->client, r, &call->reply);
	if (call->options->output != OUTPUT_JSON)
		(void)print_member_stream(call->options, stderr, call->reply.doc, "stderr");
	return client_result(call->client, r, &call->reply);
}

/* Takes the body. */
static int call_ask(struct call *call, json_t *body)
{
	call->body = body;
	return call_perform(call);
}

/* Left out where it is not set. */
static json_t *flag(bool is_set)
{
	return is_set ? json_true() : NULL;
}

static json_t *number(uint32_t value)
{
	return value > 0 ? json_integer(value) : NULL;
}

/* What those over the network have in common. */
static int add_network(struct client *client, const struct options *options, json_t *body)
{
	bool is_url = options->remote && strstr(options->remote, "://");
	json_t *credential = NULL;
	int failed = 0;
	int r;

	if (options->remote)
		failed |= json_object_set_new(body, is_url ? "url" : "remote",
					      json_string(options->remote));
	if (options->branch)
		failed |= json_object_set_new(body, "branch", json_string(options->branch));
	if (options->timeout_ms)
		failed |=
			json_object_set_new(body, "timeout_ms", json_integer(options->timeout_ms));
	if (options->ca_file)
		failed |= json_object_set_new(body, "ca_certificates",
					      text_of_file(options->ca_file, GIT_CA_MAX_BYTES));
	if (failed)
		return request_unsendable();
	r = git_credential_read(client, options, json_string_value(json_object_get(body, "url")),
				&credential);
	if (credential)
		(void)json_object_set_new(body, "credentials", credential);
	return r;
}

/* Answers. */

/* git's own letter for it. */
static const char *change_letter(const char *name)
{
	static const struct {
		const char *name;
		const char *letter;
	} rows[] = {
		{"modified",     "M"},
                {"type_changed", "T"},
                {"added",        "A"},
                {"deleted",      "D"},
		{"renamed",      "R"},
                {"copied",       "C"},
                {"unmerged",     "U"},
                {"untracked",    "?"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		if (str_equal(name, rows[i].name))
			return rows[i].letter;
	return " ";
}

static void print_file(const json_t *file, bool name_only)
{
	const char *worktree = change_letter(print_member(file, "worktree"));
	const char *index = change_letter(print_member(file, "index"));

	if (!name_only)
		(void)printf("%s%s ", worktree[0] == '?' ? worktree : index, worktree);
	if (!name_only && (json_object_get(file, "from") || json_object_get(file, "from_base64"))) {
		print_member_text(file, "from");
		(void)fputs(" -> ", stdout);
	}
	print_member_text(file, "path");
	(void)putchar('\n');
}

static void print_distance(const json_t *status, const char *name, const char **between)
{
	json_int_t n = json_integer_value(json_object_get(status, name));

	if (n <= 0)
		return;
	(void)printf("%s%s %lld", *between, name, (long long)n);
	*between = ", ";
}

/* As `git status --short --branch` does. */
static void print_branch(const json_t *status)
{
	const char *between = " [";

	(void)fputs("## ", stdout);
	if (json_is_null(json_object_get(status, "current_branch")))
		(void)fputs("no branch", stdout);
	else
		print_member_text(status, "current_branch");
	if (!json_is_null(json_object_get(status, "upstream"))) {
		(void)fputs("...", stdout);
		print_member_text(status, "upstream");
	}
	print_distance(status, "ahead", &between);
	print_distance(status, "behind", &between);
	(void)puts(between[0] == ',' ? "]" : "");
}

static void say_truncated(const json_t *doc)
{
	if (json_is_true(json_object_get(doc, "truncated")))
		(void)fputs("sandboxctl: there is more than what is shown\n", stderr);
}

static int print_status(const struct options *options, const json_t *doc)
{
	size_t i;
	json_t *file;

	if (print_answer(options, doc))
		return EXIT_OK;
	if (options->output == OUTPUT_TABLE && !options->quiet)
		print_branch(doc);
	json_array_foreach(json_object_get(doc, "files"), i, file)
	{
		print_file(file, options->output == OUTPUT_NAME);
	}
	say_truncated(doc);
	return EXIT_OK;
}

static void print_commit(const json_t *commit, bool table)
{
	const json_t *author = json_object_get(commit, "author");

	print_cell(print_member(commit, "commit"), table ? -12 : 0);
	if (table) {
		(void)fputs("  ", stdout);
		print_cell(print_member(author, "date"), 25);
		print_cell(print_member(author, "name"), 20);
		print_member_text(commit, "subject");
	}
	(void)putchar('\n');
}

/* One function for each act. */

/* r: that of what went before. Takes the body, which lacks the path; NULL: it cannot be sent. */
static int send_body(struct call *call, int r, json_t *body)
{
	if (r == EXIT_OK && body &&
	    json_object_set_new(body, "path", json_string(call->place.path)) == 0)
		return call_ask(call, body);
	json_decref(body);
	return r == EXIT_OK ? request_unsendable() : r;
}

static int act(struct call *call, struct client *client, const struct options *options,
	       const char *name, json_t *body)
{
	return send_body(call, call_init(call, client, options, name), body);
}

static int act_over_network(struct call *call, struct client *client, const struct options *options,
			    const char *name, json_t *body)
{
	int r = call_init(call, client, options, name);

	/* Nobody is asked for a password before the session is there. */
	if (r == EXIT_OK && body)
		r = add_network(client, options, body);
	return send_body(call, r, body);
}

static int finish_with_status(const struct call *call, int r)
{
	return r == EXIT_OK ? print_status(call->options, call->reply.doc) : r;
}

int command_git_clone(struct client *client, const struct options *options)
{
	AUTO_CALL struct call call = {0};
	json_t *body =
		json_pack("{s:s, s:o*}", "url", options->args[1], "depth", number(options->depth));

	return finish_with_status(&call, act_over_network(&call, client, options, "clone", body));
}

int command_git_fetch(struct client *client, const struct options *options)
{
	AUTO_CALL struct call call = {0};
	json_t *body = json_pack("{s:o*, s:o*}", "depth", number(options->depth), "prune",
				 flag(options->prune));

	return finish_with_status(&call, act_over_network(&call, client, options, "fetch", body));
}

int command_git_pull(struct client *client, const struct options *options)
{
	AUTO_CALL struct call call = {0};

	return finish_with_status(&call,
				  act_over_network(&call, client, options, "pull", json_object()));
}

int command_git_push(struct client *client, const struct options *options)
{
	AUTO_CALL struct call call = {0};
	json_t *body = json_pack("{s:s, s:o*, s:o*}", "branch", options->args[1], "force",
				 flag(options->force), "set_upstream", flag(options->set_upstream));
	int r = act_over_network(&call, client, options, "push", body);

	if (r == EXIT_OK && !print_answer(options, call.reply.doc))
		print_name(print_member(call.reply.doc, "result"));
	return r;
}

int command_git_branch(struct client *client, const struct options *options)
{
	AUTO_CALL struct call call = {0};
	json_t *body = json_pack("{s:s, s:s*}", "branch", options->args[1], "ref",
				 options->n_args > 2 ? options->args[2] : NULL);

	return finish_with_status(&call, act(&call, client, options, "branch", body));
}

int command_git_checkout(struct client *client, const struct options *options)
{
	AUTO_CALL struct call call = {0};
	json_t *body = json_pack("{s:s}", "ref", options->args[1]);

	return finish_with_status(&call, act(&call, client, options, "checkout", body));
}

int command_git_add(struct client *client, const struct options *options)
{
	AUTO_CALL struct call call = {0};
	json_t *body;

	if (options->all == (options->n_args > 1)) {
		(void)fputs("sandboxctl: git add wants files, or --all\n", stderr);
		return EXIT_USAGE;
	}
	body = json_pack("{s:o*}", "all", flag(options->all));

	if (options->n_args > 1 &&
	    json_object_set_new(body, "paths",
				words_array((const char *const *)options->args + 1,
					    (size_t)options->n_args - 1)) < 0) {
		json_decref(body);
		body = NULL;
	}
	return finish_with_status(&call, act(&call, client, options, "add", body));
}

/* "Ana <ana@example.com>"; NULL: the author is not of this form, or it cannot be sent. */
static json_t *commit_body(const struct options *options)
{
	const char *author = options->author;
	const char *open = strrchr(author, '<');
	const char *close = open ? strchr(open, '>') : NULL;
	const char *end = open;

	while (end && end > author && end[-1] == ' ')
		end--;
	if (!close || close[1] != '\0' || end == author)
		return NULL;
	return json_pack("{s:s, s:s%, s:s%, s:o*}", "message", options->message, "author_name",
			 author, (size_t)(end - author), "author_email", open + 1,
			 (size_t)(close - open - 1), "allow_empty", flag(options->allow_empty));
}

int command_git_commit(struct client *client, const struct options *options)
{
	AUTO_CALL struct call call = {0};
	json_t *body;
	int r;

	if (!options->message || !options->author) {
		(void)fputs("sandboxctl: git commit wants --message and --author\n", stderr);
		return EXIT_USAGE;
	}
	body = commit_body(options);
	if (!body) {
		(void)fputs("sandboxctl: --author wants 'NAME <ADDRESS>' in UTF-8\n", stderr);
		return EXIT_USAGE;
	}
	r = act(&call, client, options, "commit", body);
	if (r == EXIT_OK && !print_answer(options, call.reply.doc))
		print_name(print_member(call.reply.doc, "commit"));
	return r;
}

int command_git_status(struct client *client, const struct options *options)
{
	AUTO_CALL struct call call = {0};
	int r = call_init(&call, client, options, "status");

	if (r == EXIT_OK)
		r = call_perform(&call);
	return r == EXIT_OK ? print_status(options, call.reply.doc) : r;
}

int command_git_diff(struct client *client, const struct options *options)
{
	AUTO_CALL struct call call = {0};
	size_t i;
	json_t *file;
	int r = call_init(&call, client, options, "diff");

	if (r != EXIT_OK)
		return r;
	call.look[0] = (struct parameter){"ref", options->n_args > 1 ? options->args[1] : NULL};
	call.look[1] = (struct parameter){"staged", options->staged ? "true" : NULL};
	r = call_perform(&call);
	if (r != EXIT_OK || print_answer(options, call.reply.doc))
		return r;
	if (options->output == OUTPUT_NAME)
		json_array_foreach(json_object_get(call.reply.doc, "files"), i, file)
			print_file(file, true);
	else if (print_member_stream(options, stdout, call.reply.doc, "diff") < 0)
		return client_result(client, -ESHUTDOWN, &call.reply);
	say_truncated(call.reply.doc);
	return r;
}

int command_git_log(struct client *client, const struct options *options)
{
	AUTO_CALL struct call call = {0};
	bool table = options->output == OUTPUT_TABLE;
	char limit[16] = "";
	size_t i;
	json_t *commit;
	int r = call_init(&call, client, options, "log");

	if (r != EXIT_OK)
		return r;
	if (options->limit)
		(void)snprintf(limit, sizeof(limit), "%u", options->limit);
	call.look[0] = (struct parameter){"ref", options->n_args > 1 ? options->args[1] : NULL};
	call.look[1] = (struct parameter){"limit", limit[0] ? limit : NULL};
	r = call_perform(&call);
	if (r != EXIT_OK || print_answer(options, call.reply.doc))
		return r;
	if (table && !options->quiet)
		(void)printf("%-12s  %-25s  %-20s  %s\n", "COMMIT", "DATE", "AUTHOR", "SUBJECT");
	json_array_foreach(json_object_get(call.reply.doc, "commits"), i, commit)
	{
		print_commit(commit, table);
	}
	return r;
}
