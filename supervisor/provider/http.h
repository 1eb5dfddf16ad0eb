/*
 * Requests to the engine: HTTP over its Unix socket by libcurl, from our loop.
 */
#pragma once

#include <stddef.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/loop.h"

/* A list of thousands of containers, each with its mounts. */
#define HTTP_ANSWER_MAX_BYTES ((size_t)32 * 1024 * 1024)

struct http;

/* status: of the answer, or -errno where none came; body: NUL terminated, valid inside the call. */
typedef void (*http_done)(void *userdata, int status, const char *body, size_t size);

struct http_request {
	const char *method;
	const char *path; /* with its query, escaped */
	const char *body; /* JSON, copied; NULL: none */
	usec_t timeout;
};

/* socket_path is kept by pointer. 0 or -errno. */
MUST_USE int http_new(struct loop *loop, const char *socket_path, struct http **ret_http);
/* 0 and `done` follows, never from inside; or -errno. Where nobody listens at the socket any more
 * the loop ends with -ECONNREFUSED, after `done`. */
MUST_USE int http_send(struct http *http, const struct http_request *request, http_done done,
		       void *userdata);
/* One HEAD alone, for the start: waits. The status, or -errno. */
MUST_USE int http_ask(const char *socket_path, const char *path, usec_t timeout);
