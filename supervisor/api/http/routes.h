/*
 * The one route table, in a file for each surface. It dispatches, it says which scopes and bodies a
 * route takes, and /openapi.json is generated from it, so that the three cannot differ.
 *
 * A pattern is a path in which a segment may be `{id}`, and one `{cid}` or `{snapshot_id}`: any
 * non-empty segment without `/`. Path bytes are compared as they came: nothing is percent-decoded,
 * so there is one spelling only.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/auto.h"

struct request;

enum route_method {
	ROUTE_GET,
	ROUTE_POST,
	ROUTE_DELETE,
	ROUTE_PATCH,
	ROUTE_PUT,
	ROUTE_METHOD_MAX_,
};

enum route_body {
	ROUTE_BODY_NONE,   /* absent, `{}` and `null` are accepted */
	ROUTE_BODY_OBJECT, /* JSON; what is in it the handler checks */
	ROUTE_BODY_BYTES,  /* anything, or JSON by its content type */
	ROUTE_BODY_STREAM, /* anything of any size; the handler runs before it is read */
};

enum route_flags {
	ROUTE_PEER_ONLY = 1, /* a trusted peer is enough: no user is asked for */
	ROUTE_STREAM = 2,    /* the answer may be a stream; counted apart from connections */
	ROUTE_V1 = 4,        /* 404 says `sandbox not found` */
};

/* Runs when the body is complete and well formed for the route. It answers with reply_*, starts a
 * stream, or keeps the request's id and answers later. */
typedef void (*route_handler)(struct request *request);

struct route {
	enum route_method method;
	const char *pattern;
	route_handler handler;
	uint32_t scopes; /* enum auth_scope; all are needed */
	enum route_body body;
	uint32_t flags; /* enum route_flags */
	size_t body_max_bytes;
	int success;           /* status for the description */
	const char *audit;     /* what the audit calls it; NULL only where nothing changes */
	const char *summary;   /* for /openapi.json */
	const char *request;   /* component schema of the body, or NULL */
	const char *response;  /* component schema of the answer, or NULL */
	const char *parameter; /* comma-separated query parameters, or NULL */
};

#define ROUTE_ID_BYTES 64 /* longer segments cannot be an id: the handler's 404 */

struct route_match {
	const struct route *route; /* NULL: none */
	bool path_known;           /* another method fits: 405 */
	char allow[32];            /* "GET, POST" */
	char id[ROUTE_ID_BYTES];   /* "" where longer than fits, or there is none */
	char cid[ROUTE_ID_BYTES];  /* of the object below it */
};

/* Routes of one surface. */
struct route_list {
	const struct route *row;
	size_t n;
};
extern const struct route_list routes_dagster;
extern const struct route_list routes_sandbox;
extern const struct route_list routes_files;
extern const struct route_list routes_git;
extern const struct route_list routes_service;

const struct route *routes_at(size_t at); /* of all of them; NULL: there are fewer */
const char *routes_method_name(enum route_method method);
/* HEAD is matched as GET. */
void routes_match(const char *method, const char *path, struct route_match *ret_match);
