/*
 * What one user has of what all clients of the service share: requests at once, streams, memory.
 * As long as at most half of something is taken, anybody may have more of it; beyond that nobody
 * gets more than an eighth. So one user alone keeps nobody away, and is bounded only where others
 * may need it. The local operator has no share, and no such bound. Pure.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/list.h"

#include "sandboxd/limits.h"

#define SHARES_N_BUCKETS 64 /* power of two */

enum share_of {
	SHARE_REQUESTS, /* without those that are streams */
	SHARE_STREAMS,
	SHARE_BYTES,  /* of bodies and answers */
	SHARE_OUTPUT, /* bytes of commands, held for an answer */
	SHARE_OF_MAX_,
};

struct share {
	struct list link; /* in its bucket */
	size_t n_holders;
	size_t used[SHARE_OF_MAX_];
	/* turns.h: requests that wait for their turn, the turn it last had one in, and its time. */
	struct list turn_link; /* turns->queue */
	struct list waiting;
	struct list counted_link; /* turns->counted */
	uint64_t turn;
	usec_t turn_time;
	char user[IDENTITY_MAX + 1];
};

struct shares {
	struct list bucket[SHARES_N_BUCKETS];
};

struct turns {
	struct list queue;   /* struct share */
	struct list counted; /* struct share with time in this turn: it is kept for that */
	uint64_t now;
};

void shares_init(struct shares *shares);
/* The user's, made where it is missing. NULL: the name is "", or no memory. */
struct share *shares_get(struct shares *shares, const char *user);
struct share *share_ref(struct share *share); /* NULL stays NULL */
struct share *share_put(struct share *share); /* returns NULL */

/* May `n` more be taken, where `total` of `max` are? share NULL: nobody's. */
bool share_allows(const struct share *share, enum share_of what, size_t total, size_t max,
		  size_t n);
/* The same, and they are taken: of *total, too. */
MUST_USE bool share_take(struct share *share, enum share_of what, size_t *total, size_t max,
			 size_t n);
void share_give(struct share *share, enum share_of what, size_t *total, size_t n);
/* So much of it is taken that nobody gets more than an eighth. */
bool share_is_scarce(size_t total, size_t max);
/* Of what is taken first and given back where it is too much: has somebody more than he may keep,
 * where `total` of `max` are taken and `own` of them are his? own 0: nobody's. */
bool share_exceeds(size_t own, size_t total, size_t max);
