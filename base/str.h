/*
 * Text: comparison, checks, escapes. No locale.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/auto.h"

bool str_equal(const char *a, const char *b);
bool str_has_prefix(const char *text, const char *prefix);
bool str_has_suffix(const char *text, const char *suffix);

/* Copy with a NUL. 0, or -ENAMETOOLONG and dest is untouched. */
MUST_USE int str_copy(char *dest, size_t dest_bytes, const char *src);
MUST_USE int str_copy_n(char *dest, size_t dest_bytes, const char *src, size_t length);
/* snprintf that refuses to cut: 0 or -ENAMETOOLONG (dest then holds ""). */
MUST_USE int str_format(char *dest, size_t dest_bytes, const char *format, ...) PRINTF_LIKE(3, 4);

/* Valid UTF-8 by RFC 3629: no overlong form, no surrogate, nothing above U+10FFFF. */
bool str_utf8_valid(const char *text, size_t length);
/* How many bytes at the end (0..3) are the beginning of a character that is not all there. */
size_t str_utf8_partial(const char *text, size_t length);
/* All bytes are in the set [A-Za-z0-9] or in `extra`. */
bool str_only(const char *text, size_t length, const char *extra);
/* Replace every byte that is not printable ASCII by '?'. */
void str_printable(char *text);
/* Escape for a log line or a terminal: printable ASCII and valid UTF-8 letters stay; control
 * characters, backslash, C1 controls, bidi controls and invalid bytes become \n, \t, \xNN. Cut at
 * dest_bytes, between two characters or escapes. keep_newlines keeps line feeds and tabs. Returns
 * the length without the NUL. */
size_t str_escape(char *dest, size_t dest_bytes, const char *src, size_t length,
		  bool keep_newlines);
/* 0 .. 15 of a hexadecimal digit of either case, or -1. */
int str_hex_digit(char c);
/* Hexadecimal; dest holds 2 * size + 1 bytes. */
void str_hex(char *dest, const void *data, size_t size);
/* Base64 (RFC 4648, padded). Length without NUL; dest holds str_base64_bytes(size). */
size_t str_base64(char *dest, const void *data, size_t size);
static inline size_t str_base64_bytes(size_t size)
{
	return (size + 2) / 3 * 4 + 1;
}
/* Decode; strict (no white space, canonical padding). 0, or -EINVAL or -ENOSPC and dest is
 * untouched. */
MUST_USE int str_base64_decode(void *dest, size_t dest_bytes, const char *src, size_t length,
			       size_t *ret_size);
