/*
 * Connections of Airbyte. Of a file that its API wrote, ids, names and streams are sent, and
 * nothing else: what is configured there may hold credentials.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/io.h"
#include "base/json.h"
#include "base/str.h"

#include "ctl/commands.h"
#include "ctl/print.h"
#include "sandboxd/api.h"

#define FILE_MAX_BYTES  ((size_t)32 * 1024 * 1024)
#define AIRBYTE_OBJECTS API_PREFIX_DAGSTER "/airbyte-connections"
#define SESSION_OBJECTS API_PREFIX_DAGSTER "/sessions"

static const char *text_of(const json_t *object, const char *key)
{
	return json_string_value(json_object_get(object, key));
}

/* Names of the streams that are selected; either API's form. NULL: no memory. */
static json_t *streams_of(const json_t *connection)
{
	const json_t *ours =
		json_object_get(json_object_get(connection, "configurations"), "streams");
	const json_t *catalog =
		json_object_get(json_object_get(connection, "syncCatalog"), "streams");
	json_t *names = json_array();
	const json_t *entry;
	size_t i;

	json_array_foreach(ours ? ours : catalog, i, entry)
	{
		const json_t *stream = ours ? entry : json_object_get(entry, "stream");
		const json_t *config = json_object_get(entry, "config");
		json_t *name = json_object_get(stream, "name");

		if (!json_is_string(name) || json_is_false(json_object_get(config, "selected")))
			continue;
		if (json_array_append(names, name) < 0) {
			json_decref(names);
			return NULL;
		}
	}
	return names;
}

static int import_one(struct client *client, const struct options *options,
		      const json_t *connection)
{
	AUTO_REPLY struct client_reply reply = CLIENT_REPLY_NULL;
	const char *id = text_of(connection, "connectionId");
	struct client_object object = {AIRBYTE_OBJECTS, id, NULL};
	json_t *body;
	int r;

	if (!id || !json_is_string(json_object_get(connection, "name"))) {
		(void)fputs("sandboxctl: an object without connectionId and name is left out\n",
			    stderr);
		return EXIT_FAILED;
	}
	body = json_pack("{s:O, s:s?, s:s?, s:o}", "name", json_object_get(connection, "name"),
			 "source_id", text_of(connection, "sourceId"), "destination_id",
			 text_of(connection, "destinationId"), "streams", streams_of(connection));
	r = client_ask_about(client, "PUT", &object, body, &reply);
	json_decref(body);
	if (r == EXIT_OK && !options->quiet)
		print_name(id);
	return r;
}

/* A list, an answer of the API with a list in it, or one object; a new reference. */
static json_t *connections_of(json_t *doc)
{
	static const char *const keys[] = {"data", "connections"};

	for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
		json_t *list = json_object_get(doc, keys[i]);

		if (json_is_array(list))
			return json_incref(list);
	}
	return json_is_array(doc) ? json_incref(doc) : json_pack("[O]", doc);
}

static int read_document(const char *file, json_t **ret_doc)
{
	AUTO_CLOSE int fd = str_equal(file, "-") ? fd_dup(STDIN_FILENO, STDERR_FILENO + 1)
						 : open(file, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	AUTO_FREE char *text = NULL;
	const char *reason = "";
	size_t size = 0;
	int r = fd < 0 ? -errno : io_read_file(fd, FILE_MAX_BYTES, &text, &size);

	if (r < 0) {
		(void)fputs("sandboxctl: ", stderr);
		print_text(stderr, file);
		(void)fprintf(stderr, ": %s\n", strerrordesc_np(-r));
		return EXIT_FAILED;
	}
	if (doc_parse(text, size, ret_doc, &reason) == 0)
		return EXIT_OK;
	(void)fprintf(stderr, "sandboxctl: the file is not JSON: %s\n", reason);
	return EXIT_REFUSED;
}

int command_airbyte_import(struct client *client, const struct options *options)
{
	json_t *doc = NULL;
	json_t *list;
	const json_t *connection;
	int status = read_document(options->args[0], &doc);
	size_t i;

	if (status != EXIT_OK)
		return status;
	list = connections_of(doc);
	json_decref(doc);
	json_array_foreach(list, i, connection)
	{
		int r = import_one(client, options, connection);

		if (r != EXIT_OK)
			status = r;
		if (client->signal != 0 || r == EXIT_UNREACHABLE)
			break;
	}
	json_decref(list);
	return status;
}

static void print_rows(const struct options *options, const json_t *rows)
{
	bool names = options->output == OUTPUT_NAME;
	const json_t *row;
	size_t i;

	if (!names && !options->quiet)
		(void)printf("%-36s  %s\n", "CONNECTION", "NAME");
	json_array_foreach(rows, i, row)
	{
		const char *id = text_of(row, "airbyte_connection_id");

		/* A row of the platform's that Airbyte does not know yet goes by its own id. */
		if (!id)
			id = print_member(row, "id");
		if (names) {
			print_name(id);
			continue;
		}
		print_cell(id, 36);
		print_name(text_of(row, "name"));
	}
}

int command_airbyte_ls(struct client *client, const struct options *options)
{
	AUTO_REPLY struct client_reply reply = CLIENT_REPLY_NULL;
	const struct client_request request = {.method = "GET", .path = AIRBYTE_OBJECTS};
	int r = client_ask(client, &request, &reply);

	if (r == EXIT_OK && !print_answer(options, reply.doc))
		print_rows(options, reply.doc);
	return r;
}

int command_airbyte_rm(struct client *client, const struct options *options)
{
	int status = EXIT_OK;

	for (int i = 0; i < options->n_args; i++) {
		AUTO_REPLY struct client_reply reply = CLIENT_REPLY_NULL;
		const struct client_object object = {AIRBYTE_OBJECTS, options->args[i], NULL};
		int r = client_ask_about(client, "DELETE", &object, NULL, &reply);

		if (r == EXIT_OK && !options->quiet)
			print_name(options->args[i]);
		else if (r != EXIT_OK)
			status = r;
	}
	return status;
}

int command_airbyte_write(struct client *client, const struct options *options)
{
	AUTO_REPLY struct client_reply reply = CLIENT_REPLY_NULL;
	const struct client_object object = {SESSION_OBJECTS, options->args[0], "/airbyte"};
	json_t *body = json_pack("{s:s}", "airbyte_connection_id", options->args[1]);
	int r = client_ask_about(client, "POST", &object, body, &reply);

	json_decref(body);
	if (r == EXIT_OK)
		(void)print_answer(options, reply.doc);
	return r;
}
