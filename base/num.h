/*
 * Integers from text, checked. No sign, no white space, no prefix, no leading zero but "0" itself.
 */
#pragma once

#include <stdint.h>

#include "base/auto.h"

/* 0; -EINVAL: not a number in that form; -ERANGE: outside min..max. */
MUST_USE int num_parse_u64(const char *text, uint64_t min, uint64_t max, uint64_t *ret_value);
MUST_USE int num_parse_u32(const char *text, uint32_t min, uint32_t max, uint32_t *ret_value);
/* The same with an optional '-'; "-0" is refused. */
MUST_USE int num_parse_i32(const char *text, int32_t min, int32_t max, int32_t *ret_value);
/* As above (min 0), with a unit: -EINVAL for an unknown one. */
/* "64", "64KiB", "64MiB", "64GiB" (also K, M, G). */
MUST_USE int num_parse_size(const char *text, uint64_t max, uint64_t *ret_bytes);
/* "90", "90s", "15min", "24h", "30d": seconds. */
MUST_USE int num_parse_seconds(const char *text, uint64_t max, uint64_t *ret_seconds);
