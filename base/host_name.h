/*
 * Host names, canonical in exactly one way: what the checker reads is what the resolver and the
 * log read (D3). Refused, never repaired.
 */
#pragma once

#include <stddef.h>

#include "base/auto.h"

#define HOST_NAME_BYTES 254 /* 253 characters and the NUL */

/*
 * Letters, digits and inner hyphens in labels of 1 to 63, at most 253 in all; one dot at the end is
 * dropped, letters become small. Anything else is -EINVAL, NUL and other bytes of control included;
 * so is a name whose last label some programs read as a number ("1.2.3.4", "0x7f.1", "2130706433").
 * On failure ret_name is untouched.
 */
MUST_USE int host_name_canonical(const char *text, size_t length, char ret_name[HOST_NAME_BYTES]);
