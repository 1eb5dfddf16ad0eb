#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/fd.h"
#include "base/io.h"
#include "base/str.h"

#include "ctl/commands.h"
#include "ctl/print.h"
#include "sandboxd/api.h"
#include "sandboxd/limits.h"

#define VALUE_MAX_BYTES  65536
#define DAGSTER_SESSIONS API_PREFIX_DAGSTER "/sessions"

json_t *text_of_file(const char *path, size_t max_bytes)
{
	AUTO_FREE char *text = NULL;
	AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t size = 0;
	int r = fd < 0 ? -errno : io_read_file(fd, max_bytes, &text, &size);

	if (r < 0) {
		(void)fputs("sandboxctl: cannot read ", stderr);
		print_text(stderr, path);
		(void)fprintf(stderr, ": %s\n", strerrordesc_np(-r));
		return NULL;
	}
	if (size > 0 && text[size - 1] == '\n')
		size--;
	return json_stringn(text, size);
}

json_t *pairs_object(const char *const *pairs, size_t n)
{
	json_t *object = json_object();

	for (size_t i = 0; object && i < n; i++) {
		size_t length = strcspn(pairs[i], "=");
		AUTO_FREE char *name = strndup(pairs[i], length);
		const char *value = pairs[i] + length + 1; /* every pair has its `=` */
		json_t *text = value[0] == '@' ? text_of_file(value + 1, VALUE_MAX_BYTES)
					       : json_string(value);

		if (json_object_set_new(object, name, text) < 0) {
			json_decref(object);
			return NULL;
		}
	}
	return object;
}

const char *session_id(const json_t *summary)
{
	static const char *const keys[] = {"id", "sandbox_uuid", "session_id"};

	for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
		const char *id = json_string_value(json_object_get(summary, keys[i]));

		if (id)
			return id;
	}
	return NULL;
}

const char *session_name(const json_t *summary)
{
	return print_member(json_object_get(summary, "sandbox"), "name");
}

/* A component session unless something was asked for that only a runtime session has. */
static bool wants_runtime(const struct options *options)
{
	return options->profile || options->n_env > 0 || options->n_metadata > 0 ||
	       options->includes.n > 0 || options->excludes.n > 0 || options->organization_uuid ||
	       options->project_uuid || options->template || options->provider;
}

/* What only a session of the runtime API has. */
static int add_runtime(json_t *body, const struct options *options)
{
	int failed = 0;

	if (options->profile)
		failed |= json_object_set_new(body, "profile", json_string(options->profile));
	if (options->n_env)
		failed |= json_object_set_new(body, "envs",
					      pairs_object(options->env, options->n_env));
	if (options->n_metadata)
		failed |= json_object_set_new(body, "metadata",
					      pairs_object(options->metadata, options->n_metadata));
	if (options->includes.n || options->excludes.n)
		failed |= json_object_set_new(
			body, "workspace",
			json_pack("{s:o*, s:o}", "include",
				  options->includes.n
					  ? words_array(options->includes.word, options->includes.n)
					  : NULL,
				  "exclude",
				  words_array(options->excludes.word, options->excludes.n)));
	if (options->organization_uuid)
		failed |= json_object_set_new(body, "organization_uuid",
					      json_string(options->organization_uuid));
	if (options->project_uuid)
		failed |= json_object_set_new(body, "project_uuid",
					      json_string(options->project_uuid));
	if (options->template)
		failed |= json_object_set_new(body, "template", json_string(options->template));
	if (options->provider)
		failed |= json_object_set_new(body, "provider", json_string(options->provider));
	return failed;
}

int session_create(struct client *client, const struct options *options, struct client_reply *reply)
{
	bool runtime = wants_runtime(options);
	json_t *body = json_object();
	struct client_request request = {.method = "POST",
					 .path = runtime ? API_PREFIX_RUNTIME : DAGSTER_SESSIONS,
					 .body = body,
					 .answer_first = true};
	int failed = 0;
	int r;

	if (options->ttl_minutes)
		failed |= runtime ? json_object_set_new(
					    body, "ttl",
					    json_integer((json_int_t)options->ttl_minutes * 60))
				  : json_object_set_new(body, "ttl_minutes",
							json_integer(options->ttl_minutes));
	if (options->name)
		failed |= json_object_set_new(body, "name", json_string(options->name));
	failed |= add_runtime(body, options);
	if (options->secrets.n)
		failed |= json_object_set_new(
			body, "secrets", words_array(options->secrets.word, options->secrets.n));
	if (options->allows.n)
		failed |= json_object_set_new(
			body, "egress",
			json_pack("{s:o}", "allow",
				  words_array(options->allows.word, options->allows.n)));
	if (options->n_endpoint)
		failed |= json_object_set_new(body, "env_overrides",
					      pairs_object(options->endpoint, options->n_endpoint));
	if (failed || !body) {
		(void)fputs("sandboxctl: the session cannot be asked for: an option is not UTF-8, "
			    "or its file cannot be read\n",
			    stderr);
		r = EXIT_USAGE;
	} else {
		r = client_ask(client, &request, reply);
	}
	json_decref(body);
	return r;
}

