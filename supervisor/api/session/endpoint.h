/*
 * The six endpoints: names, closed defaults, light checks of a value, and who gave it. Values never
 * leave this worker but in the environment of a command: no answer, frame, log line or error text
 * holds one (docs/THREATS.md).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/auto.h"
#include "base/endpoint_value.h"

#include "sandboxd/limits.h"

enum endpoint_source {
	ENDPOINT_SOURCE_CALLER,
	ENDPOINT_SOURCE_OPERATOR,
	ENDPOINT_SOURCE_CLOSED,
	ENDPOINT_SOURCE_MAX_,
};

/* index 0..ENDPOINTS_N-1, in the order of the owner's list. */
const char *endpoint_name(size_t index);         /* "iceberg_rest_uri" */
const char *endpoint_variable(size_t index);     /* "ICEBERG_REST_URI", without the prefix */
const char *endpoint_closed_value(size_t index); /* the value that leads nowhere */
const char *endpoint_source_text(enum endpoint_source source);
/* The index of a name, or -1. */
int endpoint_index(const char *name, size_t length);

/* What is wrong with a caller's value: NULL where nothing is, else a constant text that does not
 * quote it (base/endpoint_value.h). */
const char *endpoint_value_problem(size_t index, const char *value, size_t length);
/* The same, and what was read. */
MUST_USE const char *endpoint_read(size_t index, const char *value,
				   struct endpoint_value *ret_value);
