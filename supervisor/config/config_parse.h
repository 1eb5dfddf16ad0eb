/*
 * The configuration file as a whole: text in, struct config_answer out. Pure.
 */
#pragma once

#include <stddef.h>

#include "base/auto.h"
#include "base/buf.h"

#include "sandboxd/worker.h"

/*
 * 0 and *ret_answer, or -EINVAL and one complaint a line in `complaints`: line number, section,
 * key, what is wanted; never a value. -ENOMEM.
 */
MUST_USE int config_parse(const char *text, size_t size, struct config_answer *ret_answer,
			  struct buf *complaints);
