/*
 * The answer of sandboxd-config, checked before anything is done with it. Pure.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/auto.h"
#include "base/err.h"

#include "sandboxd/worker.h"

/* Size, magic numbers, every range, every text terminated. 0 or -EINVAL with the field named. */
MUST_USE int config_check(const struct config_answer *answer, size_t size, struct err *err);

/* For a reload: options that only a restart changes are taken from what is in force. Their names
 * ("section.key", between spaces) where the new answer had another value; cut to whole names. */
void config_keep(const struct config_answer *in_force, struct config_answer *answer,
		 char *ret_names, size_t names_bytes);
/* Whether the option of this name takes a restart. */
bool config_is_kept(const char *name);
