/*
 * Bodies of what is told to a command that runs.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"

#include "supervisor/api/session/body_fields.h"
#include "supervisor/api/session/spec.h"

#define SIZE_MAX_CELLS 1000u

static void read_cells(struct body *body, const char *field, json_t *value, uint16_t *ret_cells)
{
	uint32_t cells;

	if (body_read_integer(body, field, value, 1, SIZE_MAX_CELLS, &cells))
		*ret_cells = (uint16_t)cells;
}

void body_read_size(struct body *body, const char *field, json_t *value, struct wire_size *size)
{
	if (!json_is_object(value) || json_object_size(value) != 2) {
		body_wrong(body, "dict_type", field, "Input should be {rows, cols}");
		return;
	}
	read_cells(body, field, json_object_get(value, "rows"), &size->rows);
	read_cells(body, field, json_object_get(value, "cols"), &size->cols);
}

static void read_rows(struct body *body, const char *field, json_t *value)
{
	read_cells(body, field, value, &((struct wire_size *)body->dest)->rows);
}

static void read_cols(struct body *body, const char *field, json_t *value)
{
	read_cells(body, field, value, &((struct wire_size *)body->dest)->cols);
}

int spec_parse_size(const char *text, size_t size, const struct spec_options *options,
		    struct wire_size *ret_size, json_t **ret_errors)
{
	static const struct body_field fields[] = {
		{"rows", true,  read_rows},
		{"cols", true,  read_cols},
		{NULL,   false, NULL     },
	};
	struct wire_size window = {0};
	struct body body = {.options = options, .dest = &window};
	int r = body_parse(&body, text, size, fields, false);

	if (r == 0)
		*ret_size = window;
	return body_finish(&body, r, ret_errors);
}

/* "TERM", "SIGTERM" or 15. */
static uint32_t signal_number(const json_t *value)
{
	const char *text = json_string_value(value);

	if (json_is_integer(value)) {
		json_int_t number = json_integer_value(value);

		return number > 0 && number < NSIG ? (uint32_t)number : 0;
	}
	if (text && str_has_prefix(text, "SIG"))
		text += strlen("SIG");
	for (int i = 1; text && i < NSIG; i++) {
		const char *name = sigabbrev_np(i);

		if (name && str_equal(name, text))
			return (uint32_t)i;
	}
	return 0;
}

static void read_signal(struct body *body, const char *field, json_t *value)
{
	struct wire_signal *signal = body->dest;

	signal->number = signal_number(value);
	if (signal->number == 0)
		body_wrong(body, "value_error", field, "Value error, no signal of that name");
}

static void read_scope(struct body *body, const char *field, json_t *value)
{
	static const char *const names[WIRE_SIGNAL_MAX_] = {
		[WIRE_SIGNAL_GROUP] = "group",
		[WIRE_SIGNAL_LEADER] = "leader",
		[WIRE_SIGNAL_TREE] = "tree",
	};
	struct wire_signal *signal = body->dest;
	const char *text = json_string_value(value);

	for (uint32_t i = 0; text && i < WIRE_SIGNAL_MAX_; i++) {
		if (str_equal(text, names[i])) {
			signal->scope = i;
			return;
		}
	}
	if (!json_is_null(value))
		body_wrong(body, "literal_error", field,
			   "Input should be 'group', 'leader' or 'tree'");
}

int spec_parse_signal(const char *text, size_t size, const struct spec_options *options,
		      struct wire_signal *ret_signal, json_t **ret_errors)
{
	static const struct body_field fields[] = {
		{"signal", true,  read_signal},
		{"scope",  false, read_scope },
		{NULL,     false, NULL       },
	};
	struct wire_signal signal = {.scope = WIRE_SIGNAL_GROUP};
	struct body body = {.options = options, .dest = &signal};
	int r = body_parse(&body, text, size, fields, false);

	if (r == 0)
		*ret_signal = signal;
	return body_finish(&body, r, ret_errors);
}

static void read_text(struct body *body, const char *field, json_t *value)
{
	struct spec_stdin *input = body->dest;

	if (!json_is_string(value))
		body_wrong(body, "string_type", field, BODY_MSG_STRING);
	else if (input->data)
		body_wrong(body, "value_error", field, "Value error, text and data");
	else
		input->data = body_take_string(body, value, &input->size);
}

static void read_data(struct body *body, const char *field, json_t *value)
{
	struct spec_stdin *input = body->dest;
	const char *text = json_string_value(value);
	size_t length = json_string_length(value);

	if (!text || input->data) {
		body_wrong(body, "string_type", field, BODY_MSG_STRING);
		return;
	}
	input->data = malloc(length + 1);
	if (!input->data)
		body->fatal = -ENOMEM;
	else if (str_base64_decode(input->data, length + 1, text, length, &input->size) < 0)
		body_wrong(body, "value_error", field, "Value error, no base64");
}

static void read_eof(struct body *body, const char *field, json_t *value)
{
	struct spec_stdin *input = body->dest;

	if (json_is_boolean(value))
		input->eof = json_is_true(value);
	else
		body_wrong(body, "bool_type", field, "Input should be a valid boolean");
}

int spec_parse_stdin(const char *text, size_t size, const struct spec_options *options,
		     struct spec_stdin *ret_stdin, json_t **ret_errors)
{
	static const struct body_field fields[] = {
		{"text", false, read_text},
		{"data", false, read_data},
		{"eof",  false, read_eof },
		{NULL,   false, NULL     },
	};
	struct spec_stdin input = {0};
	struct body body = {.options = options, .dest = &input};
	int r = body_parse(&body, text, size, fields, false);

	if (r == 0)
		*ret_stdin = input;
	else
		free(input.data);
	return body_finish(&body, r, ret_errors);
}
