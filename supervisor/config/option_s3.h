/*
 * The object store of snapshots in the configuration.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/auto.h"

#include "supervisor/config/option_table.h"

/* host[:port]; is_plain: of this host's loopback. 0 or -EINVAL. */
MUST_USE int option_s3_check_place(const char *place, size_t length, bool is_plain);
/* https://host[:port], or http:// where the host is this host's loopback. 0 or -EINVAL. */
MUST_USE int option_s3_set_url(const struct option_row *row, const char *value,
			       struct config_answer *answer);
/* A region or a bucket. */
MUST_USE int option_s3_set_name(const struct option_row *row, const char *value,
				struct config_answer *answer);
MUST_USE int option_s3_set_prefix(const struct option_row *row, const char *value,
				  struct config_answer *answer);
/* ACCESS-KEY:SECRET-KEY */
MUST_USE int option_s3_set_login(const struct option_row *row, const char *value,
				 struct config_answer *answer);
