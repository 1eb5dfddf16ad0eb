/*
 * One table of fields per body: name, whether it must be there, how it is read. A reader adds items
 * to the answer and goes on, so that one answer names everything that is wrong.
 */
#include "supervisor/api/session/body_fields.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/secret.h"
#include "base/str.h"

#include "supervisor/api/session/environment.h"
#include "supervisor/api/session/fit.h"

#define MAX_ERRORS      20
#define LOC_MAX_BYTES   64
#define ENV_VALUE_BYTES 8192
#define ENV_TOTAL_BYTES 24576

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

int body_item_add(json_t **errors, const char *type, const char *const loc[], const char *msg)
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

void body_wrong_in(struct body *body, const char *type, const char *field, const char *member,
		   const char *msg)
{
	const char *loc[] = {"body", field, field ? member : NULL};

	if (body_item_add(&body->errors, type, loc, msg) < 0)
		body->fatal = -ENOMEM;
}

void body_wrong(struct body *body, const char *type, const char *field, const char *msg)
{
	body_wrong_in(body, type, field, NULL, msg);
}

bool body_is_object(struct body *body, const char *field, const json_t *value)
{
	if (!json_is_object(value) && !json_is_null(value))
		body_wrong(body, "dict_type", field, "Input should be a valid dictionary");
	return json_is_object(value);
}

bool body_has_nul(const json_t *value)
{
	return memchr(json_string_value(value), '\0', json_string_length(value)) != NULL;
}

char *body_take_string(struct body *body, const json_t *value, size_t *ret_length)
{
	size_t length = json_string_length(value);
	char *copy = malloc(length + 1);

	if (!copy) {
		body->fatal = -ENOMEM;
		return NULL;
	}
	memcpy(copy, json_string_value(value), length);
	copy[length] = '\0';
	*ret_length = length;
	return copy;
}

void body_read_identity(struct body *body, const char *field, const json_t *value,
			const char *problem, char *dest, size_t max)
{
	const char *text = json_string_value(value);
	size_t length = json_string_length(value);

	if (json_is_null(value))
		return;
	if (!text)
		body_wrong(body, "string_type", field, BODY_MSG_STRING);
	else if (length == 0 || length > max || !str_only(text, length, "._:@-"))
		body_wrong(body, "value_error", field, problem);
	else
		memcpy(dest, text, length + 1);
}

bool body_read_integer(struct body *body, const char *field, const json_t *value, uint32_t min,
		       uint32_t max, uint32_t *ret_number)
{
	char msg[80];
	json_int_t number;

	if (json_is_string(value)) {
		body_wrong(body, "int_parsing", field,
			   "Input should be a valid integer, unable to parse string as an integer");
		return false;
	}
	if (json_is_real(value)) {
		body_wrong(body, "int_from_float", field,
			   "Input should be a valid integer, got a number with a fractional part");
		return false;
	}
	if (!json_is_integer(value)) {
		body_wrong(body, "int_type", field, "Input should be a valid integer");
		return false;
	}
	number = json_integer_value(value);
	if (number < (json_int_t)min) {
		fit_text(msg, sizeof(msg), "Input should be greater than or equal to %u", min);
		body_wrong(body, "greater_than_equal", field, msg);
		return false;
	}
	if (number > (json_int_t)max) {
		fit_text(msg, sizeof(msg), "Input should be less than or equal to %u", max);
		body_wrong(body, "less_than_equal", field, msg);
		return false;
	}
	*ret_number = (uint32_t)number;
	return true;
}

static const struct body_field *find_field(const struct body_field *fields, const char *name)
{
	for (; fields->name; fields++)
		if (str_equal(fields->name, name))
			return fields;
	return NULL;
}

static void read_object(struct body *body, const struct body_field *fields, json_t *doc)
{
	const char *key;
	json_t *value;

	json_object_foreach(doc, key, value)
	{
		const struct body_field *field = find_field(fields, key);

		if (field)
			field->read(body, field->name, value);
		else if (!body->options->ignore_unknown_fields)
			body_wrong(body, "extra_forbidden", key, "Extra inputs are not permitted");
	}
	for (; fields->name; fields++)
		if (fields->required && !json_object_get(doc, fields->name))
			body_wrong(body, "missing", fields->name, "Field required");
}

/* The common course: text -> document -> fields. What the readers made stays in body->dest; the
 * caller drops it unless 0 is returned. */
int body_parse(struct body *body, const char *text, size_t size, const struct body_field *fields,
	       bool may_be_empty)
{
	static const struct spec_options no_options;
	json_t *doc = NULL;
	const char *reason;
	int r;

	if (!body->options)
		body->options = &no_options;
	if (size == 0) {
		if (may_be_empty)
			return 0;
		body_wrong(body, "missing", NULL, "Field required");
	} else {
		r = doc_parse(text, size, &doc, &reason);
		if (r == -ENOMEM)
			return r;
		if (r < 0)
			body_wrong(body, "json_invalid", NULL, "JSON decode error");
		else if (json_is_object(doc))
			read_object(body, fields, doc);
		else if (!json_is_null(doc))
			body_wrong(
				body, "model_attributes_type", NULL,
				"Input should be a valid dictionary or object to extract fields from");
		else if (!may_be_empty)
			body_wrong(body, "missing", NULL, "Field required");
		json_decref(doc);
	}
	if (body->fatal < 0)
		return body->fatal;
	return body->errors ? SPEC_E_INVALID : 0;
}

