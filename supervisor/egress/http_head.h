/*
 * One HTTP/1 request head, and the head of one chunk, read strictly: whatever two servers could
 * read in two ways is BAD, so that what is checked is what the server will see (D4). Pure; runs in
 * the inspector.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/host_name.h"

#define HTTP_HEAD_MAX   16384
#define HTTP_PATH_BYTES 1024

enum http_verdict {
	HTTP_MORE,
	HTTP_OK,
	HTTP_BAD,
	HTTP_VERDICT_MAX_,
};

enum http_body {
	HTTP_BODY_LENGTH, /* body_bytes, 0 where there is none */
	HTTP_BODY_CHUNKED,
	HTTP_BODY_MAX_,
};

enum http_upgrade {
	HTTP_UPGRADE_NONE,
	HTTP_UPGRADE_WEBSOCKET,
	HTTP_UPGRADE_OTHER, /* h2c and so on: behind it nothing could be read */
	HTTP_UPGRADE_MAX_,
};

struct http_head {
	uint32_t verdict;
	uint32_t head_bytes; /* the empty line included */
	uint32_t body;       /* enum http_body */
	uint32_t upgrade;    /* enum http_upgrade */
	uint32_t upgrade_at; /* where the name of that header begins; HTTP_UPGRADE_NAME bytes */
	uint32_t indirect;   /* 1: a header that can lead the server to another host or path */
	uint32_t port;       /* in Host; 0: none */
	uint32_t zero;
	uint64_t body_bytes;
	char host[HOST_NAME_BYTES + 2]; /* of Host: canonical name, or address in its usual form */
	char path[HTTP_PATH_BYTES];     /* decoded, the query cut off; "": has no one reading */
};
#define HTTP_UPGRADE_NAME 7

struct http_chunk {
	uint32_t verdict;
	uint32_t head_bytes; /* of the size line, or of what ends the body */
	uint32_t is_last;    /* the body ends with it */
	uint32_t zero;
	uint64_t bytes; /* that follow */
};

void http_head_parse(const char *data, size_t size, struct http_head *ret_head);
/* At the first chunk, or (is_first 0) right behind the bytes of one: the end of its line comes then
 * first. No extensions and no trailers. */
void http_chunk_parse(const char *data, size_t size, int is_first, struct http_chunk *ret_chunk);
