/*
 * A stream of lines carried over a WebSocket: each line is one text message. libwslay makes and
 * reads the frames; libmicrohttpd gives its connection away after the 101 and gets it back to
 * close.
 *
 * A reader holds one block of the stream and one frame; what it does not take stays where the
 * stream has it. The client has little to say: one first message {"type":"auth", ...} is answered
 * with who it is, by the request's own headers, and is never waited for; anything else ends the
 * connection.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/auto.h"
#include "base/clock.h"

struct MHD_Response;
struct request;
struct websocket;

/* Close codes beside those of RFC 6455. */
#define WEBSOCKET_CLOSE_LATER    1013 /* too slow a reader; it may come back with ?after= */
#define WEBSOCKET_CLOSE_PROTOCOL 4001
#define WEBSOCKET_CLOSE_INTERNAL 4500

/* What one turn gives a stream that takes messages, at most: the rest of one, and what follows. */
#define WEBSOCKET_TURN_MAX_BYTES ((size_t)36 * 1024)

/* Where the request asks for a WebSocket, its stream will be one (request->websocket). False: it
 * was answered, 400, 403 or 426. */
MUST_USE bool websocket_judge(struct request *request);
/* The 101. NULL: no memory. */
struct MHD_Response *websocket_response(struct websocket *socket);
/* The connection is ours: from the 101 on its way until it was given back. */
bool websocket_is_open(const struct websocket *socket);
/* The stream has more to say, or an end. */
void websocket_wake(struct websocket *socket);
/* Ping, and cut who is silent or slower than patience allows; every few seconds. now: boottime. */
void websocket_sweep(struct websocket *socket, usec_t now);
/* The service ends: say so as far as that goes at once. */
void websocket_stop(struct websocket *socket);
/* The connection is the library's again. Accepts NULL; returns NULL. */
struct websocket *websocket_free(struct websocket *socket);
