/*
 * Bodies of what is done in a session: components and commands.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"

#include "sandboxd/limits.h"
#include "supervisor/api/session/body_fields.h"
#include "supervisor/api/session/fit.h"
#include "supervisor/api/session/spec.h"

void spec_component_done(struct spec_component *spec)
{
	free(spec->name);
	free(spec->body);
	*spec = SPEC_COMPONENT_NULL;
}

static void read_name(struct body *body, const char *field, json_t *value)
{
	struct spec_component *spec = body->dest;

	if (!json_is_string(value)) {
		body_wrong(body, "string_type", field, BODY_MSG_STRING);
		return;
	}
	spec->name = body_take_string(body, value, &spec->name_length);
}

static void read_component_body(struct body *body, const char *field, json_t *value)
{
	struct spec_component *spec = body->dest;

	if (!json_is_string(value))
		body_wrong(body, "string_type", field, BODY_MSG_STRING);
	else if (json_string_length(value) > (size_t)COMPONENT_BODY_MAX_BYTES)
		body_wrong(body, "string_too_long", field,
			   "String should have at most 1048576 bytes");
	else if (body_has_nul(value))
		body_wrong(body, "value_error", field, BODY_MSG_NUL);
	else
		spec->body = body_take_string(body, value, &spec->body_length);
}

int spec_parse_component(const char *text, size_t size, const struct spec_options *options,
			 struct spec_component *ret_spec, json_t **ret_errors)
{
	static const struct body_field fields[] = {
		{"name", true,  read_name          },
		{"body", true,  read_component_body},
		{NULL,   false, NULL               },
	};
	struct spec_component spec = SPEC_COMPONENT_NULL;
	struct body body = {.options = options, .dest = &spec};
	int r;

	r = body_parse(&body, text, size, fields, false);
	if (r != 0)
		spec_component_done(&spec);
	else
		*ret_spec = spec;
	return body_finish(&body, r, ret_errors);
}

void spec_command_done(struct spec_command *spec)
{
	body_strings_free(spec->argv, spec->n_argv);
	body_strings_free(spec->env, spec->n_env);
	free(spec->cwd);
	free(spec->stdin_text);
	*spec = SPEC_COMMAND_NULL;
}

static void read_argument(struct body *body, const char *field, size_t index, json_t *value,
			  struct spec_command *spec)
{
	char member[24];
	size_t length;

	fit_text(member, sizeof(member), "%zu", index);
	if (!json_is_string(value)) {
		body_wrong_in(body, "string_type", field, member, BODY_MSG_STRING);
	} else if (body_has_nul(value)) {
		body_wrong_in(body, "value_error", field, member, BODY_MSG_NUL);
	} else if (index == 0 && json_string_length(value) == 0) {
		body_wrong_in(body, "string_too_short", field, member,
			      "String should have at least 1 character");
	} else {
		spec->argv[spec->n_argv] = body_take_string(body, value, &length);
		if (spec->argv[spec->n_argv])
			spec->n_argv++;
	}
}

/* Members come in the caller's order: either of argv and cmd may be the second. */
static bool is_there(struct body *body, const char *field)
{
	const struct spec_command *spec = body->dest;

	if (spec->argv)
		body_wrong(body, "value_error", field,
			   "Value error, argv and cmd exclude each other");
	return spec->argv != NULL;
}

static void read_argv(struct body *body, const char *field, json_t *value)
{
	struct spec_command *spec = body->dest;
	size_t n = json_array_size(value);

	if (is_there(body, field))
		return;
	if (!json_is_array(value)) {
		body_wrong(body, "list_type", field, "Input should be a valid list");
		return;
	}
	if (n == 0) {
		body_wrong(body, "too_short", field, "List should have at least 1 item");
		return;
	}
	if (n > EXEC_MAX_ARGV) {
		body_wrong(body, "too_long", field, "List should have at most 1024 items");
		return;
	}
	spec->argv = calloc(n + 1, sizeof(*spec->argv));
	if (!spec->argv) {
		body->fatal = -ENOMEM;
		return;
	}
	for (size_t i = 0; i < n; i++)
		read_argument(body, field, i, json_array_get(value, i), spec);
}

static void read_cwd(struct body *body, const char *field, json_t *value)
{
	struct spec_command *spec = body->dest;
	size_t length;

	if (json_is_null(value))
		return;
	if (!json_is_string(value))
		body_wrong(body, "string_type", field, BODY_MSG_STRING);
	else if (body_has_nul(value))
		body_wrong(body, "value_error", field, BODY_MSG_NUL);
	else if (json_string_length(value) >= EXEC_CWD_BYTES)
		body_wrong(body, "string_too_long", field, "String should have at most 4095 bytes");
	else if (json_string_value(value)[0] != '/')
		body_wrong(body, "value_error", field, "Value error, must be an absolute path");
	else
		spec->cwd = body_take_string(body, value, &length);
}

static void read_command_envs(struct body *body, const char *field, json_t *value)
{
	struct spec_command *spec = body->dest;

	body_read_envs(body, field, value, EXEC_MAX_ENV / 2, &spec->env, &spec->n_env);
}

/* Two names, no ids: what a number would mean is not for the caller to say (A9). */
static void read_user(struct body *body, const char *field, json_t *value)
{
	struct spec_command *spec = body->dest;

	if (json_is_null(value))
		return;
	if (!json_is_string(value))
		body_wrong(body, "string_type", field, BODY_MSG_STRING);
	else if (!body_has_nul(value) && str_equal(json_string_value(value), "root"))
		spec->is_root = true;
	else if (body_has_nul(value) || !str_equal(json_string_value(value), "user"))
		body_wrong(body, "literal_error", field, "Input should be 'user' or 'root'");
}

