/*
 * What the API offers, in names that a client can ask for before it uses a route: each route
 * belongs to one of them, or to what every service of the kind has.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "supervisor/api/http/routes.h"

/* The feature that a route is of, NULL: of none. False: nobody has said yet, which is a bug. */
bool feature_of_route(const struct route *route, const char **ret_name);
/* The names, each once. A new reference, or NULL: no memory. */
json_t *features_list(void);
