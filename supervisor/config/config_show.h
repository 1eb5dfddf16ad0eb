/*
 * The effective configuration for people.
 */
#pragma once

#include <stdio.h>

#include "supervisor/config/config_parse.h"

/*
 * One line an option, tab separated: section, key, value, where it comes from (`default` or
 * FILE:LINE), reload or restart, and `needs-restart` where its name ("section.key") is a word of
 * `waiting`. Values that may hold credentials are `<set>`.
 */
void config_show(FILE *stream, const struct config_text *texts,
		 const struct config_settings *settings, const char *waiting);