static void read_timeout(struct body *body, const char *field, json_t *value)
{
	struct spec_command *spec = body->dest;

	if (!json_is_null(value))
		(void)body_read_integer(body, field, value, 1, SPEC_TIMEOUT_MAX_MS,
					&spec->timeout_ms);
}

static void read_stdin(struct body *body, const char *field, json_t *value)
{
	struct spec_command *spec = body->dest;

	if (json_is_null(value))
		return;
	if (!json_is_string(value))
		body_wrong(body, "string_type", field, BODY_MSG_STRING);
	else if (json_string_length(value) > (size_t)EXEC_STDIN_MAX_BYTES)
		body_wrong(body, "string_too_long", field,
			   "String should have at most 1048576 bytes");
	else
		spec->stdin_text = body_take_string(body, value, &spec->stdin_length);
}

/* Text for the shell that every template has. */
static void read_cmd(struct body *body, const char *field, json_t *value)
{
	struct spec_command *spec = body->dest;
	size_t length;

	if (json_is_null(value))
		return;
	if (is_there(body, field))
		return;
	if (!json_is_string(value) || json_string_length(value) == 0 || body_has_nul(value)) {
		body_wrong(body, "string_type", field,
			   "Input should be a valid string, not empty and without NUL");
		return;
	}
	spec->argv = calloc(4, sizeof(*spec->argv));
	if (spec->argv) {
		spec->argv[0] = strdup("/bin/sh");
		spec->argv[1] = strdup("-c");
		spec->argv[2] = body_take_string(body, value, &length);
		spec->n_argv = 3;
	}
	if (!spec->argv || !spec->argv[0] || !spec->argv[1] || !spec->argv[2])
		body->fatal = -ENOMEM;
}

static void read_flag(struct body *body, const char *field, json_t *value, bool *ret_flag)
{
	if (json_is_boolean(value))
		*ret_flag = json_is_true(value);
	else if (!json_is_null(value))
		body_wrong(body, "bool_type", field, "Input should be a valid boolean");
}

static void read_background(struct body *body, const char *field, json_t *value)
{
	read_flag(body, field, value, &((struct spec_command *)body->dest)->background);
}

static void read_hold_output(struct body *body, const char *field, json_t *value)
{
	read_flag(body, field, value, &((struct spec_command *)body->dest)->hold_output);
}

static void read_stdin_open(struct body *body, const char *field, json_t *value)
{
	read_flag(body, field, value, &((struct spec_command *)body->dest)->stdin_open);
}

static void read_on_disconnect(struct body *body, const char *field, json_t *value)
{
	struct spec_command *spec = body->dest;
	const char *text = json_string_value(value);

	if (json_is_null(value))
		return;
	if (text && str_equal(text, "keep"))
		spec->on_disconnect_keep = true;
	else if (!text || !str_equal(text, "kill"))
		body_wrong(body, "literal_error", field, "Input should be 'kill' or 'keep'");
}

static void read_max_output(struct body *body, const char *field, json_t *value)
{
	struct spec_command *spec = body->dest;

	if (!json_is_null(value))
		(void)body_read_integer(body, field, value, 1, UINT32_MAX, &spec->max_output);
}

static void read_pty(struct body *body, const char *field, json_t *value)
{
	struct spec_command *spec = body->dest;

	if (!json_is_null(value))
		body_read_size(body, field, value, &spec->size);
}

/* A terminal that programs know, where the caller names none. 0 or -ENOMEM. */
static int add_terminal_name(struct spec_command *spec)
{
	char **grown;

	for (size_t i = 0; i < spec->n_env; i++)
		if (str_has_prefix(spec->env[i], "TERM="))
			return 0;
	grown = realloc(spec->env, (spec->n_env + 2) * sizeof(*grown));
	if (!grown)
		return -ENOMEM;
	spec->env = grown;
	grown[spec->n_env] = strdup("TERM=xterm-256color");
	grown[spec->n_env + 1] = NULL;
	if (!grown[spec->n_env])
		return -ENOMEM;
	spec->n_env++;
	return 0;
}

int spec_parse_command(const char *text, size_t size, const struct spec_options *options,
		       struct spec_command *ret_spec, json_t **ret_errors)
{
	static const struct body_field fields[] = {
		{"argv",          false, read_argv         },
		{"cmd",           false, read_cmd          },
		{"cwd",           false, read_cwd          },
		{"envs",          false, read_command_envs },
		{"timeout_ms",    false, read_timeout      },
		{"stdin",         false, read_stdin        },
		{"stdin_open",    false, read_stdin_open   },
		{"user",          false, read_user         },
		{"background",    false, read_background   },
		{"hold_output",   false, read_hold_output  },
		{"on_disconnect", false, read_on_disconnect},
		{"pty",           false, read_pty          },
		{"max_output",    false, read_max_output   },
		{NULL,            false, NULL              },
	};
	struct spec_command spec = SPEC_COMMAND_NULL;
	struct body body = {.options = options, .dest = &spec};
	int r;

	r = body_parse(&body, text, size, fields, false);
	if (r == 0 && !spec.argv) {
		body_wrong(&body, "missing", "argv", "Field required, or cmd");
		r = SPEC_E_INVALID;
	}
	if (r == 0 && spec.size.rows > 0)
		r = add_terminal_name(&spec);
	if (r != 0)
		spec_command_done(&spec);
	else
		*ret_spec = spec;
	return body_finish(&body, r, ret_errors);
}
