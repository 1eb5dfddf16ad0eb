/*
 * One table of fields per body: name, whether it must be there, how it is read. A reader adds items
 * to the answer and goes on, so that one answer names everything that is wrong. Types and messages
 * are those that FastAPI clients know; ours differ in one way: a number must be a JSON integer.
 */
#include "supervisor/api/session/spec.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/str.h"

#include "supervisor/api/session/endpoint.h"
#include "supervisor/api/session/environment.h"
#include "supervisor/api/session/fit.h"

#define MAX_ERRORS      20
#define LOC_MAX_BYTES   64
#define ENV_VALUE_BYTES 8192
#define ENV_TOTAL_BYTES (24u * 1024)
#define TTL_MIN_S       60
#define MSG_STRING      "Input should be a valid string"
#define MSG_NUL         "Value error, must not contain NUL"

struct parse {
	const struct spec_options *options;
	json_t *errors; /* owned until given away; NULL: nothing is wrong so far */
	void *dest;
	int fatal; /* -ENOMEM */
};

struct field {
	const char *name;
	bool required;
	void (*read)(struct parse *parse, const char *field, const json_t *value);
};

/* Text of a client in `loc` is bounded; it is cut at the start of a character. */
static json_t *loc_text(const char *text)
{
	size_t length = strlen(text);

	if (length > LOC_MAX_BYTES) {
		length = LOC_MAX_BYTES;
		while (length > 0 && ((unsigned char)text[length] & 0xc0) == 0x80)
			length--;
	}
	return json_stringn(text, length);
}

static int error_item(json_t **errors, const char *type, const char *const loc[], const char *msg)
{
	json_t *item;
	json_t *place;

	if (!*errors)
		*errors = json_array();
	if (!*errors)
		return -ENOMEM;
	if (json_array_size(*errors) >= MAX_ERRORS)
		return 0;
	place = json_array();
	for (size_t i = 0; place && i < 3 && loc[i]; i++)
		if (json_array_append_new(place, loc_text(loc[i])) < 0) {
			json_decref(place);
			return -ENOMEM;
		}
	item = json_pack("{s:s, s:o, s:s}", "type", type, "loc", place, "msg", msg);
	if (!item || json_array_append_new(*errors, item) < 0)
		return -ENOMEM;
	return 0;
}

int spec_error_add(json_t **errors, const char *type, const char *where, const char *field,
		   const char *msg)
{
	const char *loc[] = {where, field, NULL};

	return error_item(errors, type, loc, msg);
}

static void wrong_in(struct parse *parse, const char *type, const char *field, const char *member,
		     const char *msg)
{
	const char *loc[] = {"body", field, field ? member : NULL};

	if (error_item(&parse->errors, type, loc, msg) < 0)
		parse->fatal = -ENOMEM;
}

static void wrong(struct parse *parse, const char *type, const char *field, const char *msg)
{
	wrong_in(parse, type, field, NULL, msg);
}

static bool has_nul(const json_t *value)
{
	return memchr(json_string_value(value), '\0', json_string_length(value)) != NULL;
}

static char *take_string(struct parse *parse, const json_t *value, size_t *ret_length)
{
	size_t length = json_string_length(value);
	char *copy = malloc(length + 1);

	if (!copy) {
		parse->fatal = -ENOMEM;
		return NULL;
	}
	memcpy(copy, json_string_value(value), length);
	copy[length] = '\0';
	*ret_length = length;
	return copy;
}

/* An integer in min..max. False: an item was added. */
static bool read_integer(struct parse *parse, const char *field, const json_t *value, uint32_t min,
			 uint32_t max, uint32_t *ret_number)
{
	char msg[80];
	json_int_t number;

	if (json_is_string(value)) {
		wrong(parse, "int_parsing", field,
		      "Input should be a valid integer, unable to parse string as an integer");
		return false;
	}
	if (json_is_real(value)) {
		wrong(parse, "int_from_float", field,
		      "Input should be a valid integer, got a number with a fractional part");
		return false;
	}
	if (!json_is_integer(value)) {
		wrong(parse, "int_type", field, "Input should be a valid integer");
		return false;
	}
	number = json_integer_value(value);
	if (number < (json_int_t)min) {
		fit_text(msg, sizeof(msg), "Input should be greater than or equal to %u", min);
		wrong(parse, "greater_than_equal", field, msg);
		return false;
	}
	if (number > (json_int_t)max) {
		fit_text(msg, sizeof(msg), "Input should be less than or equal to %u", max);
		wrong(parse, "less_than_equal", field, msg);
		return false;
	}
	*ret_number = (uint32_t)number;
	return true;
}

