/*
 * A job: a task that a client was told about (execute), with a row and frames.
 *
 *   QUEUED   its row is committed or owed; waits for the session's turn.
 *   RUNNING  the loader was started in the session.
 *   DONE     the terminal frame is `done`.
 *   ERROR    the terminal frame is `error`.
 *
 * A session runs one at a time, the others wait in order. Foreground commands are no jobs.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/id.h"
#include "base/list.h"

#include "sandboxd/limits.h"
#include "supervisor/api/jobs/frames.h"
#include "supervisor/api/jobs/load.h"
#include "supervisor/api/session/idmap.h"

struct registry;
struct session;

enum job_state {
	JOB_STATE_QUEUED,
	JOB_STATE_RUNNING,
	JOB_STATE_DONE,
	JOB_STATE_ERROR,
	JOB_STATE_MAX_,
};
const char *job_state_text(enum job_state state); /* "queued" "running" "done" "error" */
int job_state_from_text(const char *text);        /* or -1 */
static inline bool job_state_ended(enum job_state state)
{
	return state == JOB_STATE_DONE || state == JOB_STATE_ERROR;
}

#define JOB_CODE_BYTES 32

struct job {
	struct id id;
	struct id session;
	char owner[IDENTITY_MAX + 1]; /* as registry_owner: a task outlives its session */
	char workspace[IDENTITY_MAX + 1];
	char request[64]; /* id of the request that made it */
	json_t *tags;     /* owned: of each of its frames; NULL: none */
	enum job_state state;
	usec_t created_at;
	usec_t started_at; /* 0: not yet */
	usec_t ended_at;
	char code[JOB_CODE_BYTES]; /* of the terminal `error` frame, else empty */
	uint32_t wire_job;         /* number on the shim's socket, 0: none */
	struct frames frames;
	struct load_parser parser;
	uint32_t warned_minutes;   /* it was told that its session expires within so many; 0: not */
	uint32_t n_assets_shown;   /* progress.c */
	uint32_t n_problems_shown; /* progress.c */
	uint64_t held_bytes;       /* fed, but not yet in a frame */
	uint32_t n_held_feeds;     /* in how many pieces they came */
	uint32_t n_owed;           /* writes of it that the store has neither done nor given up */
	bool is_incomplete;        /* the store has not all of it and never will */
	bool is_announced;         /* platform.c publishes its frames */

	struct list queue_link; /* session->jobs */
	struct list table_link; /* job_table: oldest end first */
};

/* New in QUEUED, of that session. NULL: no memory. */
struct job *job_new(const struct id *id, const struct session *session, usec_t now);
/* A task read back from the store; its frames up to last_seq are there. NULL: no memory. */
struct job *job_restore(const struct id *id, const struct id *session, const char *owner,
			const char *workspace, enum job_state state, uint32_t last_seq);
struct job *job_free(struct job *job); /* in no queue and no table */

void job_enqueue(struct job *job, struct session *session);
/* The job that may start now: first in the queue and QUEUED, and nothing runs. NULL: none. */
struct job *job_next(const struct session *session);
struct job *job_running(const struct session *session); /* or NULL */
uint32_t job_waiting(const struct session *session);
void job_start(struct job *job, uint32_t wire_job, usec_t now); /* QUEUED -> RUNNING */
/* The terminal frame was added: leaves the queue. */
void job_end(struct job *job, struct session *session, enum job_state state, usec_t now);

/* Tasks held in memory: all that have not ended, and ended ones until the table is over its bytes
 * (oldest end first, only when the store owes them nothing); further ones are read from the store.
 */
struct job_table {
	struct idmap by_id;
	struct list ended;
	size_t max_bytes;
};
#define JOB_TABLE_MAX_BYTES (64u * 1024u * 1024u)
void job_table_init(struct job_table *table, size_t max_bytes);
void job_table_done(struct job_table *table); /* frees every job in it */
MUST_USE int job_table_add(struct job_table *table, struct job *job);
struct job *job_table_find(const struct job_table *table, const struct id *id);
void job_table_remove(struct job_table *table, struct job *job);
/* Another host's: out of queue and table without an end, and freed. */
void job_drop(struct job_table *table, struct job *job, struct session *session);
void job_table_note_ended(struct job_table *table, struct job *job);
/* Frees ended jobs that are owed nothing until at most max_bytes are held. */
void job_table_shrink(struct job_table *table);

/* {task_id, session_id, status, created_at, started_at, ended_at, code, seq, stream_url}; a new
 * reference or NULL. code: null unless `error`. stream_url: the prefix of the configuration. */
json_t *job_describe(const struct job *job, const char *stream_url);
