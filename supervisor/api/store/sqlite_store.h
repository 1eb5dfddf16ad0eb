/*
 * The embedded store's own state, shared by its three files: sqlite.c (writes and the flush),
 * sqlite_reads.c, sqlite_open.c (start and end).
 */
#pragma once

#include <sqlite3.h>
#include <stdint.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/id.h"
#include "base/list.h"

#include "supervisor/api/store/queries.h"
#include "supervisor/api/store/store.h"

struct read {
	struct list link;
	struct id id;     /* of the task, or of the session */
	bool of_session;  /* tasks of a session are read */
	char *after_file; /* owned; of a component */
	uint32_t after;
	size_t max_bytes;
	store_task_read task_read; /* one of the three, or none after store_forget */
	store_frames_read frames_read;
	store_component_read component_read;
	void *userdata;
};

struct sqlite_store {
	struct store store;
	sqlite3 *db;
	sqlite3_stmt *statement[QUERY_MAX_];
	char *host;
	struct list waiting;  /* struct write */
	struct list finished; /* struct write: result is set, callback is owed */
	struct list reads;    /* struct read */
	bool is_full; /* a write was given up; so are all behind it until the queue is written */
	bool log_is_stale; /* the log still holds what left a row: written over at a retention */
	bool short_log;    /* never lengthened ahead */
	uint32_t n_retentions; /* in waiting */
	uint64_t waiting_bytes;
	uint64_t max_waiting_bytes;
	usec_t retry_at;
	usec_t retry_delay;
	struct store_stats stats;
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

int sqlite_commit_waiting(struct sqlite_store *s); /* SQLite's code; 0: all writes are durable */

/* sqlite_reads.c */
void sqlite_do_reads(struct sqlite_store *s);
void sqlite_drop_reads(struct sqlite_store *s);
int sqlite_task_get(struct store *store, const struct id *task, store_task_read task_read,
		    void *userdata);
int sqlite_tasks_of_session(struct store *store, const struct id *session,
			    store_task_read task_read, void *userdata);
int sqlite_frames_get(struct store *store, const struct id *task, uint32_t after, size_t max_bytes,
		      store_frames_read frames_read, void *userdata);
int sqlite_component_get(struct store *store, const struct id *session, const char *after,
			 store_component_read component_read, void *userdata);
int sqlite_each_open_session(struct store *store, store_session_seen seen, void *userdata);
int sqlite_each_usage(struct store *store, uint32_t day, store_usage_seen seen, void *userdata);
int sqlite_each_frames_use(struct store *store, store_frames_use_seen seen, void *userdata);
int sqlite_each_open_task(struct store *store, store_task_seen seen, void *userdata);
int sqlite_task_progress(struct store *store, const struct id *task,
			 struct store_progress *ret_progress, store_output_seen seen,
			 void *userdata);

/* sqlite_open.c: the last try for what waits, then everything is freed. */
void sqlite_close(struct store *store);
/* Empty the log, so that no old page of it is left in the file. False: a reader is in the way. */
MUST_USE bool sqlite_renew_log(struct sqlite_store *s);
