/*
 * What this process holds: the fence number of each session that it writes about. A number is
 * raised with each run and each new tree; the store refuses a writer that knows a lower one than
 * the session's row (QUERY_SESSION_HOLD).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/auto.h"
#include "base/id.h"

#define FENCE_ANY INT64_MAX /* of a session that is not held: only whose it is counts */

struct hold {
	struct id session;
	int64_t fence;
};

struct holds {
	struct hold *hold; /* sorted by session, owned */
	size_t n;
	size_t max;
};

/* Set or replaced. 0 or -ENOMEM. */
MUST_USE int holds_set(struct holds *holds, const struct id *session, int64_t fence);
void holds_drop(struct holds *holds, const struct id *session);
/* FENCE_ANY: it is not held. */
int64_t holds_fence(const struct holds *holds, const struct id *session);
void holds_done(struct holds *holds);
