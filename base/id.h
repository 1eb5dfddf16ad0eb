/*
 * 128-bit random ids, shown as UUID version 4 text in lower case.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/auto.h"

#include "sandboxd/limits.h"

struct id {
	uint8_t bytes[ID_BYTES];
};

MUST_USE int id_random(struct id *ret_id); /* getrandom; 0 or -errno */
void id_format(const struct id *id, char text[ID_TEXT_BYTES]);
/* Canonical form only (lower-case, version 4, variant 1). 0 or -EINVAL. */
MUST_USE int id_parse(const char *text, struct id *ret_id);
bool id_equal(const struct id *a, const struct id *b);
bool id_is_null(const struct id *id);
uint32_t id_hash(const struct id *id); /* the bytes are random: any four of them */
