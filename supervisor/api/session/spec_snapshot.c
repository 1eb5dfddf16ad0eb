/*
 * The body of a restore.
 */
#include <stdlib.h>

#include "base/id.h"
#include "base/str.h"

#include "supervisor/api/session/body_fields.h"
#include "supervisor/api/session/spec.h"

/* Whether there is such a one is said later, as for any id that names nothing. */
static void read_id(struct body *body, const char *field, const json_t *value, char *id)
{
	if (!json_is_string(value))
		body_wrong(body, "string_type", field, BODY_MSG_STRING);
	else if (str_copy(id, ID_TEXT_BYTES, json_string_value(value)) < 0)
		body_wrong(body, "value_error", field, "Value error, is no id");
}

static void read_snapshot(struct body *body, const char *field, json_t *value)
{
	read_id(body, field, value, ((struct spec_restore *)body->dest)->snapshot);
}

static void read_sandbox(struct body *body, const char *field, json_t *value)
{
	if (!json_is_null(value))
		read_id(body, field, value, ((struct spec_restore *)body->dest)->sandbox);
}

static void read_replace(struct body *body, const char *field, json_t *value)
{
	if (!json_is_boolean(value))
		body_wrong(body, "bool_type", field, "Input should be a valid boolean");
	else
		((struct spec_restore *)body->dest)->replaces = json_is_true(value);
}

int spec_parse_restore(const char *text, size_t size, const struct spec_options *options,
		       struct spec_restore *ret_spec, json_t **ret_errors)
{
	static const struct body_field fields[] = {
		{"snapshot_id",  true,  read_snapshot},
		{"sandbox_uuid", false, read_sandbox },
		{"replace",      false, read_replace },
		{NULL,           false, NULL         },
	};
	struct spec_restore spec = {.replaces = false};
	struct body body = {.options = options, .dest = &spec};
	int r = body_parse(&body, text, size, fields, false);

	if (r == 0)
		*ret_spec = spec;
	return body_finish(&body, r, ret_errors);
}
