/*
 * The smallest HTTP client that can keep a connection to the control socket: one request, one
 * answer with Content-Length or chunks. For measuring only; it trusts the daemon that the bench
 * itself started.
 */
#pragma once

#include <stddef.h>

#include "base/auto.h"

/* Bytes read ahead of what was asked for stay in `raw`. */
struct reader {
	int fd;
	char raw[65536];
	size_t at;
	size_t size;
};

struct client {
	int fd;
	char answer[256 * 1024]; /* body of the last answer, NUL terminated */
	size_t answer_bytes;
	int status;
	const char *identity; /* further header lines, each with its CRLF; or NULL */
	struct reader reader;
};

MUST_USE int client_connect(struct client *client, const char *socket_path);
void client_done(struct client *client);
/* 0 and status/answer filled, or -errno. body may be NULL. */
MUST_USE int client_request(struct client *client, const char *method, const char *path,
			    const char *body);
/* Text of the JSON string member `"name":"…"` in the last answer; 0 or -ENOENT. */
MUST_USE int client_member(const struct client *client, const char *name, char *text,
			   size_t text_bytes);
