/*
 * From an answer to an exit status, with a message on standard error where it is not EXIT_OK.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/str.h"

#include "ctl/client.h"
#include "ctl/print.h"

static void print_items(const json_t *detail)
{
	size_t i;
	json_t *item;

	json_array_foreach(detail, i, item)
	{
		const json_t *loc = json_object_get(item, "loc");
		size_t n = json_array_size(loc);

		(void)fputs("sandboxctl: ", stderr);
		for (size_t at = 0; at < n; at++) {
			const char *part = json_string_value(json_array_get(loc, at));

			(void)fputs(at ? "." : "", stderr);
			print_text(stderr, part ? part : "#");
		}
		(void)fputs(": ", stderr);
		print_text(stderr, json_string_value(json_object_get(item, "msg")));
		(void)fputc('\n', stderr);
	}
}

/* The command that makes this socket, where its name is one that the service gives. */
static void print_start(const char *socket_path)
{
	char dir[sizeof(((struct client *)0)->socket_path)];
	const char *slash = strrchr(socket_path, '/');

	(void)fputs("; start it as root with: sandboxd", stderr);
	if (slash && !str_has_prefix(socket_path, "/run/sandboxd/") &&
	    (str_equal(slash, "/control.sock") || str_equal(slash, "/operator.sock")) &&
	    str_copy_n(dir, sizeof(dir), socket_path, (size_t)(slash - socket_path)) >= 0) {
		(void)fputs(" --runtime-dir ", stderr);
		print_text(stderr, dir);
	}
	(void)fputc('\n', stderr);
}

static int unreachable(const struct client *client, int r)
{
	(void)fputs("sandboxctl: nobody answers on ", stderr);
	print_text(stderr, client->socket_path);
	if (r == -EACCES)
		(void)fputs(": permission denied; it is for root and the group of clients\n",
			    stderr);
	else if (access("/run/systemd/system", F_OK) == 0)
		(void)fputs("; start it with: systemctl start sandboxd\n", stderr);
	else
		print_start(client->socket_path);
	return EXIT_UNREACHABLE;
}

static int transfer_failed(const struct client *client, int r)
{
	switch (r) {
	case -EINTR:
		return EXIT_SIGNAL_BASE + client->signal;
	case -ESHUTDOWN:
		return EXIT_SIGNAL_BASE + SIGPIPE;
	case -ECONNREFUSED:
	case -EACCES:
		return unreachable(client, r);
	case -EPIPE:
		(void)fputs("sandboxctl: the connection ended within the answer\n", stderr);
		return EXIT_FAILED;
	default:
		(void)fprintf(stderr, "sandboxctl: %s\n", strerrordesc_np(-r));
		return EXIT_FAILED;
	}
}

/* Objects that are not there are named in the text; the path itself is not. */
static bool is_no_route(const struct client_reply *reply, const json_t *detail)
{
	const char *text = json_string_value(detail);

	return reply->status == 405 ||
	       (reply->status == 404 && text && str_equal(text, "Not Found"));
}

/* What the caller can do where its sandbox stands still. */
static void say_resume(const struct client *client, const json_t *doc)
{
	if (!str_equal(print_member(doc, "code"), "suspended") || !client->sandbox[0])
		return;
	(void)fputs("sandboxctl: let it go on with: sandboxctl resume ", stderr);
	print_text(stderr, client->sandbox);
	(void)fputc('\n', stderr);
}

int client_result(const struct client *client, int r, const struct client_reply *reply)
{
	const json_t *detail;

	if (r < 0)
		return transfer_failed(client, r);
	if (reply->status >= 200 && reply->status < 300)
		return EXIT_OK;
	detail = json_object_get(reply->doc, "detail");
	if (is_no_route(reply, detail)) {
		(void)fputs("sandboxctl: not available: the service has no such route; it is of "
			    "another version\n",
			    stderr);
		return EXIT_FAILED;
	}
	if (json_is_array(detail)) {
		print_items(detail);
	} else {
		(void)fprintf(stderr, "sandboxctl: ");
		if (json_is_string(detail))
			print_text(stderr, json_string_value(detail));
		(void)fprintf(stderr, " (HTTP %ld)\n", reply->status);
		say_resume(client, reply->doc);
	}
	if (reply->status == 404)
		return EXIT_NOT_FOUND;
	return reply->status >= 400 && reply->status < 500 ? EXIT_REFUSED : EXIT_FAILED;
}

int client_ask(struct client *client, const struct client_request *request,
	       struct client_reply *reply)
{
	return client_result(client, client_perform(client, request, reply), reply);
}

int client_ask_about(struct client *client, const char *method, const struct client_object *object,
		     json_t *body, struct client_reply *reply)
{
	char path[512];
	const struct client_request request = {.method = method, .path = path, .body = body};
	int r = client_path(path, sizeof(path), object->prefix, object->id,
			    object->suffix ? object->suffix : "");

	return r < 0 ? client_result(client, r, reply) : client_ask(client, &request, reply);
}
