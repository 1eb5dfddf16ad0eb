/*
 * One value of the file into one field of the answer.
 */
#pragma once

#include "base/auto.h"

#include "sandboxd/worker.h"
#include "supervisor/config/option_table.h"

/* 0, or -EINVAL and *ret_wanted says what this option takes, without a byte of the value. */
MUST_USE int option_value_set(const struct option_row *row, const char *value,
			      struct config_answer *answer, const char **ret_wanted);
/* What an out-of-range complaint says after the bounds; NULL: the option has no range. */
const char *option_value_unit(const struct option_row *row);
/* The value of an option that is neither set nor has a default. */
void option_value_unset(const struct option_row *row, struct config_answer *answer);
