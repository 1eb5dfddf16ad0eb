/*
 * The inspector: a child of this worker that reads what sessions wrote (DNS questions, TLS hellos,
 * HTTP heads) and can do nothing else. It is asked as a function is called: one question, one
 * answer, nothing kept in between. It holds no descriptor but its end of one socket pair, and its
 * filter has no call that makes another, so whoever takes it over learns what it is asked and can
 * lie about that, but reaches nothing.
 *
 * The worker waits for each answer, as the work is a few microseconds; an inspector that is silent
 * or gone ends the worker, and the supervisor starts both anew.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/auto.h"

#include "supervisor/egress/dns.h"
#include "supervisor/egress/http_head.h"
#include "supervisor/egress/tls_hello.h"

enum inspect_kind {
	INSPECT_DNS = 1,
	INSPECT_TLS,
	INSPECT_HTTP_HEAD,
	INSPECT_HTTP_CHUNK, /* the first */
	INSPECT_HTTP_CHUNK_NEXT,
	INSPECT_KIND_MAX_,
};

#define INSPECT_MAX_BYTES 16384

/* Before the bytes. */
struct inspect_ask {
	uint32_t kind;
	uint32_t size;
};

struct inspect_answer {
	uint32_t kind;
	uint32_t zero;
	union {
		struct dns_question dns;
		struct tls_hello tls;
		struct http_head http;
		struct http_chunk chunk;
	} u;
};

/* Runs as the child; returns only when the worker has gone. 0 or -errno. */
MUST_USE int inspector_run(int fd);

/* The worker's side; texts in the answer are terminated and numbers in range, whatever was sent.
 * 0, or -errno: there is no inspector any more. */
MUST_USE int inspect(int fd, enum inspect_kind kind, const void *data, size_t size,
		     struct inspect_answer *ret_answer);
