#include "base/log_record.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/str.h"

struct out {
	char *text;
	size_t size; /* one byte at the end stays free */
	size_t used;
};

static void add(struct out *out, const char *format, ...) PRINTF_LIKE(2, 3);
static void add(struct out *out, const char *format, ...)
{
	size_t space = out->size - out->used - 1;
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(out->text + out->used, space, format, args);
	va_end(args);
	if (n > 0)
		out->used += (size_t)n < space ? (size_t)n : space - (space > 0);
}

void log_record_set_fields(struct log_record *record, const char *text)
{
	bool quoted = false;
	size_t length =
		str_escape(record->fields, sizeof(record->fields), text, strlen(text), false);

	for (size_t i = 0; i < length; i++) {
		if (record->fields[i] == '"')
			quoted = !quoted;
		else if (record->fields[i] == ' ' && !quoted)
			record->fields[i] = '\0';
	}
	record->fields_bytes = length > 0 ? (uint32_t)length + 1 : 0;
}

static void end_string(char *text, size_t size)
{
	text[size - 1] = '\0';
	str_printable(text);
}

void log_record_sanitize(struct log_record *record)
{
	if (record->level >= LOG_LEVEL_MAX_)
		record->level = LOG_LEVEL_ERROR;
	if (record->fields_bytes > sizeof(record->fields))
		record->fields_bytes = sizeof(record->fields);
	end_string(record->message, sizeof(record->message));
	end_string(record->session, sizeof(record->session));
	end_string(record->job, sizeof(record->job));
	end_string(record->request, sizeof(record->request));
	for (uint32_t i = 0; i < record->fields_bytes; i++)
		if (record->fields[i] != '\0' &&
		    (record->fields[i] < 0x20 || record->fields[i] > 0x7e))
			record->fields[i] = '?';
	if (record->fields_bytes > 0)
		record->fields[record->fields_bytes - 1] = '\0';
}

/* The field behind `field`, or the first one; NULL: no more. */
static const char *next_field(const struct log_record *record, const char *field)
{
	const char *end = record->fields + record->fields_bytes;

	field = field ? field + strlen(field) + 1 : record->fields;
	while (field < end && *field == '\0')
		field++;
	return field < end ? field : NULL;
}

static size_t finish(struct out *out, char last)
{
	out->text[out->used++] = last;
	return out->used;
}

/* NOLINTNEXTLINE(readability-non-const-parameter): written through `out` */
size_t log_record_text(char dest[LOG_TEXT_BYTES], const struct log_record *record,
		       const char *program, const char *from)
{
	struct out out = {.text = dest, .size = LOG_TEXT_BYTES};
	char now[CLOCK_ISO_BYTES];

	clock_format_iso(record->time_us, now);
	if (from)
		add(&out, "from=%s ", from);
	add(&out, "time=%sZ level=%s program=%s pid=%d msg=\"%s\"", now,
	    log_level_name(record->level), program, record->pid, record->message);
	if (record->session[0])
		add(&out, " session=%s", record->session);
	if (record->job[0])
		add(&out, " job=%s", record->job);
	if (record->request[0])
		add(&out, " request=%s", record->request);
	for (const char *field = next_field(record, NULL); field; field = next_field(record, field))
		add(&out, " %s", field);
	return finish(&out, '\n');
}

/* Text without control characters. */
static void add_json_text(struct out *out, const char *text, size_t length)
{
	add(out, "\"");
	for (size_t i = 0; i < length; i++)
		add(out, text[i] == '"' || text[i] == '\\' ? "\\%c" : "%c", text[i]);
	add(out, "\"");
}

static void add_json(struct out *out, const char *key, const char *text)
{
	if (!text[0])
		return;
	add(out, ",\"%s\":", key);
	add_json_text(out, text, strlen(text));
}

/* key=value apart; a value in quotes without them. False: it is no such pair. */
static bool split_field(const char *field, size_t *ret_key, const char **ret_value,
			size_t *ret_length)
{
	const char *equals = strchr(field, '=');
	size_t length;

	if (!equals || equals == field || !str_only(field, (size_t)(equals - field), "_"))
		return false;
	length = strlen(equals + 1);
	*ret_key = (size_t)(equals - field);
	*ret_value = equals + 1;
	*ret_length = length;
	if (length >= 2 && equals[1] == '"' && equals[length] == '"') {
		*ret_value = equals + 2;
		*ret_length = length - 2;
	}
	return true;
}

/* NOLINTNEXTLINE(readability-non-const-parameter): written through `out` */
size_t log_record_json(char dest[LOG_JSON_BYTES], const struct log_record *record,
		       const char *program)
{
	struct out out = {.text = dest, .size = LOG_JSON_BYTES};
	char now[CLOCK_ISO_BYTES];
	const char *separator = "";

	clock_format_iso(record->time_us, now);
	add(&out, "{\"time\":\"%sZ\",\"level\":\"%s\",\"program\":\"%s\",\"pid\":%d", now,
	    log_level_name(record->level), program, record->pid);
	add_json(&out, "msg", record->message);
	add_json(&out, "session", record->session);
	add_json(&out, "job", record->job);
	add_json(&out, "request", record->request);
	/* Apart, so that no name of theirs can be taken for one of ours. */
	add(&out, ",\"fields\":{");
	for (const char *field = next_field(record, NULL); field;
	     field = next_field(record, field)) {
		const char *value;
		size_t key;
		size_t length;

		if (!split_field(field, &key, &value, &length))
			continue;
		add(&out, "%s\"%.*s\":", separator, (int)key, field);
		add_json_text(&out, value, length);
		separator = ",";
	}
	add(&out, "}}");
	return finish(&out, '\n');
}

/* One field of the native protocol: no value of ours holds a newline. */
static void add_journal(struct out *out, const char *key, const char *text)
{
	if (text[0])
		add(out, "%s=%s\n", key, text);
}

/* NOLINTNEXTLINE(readability-non-const-parameter): written through `out` */
size_t log_record_journal(char dest[LOG_JSON_BYTES], const struct log_record *record,
			  const char *program)
{
	static const int priorities[LOG_LEVEL_MAX_] = {
		[LOG_LEVEL_ERROR] = 3,
		[LOG_LEVEL_WARNING] = 4,
		[LOG_LEVEL_INFO] = 6,
		[LOG_LEVEL_DEBUG] = 7,
	};
	struct out out = {.text = dest, .size = LOG_JSON_BYTES};

	add(&out, "MESSAGE=%s", record->message);
	for (const char *field = next_field(record, NULL); field; field = next_field(record, field))
		add(&out, " %s", field);
	add(&out, "\nPRIORITY=%d\nSYSLOG_IDENTIFIER=%s\n",
	    priorities[record->level < LOG_LEVEL_MAX_ ? record->level : LOG_LEVEL_ERROR], program);
	add_journal(&out, "SANDBOXD_SESSION", record->session);
	add_journal(&out, "SANDBOXD_JOB", record->job);
	add_journal(&out, "SANDBOXD_REQUEST", record->request);
	for (const char *field = next_field(record, NULL); field;
	     field = next_field(record, field)) {
		char name[64] = "SANDBOXD_FIELD_";
		size_t used = strlen(name);
		const char *value;
		size_t key;
		size_t length;

		if (!split_field(field, &key, &value, &length) || key >= sizeof(name) - used)
			continue;
		for (size_t i = 0; i < key; i++)
			name[used + i] =
				(char)(field[i] >= 'a' && field[i] <= 'z' ? field[i] - 'a' + 'A'
									  : field[i]);
		add(&out, "%s=%.*s\n", name, (int)length, value);
	}
	return out.used;
}
