/*
 * The description of the API, made from the route table that dispatches.
 */
#pragma once

#include <jansson.h>

#include "sandboxd/worker.h"

/* A new reference, or NULL: no memory. */
json_t *openapi_document(const struct api_config *config);
