/*
 * The capabilities that the processes outside of sessions keep.
 */
#pragma once

#include <stdint.h>

#include "base/auto.h"
#include "base/err.h"

/* Supervisor: reduce bounding, permitted and effective set to the table in privileges.c. One of
 * them missing: -EPERM, and err names it. */
MUST_USE int privileges_limit(struct err *err);

/* Reduce bounding, permitted and effective set to the bits (1 << CAP_X) of mask, all of which must
 * be there; the ambient and the inheritable set are empty then. 0 or -errno. */
MUST_USE int privileges_keep(uint64_t mask, struct err *err);

/* Keeper: empty permitted and effective set. The bounding set stays, so that the supervisor it
 * execs as root has its capabilities. */
MUST_USE int privileges_drop_current(struct err *err);

/* Worker, before it gives up its ids: empty the bounding set. */
MUST_USE int privileges_drop_bounding(struct err *err);
