/*
 * suspend and resume.
 */
#include <stdio.h>

#include "base/num.h"
#include "base/str.h"

#include "ctl/commands.h"
#include "ctl/print.h"
#include "sandboxd/api.h"

#define GRACE_MAX_MS 60000u

/* Takes the body; NULL: none, or it cannot be sent. */
static int tell(struct client *client, const struct options *options, const char *what,
		json_t *body, struct client_reply *reply)
{
	const struct client_object sandbox = {API_PREFIX_RUNTIME, options->args[0], what};
	int r = client_ask_about(client, "POST", &sandbox, body, reply);

	json_decref(body);
	if (r == EXIT_OK && !print_answer(options, reply->doc) && !options->quiet)
		print_name(print_member(reply->doc, "status"));
	return r;
}

/* A line for the shell of the session: that is how it is typed. */
static json_t *before_body(const struct options *options)
{
	if (!options->before)
		return NULL;
	return json_pack("{s:s, s:o*}", "cmd", options->before, "timeout_ms",
			 options->timeout_ms ? json_integer(options->timeout_ms) : NULL);
}

/* It is suspended all the same; who waited for its snapshot is told that there is none. */
static int say_durable_error(const struct options *options, const json_t *doc)
{
	const json_t *error = json_object_get(doc, "durable_error");
	const char *why = json_string_value(json_object_get(error, "detail"));

	/* It may be that of an earlier suspend. */
	if (!why ||
	    !json_equal(json_object_get(error, "generation"), json_object_get(doc, "generation")))
		return EXIT_OK;
	(void)fputs("sandboxctl: it is suspended, without a snapshot: ", stderr);
	print_text(stderr, why);
	(void)fputc('\n', stderr);
	return options->durable && str_equal(options->durable, "wait") ? EXIT_FAILED : EXIT_OK;
}

int command_suspend(struct client *client, const struct options *options)
{
	AUTO_REPLY struct client_reply reply = CLIENT_REPLY_NULL;
	const struct option_words *removes = &options->removes;
	json_t *before = before_body(options);
	uint32_t grace_ms = 0;
	json_t *body;
	int r;

	if (options->grace && num_parse_u32(options->grace, 0, GRACE_MAX_MS, &grace_ms) < 0) {
		json_decref(before);
		(void)fprintf(stderr, "sandboxctl: --grace wants 0 to %u milliseconds\n",
			      GRACE_MAX_MS);
		return EXIT_USAGE;
	}
	if (options->timeout_ms && !options->before) {
		(void)fputs("sandboxctl: --timeout is that of --before\n", stderr);
		return EXIT_USAGE;
	}
	body = json_pack("{s:s*, s:o*, s:s*}", "signal_commands", options->signal_commands,
			 "grace_ms", options->grace ? json_integer(grace_ms) : NULL, "durable",
			 options->durable);
	/* One that is no UTF-8 is no value, and is not left away. */
	if (!body || (options->before && json_object_set_new(body, "before", before) < 0) ||
	    (removes->n > 0 &&
	     json_object_set_new(body, "remove", words_array(removes->word, removes->n)) < 0)) {
		json_decref(body);
		return request_unsendable();
	}
	r = tell(client, options, "/suspend", body, &reply);
	if (r != EXIT_OK && options->output != OUTPUT_JSON) {
		(void)print_member_stream(options, stderr, reply.doc, "stdout");
		(void)print_member_stream(options, stderr, reply.doc, "stderr");
	}
	return r == EXIT_OK ? say_durable_error(options, reply.doc) : r;
}

int command_resume(struct client *client, const struct options *options)
{
	AUTO_REPLY struct client_reply reply = CLIENT_REPLY_NULL;
	int r = tell(client, options, "/resume", NULL, &reply);

	if (r == EXIT_OK && !options->quiet &&
	    str_equal(print_member(reply.doc, "resumed"), "snapshot"))
		(void)fputs("sandboxctl: its processes were lost: it began again, with the "
			    "files of its last snapshot if it has one\n",
			    stderr);
	return r;
}
