/*
 * The embedded store's own state, shared by its three files: sqlite.c (writes and the flush),
 * sqlite_reads.c, sqlite_open.c (start and end).
 */
#pragma once

#include <sqlite3.h>
#include <stdint.h>

#include "base/auto.h"

#include "supervisor/api/store/queries.h"
#include "supervisor/api/store/queue.h"
#include "supervisor/api/store/store.h"
#include "supervisor/api/store/writes.h"

struct sqlite_store {
	struct store_queue queue;
	sqlite3 *db;
	sqlite3_stmt *statement[QUERY_MAX_];
	bool log_is_stale; /* the log still holds what left a row: written over at a retention */
	bool short_log;    /* never lengthened ahead */
};

static inline struct sqlite_store *sqlite_store_of(struct store *store)
{
	return (struct sqlite_store *)(void *)store;
}

static inline const struct sqlite_store *sqlite_store_of_const(const struct store *store)
{
	return (const struct sqlite_store *)(const void *)store;
}

extern const struct store_ops sqlite_ops; /* sqlite.c */

/* Values are borrowed until the statement's next reset. SQLite's result code. */
int sqlite_bind(sqlite3_stmt *statement, const struct value *values, size_t n_values);
int sqlite_commit_waiting(struct sqlite_store *s); /* SQLite's code; 0: all writes are durable */

/* sqlite_reads.c */
void sqlite_do_reads(struct sqlite_store *s);
int sqlite_each_open_session(struct store *store, store_session_seen seen, void *userdata);
int sqlite_each_usage(struct store *store, uint32_t day, store_usage_seen seen, void *userdata);
int sqlite_each_redis_left(struct store *store, uint32_t max, store_id_seen seen, void *userdata);
int sqlite_each_open_task(struct store *store, store_task_seen seen, void *userdata);
int sqlite_task_progress(struct store *store, const struct id *task,
			 struct store_progress *ret_progress, store_output_seen seen,
			 void *userdata);

/* sqlite_open.c: the last try for what waits, then everything is freed. */
void sqlite_close(struct store *store);
/* Empty the log, so that no old page of it is left in the file. False: a reader is in the way. */
MUST_USE bool sqlite_renew_log(struct sqlite_store *s);
