/*
 * What stands on the reader's standard input: a bundle (sandboxd/config.h) or one bare text. Pure.
 */
#pragma once

#include <stddef.h>

#include "base/auto.h"

#include "sandboxd/config.h"
#include "supervisor/config/config_parse.h"

/* Number of texts, at most CONFIG_FILES_MAX; they and their names point into data. -EBADMSG. */
MUST_USE int bundle_read(const char *data, size_t size, struct config_text ret_texts[]);
