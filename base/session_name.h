/*
 * Names that callers give to sessions. A name can stand wherever an id can, so none can be taken
 * for an id or the beginning of one.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#define SESSION_NAME_MAX 63

/* [a-z0-9][a-z0-9._-]*, at most SESSION_NAME_MAX, and not of [0-9a-f-] alone. */
bool session_name_valid(const char *text, size_t length);
