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
#include "supervisor/config/network_check.h"
#include "supervisor/config/option_table.h"
#include "supervisor/config/option_value.h"
#include "supervisor/config/server_check.h"

#define LINE_MAX_BYTES 198 /* INI_MAX_LINE of the library, less its newline and NUL */
#define MAX_COMPLAINTS 16
#define MAX_OPTIONS    128
#define MAX_SETTINGS   4096

struct parse {
	const char *at; /* next line */
	const char *end;
	const char *name;                   /* of the file, or NULL */
	unsigned int file;                  /* its number */
	unsigned int line;                  /* number of the line that the library has */
	bool is_readable;                   /* the file, by others than root */
	unsigned int wrong[MAX_COMPLAINTS]; /* lines that are passed over as empty */
	size_t n_wrong;
	struct config_answer *answer;
	struct buf *complaints;
	unsigned int n_complaints;
	bool is_set[MAX_OPTIONS]; /* by row; in this file */
	/* By override: bit per option of its scope, in this file and in any. */
	uint32_t override_set[QUOTA_OVERRIDES_MAX];
	uint32_t override_given[QUOTA_OVERRIDES_MAX];
	bool endpoint_set[ENDPOINTS_N][MAX_OPTIONS]; /* the same of each endpoint's section */
	struct config_settings *settings;
	bool no_memory;
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
	if (buf_printf(parse->complaints, "%s%sline %u: %s\n", parse->name ? parse->name : "",
		       parse->name ? " " : "", parse->line, text) < 0)
		return;
}