static const struct field *find_field(const struct field *fields, const char *name)
{
	for (; fields->name; fields++)
		if (str_equal(fields->name, name))
			return fields;
	return NULL;
}

static void read_object(struct parse *parse, const struct field *fields, json_t *doc)
{
	const char *key;
	json_t *value;

	json_object_foreach(doc, key, value)
	{
		const struct field *field = find_field(fields, key);

		if (field)
			field->read(parse, field->name, value);
		else if (!parse->options->ignore_unknown_fields)
			wrong(parse, "extra_forbidden", key, "Extra inputs are not permitted");
	}
	for (; fields->name; fields++)
		if (fields->required && !json_object_get(doc, fields->name))
			wrong(parse, "missing", fields->name, "Field required");
}

/* The common course: text -> document -> fields. What the readers made stays in parse->dest; the
 * caller drops it unless 0 is returned. */
static int parse_body(struct parse *parse, const char *text, size_t size,
		      const struct field *fields, bool may_be_empty)
{
	static const struct spec_options no_options;
	json_t *doc = NULL;
	const char *reason;
	int r;

	if (!parse->options)
		parse->options = &no_options;
	if (size == 0) {
		if (may_be_empty)
			return 0;
		wrong(parse, "missing", NULL, "Field required");
	} else {
		r = doc_parse(text, size, &doc, &reason);
		if (r == -ENOMEM)
			return r;
		if (r < 0)
			wrong(parse, "json_invalid", NULL, "JSON decode error");
		else if (json_is_object(doc))
			read_object(parse, fields, doc);
		else if (!json_is_null(doc))
			wrong(parse, "model_attributes_type", NULL,
			      "Input should be a valid dictionary or object to extract fields from");
		else if (!may_be_empty)
			wrong(parse, "missing", NULL, "Field required");
		json_decref(doc);
	}
	if (parse->fatal < 0)
		return parse->fatal;
	return parse->errors ? SPEC_E_INVALID : 0;
}

/* Hand the items to the caller, or drop them. */
static int finish(struct parse *parse, int r, json_t **ret_errors)
{
	if (r == SPEC_E_INVALID)
		*ret_errors = TAKE_PTR(parse->errors);
	json_decref(parse->errors);
	return r;
}

static void strings_free(char **strings, size_t n)
{
	for (size_t i = 0; i < n; i++)
		free(strings[i]);
	free(strings);
}

/* ---- sessions and sandboxes ---- */

void spec_create_done(struct spec_create *spec)
{
	for (size_t i = 0; i < ENDPOINTS_N; i++)
		free(spec->endpoint[i]);
	strings_free(spec->env, spec->n_env);
	*spec = SPEC_CREATE_NULL;
}

static void read_ttl_minutes(struct parse *parse, const char *field, const json_t *value)
{
	struct spec_create *spec = parse->dest;
	uint32_t max = parse->options->ttl_max_minutes;

	if (max == 0 || max > TTL_MAX_MINUTES)
		max = TTL_MAX_MINUTES;
	(void)read_integer(parse, field, value, TTL_MIN_MINUTES, max, &spec->ttl_minutes);
}

static void read_override(struct parse *parse, const char *field, const char *name,
			  const json_t *value)
{
	struct spec_create *spec = parse->dest;
	int index = endpoint_index(name, strlen(name));
	const char *problem;
	char msg[96];
	size_t length;

	if (index < 0) {
		/* Never ignored: the caller believes that the name is swapped. */
		wrong_in(parse, "extra_forbidden", field, name, "Extra inputs are not permitted");
		return;
	}
	if (!json_is_string(value)) {
		wrong_in(parse, "string_type", field, name, MSG_STRING);
		return;
	}
	problem = endpoint_value_problem((size_t)index, json_string_value(value),
					 json_string_length(value));
	if (problem) {
		fit_text(msg, sizeof(msg), "Value error, %s", problem);
		wrong_in(parse, "value_error", field, name, msg);
		return;
	}
	spec->endpoint[index] = take_string(parse, value, &length);
}

static void read_overrides(struct parse *parse, const char *field, const json_t *value)
{
	const char *name;
	json_t *member;

	if (json_is_null(value))
		return;
	if (!json_is_object(value)) {
		wrong(parse, "dict_type", field, "Input should be a valid dictionary");
		return;
	}
	/* The iteration only reads, though jansson asks for a pointer without const. */
	json_object_foreach((json_t *)(uintptr_t)value, name, member)
		read_override(parse, field, name, member);
}

