/*
 * Paths and bodies of the file routes. Pure.
 */
#include <string.h>

#include "base/path.h"
#include "base/str.h"

#include "supervisor/api/session/body_fields.h"
#include "supervisor/api/session/spec.h"

#define MODE_MAX 0777u

struct spec_file spec_file(uint16_t op)
{
	return (struct spec_file){
		.head = {.op = op, .mode = SPEC_FILE_MODE_NONE, .size = UINT64_MAX}
        };
}

/* Component by component, without empty ones and "."; "" is the root. NULL, or what is wrong. */
static const char *clean(const char *text, char path[FILE_PATH_BYTES])
{
	size_t used = 0;

	for (const char *at = text; *at;) {
		size_t length = strcspn(at, "/");

		if (length == 2 && memcmp(at, "..", 2) == 0)
			return "Value error, must not contain '..'";
		if (length > 255)
			return "Value error, a name of it is longer than 255 bytes";
		if (length > 0 && !(length == 1 && *at == '.')) {
			if (used > 0)
				path[used++] = '/';
			memcpy(path + used, at, length);
			used += length;
		}
		at += length;
		at += *at == '/';
	}
	if (used == 0)
		path[used++] = '.';
	path[used] = '\0';
	return NULL;
}

static bool is_below(const char *text, const char *root, const char **ret_rest)
{
	size_t length = strlen(root);

	if (strncmp(text, root, length) != 0 || (text[length] != '/' && text[length] != '\0'))
		return false;
	*ret_rest = text + length;
	return true;
}

const char *spec_file_path(const char *text, size_t length, struct spec_file_path *ret_path)
{
	const char *rest = text;

	if (length == 0)
		return "Value error, must not be empty";
	if (strlen(text) != length)
		return BODY_MSG_NUL;
	if (length >= FILE_PATH_BYTES)
		return "Value error, is longer than 4095 bytes";
	if (!str_utf8_valid(text, length))
		return "Value error, must be UTF-8";
	ret_path->root = WIRE_FILE_SESSION;
	if (text[0] == '/') {
		while (rest[1] == '/')
			rest++;
		if (is_below(rest, "/tmp", &rest))
			ret_path->root = WIRE_FILE_TMP;
		else if (!is_below(rest, "/session", &rest))
			return "Value error, must be below /session or /tmp";
	}
	return clean(rest, ret_path->text);
}

bool spec_file_mode(const char *text, uint32_t *ret_mode)
{
	uint32_t mode = 0;
	size_t length = strlen(text);

	if (length < 3 || length > 5)
		return false;
	for (const char *at = text; *at; at++) {
		if (*at < '0' || *at > '7')
			return false;
		mode = mode * 8 + (uint32_t)(*at - '0');
	}
	*ret_mode = mode;
	return mode <= MODE_MAX;
}

bool spec_query_decode(const char *raw, char *dest, size_t dest_bytes, size_t *ret_length)
{
	size_t used = 0;

	for (const char *at = raw; *at; at++) {
		char c = *at;

		if (c == '+')
			c = ' ';
		if (*at == '%') {
			int high = str_hex_digit(at[1]);
			int low = high < 0 ? -1 : str_hex_digit(at[2]);

			if (low < 0)
				return false;
			c = (char)(high * 16 + low);
			at += 2;
		}
		if (used + 1 >= dest_bytes)
			return false;
		dest[used++] = c;
	}
	dest[used] = '\0';
	*ret_length = used;
	return true;
}

static void read_path(struct body *body, const char *field, const json_t *value,
		      struct spec_file_path *path)
{
	const char *problem;

	if (!json_is_string(value)) {
		body_wrong(body, "string_type", field, BODY_MSG_STRING);
		return;
	}
	problem = spec_file_path(json_string_value(value), json_string_length(value), path);
	if (problem)
		body_wrong(body, "value_error", field, problem);
}

static void read_from(struct body *body, const char *field, json_t *value)
{
	read_path(body, field, value, &((struct spec_file *)body->dest)->path);
}

static void read_to(struct body *body, const char *field, json_t *value)
{
	read_path(body, field, value, &((struct spec_file *)body->dest)->to);
}

static void read_mode(struct body *body, const char *field, json_t *value)
{
	struct spec_file *spec = body->dest;
	const char *text = json_string_value(value);

	if (!text || strlen(text) != json_string_length(value) ||
	    !spec_file_mode(text, &spec->head.mode))
		body_wrong(body, "value_error", field,
			   "Value error, should be octal digits as text, 000 to 777");
}

static void read_flag(struct body *body, const char *field, const json_t *value, bool clears,
		      uint16_t flag)
{
	struct spec_file *spec = body->dest;

	if (!json_is_boolean(value))
		body_wrong(body, "bool_type", field, "Input should be a valid boolean");
	else if (json_is_true(value) != clears)
		spec->head.flags |= flag;
}

static void read_replace(struct body *body, const char *field, json_t *value)
{
	read_flag(body, field, value, true, WIRE_FILE_KEEP);
}

static void read_recursive(struct body *body, const char *field, json_t *value)
{
	read_flag(body, field, value, false, WIRE_FILE_RECURSIVE);
}

int spec_parse_file(const char *text, size_t size, const struct spec_options *options, uint16_t op,
		    struct spec_file *spec, json_t **ret_errors)
{
	static const struct body_field mkdir_fields[] = {
		{"path", true,  read_from},
		{"mode", false, read_mode},
		{NULL,   false, NULL     },
	};
	static const struct body_field chmod_fields[] = {
		{"path", true,  read_from},
		{"mode", true,  read_mode},
		{NULL,   false, NULL     },
	};
	static const struct body_field move_fields[] = {
		{"from",    true,  read_from   },
		{"to",      true,  read_to     },
		{"replace", false, read_replace},
		{NULL,      false, NULL        },
	};
	static const struct body_field copy_fields[] = {
		{"from",      true,  read_from     },
		{"to",        true,  read_to       },
		{"replace",   false, read_replace  },
		{"recursive", false, read_recursive},
		{NULL,        false, NULL          },
	};
	static const struct body_field *const fields[WIRE_FILE_OP_MAX_] = {
		[WIRE_FILE_MKDIR] = mkdir_fields,
		[WIRE_FILE_CHMOD] = chmod_fields,
		[WIRE_FILE_MOVE] = move_fields,
		[WIRE_FILE_COPY] = copy_fields,
	};
	struct body body = {.options = options, .dest = spec};
	int r;

	*spec = spec_file(op);
	r = body_parse(&body, text, size, fields[op], false);
	return body_finish(&body, r, ret_errors);
}