/* Hand the items to the caller, or drop them. */
int body_finish(struct body *body, int r, json_t **ret_errors)
{
	if (r == SPEC_E_INVALID)
		*ret_errors = TAKE_PTR(body->errors);
	json_decref(body->errors);
	return r;
}

void body_strings_free(char **strings, size_t n)
{
	for (size_t i = 0; i < n; i++)
		free(strings[i]);
	free(strings);
}

static char *make_env(struct body *body, const char *field, const char *name, json_t *value)
{
	size_t name_length = strlen(name);
	char *entry;

	if (!environment_name_allowed(name, name_length, body->options->env_prefix)) {
		body_wrong_in(
			body, "value_error", field, name,
			"Value error, name is not allowed (upper case letters, digits and _)");
		return NULL;
	}
	if (!json_is_string(value)) {
		body_wrong_in(body, "string_type", field, name, BODY_MSG_STRING);
		return NULL;
	}
	if (body_has_nul(value)) {
		body_wrong_in(body, "value_error", field, name, BODY_MSG_NUL);
		return NULL;
	}
	if (json_string_length(value) > ENV_VALUE_BYTES) {
		body_wrong_in(body, "string_too_long", field, name,
			      "String should have at most 8192 characters");
		return NULL;
	}
	entry = malloc(name_length + 1 + json_string_length(value) + 1);
	if (!entry) {
		body->fatal = -ENOMEM;
		return NULL;
	}
	memcpy(entry, name, name_length);
	entry[name_length] = '=';
	memcpy(entry + name_length + 1, json_string_value(value), json_string_length(value) + 1);
	return entry;
}

/* Room behind the entries that are there. False: body->fatal. */
static bool grow_env(struct body *body, char ***env, size_t n_env, size_t n_more)
{
	char **grown = reallocarray(*env, n_env + n_more + 1, sizeof(*grown));

	if (!grown) {
		body->fatal = -ENOMEM;
		return false;
	}
	memset(grown + n_env, 0, (n_more + 1) * sizeof(*grown));
	*env = grown;
	return true;
}

void body_read_envs(struct body *body, const char *field, json_t *value, size_t max, char ***env,
		    size_t *n_env)
{
	const char *name;
	json_t *member;
	size_t total = 0;
	char msg[64];

	if (!body_is_object(body, field, value))
		return;
	if (json_object_size(value) > max) {
		fit_text(msg, sizeof(msg), "Dictionary should have at most %zu items", max);
		body_wrong(body, "too_long", field, msg);
		return;
	}
	if (!grow_env(body, env, *n_env, json_object_size(value)))
		return;
	for (size_t i = 0; i < *n_env; i++)
		total += strlen((*env)[i]) + 1;
	json_object_foreach(value, name, member)
	{
		char *entry = make_env(body, field, name, member);

		if (!entry)
			continue;
		total += strlen(entry) + 1;
		(*env)[(*n_env)++] = entry;
	}
	if (total > ENV_TOTAL_BYTES)
		body_wrong(body, "value_error", field, "Value error, more than 24 KiB in all");
}

/* What is wrong with item i, or NULL. The item may be a value that was meant to be a name: it is
 * never repeated. */
static const char *secret_problem(const json_t *value, size_t i)
{
	const json_t *item = json_array_get(value, i);

	if (!json_is_string(item))
		return "should be a valid string";
	if (!secret_name_valid(json_string_value(item), json_string_length(item)))
		return "is no name of a secret";
	for (size_t k = 0; k < i; k++)
		if (json_equal(json_array_get(value, k), item))
			return "is there twice";
	return NULL;
}

void body_read_secrets(struct body *body, const char *field, json_t *value, char ***ret_names,
		       size_t *ret_n)
{
	char **names;
	size_t n = json_array_size(value);
	size_t length;
	char msg[64];

	if (json_is_null(value))
		return;
	if (!json_is_array(value)) {
		body_wrong(body, "list_type", field, "Input should be a valid list");
		return;
	}
	if (n > SECRETS_SESSION_MAX) {
		fit_text(msg, sizeof(msg), "List should have at most %d items",
			 SECRETS_SESSION_MAX);
		body_wrong(body, "too_long", field, msg);
		return;
	}
	names = calloc(n + 1, sizeof(*names));
	if (!names) {
		body->fatal = -ENOMEM;
		return;
	}
	*ret_names = names;
	for (size_t i = 0; i < n; i++) {
		const char *problem = secret_problem(value, i);

		if (problem) {
			fit_text(msg, sizeof(msg), "Value error, item %zu %s", i, problem);
			body_wrong(body, "value_error", field, msg);
			continue;
		}
		names[*ret_n] = body_take_string(body, json_array_get(value, i), &length);
		if (names[*ret_n])
			(*ret_n)++;
	}
}
