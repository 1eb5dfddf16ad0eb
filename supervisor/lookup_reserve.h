/*
 * Programs of sklookup.h made ahead, each with its own map and for one session.
 */
#pragma once

#include "base/loop.h"

#include "supervisor/sklookup.h"

#define LOOKUP_RESERVE 4

struct lookup_reserve {
	struct loop_source *pause;
	uint32_t n_ready;
	struct sklookup ready[LOOKUP_RESERVE];
};

/* Empty: the first refill is the caller's. */
MUST_USE int lookup_reserve_init(struct lookup_reserve *reserve, struct loop *loop);
void lookup_reserve_done(struct lookup_reserve *reserve); /* also of one that is all zero */
/* Have it filled in a pause. */
void lookup_reserve_refill(struct lookup_reserve *reserve);
/* The caller's, or SKLOOKUP_NULL. */
struct sklookup lookup_reserve_take(struct lookup_reserve *reserve);
