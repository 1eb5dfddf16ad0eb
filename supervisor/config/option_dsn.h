/*
 * The connection string of a PostgreSQL server in the configuration: what the api worker will
 * refuse (pg_dsn.h, by libpq's own parser, which this program does not have) is refused here.
 */
#pragma once

#include "base/auto.h"

#include "supervisor/config/option_table.h"

/* postgresql://[user[:password]@]host[:port][,…]/database[?option=value&…]. 0 or -EINVAL. */
MUST_USE int option_dsn_set(const struct option_row *row, const char *value,
			    struct config_answer *answer);
/* What of it is not so, as a text behind "wants" without a byte of the value: `form` where that is
 * the whole of it. NULL: nothing. */
const char *option_dsn_wanted(const struct option_row *row, const char *value, const char *form);
