#include "supervisor/config/config_show.h"

#include <stdbool.h>
#include <string.h>

#include "base/str.h"

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
						 const struct option_row *row)
{
	for (size_t i = 0; i < settings->n; i++) {
		if (str_equal(settings->setting[i].section, row->section) &&
		    str_equal(settings->setting[i].key, row->key))
			return &settings->setting[i];
	}
	return NULL;
}

static void show_value(FILE *stream, const struct option_row *row, const char *value)
{
	char escaped[512];

	if (value && row->type == OPTION_TYPE_ENDPOINT) {
		(void)fputs("<set>", stream);
		return;
	}
	(void)str_escape(escaped, sizeof(escaped), value ? value : "", value ? strlen(value) : 0,
			 false);
	(void)fputs(escaped, stream);
}

static void show(FILE *stream, const struct option_row *row, const char *section,
		 const struct config_text *texts, const struct config_setting *setting,
		 const char *waiting)
{
	(void)fprintf(stream, "%s\t%s\t", section, row->key);
	show_value(stream, row, setting ? setting->value : row->by_default);
	if (!setting)
		(void)fputs("\tdefault", stream);
	else
		(void)fprintf(stream, "\t%s:%u",
			      texts[setting->file].name ? texts[setting->file].name : "-",
			      setting->line);
	(void)fprintf(stream, "\t%s%s\n", row->effect == OPTION_RESTART ? "restart" : "reload",
		      has_word(waiting, section, row->key) ? "\tneeds-restart" : "");
}

void config_show(FILE *stream, const struct config_text *texts,
		 const struct config_settings *settings, const char *waiting)
{
	size_t n;
	const struct option_row *rows = option_table_rows(&n);

	for (size_t i = 0; i < n; i++)
		show(stream, &rows[i], rows[i].section, texts, find_setting(settings, &rows[i]),
		     waiting);
}
