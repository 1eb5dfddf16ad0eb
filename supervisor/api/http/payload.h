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
/* The body by one of the spec parsers: payload_parse(request, spec_parse_x, arguments that it has
 * between the options and the errors). True: it is taken. False: it was answered (422). */
#define payload_parse(request, parse, ...)                                                         \
	payload_judge((request), parse((const char *)(request)->body.data, (request)->body.size,   \
				       (struct spec_options[]){payload_options(request)},          \
				       __VA_ARGS__, &(request)->errors))
/* The result of a parser that was given request->errors. As payload_parse. */
MUST_USE bool payload_judge(struct request *request, int r);
/* The options that the spec parsers take, by configuration. */
struct spec_options payload_options(const struct request *request);
