/*
 * What every store does alike: writes that wait in one queue, in order, their callbacks, and the
 * reads behind them. A store has it as its first member, moves writes from `waiting` to `finished`
 * (through `in_flight` where that takes longer than a call) and answers reads.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/id.h"
#include "base/list.h"

#include "supervisor/api/store/holds.h"
#include "supervisor/api/store/store.h"
#include "supervisor/api/store/writes.h"

#define FRAMES_A_READ 256

struct read;
struct read_viewer {
	char owner[IDENTITY_MAX + 1];
	char workspace[IDENTITY_MAX + 1];
	bool sees_all;
	bool is_list;
	char connection[STORE_AIRBYTE_ID_MAX + 1];
};
#define READ_AIRBYTE_VALUES 5
struct value;
/* Of QUERY_AIRBYTE_LIST or _GET; texts are the read's, and id's. How many. */
size_t read_airbyte_values(const struct read *read, char id[ID_TEXT_BYTES],
			   struct value values[READ_AIRBYTE_VALUES]);

struct read {
	struct list link;
	struct id id;        /* of the task, or of the session */
	bool of_session;     /* tasks of a session are read */
	char *after_file;    /* owned; of a component, written */
	char *sessions;      /* owned; their ids, as an array of the server's */
	uint64_t generation; /* when there were so many suspends, or later */
	uint32_t after;
	size_t max_bytes;
	store_task_read task_read; /* one of the seven, or none after store_forget */
	store_frames_read frames_read;
	store_component_read component_read;
	store_frames_use_seen use_seen;
	store_gone_seen gone_seen;
	store_airbyte_read airbyte_read;
	store_session_read session_read;
	struct read_viewer *viewer; /* owned; of the last two */
	void *userdata;
};

struct store_queue {
	struct store store;
	char *host;
	struct holds holds;
	struct list waiting;    /* struct write */
	struct list in_flight;  /* struct write: the server has them, or may have */
	struct list finished;   /* struct write: result is set, callback is owed */
	struct list reads;      /* struct read */
	struct list reading;    /* struct read: the server has them */
	bool is_full;           /* a write was given up; so are all behind it until the queue is
				   written */
	uint32_t n_retentions;  /* in waiting */
	uint64_t waiting_bytes; /* those in flight included */
	uint64_t max_waiting_bytes;
	usec_t retry_at;
	usec_t retry_delay;
	struct store_stats stats;
};

static inline struct store_queue *queue_of(struct store *store)
{
	return (struct store_queue *)(void *)store;
}

/* 0 or -ENOMEM; max_waiting_bytes 0: 64 MiB. */
MUST_USE int queue_init(struct store_queue *queue, const struct store_ops *ops, const char *host,
			uint64_t max_waiting_bytes);
void queue_done(struct store_queue *queue); /* calls no callback */

/* Behind those that wait; where there is no room for it, its callback hears STORE_LOST. 0, or
 * -ENOMEM for NULL and for one that failed, which is freed. */
MUST_USE int queue_add(struct store_queue *queue, struct write *write);
/* A write of `waiting` or `in_flight` has its result. */
void queue_finish(struct store_queue *queue, struct write *write);
/* The store has taken all that was given to it. */
void queue_note_commit(struct store_queue *queue);
/* It refuses, or is away: the next try comes after a delay that doubles. why: kept by pointer. */
void queue_note_failure(struct store_queue *queue, usec_t now, const char *why);
/* Callbacks; what they queue, or lose at once, waits for the next flush. */
void queue_tell_finished(struct store_queue *queue);
void queue_tell_degraded(struct store_queue *queue);
/* A planted fault: they are told, and the commit is not due yet. */
bool queue_answers_early(struct store_queue *queue, usec_t now);
/* Somebody waits and has not heard that he will wait for long. */
bool queue_has_untold(const struct store_queue *queue);
void queue_free_read(struct read *read);

/* Operations of struct store_ops: queue_calls.c. */
int queue_hold(struct store *store, const struct id *session, int64_t fence);
void queue_let_go(struct store *store, const struct id *session);
int queue_session_check(struct store *store, const struct id *session, store_done done,
			void *userdata);
int queue_session_insert(struct store *store, const struct session *session, store_done done,
			 void *userdata);
int queue_session_status(struct store *store, const struct session *session, usec_t now,
			 store_done done, void *userdata);
int queue_session_component(struct store *store, const struct id *session,
			    const struct store_component *component, usec_t now, store_done done,
			    void *userdata);
int queue_session_tree(struct store *store, const struct id *session, enum store_tree tree,
		       store_done done, void *userdata);
int queue_session_egress(struct store *store, const struct session *session, usec_t now,
			 store_done done, void *userdata);
int queue_session_runtime(struct store *store, const struct session *session, usec_t now,
			  store_done done, void *userdata);
int queue_session_log(struct store *store, const struct session *session, usec_t now,
		      store_done done, void *userdata);
int queue_session_close(struct store *store, const struct id *session, const char *reason,
			usec_t now, store_done done, void *userdata);
int queue_registry_put(struct store *store, const struct session *session, usec_t now,
		       store_done done, void *userdata);
int queue_session_redis(struct store *store, const struct id *session, bool left);
int queue_task_insert(struct store *store, const struct job *job, store_done done, void *userdata);
int queue_task_state(struct store *store, const struct job *job, store_done done, void *userdata);
int queue_frames_put(struct store *store, const struct job *job, const struct store_batch *batch,
		     store_done done, void *userdata);
int queue_usage_put(struct store *store, const struct store_usage *usage);
int queue_retain(struct store *store, const struct janitor_retention *retention, store_done done,
		 void *userdata);
int queue_task_get(struct store *store, const struct id *task, store_task_read task_read,
		   void *userdata);
int queue_tasks_of_session(struct store *store, const struct id *session, store_task_read task_read,
			   void *userdata);
int queue_frames_get(struct store *store, const struct id *task, uint32_t after, size_t max_bytes,
		     store_frames_read frames_read, void *userdata);
int queue_component_get(struct store *store, const struct id *session, const char *after,
			uint64_t generation, store_component_read component_read, void *userdata);
int queue_frames_use(struct store *store, store_frames_use_seen seen, void *userdata);
/* "{id,id}": texts, as PostgreSQL reads an array. To free; NULL: no memory. */
char *queue_id_array(const struct id *ids, size_t n);
int queue_sessions_gone(struct store *store, const struct id *sessions, size_t n,
			store_gone_seen seen, void *userdata);
int queue_session_take(struct store *store, const struct store_viewer *viewer,
		       const struct id *session, store_session_read session_read, void *userdata);
int queue_airbyte_get(struct store *store, const struct store_viewer *viewer,
		      const char *connection, const struct id *session,
		      store_airbyte_read airbyte_read, void *userdata);
int queue_airbyte_put(struct store *store, const struct store_airbyte_put *row, usec_t now,
		      store_done done, void *userdata);
int queue_airbyte_drop(struct store *store, const char *row_id, store_done done, void *userdata);
void queue_forget(struct store *store, const void *userdata);
void queue_stats(const struct store *store, struct store_stats *ret_stats);
