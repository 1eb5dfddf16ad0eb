/*
 * How a snapshot that failed is answered.
 */
#pragma once

#include <stdbool.h>

#include "supervisor/api/http/runtime_errors.h"

/* error: of struct snapshot_result, but not -EPIPE. *ret_detail: NULL: as the code has it. */
enum runtime_error snapshot_failure(int error, bool makes, const char **ret_detail);
