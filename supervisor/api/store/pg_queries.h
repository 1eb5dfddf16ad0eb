/*
 * The PostgreSQL text of each query (queries.h), and what only that store asks. Parameters only; no
 * text is ever built. Statements are prepared under their names at each connection.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "supervisor/api/store/queries.h"

/* Behind those of queries.h. */
enum pg_query {
	PG_QUERY_FENCE = QUERY_MAX_, /* first of each batch: fails unless the connection is the
					newest one of this instance; notes the batch's number */
	PG_QUERY_RENEW,              /* the lease; tells of other instances */
	PG_QUERY_CLAIM,              /* rows of another writer that no instance has */
	PG_QUERY_TAKE,               /* one such row, or one whose instance is away, if the caller
					may see it */
	PG_QUERY_GIVE_BACK,          /* sessions of an instance that stops */
	PG_QUERY_GONE,               /* of some sessions, those without an open row */
	PG_QUERY_MAX_,
};

#define PG_LEASE_SECONDS 30
#define PG_LEASE_TEXT    "30 seconds"

struct pg_query_text {
	const char *name; /* NULL: the embedded store's only */
	const char *sql;
	uint32_t binary_params; /* bit per parameter: bytes, not text */
	bool binary_result;
};

const struct pg_query_text *pg_query(unsigned int query);
