/*
 * The names that a policy may use for numbers: errno values, constants of checked arguments, and
 * which arguments of which calls may be checked at all.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/auto.h"

/* Positive errno of a name such as "EPERM". 0 or -ENOENT. */
MUST_USE int names_errno(const char *name, int *ret_error_number);
/* Name of a positive errno that names_errno knows, else NULL. */
const char *names_errno_text(int error_number);

/* A constant such as AF_UNIX, or a number, decimal or 0x.... 0, -ENOENT (unknown name) or -ERANGE.
 */
MUST_USE int names_constant(const char *name, uint32_t *ret_value);

/*
 * Whether argument `arg` of `call` may be compared: the kernel reads it as at most 32 bits (or
 * looks at its low 32 bits only), and it is a value, not an address. A filter compares exactly the
 * bits that the kernel reads, so neither a refusing nor an allowing rule can be stepped round with
 * bits above (B8).
 */
bool names_argument_checkable(const char *call, unsigned int arg);
