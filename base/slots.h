/*
 * A table id -> object. The id carries a generation, so that a stale id never names a newer object.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/auto.h"

struct slot {
	void *object;
	uint32_t generation;
	uint32_t next_free;
};

struct slots {
	struct slot *slot; /* owned */
	uint32_t n_allocated;
	uint32_t n_used;
	uint32_t max;
	uint32_t first_free;
};

MUST_USE int slots_init(struct slots *slots, uint32_t max); /* 0; memory comes with the first add */
void slots_done(struct slots *slots);                       /* asserts that it is empty */
/* *ret_id: slot in the low half, generation (never 0) in the high half. 0, -ENOSPC or -ENOMEM. */
MUST_USE int slots_add(struct slots *slots, void *object, uint64_t *ret_id);
/* NULL: not there, or another generation. Any number may be asked for. */
void *slots_get(const struct slots *slots, uint64_t id);
/* The id must be there. The object is the caller's. */
void slots_remove(struct slots *slots, uint64_t id);
/* Iterate: start with *at = 0; NULL at the end. Removal of the returned object is allowed. */
void *slots_next(const struct slots *slots, uint32_t *at);
