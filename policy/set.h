/*
 * A set file: a named group of system calls.
 */
#pragma once

#include <stddef.h>

#include "base/auto.h"
#include "base/err.h"

#include "policy/line.h"

/* Longest name of a set or call, with its NUL. */
#define SET_NAME_BYTES 32
#define SET_MAX_NUMBER 1023

/* The names in a set file: called for each with its number (-1: by name alone). */
typedef int (*set_call)(void *userdata, const struct line_where *where, const char *call,
			int number, struct err *err);

/* `set NAME`, then names, several a line. `name` is the set's, without .set. 0, -EINVAL with the
 * place in err, or what `call` returned. */
MUST_USE int set_parse(const char *name, const char *data, size_t size, set_call call,
		       void *userdata, struct err *err);

/* NAME or NAME=NUMBER, as it stands in sets and in statements; *ret_number is -1 without one. */
MUST_USE int set_parse_call(struct line *line, const char **ret_call, int *ret_number,
			    struct err *err);