int command_create(struct client *client, const struct options *options)
{
	AUTO_REPLY struct client_reply reply = CLIENT_REPLY_NULL;
	const char *id;
	int r;

	if (options->n_endpoint && wants_runtime(options)) {
		(void)fputs("sandboxctl: --endpoint goes with a component session, without "
			    "--profile, --env and what else a sandbox of the runtime API has\n",
			    stderr);
		return EXIT_USAGE;
	}
	r = session_create(client, options, &reply);
	if (r != EXIT_OK)
		return r;
	id = session_id(reply.doc);
	if (!print_answer(options, reply.doc))
		print_name(id);
	return id ? EXIT_OK : EXIT_FAILED;
}

/* Ask under the component prefix first, then under the runtime's: an id is good for both, and the
 * caller's scopes may be so for one alone. */
static int either_prefix(struct client *client, const char *method, const char *id,
			 struct client_reply *reply)
{
	char path[512];
	struct client_request request = {.method = method, .path = path};
	int r;

	r = client_path(path, sizeof(path), DAGSTER_SESSIONS, id, "");
	if (r == 0)
		r = client_perform(client, &request, reply);
	if (r < 0 || (reply->status != 404 && reply->status != 403))
		return r;
	client_reply_done(reply);
	*reply = CLIENT_REPLY_NULL;
	r = client_path(path, sizeof(path), API_PREFIX_RUNTIME, id, "");
	return r < 0 ? r : client_perform(client, &request, reply);
}

int session_remove(struct client *client, const char *id, struct client_reply *reply)
{
	return client_result(client, either_prefix(client, "DELETE", id, reply), reply);
}

/* What lies deeper than the lines of `show` go. */
static void print_compact(const json_t *value)
{
	char *text;

	if (json_is_string(value)) {
		print_text(stdout, json_string_value(value));
	} else if (json_is_null(value)) {
		(void)putchar('-');
	} else {
		text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY | JSON_ENSURE_ASCII);
		print_text(stdout, text ? text : "-");
		free(text);
	}
}

static void print_key(const json_t *key)
{
	size_t i;
	json_t *part;

	json_array_foreach(key, i, part)
	{
		(void)fputs(i ? "/" : "", stdout);
		print_compact(part);
	}
}

static void print_value(json_t *value)
{
	const char *name;
	const char *between = "";
	json_t *item;
	size_t i;

	json_array_foreach(value, i, item)
	{
		(void)fputs(i ? ", " : "", stdout);
		if (json_is_array(item))
			print_key(item);
		else
			print_compact(item);
	}
	json_object_foreach(value, name, item)
	{
		(void)fputs(between, stdout);
		print_text(stdout, name);
		(void)putchar('=');
		print_compact(item);
		between = " ";
	}
	if (!json_is_array(value) && !json_is_object(value))
		print_compact(value);
	else if (json_array_size(value) + json_object_size(value) == 0)
		(void)putchar('-');
}

static void print_line(const char *key, json_t *value)
{
	print_cell(key, 16);
	if (str_equal(key, "log_summary"))
		(void)printf("%zu frames", json_array_size(value));
	else
		print_value(value);
	(void)putchar('\n');
}

/* What only the runtime's prefix tells of a session, where there is anything to tell. */
static void add_runtime_members(struct client *client, const char *id, json_t *summary)
{
	static const char *const keys[] = {"profile",    "metadata", "workspace", "project_uuid",
					   "generation", "durable",  "template",  "provider"};
	AUTO_REPLY struct client_reply reply = CLIENT_REPLY_NULL;
	char path[512];
	const struct client_request request = {.method = "GET", .path = path};

	if (client_path(path, sizeof(path), API_PREFIX_RUNTIME, id, "") < 0 ||
	    client_perform(client, &request, &reply) < 0 || reply.status != 200)
		return;
	for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
		json_t *value = json_object_get(reply.doc, keys[i]);

		if (value && !json_object_get(summary, keys[i]))
			(void)json_object_set(summary, keys[i], value);
	}
}

