/*
 * Body of a suspend: what is done in the session before it stops.
 */
#include "supervisor/api/session/spec_suspend.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/str.h"

#include "supervisor/api/session/body_fields.h"
#include "supervisor/api/session/fit.h"

#define GRACE_DEFAULT_MS  2000u
#define GRACE_MAX_MS      60000u
#define BEFORE_DEFAULT_MS 60000u

void spec_suspend_done(struct spec_suspend *spec)
{
	spec_command_done(&spec->before);
	free(spec->remove);
	*spec = SPEC_SUSPEND_NULL;
}

/* One of some words. -1: none; an item was added. */
static int read_word(struct body *body, const char *field, const json_t *value,
		     const char *const words[], const char *msg)
{
	const char *text = json_string_value(value);

	for (int i = 0; text && words[i]; i++)
		if (str_equal(text, words[i]))
			return i;
	body_wrong(body, "literal_error", field, msg);
	return -1;
}

static void read_signal_commands(struct body *body, const char *field, json_t *value)
{
	static const char *const words[] = {"none", "foreground", "all", NULL};
	int word = read_word(body, field, value, words,
			     "Input should be 'none', 'foreground' or 'all'");

	if (word >= 0)
		((struct spec_suspend *)body->dest)->commands = (enum spec_suspend_commands)word;
}

static void read_durable(struct body *body, const char *field, json_t *value)
{
	static const char *const words[] = {"background", "wait", "never", NULL};
	int word = read_word(body, field, value, words,
			     "Input should be 'background', 'wait' or 'never'");

	if (word >= 0)
		((struct spec_suspend *)body->dest)->durable = (enum spec_suspend_durable)word;
}

static void read_grace(struct body *body, const char *field, json_t *value)
{
	(void)body_read_integer(body, field, value, 0, GRACE_MAX_MS,
				&((struct spec_suspend *)body->dest)->grace_ms);
}

/* What is wrong with the command, below `before`. */
static void move_errors(struct body *body, const char *field, const json_t *errors)
{
	json_t *item;
	size_t i;

	json_array_foreach(errors, i, item)
	{
		const json_t *loc = json_object_get(item, "loc");
		const char *type = json_string_value(json_object_get(item, "type"));
		const char *problem = json_string_value(json_object_get(item, "msg"));

		body_wrong_in(body, type, field, json_string_value(json_array_get(loc, 1)),
			      problem);
	}
}

static void read_before(struct body *body, const char *field, json_t *value)
{
	struct spec_suspend *spec = body->dest;
	AUTO_FREE char *text = NULL;
	json_t *errors = NULL;
	int r;

	if (json_is_null(value))
		return;
	text = doc_format(value, 0);
	r = text ? spec_parse_command(text, strlen(text), body->options, &spec->before, &errors)
		 : -ENOMEM;
	if (r < 0)
		body->fatal = r;
	else if (r == SPEC_E_INVALID)
		move_errors(body, field, errors);
	else if (spec->before.background || spec->before.stdin_open || spec->before.size.rows > 0)
		body_wrong(body, "value_error", field,
			   "Value error, it is waited for: neither background, stdin_open nor pty");
	else if (spec->before.timeout_ms == 0)
		spec->before.timeout_ms = BEFORE_DEFAULT_MS;
	json_decref(errors);
}

static void read_remove(struct body *body, const char *field, json_t *value)
{
	struct spec_suspend *spec = body->dest;
	size_t n = json_array_size(value);
	json_t *path;
	size_t i;

	if (!json_is_array(value)) {
		body_wrong(body, "list_type", field, "Input should be a valid list");
		return;
	}
	if (n > SPEC_SUSPEND_REMOVE_MAX) {
		body_wrong(body, "too_long", field, "List should have at most 64 items");
		return;
	}
	spec->remove = calloc(n + 1, sizeof(*spec->remove));
	if (!spec->remove) {
		body->fatal = -ENOMEM;
		return;
	}
	json_array_foreach(value, i, path)
	{
		const char *problem = BODY_MSG_STRING;
		char member[24];

		if (json_is_string(path))
			problem = spec_file_path(json_string_value(path), json_string_length(path),
						 &spec->remove[i]);
		if (!problem && str_equal(spec->remove[i].text, "."))
			problem = "Value error, must be below /session or /tmp";
		fit_text(member, sizeof(member), "%zu", i);
		if (problem)
			body_wrong_in(body, "value_error", field, member, problem);
	}
	spec->n_remove = n;
}

void spec_resume_done(struct spec_resume *spec)
{
	spec_egress_done(&spec->egress);
	body_strings_free(spec->env, spec->n_env);
	*spec = SPEC_RESUME_NULL;
}

static void read_resume_egress(struct body *body, const char *field, json_t *value)
{
	struct spec_resume *spec = body->dest;

	spec->has_egress = !json_is_null(value);
	body_read_egress(body, field, value, &spec->egress);
}

static void read_resume_envs(struct body *body, const char *field, json_t *value)
{
	struct spec_resume *spec = body->dest;

	spec->has_envs = !json_is_null(value);
	body_read_envs(body, field, value, EXEC_MAX_ENV / 2, &spec->env, &spec->n_env);
}

int spec_parse_resume(const char *text, size_t size, const struct spec_options *options,
		      struct spec_resume *ret_spec, json_t **ret_errors)
{
	static const struct body_field fields[] = {
		{"egress", false, read_resume_egress},
		{"envs",   false, read_resume_envs  },
		{NULL,     false, NULL              },
	};
	struct spec_resume spec = SPEC_RESUME_NULL;
	struct body body = {.options = options, .dest = &spec};
	int r = body_parse(&body, text, size, fields, true);

	if (r != 0)
		spec_resume_done(&spec);
	else
		*ret_spec = spec;
	return body_finish(&body, r, ret_errors);
}

int spec_parse_suspend(const char *text, size_t size, const struct spec_options *options,
		       struct spec_suspend *ret_spec, json_t **ret_errors)
{
	static const struct body_field fields[] = {
		{"signal_commands", false, read_signal_commands},
		{"grace_ms",        false, read_grace          },
		{"before",          false, read_before         },
		{"remove",          false, read_remove         },
		{"durable",         false, read_durable        },
		{NULL,              false, NULL                },
	};
	struct spec_suspend spec = SPEC_SUSPEND_NULL;
	struct body body = {.options = options, .dest = &spec};
	int r;

	spec.grace_ms = GRACE_DEFAULT_MS;
	r = body_parse(&body, text, size, fields, true);
	if (r != 0)
		spec_suspend_done(&spec);
	else
		*ret_spec = spec;
	return body_finish(&body, r, ret_errors);
}
