/*
 * How a row of a route table is written. A designated table: what a row does not name is zero,
 * which is "none" everywhere.
 */
#pragma once

#include <stdint.h>

#include "base/auto.h"

#include "sandboxd/api.h"
#include "sandboxd/limits.h"
#include "supervisor/api/http/auth.h"
#include "supervisor/api/http/handlers.h"
#include "supervisor/api/http/routes.h"

#define SMALL_BODY_BYTES   1024
#define SETTINGS_MAX_BYTES ((size_t)128 * 1024)
#define GIT_BODY_MAX_BYTES ((size_t)512 * 1024)
#define LARGE_BODY_BYTES   ((size_t)HTTP_BODY_MAX_BYTES)

#define READ         (AUTH_DATA_READ)
#define READ_WRITE   (AUTH_DATA_READ | AUTH_DATA_WRITE)
#define DAGSTER(p)   API_PREFIX_DAGSTER p
#define SANDBOX(p)   API_PREFIX_RUNTIME p
#define NO_BODY      .body = ROUTE_BODY_NONE, .body_max_bytes = SMALL_BODY_BYTES
#define BODY(bytes)  .body = ROUTE_BODY_OBJECT, .body_max_bytes = (bytes)
#define STREAM       .body = ROUTE_BODY_STREAM, .body_max_bytes = SIZE_MAX
#define BYTES(bytes) .body = ROUTE_BODY_BYTES, .body_max_bytes = (bytes)
