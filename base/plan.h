/*
 * Check a session plan (include/sandboxd/plan.h). One table of fields and ranges.
 */
#pragma once

#include "base/auto.h"
#include "base/err.h"

#include "sandboxd/plan.h"

/* Magic, version, size, zero fields, every range, tmpfs at most half of the memory. 0 or -EINVAL
 * with the field named in err. */
MUST_USE int plan_check(const struct plan *plan, struct err *err);
