/*
 * Requests to an engine over its Unix socket, or to a service elsewhere: HTTP by libcurl, from our
 * loop.
 */
#pragma once

#include <stddef.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/loop.h"

/* A list of thousands of containers of this host, each with its mounts. */
#define HTTP_ANSWER_MAX_BYTES ((size_t)32 * 1024 * 1024)

struct http;

/* status: of the answer, or -errno where none came; body: NUL terminated, valid inside the call. */
typedef void (*http_done)(void *userdata, int status, const char *body, size_t size);

struct http_request {
	const char *method;
	const char *path;          /* with its query, escaped */
	const char *body;          /* JSON, copied; NULL: none */
	const char *authorization; /* a header, copied; NULL: none */
	usec_t timeout;
	size_t max_bytes; /* of the answer; 0: HTTP_ANSWER_MAX_BYTES */
};

struct http_options {
	struct loop *loop;
	const char *socket_path; /* of an engine; NULL: at `url` */
	const char *url;         /* what each path is put behind; no slash at its end */
};

/* Both texts of options are kept by pointer. 0 or -errno. */
MUST_USE int http_new(const struct http_options *options, struct http **ret_http);
/* Where the host of `url` is from now on: "host:port:address,address", for requests that are not
 * sent yet. 0 or -ENOMEM. */
MUST_USE int http_set_addresses(struct http *http, const char *addresses);
/* 0 and `done` follows, never from inside; or -errno. Where nobody listens at an engine's socket
 * any more the loop ends with -ECONNREFUSED, after `done`. */
MUST_USE int http_send(struct http *http, const struct http_request *request, http_done done,
		       void *userdata);
/* One HEAD alone, for the start: waits. The status, or -errno. */
MUST_USE int http_ask(const char *socket_path, const char *path, usec_t timeout);

/* fd: once the answer has begun well, a stream socket: what is written to it is the body of the
 * request, what comes from it that of the answer; non-blocking, the callee's. Its end is that of
 * either body, and closing it ends the request. Else -1 and the status, or -errno. */
typedef void (*http_streams)(void *userdata, int status, int fd);
/* Of a request (method, path, authorization, and the timeout of the answer's beginning) whose both
 * bodies have no end. 0 and `done` follows, never from inside; or -errno. */
MUST_USE int http_stream(struct http *http, const struct http_request *request, http_streams done,
			 void *userdata);