static bool is_passed_over(const struct parse *parse)
{
	for (size_t i = 0; i < parse->n_wrong; i++)
		if (parse->wrong[i] == parse->line)
			return true;
	return false;
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
	if (length > LINE_MAX_BYTES || is_passed_over(parse)) {
		dest[0] = '\0';
		if (length > LINE_MAX_BYTES && parse->n_wrong == 0) /* the first time */
			complain(parse, "a line holds at most %d bytes", LINE_MAX_BYTES);
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

static void forget_setting(struct config_settings *settings, const char *section, const char *key)
{
	size_t kept = 0;

	for (size_t i = 0; i < settings->n; i++)
		if (!str_equal(settings->setting[i].section, section) ||
		    !str_equal(settings->setting[i].key, key))
			settings->setting[kept++] = settings->setting[i];
	settings->n = kept;
}

/* Keep the option as the file has it; it stands in the place of an earlier file's, or behind what
 * this file has of a list. */
static int keep_setting(struct parse *parse, const char *section, const char *key,
			const char *value, bool is_appended)
{
	struct config_settings *settings = parse->settings;
	struct config_setting *setting;

	if (!settings)
		return 0;
	if (!is_appended)
		forget_setting(settings, section, key);
	if (settings->n == MAX_SETTINGS)
		return 0; /* for people, who have seen enough of one list */
	setting = reallocarray(settings->setting, settings->n + 1, sizeof(*setting));
	if (!setting)
		return -ENOMEM;
	settings->setting = setting;
	setting += settings->n++;
	setting->file = parse->file;
	setting->line = parse->line;
	if (str_copy(setting->section, sizeof(setting->section), section) < 0 ||
	    str_copy(setting->key, sizeof(setting->key), key) < 0 ||
	    str_copy(setting->value, sizeof(setting->value), value) < 0)
		return -ENOMEM; /* none is longer than a line */
	return 0;
}

void config_settings_done(struct config_settings *settings)
{
	free(settings->setting);
	*settings = (struct config_settings){0};
}

static bool set_value(struct parse *parse, const struct option_row *row, const char *section,
		      const char *key, const char *value)
{
	const char *wanted = "";

	if ((row->type == OPTION_TYPE_SNAPSHOT_KEYS || row->type == OPTION_TYPE_S3_LOGIN) &&
	    parse->is_readable) {
		complain(parse,
			 "[%s] %s: others than root may read the file; its mode has to be 0600",
			 section, key);
		return false;
	}
	if (option_value_set(row, value, parse->answer, &wanted) == 0)
		return true;
	if (option_value_unit(row))
		complain(parse, "[%s] %s wants %s from %llu to %llu%s", section, key, wanted,
			 (unsigned long long)row->min, (unsigned long long)row->max,
			 option_value_unit(row));
	else
		complain(parse, "[%s] %s wants %s", section, key, wanted);
	return false;
}

/* Number of the tenant's override, a new one if need be; QUOTA_OVERRIDES_MAX: none is left. */
static uint32_t find_override(struct quota_config *quota, enum quota_scope scope, const char *name)
{
	uint32_t i = 0;

	while (i < quota->n_overrides &&
	       (quota->override[i].scope != scope || !str_equal(quota->override[i].name, name)))
		i++;
	if (i < quota->n_overrides || i == QUOTA_OVERRIDES_MAX)
		return i;
	quota->override[i].scope = scope;
	if (str_copy(quota->override[i].name, sizeof(quota->override[i].name), name) < 0)
		return QUOTA_OVERRIDES_MAX; /* no: its length was looked at */
	quota->n_overrides++;
	return i;
}

/* The row's place within the limits of its scope. */
static size_t limit_offset(const struct option_row *row, enum quota_scope scope)
{
	return row->offset - offsetof(struct config_answer, api.quota.limits) -
	       scope * sizeof(struct quota_limits);
}

static uint32_t limit_bit(const struct option_row *row, enum quota_scope scope)
{
	return 1u << (limit_offset(row, scope) / sizeof(uint32_t));
}

/* The same option of one tenant. */
static bool on_override(struct parse *parse, const char *section, enum quota_scope scope,
			const char *name, const char *key, const char *value)
{
	const struct option_row *row = option_table_of_tenant(scope, key);
	struct option_row shifted;
	uint32_t i;

	if (!row) {
		complain_unknown(parse, scope == QUOTA_SCOPE_OWNER ? "owner" : "workspace", key);
		return false;
	}
	if (name[0] == '\0' || strlen(name) > IDENTITY_MAX ||
	    !str_only(name, strlen(name), "._:@-")) {
		complain(parse, "the name in the section is 1 to %d of letters, digits, . _ : @ -",
			 IDENTITY_MAX);
		return false;
	}
	i = find_override(&parse->answer->api.quota, scope, name);
	if (i == QUOTA_OVERRIDES_MAX) {
		complain(parse, "at most %d owners and workspaces have a section of their own",
			 QUOTA_OVERRIDES_MAX);
		return false;
	}
	if (parse->override_set[i] & limit_bit(row, scope)) {
		complain(parse, "[%s] %s is set twice", section, key);
		return false;
	}
	parse->override_set[i] |= limit_bit(row, scope);
	parse->override_given[i] |= limit_bit(row, scope);
	shifted = *row;
	shifted.offset = offsetof(struct config_answer, api.quota.override) +
			 i * sizeof(struct quota_override) +
			 offsetof(struct quota_override, limits) + limit_offset(row, scope);
	return set_value(parse, &shifted, section, key, value);
}

/* What an override leaves out is what its scope has, wherever that stands. */
static void fill_overrides(const struct parse *parse, struct config_answer *answer)
{
	struct quota_config *quota = &answer->api.quota;
	size_t n;
	const struct option_row *rows = option_table_rows(&n);

	for (uint32_t i = 0; i < quota->n_overrides; i++) {
		struct quota_override *override = &quota->override[i];
		enum quota_scope scope = (enum quota_scope) override->scope;
		struct quota_limits given = override->limits;

		override->limits = quota->limits[scope];
		for (size_t j = 0; j < n; j++) {
			const struct option_row *row = &rows[j];
			size_t at;

			if (option_table_of_tenant(scope, row->key) != row ||
			    !(parse->override_given[i] & limit_bit(row, scope)))
				continue;
			at = limit_offset(row, scope);
			memcpy((uint8_t *)&override->limits + at, (const uint8_t *)&given + at,
			       row->type == OPTION_TYPE_SIZE ? sizeof(uint64_t) : sizeof(uint32_t));
		}
	}
}

/* One option of a row's; is_set: whether this file has it already. shifted: the row with the place
 * of what the section is of. */
static bool take_option(struct parse *parse, const struct option_row *shifted, const char *section,
			const char *value, bool *is_set)
{
	bool is_list = option_type_is_list(shifted->type);
	bool is_appended = *is_set && is_list;

	if (*is_set && !is_list) {
		complain(parse, "[%s] %s is set twice", section, shifted->key);
		return false;
	}
	if (is_list && !is_appended)
		option_value_unset(shifted, parse->answer);
	*is_set = true;
	if (!set_value(parse, shifted, section, shifted->key, value))
		return false;
	if (keep_setting(parse, section, shifted->key, value, is_appended) < 0)
		parse->no_memory = true;
	return true;
}

/* "[endpoint:NAME]". */
static bool on_endpoint(struct parse *parse, const char *section, const char *key,
			const char *value)
{
	const struct option_row *row = option_table_find("endpoint", key);
	struct option_row shifted;
	uint32_t endpoint;
	size_t n;

	if (!option_table_endpoint(section, &endpoint)) {
		complain(parse, "a section is of one of the six endpoints, such as "
				"[endpoint:iceberg_rest_uri]");
		return false;
	}
	if (!row) {
		complain_unknown(parse, "endpoint", key);
		return false;
	}
	shifted = *row;
	shifted.offset += endpoint * sizeof(struct endpoint_config);
	return take_option(parse, &shifted, section, value,
			   &parse->endpoint_set[endpoint][row - option_table_rows(&n)]);
}

static void on_known_form(struct parse *parse, const char *section, const char *key,
			  const char *value)
{
	const struct option_row *row = option_table_find(section, key);
	enum quota_scope scope;
	const char *name;
	size_t n;

	if (option_table_scope(section, &scope, &name)) {
		if (on_override(parse, section, scope, name, key, value) &&
		    keep_setting(parse, section, key, value, false) < 0)
			parse->no_memory = true;
	} else if (str_equal(section, "endpoint") || str_has_prefix(section, "endpoint:")) {
		IGNORE_RESULT(on_endpoint(parse, section, key, value));
	} else if (!row) {
		complain_unknown(parse, section, key);
	} else {
		IGNORE_RESULT(take_option(parse, row, section, value,
					  &parse->is_set[row - option_table_rows(&n)]));
	}
}

/* Always 1, go on: the one line that the library remembers is the first it does not know itself. */
static int on_option(void *user, const char *section, const char *key, const char *value)
{
	on_known_form(user, section, key, value);
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

static void set_default(const struct option_row *row, size_t shift, struct config_answer *answer)
{
	struct option_row shifted = *row;
	const char *wanted;

	shifted.offset += shift;
	if (row->by_default)
		ASSERT(option_value_set(&shifted, row->by_default, answer, &wanted) == 0);
	else
		option_value_unset(&shifted, answer);
}

static void set_defaults(struct config_answer *answer)
{
	size_t n;
	const struct option_row *rows = option_table_rows(&n);

	ASSERT(n <= MAX_OPTIONS);
	for (size_t i = 0; i < n; i++) {
		uint32_t times = str_equal(rows[i].section, "endpoint") ? ENDPOINTS_N : 1;

		for (uint32_t k = 0; k < times; k++)
			set_default(&rows[i], k * sizeof(struct endpoint_config), answer);
	}
}

/* Of no line: two options do not fit each other. */
static void complain_whole(void *userdata, const char *section, const char *text)
{
	struct parse *parse = userdata;

	if (++parse->n_complaints <= MAX_COMPLAINTS &&
	    buf_printf(parse->complaints, "[%s] %s\n", section, text) < 0)
		return; /* a full buffer loses words, not the count */
}

static int ignore_option(void *user, const char *section, const char *key, const char *value)
{
	(void)user;
	(void)section;
	(void)key;
	(void)value;
	return 1;
}

/* As ini_parse_stream: the number of the first line that the library does not know; 0; -2. */
static int read_lines(struct parse *parse, const struct config_text *text, ini_handler handler)
{
	parse->at = text->text;
	parse->end = text->text + text->size;
	parse->line = 0;
	return ini_parse_stream(next_line, parse, handler, parse);
}

static int parse_file(struct parse *parse, const struct config_text *text)
{
	int r;

	parse->name = text->name;
	parse->is_readable = text->is_readable;
	parse->line = 0;
	parse->n_wrong = 0;
	memset(parse->is_set, 0, sizeof(parse->is_set));
	memset(parse->override_set, 0, sizeof(parse->override_set));
	memset(parse->endpoint_set, 0, sizeof(parse->endpoint_set));
	if (memchr(text->text, '\0', text->size) || !str_utf8_valid(text->text, text->size)) {
		complain(parse, "the file is no UTF-8 text");
		return 0;
	}
	r = read_lines(parse, text, on_option);
	/* Such a line never reaches on_option: r is the number of the first, and the next is found
	 * by reading all again without it. */
	while (r > 0 && parse->n_wrong < MAX_COMPLAINTS) {
		parse->wrong[parse->n_wrong++] = (unsigned int)r;
		parse->line = (unsigned int)r;
		complain(parse, "neither [section] nor option = value");
		r = read_lines(parse, text, ignore_option);
	}
	return r == -2 || parse->no_memory ? -ENOMEM : 0;
}

int config_parse(const struct config_text *texts, size_t n_texts, struct config_answer *ret_answer,
		 struct config_settings *ret_settings, struct buf *complaints)
{
	AUTO_FREE struct config_answer *answer = calloc(1, sizeof(*answer)); /* big for a stack */
	struct parse parse = {.complaints = complaints, .settings = ret_settings};
	int r;

	if (!answer)
		return -ENOMEM;
	parse.answer = answer;
	set_frame(answer);
	set_defaults(answer);
	for (; parse.file < n_texts; parse.file++) {
		r = parse_file(&parse, &texts[parse.file]);
		if (r < 0)
			return r;
		if (parse.name && str_equal(parse.name, CONFIG_PROVIDER_VARIABLE))
			answer->api.provider_by_variable = 1;
	}
	if (parse.n_complaints == 0) {
		parse.name = NULL;
		parse.line = 0;
		network_check(answer, complain_whole, &parse);
		server_check(answer, complain_whole, &parse);
	}
	if (parse.n_complaints > 0)
		return -EINVAL;
	fill_overrides(&parse, answer);
	answer->api.max_sessions = answer->supervisor.max_sessions;
	*ret_answer = *answer;
	return 0;
}
