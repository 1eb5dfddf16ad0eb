/*
 * Options that are lists: entries between spaces, each read before it is kept.
 */
#pragma once

#include "base/auto.h"

#include "sandboxd/worker.h"
#include "supervisor/config/option_table.h"

/* Append the entries of `value`. 0 or -EINVAL: one is not of that kind, or there is no room. */
MUST_USE int option_list_set(const struct option_row *row, const char *value,
			     struct config_answer *answer);
/* address:port or localhost:port. 0 or -EINVAL. */
MUST_USE int option_list_place(const char *text, size_t length, struct redis_place *ret_place);
void option_list_clear(const struct option_row *row, struct config_answer *answer);
