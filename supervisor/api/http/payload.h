/*
 * A request's body: collected up to the route's bound. What is in it is judged by the handler
 * (session/spec.h), before anything about the session is looked at.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "supervisor/api/http/request.h"
#include "supervisor/api/session/spec.h"

/* 0; -EMSGSIZE: beyond the route's bound; -ENOMEM. */
MUST_USE int payload_add(struct request *request, const char *data, size_t size);
/* Routes without a body accept none, `{}` and `null`. True: go on. False: it was answered (422). */
MUST_USE bool payload_finish(struct request *request);
/* The options that the spec parsers take, by configuration. */
struct spec_options payload_options(const struct request *request);
