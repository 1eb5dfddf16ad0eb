/*
 * The answer of sandboxd-config, checked before anything is done with it. Pure.
 */
#pragma once

#include <stddef.h>

#include "base/auto.h"
#include "base/err.h"

#include "sandboxd/worker.h"

/* Size, magic numbers, every range, every text terminated. 0 or -EINVAL with the field named. */
MUST_USE int config_check(const struct config_answer *answer, size_t size, struct err *err);
