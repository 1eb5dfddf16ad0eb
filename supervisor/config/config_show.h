/*
 * The effective configuration for people.
 */
#pragma once

#include <stdio.h>

#include "supervisor/config/config_parse.h"

enum config_form {
	CONFIG_FORM_TABLE,
	CONFIG_FORM_JSON,
	CONFIG_FORM_NAME,
};

/*
 * Each option with its value, where that comes from (`default` or FILE:LINE), and what a change
 * takes; one whose name ("section.key") is a word of `waiting` waits for a restart. Values that may
 * hold credentials are `<set>`, and lists `<N entries>` with the first of their lines.
 */
void config_show(FILE *stream, enum config_form form, const struct config_text *texts,
		 const struct config_settings *settings, const char *waiting);