static char *make_env(struct parse *parse, const char *field, const char *name, const json_t *value)
{
	size_t name_length = strlen(name);
	char *entry;

	if (!environment_name_allowed(name, name_length, parse->options->env_prefix)) {
		wrong_in(parse, "value_error", field, name,
			 "Value error, name is not allowed (upper case letters, digits and _)");
		return NULL;
	}
	if (!json_is_string(value)) {
		wrong_in(parse, "string_type", field, name, MSG_STRING);
		return NULL;
	}
	if (has_nul(value)) {
		wrong_in(parse, "value_error", field, name, MSG_NUL);
		return NULL;
	}
	if (json_string_length(value) > ENV_VALUE_BYTES) {
		wrong_in(parse, "string_too_long", field, name,
			 "String should have at most 8192 characters");
		return NULL;
	}
	entry = malloc(name_length + 1 + json_string_length(value) + 1);
	if (!entry) {
		parse->fatal = -ENOMEM;
		return NULL;
	}
	memcpy(entry, name, name_length);
	entry[name_length] = '=';
	memcpy(entry + name_length + 1, json_string_value(value), json_string_length(value) + 1);
	return entry;
}

static void read_envs(struct parse *parse, const char *field, const json_t *value, char ***ret_env,
		      size_t *ret_n_env)
{
	const char *name;
	json_t *member;
	size_t total = 0;
	size_t n = 0;
	char **env;

	if (json_is_null(value))
		return;
	if (!json_is_object(value)) {
		wrong(parse, "dict_type", field, "Input should be a valid dictionary");
		return;
	}
	if (json_object_size(value) > EXEC_MAX_ENV / 2) {
		wrong(parse, "too_long", field, "Dictionary should have at most 128 items");
		return;
	}
	env = calloc(json_object_size(value) + 1, sizeof(*env));
	if (!env) {
		parse->fatal = -ENOMEM;
		return;
	}
	json_object_foreach((json_t *)(uintptr_t)value, name, member)
	{
		env[n] = make_env(parse, field, name, member);
		if (!env[n])
			continue;
		total += strlen(env[n]) + 1;
		n++;
	}
	if (total > ENV_TOTAL_BYTES)
		wrong(parse, "value_error", field, "Value error, more than 24 KiB in all");
	*ret_env = env;
	*ret_n_env = n;
}

static void read_create_envs(struct parse *parse, const char *field, const json_t *value)
{
	struct spec_create *spec = parse->dest;

	read_envs(parse, field, value, &spec->env, &spec->n_env);
}

static void read_profile(struct parse *parse, const char *field, const json_t *value)
{
	struct spec_create *spec = parse->dest;

	if (json_is_null(value))
		return;
	if (!json_is_string(value)) {
		wrong(parse, "string_type", field, MSG_STRING);
		return;
	}
	if (has_nul(value) || (!str_equal(json_string_value(value), "agent") &&
			       !str_equal(json_string_value(value), "component"))) {
		wrong(parse, "literal_error", field, "Input should be 'agent' or 'component'");
		return;
	}
	fit_text(spec->profile, sizeof(spec->profile), "%s", json_string_value(value));
}

/* Seconds. Whether it is too long depends on the profile, which may stand behind it; so the
 * seconds wait in ttl_minutes until the whole body is read. */
static void read_ttl_seconds(struct parse *parse, const char *field, const json_t *value)
{
	struct spec_create *spec = parse->dest;

	if (!json_is_null(value))
		(void)read_integer(parse, field, value, TTL_MIN_S, AGENT_TTL_MAX_MINUTES * 60,
				   &spec->ttl_minutes);
}

static void check_ttl_seconds(struct parse *parse, struct spec_create *spec)
{
	uint32_t max =
		str_equal(spec->profile, "component") ? TTL_MAX_MINUTES : AGENT_TTL_MAX_MINUTES;
	uint32_t configured = parse->options->ttl_max_minutes;
	char msg[64];

	if (configured != 0 && configured < max)
		max = configured;
	if (spec->ttl_minutes == 0)
		spec->ttl_minutes = max < TTL_DEFAULT_MINUTES ? max : TTL_DEFAULT_MINUTES;
	else
		spec->ttl_minutes = (spec->ttl_minutes + 59) / 60;
	if (spec->ttl_minutes > max) {
		fit_text(msg, sizeof(msg), "Input should be less than or equal to %u", max * 60);
		wrong(parse, "less_than_equal", "ttl", msg);
	}
}

int spec_parse_session(const char *text, size_t size, const struct spec_options *options,
		       struct spec_create *ret_spec, json_t **ret_errors)
{
	static const struct field fields[] = {
		{"ttl_minutes",   false, read_ttl_minutes},
		{"env_overrides", false, read_overrides  },
		{NULL,            false, NULL            },
	};
	struct spec_create spec = {.profile = "component", .ttl_minutes = TTL_DEFAULT_MINUTES};
	struct parse parse = {.options = options, .dest = &spec};
	int r;

