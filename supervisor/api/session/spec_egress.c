#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"

#include "sandboxd/egress.h"
#include "supervisor/api/egress/admit.h"
#include "supervisor/api/session/body_fields.h"
#include "supervisor/api/session/fit.h"

void spec_egress_done(struct spec_egress *egress)
{
	body_strings_free(egress->allow, egress->n_allow);
	*egress = SPEC_EGRESS_NULL;
}

/* What is wrong with item i, or NULL; the item is never repeated. */
static const char *item_problem(const struct body *body, const json_t *item)
{
	static const struct api_config no_config;
	const struct api_config *config =
		body->options->config ? body->options->config : &no_config;

	if (!json_is_string(item))
		return "should be a valid string";
	return admit_rule(config, json_string_value(item), json_string_length(item));
}

static void read_items(struct body *body, const char *field, const char *member,
		       const json_t *value, struct spec_egress *egress)
{
	size_t n = json_array_size(value);
	char msg[96];
	size_t length;

	egress->allow = calloc(n + 1, sizeof(*egress->allow));
	if (!egress->allow) {
		body->fatal = -ENOMEM;
		return;
	}
	for (size_t i = 0; i < n; i++) {
		const json_t *item = json_array_get(value, i);
		const char *problem = item_problem(body, item);

		if (problem) {
			fit_text(msg, sizeof(msg), "Value error, item %zu %s", i, problem);
			body_wrong_in(body, "value_error", field, member, msg);
			continue;
		}
		egress->allow[egress->n_allow] = body_take_string(body, item, &length);
		if (egress->allow[egress->n_allow])
			egress->n_allow++;
	}
}

static void read_list(struct body *body, const char *field, const char *member, json_t *value,
		      struct spec_egress *egress)
{
	char msg[64];

	if (json_is_null(value))
		return;
	if (!json_is_array(value)) {
		body_wrong_in(body, "list_type", field, member, "Input should be a valid list");
		return;
	}
	if (json_array_size(value) > EGRESS_CALLER_RULES_MAX) {
		fit_text(msg, sizeof(msg), "List should have at most %d items",
			 EGRESS_CALLER_RULES_MAX);
		body_wrong_in(body, "too_long", field, member, msg);
		return;
	}
	read_items(body, field, member, value, egress);
}

void body_read_egress(struct body *body, const char *field, json_t *value,
		      struct spec_egress *egress)
{
	const char *name;
	json_t *member;

	if (!body_is_object(body, field, value))
		return;
	json_object_foreach(value, name, member)
	{
		if (str_equal(name, "allow"))
			read_list(body, field, "allow", member, egress);
		else if (!body->options->ignore_unknown_fields)
			body_wrong_in(body, "extra_forbidden", field, name,
				      "Extra inputs are not permitted");
	}
}

static void read_allow(struct body *body, const char *field, json_t *value)
{
	read_list(body, field, NULL, value, body->dest);
}

int spec_parse_egress(const char *text, size_t size, const struct spec_options *options,
		      struct spec_egress *ret_egress, json_t **ret_errors)
{
	static const struct body_field fields[] = {
		{"allow", true,  read_allow},
		{NULL,    false, NULL      },
	};
	struct spec_egress egress = SPEC_EGRESS_NULL;
	struct body body = {.options = options, .dest = &egress};
	int r;

	r = body_parse(&body, text, size, fields, false);
	if (r != 0)
		spec_egress_done(&egress);
	else
		*ret_egress = egress;
	return body_finish(&body, r, ret_errors);
}
