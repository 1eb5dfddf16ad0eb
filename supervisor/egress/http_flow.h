/*
 * Requests of one connection: each head is read by the inspector, and what it approved goes on
 * upstream, byte for byte (but for the name of a refused Upgrade). Answers are not read.
 *
 * Clients that keep a connection tend to say the same again. What the inspector said of the last
 * head is kept with that head, and bytes that are equal are not shown to it again: its answer is a
 * function of the bytes of one head, whatever follows them. The policy judges it anew each time.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/auto.h"

#include "supervisor/egress/http_head.h"

struct conn;

enum http_phase {
	HTTP_PHASE_HEAD,
	HTTP_PHASE_BODY,        /* body_left bytes */
	HTTP_PHASE_CHUNK_FIRST, /* the head of a chunk */
	HTTP_PHASE_CHUNK_NEXT,
	HTTP_PHASE_SWITCHING, /* a WebSocket was asked for: nothing more until the answer is known
			       */
	HTTP_PHASE_OPAQUE,    /* and the server has agreed */
	HTTP_PHASE_REFUSED,
};

#define HTTP_KNOWN_BYTES 2048

/* A head and what it was found to be. */
struct http_known {
	struct http_head head; /* head_bytes 0: none yet */
	char text[HTTP_KNOWN_BYTES];
};

struct http_flow {
	enum http_phase phase;
	enum http_phase after_body;
	uint64_t body_left;
	uint32_t n_requests;
	bool eof;
	bool drained; /* the client had less than there was room for */
	size_t used;
	size_t approved;      /* of `used` */
	const char *farewell; /* what the client is told at the end; NULL: nothing */
	struct http_known known;
	char data[HTTP_HEAD_MAX];
};

/* 0 with the state in conn->out.state; 1: the first request was refused, farewell says how; -errno
 * of a socket; *ret_fatal: there is no inspector. At most *budget bytes are taken from the client,
 * and *budget becomes what is left; *moved grows by what was sent upstream. */
MUST_USE int http_flow_run(struct conn *conn, uint64_t *budget, uint64_t *moved, bool *ret_fatal);
/* Before upstream's bytes are passed on, while a switch is open. false: not yet. */
bool http_flow_answer(struct conn *conn);