	if (options && options->ttl_max_minutes != 0 &&
	    options->ttl_max_minutes < TTL_DEFAULT_MINUTES)
		spec.ttl_minutes = options->ttl_max_minutes;
	r = parse_body(&parse, text, size, fields, true);
	if (r != 0)
		spec_create_done(&spec);
	else
		*ret_spec = spec;
	return finish(&parse, r, ret_errors);
}

int spec_parse_sandbox(const char *text, size_t size, const struct spec_options *options,
		       struct spec_create *ret_spec, json_t **ret_errors)
{
	static const struct field fields[] = {
		{"profile", false, read_profile    },
		{"envs",    false, read_create_envs},
		{"ttl",     false, read_ttl_seconds},
		{NULL,      false, NULL            },
	};
	struct spec_create spec = {.profile = "agent"};
	struct parse parse = {.options = options, .dest = &spec};
	int r;

	r = parse_body(&parse, text, size, fields, true);
	if (r == 0) {
		check_ttl_seconds(&parse, &spec);
		if (parse.fatal < 0)
			r = parse.fatal;
		else if (parse.errors)
			r = SPEC_E_INVALID;
	}
	if (r != 0)
		spec_create_done(&spec);
	else
		*ret_spec = spec;
	return finish(&parse, r, ret_errors);
}

/* ---- components ---- */

void spec_component_done(struct spec_component *spec)
{
	free(spec->name);
	free(spec->body);
	*spec = SPEC_COMPONENT_NULL;
}

static void read_name(struct parse *parse, const char *field, const json_t *value)
{
	struct spec_component *spec = parse->dest;

	if (!json_is_string(value)) {
		wrong(parse, "string_type", field, MSG_STRING);
		return;
	}
	spec->name = take_string(parse, value, &spec->name_length);
}

static void read_component_body(struct parse *parse, const char *field, const json_t *value)
{
	struct spec_component *spec = parse->dest;

	if (!json_is_string(value))
		wrong(parse, "string_type", field, MSG_STRING);
	else if (json_string_length(value) > COMPONENT_BODY_MAX_BYTES)
		wrong(parse, "string_too_long", field, "String should have at most 1048576 bytes");
	else if (has_nul(value))
		wrong(parse, "value_error", field, MSG_NUL);
	else
		spec->body = take_string(parse, value, &spec->body_length);
}

int spec_parse_component(const char *text, size_t size, const struct spec_options *options,
			 struct spec_component *ret_spec, json_t **ret_errors)
{
	static const struct field fields[] = {
		{"name", true,  read_name          },
		{"body", true,  read_component_body},
		{NULL,   false, NULL               },
	};
	struct spec_component spec = SPEC_COMPONENT_NULL;
	struct parse parse = {.options = options, .dest = &spec};
	int r;

	r = parse_body(&parse, text, size, fields, false);
	if (r != 0)
		spec_component_done(&spec);
	else
		*ret_spec = spec;
	return finish(&parse, r, ret_errors);
}

/* ---- commands ---- */

void spec_command_done(struct spec_command *spec)
{
	strings_free(spec->argv, spec->n_argv);
	strings_free(spec->env, spec->n_env);
	free(spec->cwd);
	free(spec->stdin_text);
	*spec = SPEC_COMMAND_NULL;
}

static void read_argument(struct parse *parse, const char *field, size_t index, const json_t *value,
			  struct spec_command *spec)
{
	char member[24];
	size_t length;

	fit_text(member, sizeof(member), "%zu", index);
	if (!json_is_string(value)) {
		wrong_in(parse, "string_type", field, member, MSG_STRING);
	} else if (has_nul(value)) {
		wrong_in(parse, "value_error", field, member, MSG_NUL);
	} else if (index == 0 && json_string_length(value) == 0) {
		wrong_in(parse, "string_too_short", field, member,
			 "String should have at least 1 character");
	} else {
		spec->argv[spec->n_argv] = take_string(parse, value, &length);
		if (spec->argv[spec->n_argv])
			spec->n_argv++;
	}
}