int command_show(struct client *client, const struct options *options)
{
	AUTO_REPLY struct client_reply reply = CLIENT_REPLY_NULL;
	const char *key;
	json_t *value;
	int r;

	r = either_prefix(client, "GET", options->args[0], &reply);
	r = client_result(client, r, &reply);
	if (r != EXIT_OK)
		return r;
	add_runtime_members(client, options->args[0], reply.doc);
	if (print_answer(options, reply.doc))
		return r;
	if (options->output == OUTPUT_NAME) {
		print_name(session_id(reply.doc));
		return r;
	}
	json_object_foreach(reply.doc, key, value)
	{
		const char *inner_key;
		json_t *inner;

		if (!str_equal(key, "sandbox"))
			print_line(key, value);
		else
			json_object_foreach(value, inner_key, inner) print_line(inner_key, inner);
	}
	return EXIT_OK;
}

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* Read the component's text; "-" is standard input. */
static int read_body(const char *file, char **ret_text, size_t *ret_size)
{
	AUTO_CLOSE int fd = -1;
	int r;

	if (str_equal(file, "-"))
		return io_read_file(STDIN_FILENO, (size_t)COMPONENT_BODY_MAX_BYTES, ret_text,
				    ret_size);
	fd = open(file, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	r = io_read_file(fd, (size_t)COMPONENT_BODY_MAX_BYTES, ret_text, ret_size);
	return r;
}

int command_write(struct client *client, const struct options *options)
{
	AUTO_REPLY struct client_reply reply = CLIENT_REPLY_NULL;
	AUTO_FREE char *text = NULL;
	const char *file = options->args[1];
	const char *name = options->name ? options->name : base_name(file);
	const struct client_object components = {DAGSTER_SESSIONS, options->args[0], "/components"};
	json_t *body;
	size_t size = 0;
	int r;

	if (!options->name && str_equal(file, "-")) {
		(void)fputs("sandboxctl: standard input has no name: give one with --name\n",
			    stderr);
		return EXIT_USAGE;
	}
	r = read_body(file, &text, &size);
	if (r == -EFBIG) {
		(void)fprintf(stderr, "sandboxctl: the component is larger than %d MiB\n",
			      COMPONENT_BODY_MAX_BYTES >> 20);
		return EXIT_FAILED;
	}
	if (r < 0) {
		(void)fputs("sandboxctl: ", stderr);
		print_text(stderr, file);
		(void)fprintf(stderr, ": %s\n", strerrordesc_np(-r));
		return EXIT_FAILED;
	}
	/* A name or text that is not UTF-8 cannot be said in JSON; the service would refuse it. */
	body = json_pack("{s:s,s:o?}", "name", name, "body", json_stringn(text, size));
	if (!body || !json_object_get(body, "body") || !str_utf8_valid(text, size)) {
		json_decref(body);
		(void)fputs("sandboxctl: the file or its name is not valid UTF-8\n", stderr);
		return EXIT_REFUSED;
	}
	r = client_ask_about(client, "POST", &components, body, &reply);
	json_decref(body);
	if (r == EXIT_OK)
		(void)print_answer(options, reply.doc);
	return r;
}

/* How many are of the folder as a whole. */
static size_t print_load_problems(const json_t *problems)
{
	size_t n_folder = 0;
	size_t i;
	json_t *problem;

	json_array_foreach(problems, i, problem)
	{
		const char *file = print_member(problem, "file");
		const json_t *line = json_object_get(problem, "line");

		n_folder += file[0] == '\0' ? 1 : 0;
		(void)fputs("sandboxctl: ", stderr);
		print_text(stderr, file[0] ? file : "components");
		if (json_integer_value(line) > 0)
			(void)fprintf(
				stderr, ":%lld:%lld", (long long)json_integer_value(line),
				(long long)json_integer_value(json_object_get(problem, "column")));
		(void)fputs(": ", stderr);
		print_text(stderr, print_member(problem, "text"));
		(void)fputc('\n', stderr);
	}
	return n_folder;
}

int command_load(struct client *client, const struct options *options)
{
	AUTO_REPLY struct client_reply reply = CLIENT_REPLY_NULL;
	const struct client_object load = {DAGSTER_SESSIONS, options->args[0], "/load"};
	const json_t *keys;
	size_t i;
	json_t *key;
	int r = client_ask_about(client, "POST", &load, NULL, &reply);

	if (r != EXIT_OK || print_answer(options, reply.doc))
		return r;
	keys = json_object_get(reply.doc, "asset_keys");
	json_array_foreach(keys, i, key)
	{
		print_text(stdout, json_string_value(json_array_get(key, 0)));
		(void)putchar('/');
		print_text(stdout, json_string_value(json_array_get(key, 1)));
		(void)putchar('\n');
	}
	/* The loader's own failure is such a problem, and leaves no asset. */
	if (print_load_problems(
		    json_object_get(json_object_get(reply.doc, "sandbox"), "problems")) > 0 &&
	    json_array_size(keys) == 0)
		return EXIT_FAILED;
	return EXIT_OK;
}

int command_rm(struct client *client, const struct options *options)
{
	int worst = EXIT_OK;

	for (int i = 0; i < options->n_args; i++) {
		AUTO_REPLY struct client_reply reply = CLIENT_REPLY_NULL;
		int r = session_remove(client, options->args[i], &reply);

		if (r != EXIT_OK) {
			worst = r;
			(void)fputs("sandboxctl: not removed: ", stderr);
			print_text(stderr, options->args[i]);
			(void)fputc('\n', stderr);
		} else {
			(void)print_answer(options, reply.doc);
		}
	}
	return worst;
}
