/*
 * The list of sessions.
 */
#include <curl/curl.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/id.h"
#include "base/str.h"

#include "ctl/commands.h"
#include "ctl/print.h"
#include "sandboxd/api.h"

#define DAGSTER_SESSIONS API_PREFIX_DAGSTER "/sessions"
/* Four values of 256 bytes, each of which can become three. */
#define PATH_MAX_BYTES   ((size_t)16 * 1024)

static int get_list(struct client *client, const char *status, const char *after,
		    struct client_reply *reply)
{
	char path[256];
	const struct client_request request = {.method = "GET", .path = path};
	int r;

	r = str_format(path, sizeof(path), DAGSTER_SESSIONS "?limit=500%s%s%s%s",
		       status ? "&status=" : "", status ? status : "", after ? "&after=" : "",
		       after ? after : "");
	return r < 0 ? client_result(client, r, reply) : client_ask(client, &request, reply);
}

/* The list's own status does not tell who stands still. */
static void keep_suspended(json_t *sessions)
{
	for (size_t i = json_array_size(sessions); i-- > 0;) {
		const json_t *session = json_array_get(sessions, i);

		if (!str_equal(print_member(json_object_get(session, "sandbox"), "tree"),
			       "suspended"))
			(void)json_array_remove(sessions, i);
	}
}

json_t *session_list(struct client *client, const char *status, int *ret_status)
{
	bool suspended = status && str_equal(status, "suspended");
	json_t *all = json_array();
	char after[ID_TEXT_BYTES] = "";
	size_t n;

	*ret_status = all ? EXIT_OK : EXIT_FAILED;
	do {
		AUTO_REPLY struct client_reply reply = CLIENT_REPLY_NULL;
		const char *last;

		*ret_status = get_list(client, suspended ? NULL : status, after[0] ? after : NULL,
				       &reply);
		n = json_array_size(reply.doc);
		if (*ret_status != EXIT_OK || n == 0)
			break;
		last = session_id(json_array_get(reply.doc, n - 1));
		if (json_array_extend(all, reply.doc) < 0 || !last ||
		    str_copy(after, sizeof(after), last) < 0)
			break;
	} while (n == 500);
	if (*ret_status != EXIT_OK) {
		json_decref(all);
		return NULL;
	}
	if (suspended)
		keep_suspended(all);
	return all;
}

void session_list_print(const json_t *sessions, const struct options *options, size_t max_rows)
{
	json_t *row;
	size_t i;

	if (!options->quiet && options->output == OUTPUT_TABLE)
		(void)printf("%-36s  %-16s  %-8s  %-10s  %-16s  %-19s  %s\n", "ID", "NAME",
			     "STATUS", "TREE", "OWNER", "EXPIRES (UTC)", "COMPONENTS");
	json_array_foreach(sessions, i, row)
	{
		if (i == max_rows)
			return;
		print_cell(session_id(row), options->output == OUTPUT_NAME ? 0 : 36);
		if (options->output == OUTPUT_TABLE) {
			print_cell(session_name(row), 16);
			print_cell(print_member(row, "status"), 8);
			print_cell(print_member(json_object_get(row, "sandbox"), "tree"), 10);
			print_cell(print_member(row, "owner"), 16);
			print_cell(print_member(row, "expires_at"), -19);
			(void)printf("  %3zu", json_array_size(json_object_get(row, "components")));
		}
		(void)putchar('\n');
	}
}

static bool is_status(const char *status)
{
	return !status || str_equal(status, "open") || str_equal(status, "running") ||
	       str_equal(status, "suspended");
}

/* "&metadata.KEY=VALUE" of each. 0 or -errno. */
static int add_metadata(struct buf *path, json_t *metadata)
{
	const char *key;
	json_t *value;
	int r = 0;

	json_object_foreach(metadata, key, value)
	{
		char *name = curl_easy_escape(NULL, key, 0);
		char *text = curl_easy_escape(NULL, json_string_value(value),
					      (int)json_string_length(value));

		if (r == 0)
			r = name && text ? buf_printf(path, "&metadata.%s=%s", name, text)
					 : -ENOMEM;
		curl_free(name);
		curl_free(text);
	}
	return r;
}

static int get_page(struct client *client, json_t *metadata, const char *after,
		    struct client_reply *reply)
{
	struct buf path = BUF_NULL(PATH_MAX_BYTES);
	struct client_request request = {.method = "GET"};
	int r = buf_append_str(&path, API_PREFIX_RUNTIME "?limit=500");

	if (r == 0)
		r = add_metadata(&path, metadata);
	if (r == 0 && after)
		r = buf_printf(&path, "&after=%s", after);
	request.path = r == 0 ? buf_text(&path) : NULL;
	r = request.path ? client_ask(client, &request, reply)
			 : client_result(client, r < 0 ? r : -ENOMEM, reply);
	buf_done(&path);
	return r;
}

/* Sandboxes with all of it: {"ID": true}. NULL, and the exit status. */
static json_t *ids_with(struct client *client, json_t *metadata, int *ret_status)
{
	AUTO_FREE char *after = NULL;
	json_t *ids = json_object();

	do {
		AUTO_REPLY struct client_reply reply = CLIENT_REPLY_NULL;
		const char *next;
		json_t *sandbox;
		size_t i;

		*ret_status = get_page(client, metadata, after, &reply);
		json_array_foreach(json_object_get(reply.doc, "sandboxes"), i, sandbox)
		{
			const char *id = session_id(sandbox);

			if (id)
				(void)json_object_set_new(ids, id, json_true());
		}
		next = json_string_value(json_object_get(reply.doc, "next"));
		free(after);
		after = next ? strdup(next) : NULL;
	} while (*ret_status == EXIT_OK && after);
	if (*ret_status == EXIT_OK)
		return ids;
	json_decref(ids);
	return NULL;
}

/* Exit status. */
static int keep_with_metadata(struct client *client, const struct options *options,
			      json_t *sessions)
{
	json_t *metadata = pairs_object(options->metadata, options->n_metadata);
	int status = EXIT_OK;
	json_t *ids = metadata ? ids_with(client, metadata, &status) : NULL;

	for (size_t i = json_array_size(sessions); ids && i-- > 0;) {
		const char *id = session_id(json_array_get(sessions, i));

		if (!id || !json_object_get(ids, id))
			(void)json_array_remove(sessions, i);
	}
	json_decref(ids);
	if (!metadata)
		return request_unsendable();
	json_decref(metadata);
	return status;
}

int command_ls(struct client *client, const struct options *options)
{
	json_t *all;
	int r = EXIT_OK;

	if (!is_status(options->status)) {
		(void)fputs("sandboxctl: --status wants open, running or suspended\n", stderr);
		return EXIT_USAGE;
	}
	all = session_list(client, options->status, &r);
	if (!all)
		return r;
	if (options->n_metadata > 0)
		r = keep_with_metadata(client, options, all);
	if (r == EXIT_OK && !print_answer(options, all))
		session_list_print(all, options, SIZE_MAX);
	json_decref(all);
	return r;
}
