/*
 * Formatted text whose bound is known where it is written: that it fits is our own logic, so it is
 * asserted. For text of unknown length there is str_format (base/str.h).
 */
#pragma once

#include <stddef.h>

#include "base/auto.h"

void fit_text(char *dest, size_t dest_bytes, const char *format, ...) PRINTF_LIKE(3, 4);
