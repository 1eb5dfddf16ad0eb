/*
 * What a session may reach.
 */
#include <stdio.h>

#include "client.h"
#include "commands.h"
#include "options.h"
#include "print.h"
#include "sandboxd/api.h"

json_t *words_array(const char *const words[], size_t n)
{
	json_t *array = json_array();

	for (size_t i = 0; i < n; i++) {
		if (json_array_append_new(array, json_string(words[i])) < 0) {
			json_decref(array);
			return NULL;
		}
	}
	return array;
}

static void print_rule(const json_t *rule)
{
	const json_t *counters = json_object_get(rule, "counters");
	char number[24];

	print_cell(print_member(rule, "action"), 12);
	print_cell(print_member(rule, "label"), 34);
	(void)snprintf(number, sizeof(number), "%lld",
		       (long long)json_integer_value(json_object_get(counters, "connections")));
	print_cell(number, 11);
	(void)snprintf(number, sizeof(number), "%lld",
		       (long long)json_integer_value(json_object_get(counters, "denials")));
	print_cell(number, 7);
	print_cell(print_member(rule, "ports"), 11);
	print_name(print_member(rule, "host"));
}

static void print_rules(const struct options *options, const json_t *answer)
{
	const json_t *rules = json_object_get(answer, "rules");
	const json_t *names = json_object_get(answer, "production_reachable_by_credentials");
	const json_t *entry;
	size_t i;

	if (!options->quiet)
		(void)printf("%-12s  %-34s  %-11s  %-7s  %-11s  %s\n", "ACTION", "LABEL",
			     "CONNECTIONS", "DENIALS", "PORTS", "HOST");
	json_array_foreach(rules, i, entry) print_rule(entry);
	json_array_foreach(names, i, entry)
	{
		(void)fputs("only its credentials keep it from production: ", stdout);
		print_name(json_string_value(entry));
	}
}

int command_egress(struct client *client, const struct options *options)
{
	AUTO_REPLY struct client_reply reply = CLIENT_REPLY_NULL;
	const struct client_object about = {API_PREFIX_RUNTIME, options->args[0], "/egress"};
	bool sets = options->allows.n > 0 || options->no_allow;
	json_t *body = NULL;
	int r;

	if (options->allows.n > 0 && options->no_allow) {
		(void)fputs("sandboxctl: --allow and --no-allow exclude each other\n", stderr);
		return EXIT_USAGE;
	}
	if (sets) {
		body = json_pack("{s:o}", "allow",
				 words_array(options->allows.word, options->allows.n));
		if (!body)
			return EXIT_FAILED;
	}
	r = client_ask_about(client, sets ? "PUT" : "GET", &about, body, &reply);
	json_decref(body);
	if (r == EXIT_OK && !print_answer(options, reply.doc))
		print_rules(options, reply.doc);
	return r;
}
