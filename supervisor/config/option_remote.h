/*
 * The place of a service elsewhere that makes sandboxes.
 */
#pragma once

#include "base/auto.h"

#include "supervisor/config/option_table.h"

/* https://host[:port][/path], http on this host's loopback alone; a slash at its end is dropped. 0
 * or -EINVAL. */
MUST_USE int option_remote_set_url(const struct option_row *row, const char *value,
				   struct config_answer *answer);
