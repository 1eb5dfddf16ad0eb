#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

#include "supervisor/api/session/body_fields.h"
#include "supervisor/api/session/fit.h"

#define NAME_MAX_BYTES   1024
#define ID_MAX_BYTES     64
#define STREAMS_MAX      2000
#define STREAM_MAX_BYTES 255

/* A text without NUL, of 1 to max bytes. NULL: an item was added. */
static char *read_text(struct body *body, const char *field, const json_t *value, size_t max)
{
	char msg[64];
	size_t length;

	if (!json_is_string(value)) {
		body_wrong(body, "string_type", field, BODY_MSG_STRING);
	} else if (body_has_nul(value)) {
		body_wrong(body, "value_error", field, BODY_MSG_NUL);
	} else if (json_string_length(value) == 0) {
		body_wrong(body, "string_too_short", field,
			   "String should have at least 1 character");
	} else if (json_string_length(value) > max) {
		fit_text(msg, sizeof(msg), "String should have at most %zu bytes", max);
		body_wrong(body, "string_too_long", field, msg);
	} else {
		return body_take_string(body, value, &length);
	}
	return NULL;
}

static void read_connection_id(struct body *body, const char *field, json_t *value)
{
	char **id = body->dest;

	*id = read_text(body, field, value, ID_MAX_BYTES);
}

int spec_parse_airbyte(const char *text, size_t size, const struct spec_options *options,
		       char **ret_id, json_t **ret_errors)
{
	static const struct body_field fields[] = {
		{"airbyte_connection_id", true,  read_connection_id},
		{NULL,                    false, NULL              },
	};
	char *id = NULL;
	struct body body = {.options = options, .dest = &id};
	int r = body_parse(&body, text, size, fields, false);

	if (r != 0)
		free(id);
	else
		*ret_id = id;
	return body_finish(&body, r, ret_errors);
}

static void read_name(struct body *body, const char *field, json_t *value)
{
	struct spec_airbyte *spec = body->dest;

	spec->name = read_text(body, field, value, NAME_MAX_BYTES);
}

static void read_source(struct body *body, const char *field, json_t *value)
{
	struct spec_airbyte *spec = body->dest;

	if (!json_is_null(value))
		spec->source_id = read_text(body, field, value, ID_MAX_BYTES);
}

static void read_destination(struct body *body, const char *field, json_t *value)
{
	struct spec_airbyte *spec = body->dest;

	if (!json_is_null(value))
		spec->destination_id = read_text(body, field, value, ID_MAX_BYTES);
}

static void read_streams(struct body *body, const char *field, json_t *value)
{
	struct spec_airbyte *spec = body->dest;
	const json_t *stream;
	size_t i;

	if (!json_is_array(value) || json_array_size(value) > STREAMS_MAX) {
		body_wrong(body, "list_type", field,
			   "Input should be a list of at most 2000 strings");
		return;
	}
	json_array_foreach(value, i, stream)
	{
		if (json_is_string(stream) && !body_has_nul(stream) &&
		    json_string_length(stream) <= STREAM_MAX_BYTES)
			continue;
		body_wrong(body, "value_error", field,
			   "Value error, a stream is a string of at most 255 bytes");
		return;
	}
	spec->streams_json = doc_format(value, 0);
	if (!spec->streams_json)
		body->fatal = -ENOMEM;
}

void spec_airbyte_done(struct spec_airbyte *spec)
{
	free(spec->name);
	free(spec->source_id);
	free(spec->destination_id);
	free(spec->streams_json);
	*spec = SPEC_AIRBYTE_NULL;
}

int spec_parse_airbyte_put(const char *text, size_t size, const struct spec_options *options,
			   struct spec_airbyte *ret_spec, json_t **ret_errors)
{
	static const struct body_field fields[] = {
		{"name",           true,  read_name       },
		{"source_id",      false, read_source     },
		{"destination_id", false, read_destination},
		{"streams",        false, read_streams    },
		{NULL,             false, NULL            },
	};
	struct spec_airbyte spec = SPEC_AIRBYTE_NULL;
	struct body body = {.options = options, .dest = &spec};
	int r = body_parse(&body, text, size, fields, false);

	if (r != 0)
		spec_airbyte_done(&spec);
	else
		*ret_spec = spec;
	return body_finish(&body, r, ret_errors);
}
