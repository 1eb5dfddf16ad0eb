#include <stdio.h>

#include "base/str.h"

#include "ctl/commands.h"
#include "ctl/print.h"
#include "sandboxd/api.h"

int command_trace(struct client *client, const struct options *options)
{
	AUTO_REPLY struct client_reply reply = CLIENT_REPLY_NULL;
	const struct client_object trace = {API_PREFIX_RUNTIME, options->args[0], "/trace"};
	json_int_t last = 0;
	size_t i;
	json_t *step;
	int r = client_ask_about(client, "GET", &trace, NULL, &reply);

	if (r != EXIT_OK || print_answer(options, reply.doc))
		return r;
	if (!options->quiet)
		(void)printf("%8s  %8s  %-7s  %s\n", "AT (us)", "TOOK", "SIDE", "STEP");
	json_array_foreach(json_object_get(reply.doc, "steps"), i, step)
	{
		json_int_t at = json_integer_value(json_object_get(step, "us"));

		(void)printf("%8lld  %8lld  ", (long long)at,
			     (long long)(at > last ? at - last : 0));
		print_cell(print_member(step, "side"), 7);
		print_name(print_member(step, "name"));
		last = at > last ? at : last;
	}
	return EXIT_OK;
}

int command_log_level(struct client *client, const struct options *options)
{
	AUTO_REPLY struct client_reply reply = CLIENT_REPLY_NULL;
	json_t *body = options->n_args > 0 ? json_pack("{s:s}", "level", options->args[0]) : NULL;
	const struct client_request request = {
		.method = body ? "POST" : "GET",
		.path = "/v1/log-level",
		.body = body,
	};
	int r = client_ask(client, &request, &reply);

	json_decref(body);
	if (r != EXIT_OK || print_answer(options, reply.doc))
		return r;
	print_text(stdout, print_member(reply.doc, "level"));
	(void)putchar('\n');
	return EXIT_OK;
}

int command_version(struct client *client, const struct options *options)
{
	AUTO_REPLY struct client_reply reply = CLIENT_REPLY_NULL;
	const struct client_request request = {.method = "GET", .path = "/v1/capabilities"};
	const char *service = "not reachable";

	if (client_perform(client, &request, &reply) == 0 && reply.status == 200) {
		service = json_string_value(json_object_get(reply.doc, "version"));
		if (!service)
			service = "unknown";
	}
	if (options->output == OUTPUT_JSON) {
		json_t *doc = json_pack("{s:s,s:s,s:s}", "sandboxctl", SANDBOXD_VERSION, "service",
					service, "api", API_VERSION);

		if (doc)
			print_json(doc);
		json_decref(doc);
		return EXIT_OK;
	}
	(void)printf("sandboxctl %s (API %s)\nservice ", SANDBOXD_VERSION, API_VERSION);
	print_text(stdout, service);
	(void)putchar('\n');
	return EXIT_OK;
}
