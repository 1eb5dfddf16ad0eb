/*
 * Numbers on one shim's socket. Durable frames are numbered per session from 1 and acknowledged
 * cumulatively, but they are settled out of order: output of a foreground command when its client's
 * bounded buffer has taken it, frames of a task when the store has committed them. `credit` is the
 * highest number below which everything is settled; it is what may be told to the shim.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/auto.h"

struct flow {
	uint64_t received; /* highest number seen */
	uint64_t settled;  /* everything up to here is settled */
	uint64_t credited; /* highest number told to the shim */
	uint64_t *bits;    /* owned: settled ones above `settled`, bit 0 = settled + 1 */
	size_t n_words;
};
#define FLOW_NULL ((struct flow){0})

#define FLOW_E_DUPLICATE     1 /* at or below `received`: drop the frame */
#define FLOW_MAX_OUTSTANDING (1u << 20)

void flow_init(struct flow *flow, uint64_t acked); /* of the row; 0 for a new session */
void flow_done(struct flow *flow);
/* A durable frame came. 0; FLOW_E_DUPLICATE; -EPROTO: a number was skipped; -ENOBUFS: too many are
 * unsettled, which an honest shim's ring cannot hold; -ENOMEM. */
MUST_USE int flow_receive(struct flow *flow, uint64_t number);
/* 0; -ERANGE: not received. Settling twice is allowed. */
MUST_USE int flow_settle(struct flow *flow, uint64_t number);
/* True: *ret_acked is news to the shim and goes into a WIRE_CREDIT, until flow_credited says that
 * it went: a credit that is lost and never repeated leaves the shim with a full ring for ever. */
bool flow_credit(const struct flow *flow, uint64_t *ret_acked);
void flow_credited(struct flow *flow, uint64_t acked);
