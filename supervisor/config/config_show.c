#include "supervisor/config/config_show.h"

#include <stdbool.h>
#include <string.h>

#include "base/str.h"

#include "sandboxd/config.h"
#include "supervisor/config/option_table.h"

static bool has_word(const char *words, const char *section, const char *key)
{
	char name[128];

	if (str_format(name, sizeof(name), "%s.%s", section, key) < 0)
		return false;
	for (const char *at = words; *at;) {
		size_t length = strcspn(at, " ");

		if (length == strlen(name) && strncmp(at, name, length) == 0)
			return true;
		at += length + strspn(at + length, " ");
	}
	return false;
}

static const struct config_setting *find_setting(const struct config_settings *settings,
						 const char *section, const char *key)
{
	for (size_t i = 0; i < settings->n; i++) {
		if (str_equal(settings->setting[i].section, section) &&
		    str_equal(settings->setting[i].key, key))
			return &settings->setting[i];
	}
	return NULL;
}

/* Who prints, and of what. */
struct show {
	FILE *stream;
	enum config_form form;
	const struct config_text *texts;
	const struct config_settings *settings;
	const char *waiting;
};

struct shown {
	char name[128];
	char value[256]; /* UTF-8 without control characters */
	char source[CONFIG_FILE_NAME_BYTES + 16];
	const char *effect;
	bool is_set;
	bool waits;
};

static size_t count_words(const char *text)
{
	bool is_within = false;
	size_t n = 0;

	for (; *text; text++) {
		bool is_space = *text == ' ' || *text == '\t';

		n += !is_space && !is_within;
		is_within = !is_space;
	}
	return n;
}

/* A list may stand in several lines of a file. */
static size_t count_entries(const struct config_settings *settings, const char *section,
			    const char *key)
{
	size_t n = 0;

	if (!settings->setting)
		return 0;
	for (size_t i = 0; i < settings->n; i++) {
		const struct config_setting *setting = &settings->setting[i];

		if (str_equal(setting->section, section) && str_equal(setting->key, key))
			n += count_words(setting->value);
	}
	return n;
}

/* NULL: it can be shown. What stands in place of the value: none of it. */
static const char *hidden(const struct show *show, const char *section,
			  const struct option_row *row, char text[static 32])
{
	size_t n;

	if (row->type == OPTION_TYPE_ENDPOINT || row->type == OPTION_TYPE_SECRET ||
	    row->type == OPTION_TYPE_DSN || row->type == OPTION_TYPE_REDIS_SERVER ||
	    row->type == OPTION_TYPE_S3_LOGIN || row->type == OPTION_TYPE_REMOTE_URL)
		return "<set>";
	if (!option_type_is_list(row->type))
		return NULL;
	n = count_entries(show->settings, section, row->key);
	return str_format(text, 32, n == 1 ? "<%zu entry>" : "<%zu entries>", n) < 0 ? "<set>"
										     : text;
}

static int fill(const struct show *show, const char *section, const struct option_row *row,
		const struct config_setting *setting, struct shown *shown)
{
	const char *value = setting ? setting->value : row->by_default;
	const char *stands_for;
	char text[32];
	int r;

	shown->is_set = value != NULL;
	stands_for = value ? hidden(show, section, row, text) : "";
	if (stands_for)
		value = stands_for;
	(void)str_escape(shown->value, sizeof(shown->value), value, strlen(value), false);
	shown->effect = row->effect == OPTION_RESTART ? "restart" : "reload";
	shown->waits = has_word(show->waiting, section, row->key);
	r = str_format(shown->name, sizeof(shown->name), "%s.%s", section, row->key);
	if (r < 0)
		return r;
	if (!setting)
		return str_copy(shown->source, sizeof(shown->source), "default");
	return str_format(shown->source, sizeof(shown->source), "%s:%u",
			  show->texts[setting->file].name ? show->texts[setting->file].name : "-",
			  setting->line);
}

static void print_string(FILE *stream, const char *text)
{
	(void)fputc('"', stream);
	for (; *text; text++) {
		if (*text == '"' || *text == '\\')
			(void)fputc('\\', stream);
		(void)fputc(*text, stream);
	}
	(void)fputc('"', stream);
}

static void print_json(FILE *stream, const struct shown *shown, bool is_first)
{
	(void)fputs(is_first ? "[\n  {\"name\": " : ",\n  {\"name\": ", stream);
	print_string(stream, shown->name);
	(void)fputs(", \"value\": ", stream);
	if (shown->is_set)
		print_string(stream, shown->value);
	else
		(void)fputs("null", stream);
	(void)fputs(", \"source\": ", stream);
	print_string(stream, shown->source);
	(void)fprintf(stream, ", \"takes\": \"%s\", \"needs_restart\": %s}", shown->effect,
		      shown->waits ? "true" : "false");
}

static void print_row(const struct show *show, const struct shown *shown, bool is_first)
{
	FILE *stream = show->stream;

	switch (show->form) {
	case CONFIG_FORM_NAME:
		(void)fprintf(stream, "%s\n", shown->name);
		break;
	case CONFIG_FORM_JSON:
		print_json(stream, shown, is_first);
		break;
	case CONFIG_FORM_TABLE:
		if (is_first)
			(void)fprintf(stream, "%-34s %-24s %-28s %s\n", "OPTION", "VALUE", "FROM",
				      "TAKES");
		(void)fprintf(stream, "%-34s %-24s %-28s %s%s\n", shown->name,
			      shown->is_set ? shown->value : "-", shown->source, shown->effect,
			      shown->waits ? ", needs restart" : "");
		break;
	}
}

/* [endpoint:NAME] has a row for each of the six. Whether something was printed. */
static bool show_endpoints(const struct show *show, const struct option_row *row)
{
	static const char *const names[ENDPOINTS_N] = CONFIG_ENDPOINT_NAMES;
	struct shown shown;

	if (!str_equal(row->section, "endpoint"))
		return false;
	for (size_t i = 0; i < ENDPOINTS_N; i++) {
		char section[64];

		if (str_format(section, sizeof(section), "endpoint:%s", names[i]) == 0 &&
		    fill(show, section, row, find_setting(show->settings, section, row->key),
			 &shown) == 0)
			print_row(show, &shown, false);
	}
	return true;
}

void config_show(FILE *stream, enum config_form form, const struct config_text *texts,
		 const struct config_settings *settings, const char *waiting)
{
	const struct show show = {stream, form, texts, settings, waiting};
	size_t n;
	const struct option_row *rows = option_table_rows(&n);
	struct shown shown;

	for (size_t i = 0; i < n; i++) {
		if (show_endpoints(&show, &rows[i]) ||
		    fill(&show, rows[i].section, &rows[i],
			 find_setting(settings, rows[i].section, rows[i].key), &shown) < 0)
			continue; /* every name fits */
		print_row(&show, &shown, i == 0);
	}
	/* Quotas of one tenant have no row of their own. */
	for (size_t i = 0; i < settings->n; i++) {
		const struct config_setting *setting = &settings->setting[i];
		enum quota_scope scope;
		const char *name;

		if (option_table_scope(setting->section, &scope, &name) &&
		    fill(&show, setting->section, option_table_of_tenant(scope, setting->key),
			 setting, &shown) == 0)
			print_row(&show, &shown, false);
	}
	if (form == CONFIG_FORM_JSON)
		(void)fputs("\n]\n", stream);
}
