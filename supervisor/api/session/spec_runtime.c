/*
 * What a caller of /v1 says of a sandbox beside what its processes get: whose project it is, texts
 * to find it by, the folders that outlive it, its template, and a key that makes a repeated create
 * the same one.
 * It is kept in the row as one document.
 */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/str.h"
#include "base/template_name.h"

#include "supervisor/api/session/body_fields.h"
#include "supervisor/api/session/fit.h"

#define KEY_MAX       64
#define WORKSPACE_MAX 64 /* items of a list */
#define PATTERN_MAX   1024

void spec_runtime_done(struct spec_runtime *runtime)
{
	json_decref(runtime->metadata);
	json_decref(runtime->workspace);
	json_decref(runtime->snapshots);
	*runtime = SPEC_RUNTIME_NULL;
}

void body_read_project(struct body *body, const char *field, json_t *value)
{
	struct spec_create *spec = body->dest;

	body_read_identity(body, field, value, BODY_MSG_IDENTITY, spec->runtime.project,
			   IDENTITY_MAX);
}

void body_read_provider(struct body *body, const char *field, json_t *value)
{
	struct spec_create *spec = body->dest;

	body_read_identity(body, field, value, BODY_MSG_IDENTITY, spec->runtime.provider,
			   SPEC_PROVIDER_MAX);
}

void body_read_idempotency_key(struct body *body, const char *field, json_t *value)
{
	struct spec_create *spec = body->dest;

	body_read_identity(body, field, value, BODY_MSG_IDENTITY, spec->runtime.idempotency_key,
			   SPEC_IDEMPOTENCY_MAX);
}

void body_read_template(struct body *body, const char *field, json_t *value)
{
	struct spec_create *spec = body->dest;
	const char *name = json_string_value(value);

	if (json_is_null(value))
		return;
	if (!name)
		body_wrong(body, "string_type", field, BODY_MSG_STRING);
	else if (body_has_nul(value) || !template_name_is_valid(name))
		body_wrong(body, "value_error", field,
			   "Value error, a template's name has 1 to 63 of a-z0-9._-");
	else if (!str_equal(name, TEMPLATE_BASE))
		fit_text(spec->runtime.template, sizeof(spec->runtime.template), "%s", name);
}

static bool is_object(struct body *body, const char *field, const json_t *value)
{
	if (json_is_object(value))
		return true;
	if (!json_is_null(value))
		body_wrong(body, "dict_type", field, "Input should be a valid dictionary");
	return false;
}

static void check_metadata(struct body *body, const char *field, const char *key,
			   const json_t *value)
{
	size_t length = strlen(key);

	if (length == 0 || length > KEY_MAX || !str_only(key, length, "._-"))
		body_wrong_in(body, "value_error", field, key,
			      "Value error, a key has 1 to 64 of A-Za-z0-9._-");
	else if (!json_is_string(value))
		body_wrong_in(body, "string_type", field, key, BODY_MSG_STRING);
	else if (body_has_nul(value))
		body_wrong_in(body, "value_error", field, key, BODY_MSG_NUL);
	else if (json_string_length(value) > SPEC_VALUE_MAX)
		body_wrong_in(body, "string_too_long", field, key,
			      "String should have at most 256 bytes");
}

void body_read_metadata(struct body *body, const char *field, json_t *value)
{
	struct spec_create *spec = body->dest;
	const char *key;
	json_t *member;

	if (!is_object(body, field, value))
		return;
	if (json_object_size(value) > SPEC_METADATA_MAX) {
		body_wrong(body, "too_long", field, "Dictionary should have at most 16 items");
		return;
	}
	json_object_foreach(value, key, member) check_metadata(body, field, key, member);
	spec->runtime.metadata = json_incref(value);
}

/* What is wrong with an item, or NULL. */
static const char *path_problem(const json_t *item)
{
	struct spec_file_path path;

	return spec_file_path(json_string_value(item), json_string_length(item), &path);
}

