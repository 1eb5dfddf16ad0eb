/*
 * Theory. libinih cuts the text into section, key and value; we give it one line at a time, which
 * yields line numbers and lets us refuse what the library would quietly split (its line buffer
 * holds LINE_MAX_BYTES). It is asked to go on after an error, so one run names every mistake, up to
 * MAX_COMPLAINTS. An option that comes twice is a mistake (also as an indented continuation line,
 * which the library reports as the same option again).
 */
#include "supervisor/config/config_parse.h"

#include <errno.h>
#include <ini.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/str.h"

#include "sandboxd/config.h"
#include "supervisor/config/option_table.h"
#include "supervisor/config/option_value.h"

#define LINE_MAX_BYTES 198 /* INI_MAX_LINE of the library, less its newline and NUL */
#define MAX_COMPLAINTS 16
#define MAX_OPTIONS    64

struct parse {
	const char *at; /* next line */
	const char *end;
	unsigned int line; /* number of the line that the library has */
	struct config_answer *answer;
	struct buf *complaints;
	unsigned int n_complaints;
	bool is_set[MAX_OPTIONS]; /* by row */
};

static void complain(struct parse *parse, const char *format, ...) PRINTF_LIKE(2, 3);

static void complain(struct parse *parse, const char *format, ...)
{
	char text[512];
	va_list args;

	if (++parse->n_complaints > MAX_COMPLAINTS)
		return;
	va_start(args, format);
	(void)vsnprintf(text, sizeof(text), format, args); /* cut is fine: it is a hint */
	va_end(args);
	str_printable(text);
	/* A full buffer loses words, not the count. */
	if (buf_printf(parse->complaints, "line %u: %s\n", parse->line, text) < 0)
		return;
}

/* The library's fgets: one line with its newline, NULL at the end. */
static char *next_line(char *dest, int dest_bytes, void *stream)
{
	struct parse *parse = stream;
	size_t left = (size_t)(parse->end - parse->at);
	const char *newline;
	size_t length;

	if (left == 0 || dest_bytes < LINE_MAX_BYTES + 2)
		return NULL;
	newline = memchr(parse->at, '\n', left);
	length = newline ? (size_t)(newline - parse->at) : left;
	parse->line++;
	if (length > LINE_MAX_BYTES) {
		complain(parse, "a line holds at most %d bytes", LINE_MAX_BYTES);
		dest[0] = '\0';
	} else {
		memcpy(dest, parse->at, length);
		dest[length] = '\0';
	}
	parse->at += newline ? length + 1 : length;
	return dest;
}

static void complain_unknown(struct parse *parse, const char *section, const char *key)
{
	const char *nearest = option_table_nearest(section, key);
	char allowed[320] = "";
	size_t n;
	const struct option_row *rows = option_table_rows(&n);

	if (section[0] == '\0') {
		complain(parse, "option %s stands before the first [section]", key);
		return;
	}
	for (size_t i = 0; i < n; i++) {
		size_t used = strlen(allowed);

		if ((str_equal(rows[i].section, section) ||
		     (!option_table_has_section(section) &&
		      (i == 0 || !str_equal(rows[i - 1].section, rows[i].section)))) &&
		    str_format(allowed + used, sizeof(allowed) - used, " %s",
			       option_table_has_section(section) ? rows[i].key : rows[i].section) <
			    0)
			break; /* the list is long enough */
	}
	if (!option_table_has_section(section))
		complain(parse, "unknown section [%s]; there are:%s", section, allowed);
	else if (nearest)
		complain(parse, "[%s] has no option %s; did you mean %s? there are:%s", section,
			 key, nearest, allowed);
	else
		complain(parse, "[%s] has no option %s; there are:%s", section, key, allowed);
}

/* 1: go on, 0: an error in this line (the library goes on and remembers it). */
static int on_option(void *user, const char *section, const char *key, const char *value)
{
	struct parse *parse = user;
	const struct option_row *row = option_table_find(section, key);
	const char *wanted = "";
	size_t n;
	size_t index;

	if (!row) {
		complain_unknown(parse, section, key);
		return 0;
	}
	index = (size_t)(row - option_table_rows(&n));
	if (parse->is_set[index]) {
		complain(parse, "[%s] %s is set twice", section, key);
		return 0;
	}
	parse->is_set[index] = true;
	if (option_value_set(row, value, parse->answer, &wanted) < 0) {
		if (option_value_unit(row))
			complain(parse, "[%s] %s wants %s from %llu to %llu%s", section, key,
				 wanted, (unsigned long long)row->min, (unsigned long long)row->max,
				 option_value_unit(row));
		else
			complain(parse, "[%s] %s wants %s", section, key, wanted);
		return 0;
	}
	return 1;
}

static void set_frame(struct config_answer *answer)
{
	answer->magic = CONFIG_MAGIC;
	answer->version = CONFIG_VERSION;
	answer->size = sizeof(*answer);
	answer->supervisor.magic = CONFIG_MAGIC;
	answer->supervisor.version = CONFIG_VERSION;
	answer->supervisor.size = sizeof(answer->supervisor);
	answer->api.magic = CONFIG_MAGIC;
	answer->api.version = CONFIG_VERSION;
	answer->api.size = sizeof(answer->api);
	answer->egress.magic = CONFIG_MAGIC;
	answer->egress.version = CONFIG_VERSION;
	answer->egress.size = sizeof(answer->egress);
}

static void set_defaults(struct config_answer *answer)
{
	size_t n;
	const struct option_row *rows = option_table_rows(&n);
	const char *wanted;

	ASSERT(n <= MAX_OPTIONS);
	for (size_t i = 0; i < n; i++) {
		if (rows[i].by_default)
			ASSERT(option_value_set(&rows[i], rows[i].by_default, answer, &wanted) ==
			       0);
		else
			option_value_unset(&rows[i], answer);
	}
}

int config_parse(const char *text, size_t size, struct config_answer *ret_answer,
		 struct buf *complaints)
{
	AUTO_FREE struct config_answer *answer = calloc(1, sizeof(*answer)); /* big for a stack */
	struct parse parse = {.at = text, .end = text + size, .complaints = complaints};
	int r;

	if (!answer)
		return -ENOMEM;
	parse.answer = answer;
	set_frame(answer);
	set_defaults(answer);
	if (memchr(text, '\0', size) || !str_utf8_valid(text, size)) {
		complain(&parse, "the file is no UTF-8 text");
		return -EINVAL;
	}
	r = ini_parse_stream(next_line, &parse, on_option, &parse);
	if (r == -2)
		return -ENOMEM;
	/* A line that is neither section nor option never reaches on_option: r is its number. */
	if (r != 0 && parse.n_complaints == 0) {
		parse.line = (unsigned int)r;
		complain(&parse, "neither [section] nor option = value");
	}
	if (parse.n_complaints > 0)
		return -EINVAL;
	answer->api.max_sessions = answer->supervisor.max_sessions;
	*ret_answer = *answer;
	return 0;
}