static void read_argv(struct parse *parse, const char *field, const json_t *value)
{
	struct spec_command *spec = parse->dest;
	size_t n = json_array_size(value);

	if (!json_is_array(value)) {
		wrong(parse, "list_type", field, "Input should be a valid list");
		return;
	}
	if (n == 0) {
		wrong(parse, "too_short", field, "List should have at least 1 item");
		return;
	}
	if (n > EXEC_MAX_ARGV) {
		wrong(parse, "too_long", field, "List should have at most 1024 items");
		return;
	}
	spec->argv = calloc(n + 1, sizeof(*spec->argv));
	if (!spec->argv) {
		parse->fatal = -ENOMEM;
		return;
	}
	for (size_t i = 0; i < n; i++)
		read_argument(parse, field, i, json_array_get(value, i), spec);
}

static void read_cwd(struct parse *parse, const char *field, const json_t *value)
{
	struct spec_command *spec = parse->dest;
	size_t length;

	if (json_is_null(value))
		return;
	if (!json_is_string(value))
		wrong(parse, "string_type", field, MSG_STRING);
	else if (has_nul(value))
		wrong(parse, "value_error", field, MSG_NUL);
	else if (json_string_length(value) >= EXEC_CWD_BYTES)
		wrong(parse, "string_too_long", field, "String should have at most 4095 bytes");
	else if (json_string_value(value)[0] != '/')
		wrong(parse, "value_error", field, "Value error, must be an absolute path");
	else
		spec->cwd = take_string(parse, value, &length);
}

static void read_command_envs(struct parse *parse, const char *field, const json_t *value)
{
	struct spec_command *spec = parse->dest;

	read_envs(parse, field, value, &spec->env, &spec->n_env);
}

static void read_timeout(struct parse *parse, const char *field, const json_t *value)
{
	struct spec_command *spec = parse->dest;

	if (!json_is_null(value))
		(void)read_integer(parse, field, value, 1, SPEC_TIMEOUT_MAX_MS, &spec->timeout_ms);
}

static void read_stdin(struct parse *parse, const char *field, const json_t *value)
{
	struct spec_command *spec = parse->dest;

	if (json_is_null(value))
		return;
	if (!json_is_string(value))
		wrong(parse, "string_type", field, MSG_STRING);
	else if (json_string_length(value) > SPEC_STDIN_MAX_BYTES)
		wrong(parse, "string_too_long", field, "String should have at most 1048576 bytes");
	else
		spec->stdin_text = take_string(parse, value, &spec->stdin_length);
}

int spec_parse_command(const char *text, size_t size, const struct spec_options *options,
		       struct spec_command *ret_spec, json_t **ret_errors)
{
	static const struct field fields[] = {
		{"argv",       true,  read_argv        },
                {"cwd",        false, read_cwd         },
		{"envs",       false, read_command_envs},
                {"timeout_ms", false, read_timeout     },
		{"stdin",      false, read_stdin       },
                {NULL,         false, NULL             },
	};
	struct spec_command spec = SPEC_COMMAND_NULL;
	struct parse parse = {.options = options, .dest = &spec};
	int r;

	r = parse_body(&parse, text, size, fields, false);
	if (r != 0)
		spec_command_done(&spec);
	else
		*ret_spec = spec;
	return finish(&parse, r, ret_errors);
}

/* ---- the others ---- */

int spec_parse_empty(const char *text, size_t size, const struct spec_options *options,
		     json_t **ret_errors)
{
	static const struct field fields[] = {
		{NULL, false, NULL}
        };
	struct parse parse = {.options = options};

	return finish(&parse, parse_body(&parse, text, size, fields, true), ret_errors);
}

struct plan spec_plan(const struct id *session, uint32_t profile_index,
		      const struct policy_profile *profile)
{
	const struct policy_limits *limits = &profile->limits;
	struct plan plan = {
		.magic = PLAN_MAGIC,
		.version = PLAN_VERSION,
		.size = sizeof(plan),
		.profile = profile_index,
		.tmpfs_bytes = limits->tmpfs_bytes,
		.tmpfs_inodes = limits->tmpfs_inodes,
		.memory_bytes = limits->memory_bytes,
		.max_pids = limits->max_pids,
		.max_files = limits->max_files,
		.cpu_pct = limits->cpu_pct,
		.cpu_weight = limits->cpu_weight,
		.max_ptys = limits->max_ptys,
	};

	memcpy(plan.session, session->bytes, sizeof(plan.session));
	memcpy(plan.profile_hash, profile->hash, sizeof(plan.profile_hash));
	return plan;
}

int spec_find_profile(const struct policy_image_header *image, const char *name)
{
	for (uint32_t i = 0; i < image->n_profiles && i < POLICY_MAX_PROFILES; i++)
		if (image->profile[i].kind == POLICY_KIND_SESSION &&
		    strncmp(image->profile[i].name, name, POLICY_NAME_BYTES) == 0)
			return (int)i;
	return -1;
}
