/*
 * The opening handshake of a WebSocket (RFC 6455 §4.2), version 13. Pure: a request's headers go
 * in, a verdict comes out.
 *
 * Origin: a browser sends a site's cookies to a WebSocket whatever page opens it, and no CORS rule
 * keeps that page from reading. So a request that names an origin must name the host that it asked
 * for, or one of the configured origins; programs that are no browsers name none.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/auto.h"

struct handshake {
	const char *key; /* not owned: the request's memory */
	const char *host;
	const char *origin;
	uint32_t n_key;
	uint32_t n_host;
	uint32_t n_origin;
	uint32_t n_version;
	bool upgrade;    /* Upgrade: websocket */
	bool connection; /* Connection: upgrade */
	bool version_13;
};

enum handshake_result {
	HANDSHAKE_NONE, /* an ordinary request */
	HANDSHAKE_OK,
	HANDSHAKE_BAD_REQUEST,
	HANDSHAKE_BAD_VERSION,
	HANDSHAKE_BAD_ORIGIN,
	HANDSHAKE_RESULT_MAX_,
};

/* For each header of a request; value may be NULL (an empty one). */
void handshake_add(struct handshake *handshake, const char *name, const char *value);
/* origins: the configured ones between spaces, `*` for any; "" for none. */
enum handshake_result handshake_judge(const struct handshake *handshake, const char *origins);
