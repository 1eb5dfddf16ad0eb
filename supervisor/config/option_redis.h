/*
 * Redis servers in the configuration.
 */
#pragma once

#include "base/auto.h"

#include "supervisor/config/option_table.h"

/* What of a URL is percent-encoded; printable ASCII comes out of it. 0 or -EINVAL. */
MUST_USE int option_redis_decode(const char *text, size_t length, char *ret_text, size_t ret_bytes);
/* Both: 0 or -EINVAL. The first takes no credential and no other database than 0, the second
 * redis://[user[:password]@]host:port[/database], percent-encoded, or rediss:// where TLS is
 * wanted; the option beside it with a password stays as it is. */
MUST_USE int option_redis_set_place(const struct option_row *row, const char *value,
				    struct config_answer *answer);
MUST_USE int option_redis_set_server(const struct option_row *row, const char *value,
				     struct config_answer *answer);
