/*
 * The duties of pid 1.
 */
#pragma once

#include "base/auto.h"

struct shim;

/* Reap whatever ends in the session; end the loop on SIGTERM, or when the nursery is gone. */
MUST_USE int init_start(struct shim *shim);
