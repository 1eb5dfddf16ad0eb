/*
 * Snapshots of a session's workspace.
 */
#include <stdio.h>

#include "base/str.h"

#include "client.h"
#include "commands.h"
#include "options.h"
#include "print.h"
#include "sandboxd/api.h"

#define SUFFIX_BYTES 128

static void print_snapshot(const json_t *snapshot, const struct options *options)
{
	char number[24];

	if (options->output == OUTPUT_NAME) {
		print_name(print_member(snapshot, "snapshot_id"));
		return;
	}
	print_cell(print_member(snapshot, "snapshot_id"), 36);
	print_cell(print_member(snapshot, "created_at"), 26);
	(void)snprintf(number, sizeof(number), "%lld",
		       (long long)json_integer_value(json_object_get(snapshot, "entries")));
	print_cell(number, 8);
	(void)snprintf(number, sizeof(number), "%lld",
		       (long long)json_integer_value(json_object_get(snapshot, "bytes")));
	print_cell(number, 12);
	print_name(json_is_true(json_object_get(snapshot, "encrypted")) &&
				   !json_object_get(snapshot, "key")
			   ? "yes"
			   : print_member(snapshot, "key"));
}

int command_snapshot_create(struct client *client, const struct options *options)
{
	AUTO_REPLY struct client_reply reply = CLIENT_REPLY_NULL;
	const struct client_object about = {API_PREFIX_RUNTIME, options->args[0], "/snapshots"};
	int r = client_ask_about(client, "POST", &about, NULL, &reply);

	if (r == EXIT_OK && (options->output == OUTPUT_NAME || !print_answer(options, reply.doc)))
		print_name(print_member(reply.doc, "snapshot_id"));
	return r;
}

int command_snapshot_ls(struct client *client, const struct options *options)
{
	AUTO_REPLY struct client_reply reply = CLIENT_REPLY_NULL;
	const struct client_object about = {API_PREFIX_RUNTIME, options->args[0], "/snapshots"};
	const json_t *snapshot;
	size_t i;
	int r = client_ask_about(client, "GET", &about, NULL, &reply);

	if (r != EXIT_OK || (options->output == OUTPUT_JSON && print_answer(options, reply.doc)))
		return r;
	if (options->output == OUTPUT_TABLE && !options->quiet)
		(void)printf("%-36s  %-26s  %-8s  %-12s  %s\n", "SNAPSHOT", "CREATED", "ENTRIES",
			     "BYTES", "KEY");
	json_array_foreach(json_object_get(reply.doc, "snapshots"), i, snapshot)
	{
		print_snapshot(snapshot, options);
	}
	return r;
}

int command_snapshot_rm(struct client *client, const struct options *options)
{
	AUTO_REPLY struct client_reply reply = CLIENT_REPLY_NULL;
	struct client_object about = {API_PREFIX_RUNTIME, options->args[0], NULL};
	char suffix[SUFFIX_BYTES];
	int r = client_path(suffix, sizeof(suffix), "/snapshots", options->args[1], "");

	if (r < 0)
		return client_result(client, r, &reply);
	about.suffix = suffix;
	r = client_ask_about(client, "DELETE", &about, NULL, &reply);
	if (r == EXIT_OK)
		(void)print_answer(options, reply.doc);
	return r;
}

int command_snapshot_restore(struct client *client, const struct options *options)
{
	AUTO_REPLY struct client_reply reply = CLIENT_REPLY_NULL;
	const struct client_object about = {API_PREFIX_RUNTIME, options->args[0], "/restore"};
	json_t *body = json_pack("{s:s, s:b}", "snapshot_id", options->args[1], "replace",
				 (int)options->replace);
	int r;

	if (!body)
		return EXIT_FAILED;
	r = client_ask_about(client, "POST", &about, body, &reply);
	json_decref(body);
	if (r == EXIT_OK)
		(void)print_answer(options, reply.doc);
	return r;
}

static void print_key(const char *id, const json_t *key, const struct options *options)
{
	if (options->output == OUTPUT_NAME) {
		print_name(id);
		return;
	}
	print_cell(id, 24);
	print_cell(json_is_true(json_object_get(key, "configured")) ? "yes" : "no", 10);
	(void)printf("%lld\n", (long long)json_integer_value(json_object_get(key, "snapshots")));
}

int command_snapshot_keys(struct client *client, const struct options *options)
{
	AUTO_REPLY struct client_reply reply = CLIENT_REPLY_NULL;
	const struct client_request request = {.method = "GET", .path = "/v1/config"};
	json_t *keys;
	const char *id;
	json_t *key;
	int r = client_ask(client, &request, &reply);

	keys = json_object_get(reply.doc, "snapshot_keys");
	if (r != EXIT_OK || print_answer(options, keys))
		return r;
	if (options->output == OUTPUT_TABLE && !options->quiet)
		(void)printf("%-24s  %-10s  %s\n", "KEY", "CONFIGURED", "SNAPSHOTS");
	json_object_foreach(keys, id, key)
	{
		print_key(id, key, options);
	}
	return r;
}
