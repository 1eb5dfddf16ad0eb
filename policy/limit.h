/*
 * The `limit` statements of a session profile: one table drives parsing and completeness.
 */
#pragma once

#include <stdint.h>

#include "base/auto.h"
#include "base/err.h"

#include "sandboxd/policy_image.h"

struct line;
struct line_where;

struct limit_set {
	struct policy_limits value;
	uint32_t given; /* bit per row of the table */
};

/* NAME VALUE, after the word `limit`. 0 or -EINVAL with the place in err. */
MUST_USE int limit_parse(struct line *line, struct limit_set *set, struct err *err);

/* Every limit was given, and they fit each other: 0; else -EINVAL at `where`. */
MUST_USE int limit_check(const struct limit_set *set, const struct line_where *where,
			 struct err *err);