static const char *pattern_problem(const json_t *item)
{
	if (json_string_length(item) == 0 || json_string_length(item) > PATTERN_MAX)
		return "Value error, a pattern has 1 to 1024 bytes";
	return body_has_nul(item) ? BODY_MSG_NUL : NULL;
}

static void check_list(struct body *body, const char *field, const char *member, const json_t *list,
		       const char *(*problem_of)(const json_t *item))
{
	if (!json_is_array(list)) {
		body_wrong_in(body, "list_type", field, member, "Input should be a valid list");
		return;
	}
	if (json_array_size(list) > WORKSPACE_MAX) {
		body_wrong_in(body, "too_long", field, member, "List should have at most 64 items");
		return;
	}
	for (size_t i = 0; i < json_array_size(list); i++) {
		const json_t *item = json_array_get(list, i);
		const char *problem = json_is_string(item) ? problem_of(item) : NULL;

		if (!json_is_string(item))
			body_wrong_in(body, "string_type", field, member, BODY_MSG_STRING);
		else if (problem)
			body_wrong_in(body, "value_error", field, member, problem);
	}
}

void body_read_workspace(struct body *body, const char *field, json_t *value)
{
	struct spec_create *spec = body->dest;
	const char *member;
	json_t *list;

	if (!is_object(body, field, value))
		return;
	json_object_foreach(value, member, list)
	{
		if (str_equal(member, "include"))
			check_list(body, field, member, list, path_problem);
		else if (str_equal(member, "exclude"))
			check_list(body, field, member, list, pattern_problem);
		else
			body_wrong_in(body, "extra_forbidden", field, member,
				      "Extra inputs are not permitted");
	}
	if (!json_object_get(value, "include"))
		body_wrong_in(body, "missing", field, "include", "Field required");
	spec->runtime.workspace = json_incref(value);
}

/* The row. */

char *spec_runtime_format(const struct spec_runtime *runtime)
{
	json_t *doc = json_object();
	char *text;

	if (runtime->metadata)
		(void)json_object_set(doc, "metadata", runtime->metadata);
	if (runtime->workspace)
		(void)json_object_set(doc, "workspace", runtime->workspace);
	if (json_array_size(runtime->snapshots) > 0)
		(void)json_object_set(doc, "snapshots", runtime->snapshots);
	if (runtime->template[0] != '\0')
		(void)json_object_set_new(doc, "template", json_string(runtime->template));
	if (runtime->idempotency_key[0] != '\0')
		(void)json_object_set_new(doc, "idempotency",
					  json_pack("{s:s, s:s}", "key", runtime->idempotency_key,
						    "digest", runtime->idempotency_digest));
	text = doc ? doc_format(doc, 0) : NULL;
	json_decref(doc);
	return text;
}

static void copy_member(char *dest, size_t dest_bytes, const json_t *object, const char *name)
{
	const char *text = json_string_value(json_object_get(object, name));

	if (text && str_copy(dest, dest_bytes, text) < 0)
		dest[0] = '\0';
}

void spec_runtime_restore(struct spec_runtime *runtime, const char *text)
{
	json_t *doc = NULL;
	const char *reason;
	json_t *idempotency;

	if (!text || doc_parse(text, strlen(text), &doc, &reason) < 0)
		return;
	runtime->metadata = json_incref(json_object_get(doc, "metadata"));
	runtime->workspace = json_incref(json_object_get(doc, "workspace"));
	runtime->snapshots = json_incref(json_object_get(doc, "snapshots"));
	idempotency = json_object_get(doc, "idempotency");
	copy_member(runtime->idempotency_key, sizeof(runtime->idempotency_key), idempotency, "key");
	copy_member(runtime->idempotency_digest, sizeof(runtime->idempotency_digest), idempotency,
		    "digest");
	copy_member(runtime->template, sizeof(runtime->template), doc, "template");
	json_decref(doc);
}
