/*
 * The store: rows of sessions and tasks, frames, acknowledged wire numbers.
 *
 * Asynchronous in shape, so that a server behind a socket fits as well as a file. Every operation
 * only queues; store_flush(), called once at the end of each loop turn, does all of them in one
 * transaction (group commit), then calls their callbacks. No callback is ever called from inside
 * the function that queues. Operations take copies of what they are given.
 *
 * Results of a write:
 *   STORE_OK         durable.
 *   STORE_DEGRADED   the store refuses now; the write stays queued, in order, and is tried again.
 *                    A second call follows: STORE_OK, STORE_REFUSED or STORE_LOST.
 *   STORE_DUPLICATE  the id exists, or the wire number is not above the last one: nothing written.
 *   STORE_REFUSED    this write can never succeed (too big, ...).
 *   STORE_LOST       the queue of waiting writes is full: it was given up, and so is what comes
 *                    after it until the store takes what waits.
 *   STORE_FENCED     the session is another instance's by now: nothing written.
 *   STORE_NOT_FOUND  of store_retain only.
 * Reads: STORE_OK, STORE_NOT_FOUND, or STORE_DEGRADED (final for a read).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/id.h"

#include "sandboxd/limits.h"
#include "supervisor/api/janitor/plan.h"
#include "supervisor/api/jobs/job.h"
#include "supervisor/api/session/session.h"

#define STORE_TASKS_MAX 200 /* in one list */

enum store_result {
	STORE_OK,
	STORE_NOT_FOUND,
	STORE_DUPLICATE,
	STORE_DEGRADED,
	STORE_REFUSED,
	STORE_LOST,
	STORE_FENCED,
	STORE_RESULT_MAX_,
};
const char *store_result_text(enum store_result result);

struct store;
/* Of a write. May be NULL at the call. */
typedef void (*store_done)(void *userdata, enum store_result result);

/* A row of an open or running session as start-up needs it; pointers are valid inside the callback
 * only. */
struct store_session {
	struct id id;
	const char *owner; /* owner_text where the column is NULL; never NULL */
	bool operator_owned;
	const char *workspace; /* "" : none */
	const char *project;
	const char *profile;
	const char *last_run_id; /* "" : none */
	bool dagster;
	usec_t created_at;
	usec_t expires_at;
	uint32_t ttl_minutes;
	bool restoring;                /* its tree, if it has one, is incomplete */
	uint64_t acked;                /* highest wire number that is durable */
	const char *overrides_json;    /* object name -> value, or NULL; secret-like */
	const char *envs_json;         /* array of NAME=VALUE, or NULL */
	const char *secrets_json;      /* array of names, or NULL */
	const char *name;              /* "" : none */
	const char *egress_allow_json; /* array of rules, or NULL */
	int64_t fence;                 /* of store_hold */
	const char *runtime_json;      /* of struct spec_runtime, or NULL */
	const char *components_json;   /* object file -> bytes of the body (numbers, not bodies) */
	const char *log_summary_json;  /* array, or NULL */
	const char *registry_json;     /* object (session/suspension.h), or NULL */
	bool has_plan; /* limits as they were at the launch; profile, hash and egress are 0 */
	struct plan plan;
};
/* row is NULL unless STORE_OK. */
typedef void (*store_session_read)(void *userdata, enum store_result result,
				   const struct store_session *row);
typedef int (*store_session_seen)(void *userdata, const struct store_session *row);

/* A task that has not ended, at start. */
struct store_task {
	struct id id;
	struct id session;
	const char *owner;
	const char *workspace;
	const char *code; /* "" unless it ended as an error */
	enum job_state state;
	usec_t created_at;
	usec_t started_at;
	usec_t ended_at;
	uint32_t last_seq;
	uint32_t wire_job;
};
typedef int (*store_task_seen)(void *userdata, const struct store_task *task);

/* The loader's output that frames of a task already show, as it was acknowledged. */
struct store_output {
	const void *data;
	size_t size;
};
/* Something new of a task. */
struct store_batch {
	uint32_t first_seq;   /* all frames of the job from this one on; above the last: none */
	uint64_t wire_number; /* the session's acknowledged number; 0: stays */
	/* What came under the numbers up to wire_number, kept until the task ends together with how
	 * far the job has come; or NULL. */
	const struct store_output *output;
};
/* How far a task that runs had come. */
struct store_progress {
	bool resumable;
	uint32_t n_assets_shown;
	uint32_t n_problems_shown;
	uint32_t n_dropped;
	uint64_t frames_bytes;
};
typedef int (*store_output_seen)(void *userdata, const struct store_output *output);
/* task is NULL unless STORE_OK. */
typedef void (*store_task_read)(void *userdata, enum store_result result,
				const struct store_task *task);

struct store_frame {
	uint32_t seq;
	enum frames_stage stage;
	const char *text;
	size_t size;
};
/* Frames of one task above `after`, rising, as many as max_bytes allow (at least one). more: there
 * are further ones. n = 0 and STORE_OK: none. */
typedef void (*store_frames_read)(void *userdata, enum store_result result,
				  const struct store_frame *frames, size_t n, bool more);

/* A component as it is written, and as it is read back: then file may be any name. */
struct store_component {
	const char *file;
	const char *body;
	size_t body_length;
	/* Not read back: */
	const char *origin;  /* of struct store_airbyte, whose id it is; NULL: none */
	uint64_t generation; /* suspends of the session when it was written */
};
/* component is NULL unless STORE_OK. */
typedef void (*store_component_read)(void *userdata, enum store_result result,
				     const struct store_component *component);

/* Who asks for rows of his own or of his workspace; "": none. */
struct store_viewer {
	const char *owner;
	const char *workspace;
	bool sees_all;
};
/* A connection of Airbyte. Whatever the texts say is another program's word. */
struct store_airbyte {
	const char *id; /* of the row */
	const char *name;
	size_t name_length;
	const char *connection_id; /* Airbyte's own; "": none */
	const char *files_json; /* array: components of the session in question that came from it */
};
/* row is NULL unless STORE_OK. */
typedef void (*store_airbyte_read)(void *userdata, enum store_result result,
				   const struct store_airbyte *row);
/* One that is kept: made, or changed where the owner and the workspace have it already. */
struct store_airbyte_put {
	const char *name;
	const char *connection_id;
	const char *source_id;      /* "": none */
	const char *destination_id; /* "": none */
	const char *streams_json;   /* array of names */
	const char *owner;          /* "": NULL, which the operator alone sees */
	const char *workspace;      /* "": NULL */
};
#define STORE_AIRBYTE_MAX    1000 /* in one list */
#define STORE_AIRBYTE_ID_MAX 64   /* a longer id names nothing */

enum store_tree {
	STORE_TREE_COMPLETE,
	STORE_TREE_RESTORING, /* a new tree: its shim's numbers begin again */
};

/* Processor time of one tenant in one day. */
struct store_usage {
	uint32_t day;
	uint32_t scope; /* enum quota_scope */
	const char *name;
	uint64_t cpu_us;
};
/* What the frames of an owner's tasks in a workspace take; "": none. */
struct store_frames_use {
	const char *owner;
	const char *workspace;
	uint64_t bytes;
};
/* use is NULL unless STORE_OK. */
typedef void (*store_frames_use_seen)(void *userdata, enum store_result result,
				      const struct store_frames_use *use);
/* A session that no open row speaks of, and none ever will. */
struct store_gone {
	struct id session;
	/* Realtime, by the store's clock: its row may have been in another store before. 0: the row
	 * is here, and says so. */
	usec_t not_before;
};
/* gone is NULL unless STORE_OK. */
typedef void (*store_gone_seen)(void *userdata, enum store_result result,
				const struct store_gone *gone);
/* A session by its id. */
typedef int (*store_id_seen)(void *userdata, const struct id *session);
typedef int (*store_usage_seen)(void *userdata, const struct store_usage *usage);

struct store_stats {
	uint64_t n_writes;
	uint64_t n_commits;
	uint64_t n_failed_commits;
	uint32_t n_waiting; /* writes queued, the degraded ones included */
	bool degraded;
	const char *reason; /* why it was degraded last, for operators; the store's own */
};

struct store_ops {
	void (*close)(struct store *store);
	int (*each_open_session)(struct store *store, store_session_seen seen, void *userdata);
	int (*each_open_task)(struct store *store, store_task_seen seen, void *userdata);
	int (*task_progress)(struct store *store, const struct id *task,
			     struct store_progress *ret_progress, store_output_seen seen,
			     void *userdata);
	int (*hold)(struct store *store, const struct id *session, int64_t fence);
	void (*let_go)(struct store *store, const struct id *session);
	int (*session_check)(struct store *store, const struct id *session, store_done done,
			     void *userdata);
	bool (*lease_lapsed)(const struct store *store, usec_t now);
	bool (*lease_regained)(struct store *store);
	usec_t (*lease_end)(const struct store *store);
	void (*give_back)(struct store *store, const struct id *sessions, size_t n);
	int (*session_insert)(struct store *store, const struct session *session, store_done done,
			      void *userdata);
	int (*session_status)(struct store *store, const struct session *session, usec_t now,
			      store_done done, void *userdata);
	int (*session_component)(struct store *store, const struct id *session,
				 const struct store_component *component, usec_t now,
				 store_done done, void *userdata);
	int (*session_tree)(struct store *store, const struct id *session, enum store_tree tree,
			    store_done done, void *userdata);
	int (*session_egress)(struct store *store, const struct session *session, usec_t now,
			      store_done done, void *userdata);
	int (*registry_put)(struct store *store, const struct session *session, usec_t now,
			    store_done done, void *userdata);
	int (*session_runtime)(struct store *store, const struct session *session, usec_t now,
			       store_done done, void *userdata);
	int (*session_log)(struct store *store, const struct session *session, usec_t now,
			   store_done done, void *userdata);
	int (*session_close)(struct store *store, const struct id *session, const char *reason,
			     usec_t now, store_done done, void *userdata);
	int (*session_redis)(struct store *store, const struct id *session, bool left);
	int (*each_redis_left)(struct store *store, uint32_t max, store_id_seen seen,
			       void *userdata);
	int (*task_insert)(struct store *store, const struct job *job, store_done done,
			   void *userdata);
	int (*task_state)(struct store *store, const struct job *job, store_done done,
			  void *userdata);
	int (*frames_put)(struct store *store, const struct job *job,
			  const struct store_batch *batch, store_done done, void *userdata);
	int (*task_get)(struct store *store, const struct id *task, store_task_read read,
			void *userdata);
	int (*tasks_of_session)(struct store *store, const struct id *session, store_task_read read,
				void *userdata);
	int (*frames_get)(struct store *store, const struct id *task, uint32_t after,
			  size_t max_bytes, store_frames_read read, void *userdata);
	int (*component_get)(struct store *store, const struct id *session, const char *after,
			     uint64_t generation, store_component_read read, void *userdata);
	int (*session_take)(struct store *store, const struct store_viewer *viewer,
			    const struct id *session, store_session_read read, void *userdata);
	int (*airbyte_get)(struct store *store, const struct store_viewer *viewer,
			   const char *connection, const struct id *session,
			   store_airbyte_read read, void *userdata);
	int (*airbyte_put)(struct store *store, const struct store_airbyte_put *row, usec_t now,
			   store_done done, void *userdata);
	int (*airbyte_drop)(struct store *store, const char *row_id, store_done done,
			    void *userdata);
	int (*usage_put)(struct store *store, const struct store_usage *usage);
	int (*each_usage)(struct store *store, uint32_t day, store_usage_seen seen, void *userdata);
	int (*frames_use)(struct store *store, store_frames_use_seen seen, void *userdata);
	int (*sessions_gone)(struct store *store, const struct id *sessions, size_t n,
			     store_gone_seen seen, void *userdata);
	int (*retain)(struct store *store, const struct janitor_retention *retention,
		      store_done done, void *userdata);
	void (*forget)(struct store *store, const void *userdata);
	void (*flush)(struct store *store, usec_t now);
	usec_t (*next_wakeup)(const struct store *store);
	void (*stats)(const struct store *store, struct store_stats *ret_stats);
};

/* First member of every implementation. */
struct store {
	const struct store_ops *ops;
};

/* Every queueing function: 0, or -ENOMEM and no callback follows. */

static inline struct store *store_close(struct store *store)
{
	if (store)
		store->ops->close(store); /* flushes once more; calls no callback */
	return NULL;
}

/* At start, before anything is queued: synchronous. A negative return of `seen` ends it. 0 or
 * -errno. */
MUST_USE static inline int store_each_open_session(struct store *store, store_session_seen seen,
						   void *userdata)
{
	return store->ops->each_open_session(store, seen, userdata);
}

/* Tasks that are queued or running. */
MUST_USE static inline int store_each_open_task(struct store *store, store_task_seen seen,
						void *userdata)
{
	return store->ops->each_open_task(store, seen, userdata);
}

/* How far a task had come, and its output in order. 0; -ENOENT; a negative return of `seen`. */
MUST_USE static inline int store_task_progress(struct store *store, const struct id *task,
					       struct store_progress *ret_progress,
					       store_output_seen seen, void *userdata)
{
	return store->ops->task_progress(store, task, ret_progress, seen, userdata);
}

/* A row that was read is this process's to write from now on, with that number; one that it inserts
 * is, too. Each run and each new tree raises the number with its own write. 0 or -ENOMEM. */
MUST_USE static inline int store_hold(struct store *store, const struct id *session, int64_t fence)
{
	return store->ops->hold(store, session, fence);
}

/* The session is forgotten here. */
static inline void store_let_go(struct store *store, const struct id *session)
{
	store->ops->let_go(store, session);
}

/* Writes nothing: STORE_FENCED where the session is another instance's. */
MUST_USE static inline int store_session_check(struct store *store, const struct id *session,
					       store_done done, void *userdata)
{
	return store->ops->session_check(store, session, done, userdata);
}

/* Another instance may have taken any session: no task may begin. now: CLOCK_BOOTTIME. */
static inline bool store_lease_lapsed(const struct store *store, usec_t now)
{
	return store->ops->lease_lapsed(store, now);
}

/* By CLOCK_BOOTTIME, as it is known now: when another instance that lives on this store may begin
 * to take sessions. USEC_NEVER: there is none. */
static inline usec_t store_lease_end(const struct store *store)
{
	return store->ops->lease_end(store);
}

/* At the end, behind all that was written and in two seconds: another instance may take these at
 * once, and writes about them are no more ours. Where that fails they are taken as others are. */
static inline void store_give_back(struct store *store, const struct id *sessions, size_t n)
{
	store->ops->give_back(store, sessions, n);
}

/* Said once: it had lapsed, and store_session_check tells of each session whether it was taken. */
static inline bool store_lease_regained(struct store *store)
{
	return store->ops->lease_regained(store);
}

MUST_USE static inline int store_session_insert(struct store *store, const struct session *session,
						store_done done, void *userdata)
{
	return store->ops->session_insert(store, session, done, userdata);
}

/* status, last_run_id and expires_at as they are in the session now. */
MUST_USE static inline int store_session_status(struct store *store, const struct session *session,
						usec_t now, store_done done, void *userdata)
{
	return store->ops->session_status(store, session, now, done, userdata);
}

/* One component set or replaced; the cost is that of its own body. */
MUST_USE static inline int store_session_component(struct store *store, const struct id *session,
						   const struct store_component *component,
						   usec_t now, store_done done, void *userdata)
{
	return store->ops->session_component(store, session, component, now, done, userdata);
}

/* What a later start needs to know of the session's process tree. */
MUST_USE static inline int store_session_tree(struct store *store, const struct id *session,
					      enum store_tree tree, store_done done, void *userdata)
{
	return store->ops->session_tree(store, session, tree, done, userdata);
}

/* egress_allow_json as it is in the session now. */
MUST_USE static inline int store_session_egress(struct store *store, const struct session *session,
						usec_t now, store_done done, void *userdata)
{
	return store->ops->session_egress(store, session, now, done, userdata);
}

/* Its row of sandbox_registry as the session is now, made where there is none. */
MUST_USE static inline int store_registry_put(struct store *store, const struct session *session,
					      usec_t now, store_done done, void *userdata)
{
	return store->ops->registry_put(store, session, now, done, userdata);
}

/* runtime_json as it is in the session now. */
MUST_USE static inline int store_session_runtime(struct store *store, const struct session *session,
						 usec_t now, store_done done, void *userdata)
{
	return store->ops->session_runtime(store, session, now, done, userdata);
}

/* log_summary_json as it is in the session now. */
MUST_USE static inline int store_session_log(struct store *store, const struct session *session,
					     usec_t now, store_done done, void *userdata)
{
	return store->ops->session_log(store, session, now, done, userdata);
}

/* status closed, closed_reason, updated_at; a row that is closed already keeps its reason. */
MUST_USE static inline int store_session_close(struct store *store, const struct id *session,
					       const char *reason, usec_t now, store_done done,
					       void *userdata)
{
	return store->ops->session_close(store, session, reason, now, done, userdata);
}

/* Whether its keys in Redis are left once it is closed; nobody is told. */
MUST_USE static inline int store_session_redis(struct store *store, const struct id *session,
					       bool left)
{
	return store->ops->session_redis(store, session, left);
}

/* At start, as store_each_open_session: closed ones whose keys may be left. */
MUST_USE static inline int store_each_redis_left(struct store *store, uint32_t max,
						 store_id_seen seen, void *userdata)
{
	return store->ops->each_redis_left(store, max, seen, userdata);
}

MUST_USE static inline int store_task_insert(struct store *store, const struct job *job,
					     store_done done, void *userdata)
{
	return store->ops->task_insert(store, job, done, userdata);
}

/* state and times as they are in the job now. */
MUST_USE static inline int store_task_state(struct store *store, const struct job *job,
					    store_done done, void *userdata)
{
	return store->ops->task_state(store, job, done, userdata);
}

/*
 * The batch in one transaction. wire_number not above the durable one: STORE_DUPLICATE and no frame
 * is written.
 */
MUST_USE static inline int store_frames_put(struct store *store, const struct job *job,
					    const struct store_batch *batch, store_done done,
					    void *userdata)
{
	return store->ops->frames_put(store, job, batch, done, userdata);
}

MUST_USE static inline int store_task_get(struct store *store, const struct id *task,
					  store_task_read read, void *userdata)
{
	return store->ops->task_get(store, task, read, userdata);
}

/* The newest STORE_TASKS_MAX tasks of a session, newest first: one call each with STORE_OK, then
 * one with STORE_NOT_FOUND (no more) or STORE_DEGRADED. */
MUST_USE static inline int store_tasks_of_session(struct store *store, const struct id *session,
						  store_task_read read, void *userdata)
{
	return store->ops->tasks_of_session(store, session, read, userdata);
}

MUST_USE static inline int store_frames_get(struct store *store, const struct id *task,
					    uint32_t after, size_t max_bytes,
					    store_frames_read read, void *userdata)
{
	return store->ops->frames_get(store, task, after, max_bytes, read, userdata);
}

/* The component of the session that follows the name `after` (NULL: the first), of those that were
 * written in this generation or later. 0: all, also of rows that another program wrote.
 * STORE_NOT_FOUND: there is none. */
MUST_USE static inline int store_component_get(struct store *store, const struct id *session,
					       const char *after, uint64_t generation,
					       store_component_read read, void *userdata)
{
	return store->ops->component_get(store, session, after, generation, read, userdata);
}

/* A row that another program wrote since the start, or of an instance whose lease has lapsed: it is
 * this one's from now on, with a new number, if the viewer may see it. -EOPNOTSUPP: this store has
 * no other writer. */
MUST_USE static inline int store_session_take(struct store *store,
					      const struct store_viewer *viewer,
					      const struct id *session, store_session_read read,
					      void *userdata)
{
	return store->ops->session_take(store, viewer, session, read, userdata);
}

/* The connection with this id, the row's or Airbyte's, if the viewer may see it; one call.
 * connection NULL: all that he may see, by name, up to STORE_AIRBYTE_MAX: one call each with
 * STORE_OK, then one with STORE_NOT_FOUND (no more) or STORE_DEGRADED. session: of files_json. */
MUST_USE static inline int store_airbyte_get(struct store *store, const struct store_viewer *viewer,
					     const char *connection, const struct id *session,
					     store_airbyte_read read, void *userdata)
{
	return store->ops->airbyte_get(store, viewer, connection, session, read, userdata);
}

/* -EOPNOTSUPP: the rows of this store are another program's. */
MUST_USE static inline int store_airbyte_put(struct store *store,
					     const struct store_airbyte_put *row, usec_t now,
					     store_done done, void *userdata)
{
	return store->ops->airbyte_put(store, row, now, done, userdata);
}

/* By the row's id. -EOPNOTSUPP as above. */
MUST_USE static inline int store_airbyte_drop(struct store *store, const char *row_id,
					      store_done done, void *userdata)
{
	return store->ops->airbyte_drop(store, row_id, done, userdata);
}

/* Set or replaced. Earlier days are deleted; nobody is told. */
MUST_USE static inline int store_usage_put(struct store *store, const struct store_usage *usage)
{
	return store->ops->usage_put(store, usage);
}

/* At start, as store_each_open_session. */
MUST_USE static inline int store_each_usage(struct store *store, uint32_t day,
					    store_usage_seen seen, void *userdata)
{
	return store->ops->each_usage(store, day, seen, userdata);
}

/* One call each with STORE_OK, then one with STORE_NOT_FOUND (no more) or STORE_DEGRADED. */
MUST_USE static inline int store_frames_use(struct store *store, store_frames_use_seen seen,
					    void *userdata)
{
	return store->ops->frames_use(store, seen, userdata);
}

/* Those of these sessions that are gone, whoever had them: calls as of store_frames_use. Of a store
 * that others share alone; else -EOPNOTSUPP. */
MUST_USE static inline int store_sessions_gone(struct store *store, const struct id *sessions,
					       size_t n, store_gone_seen seen, void *userdata)
{
	return store->ops->sessions_gone(store, sessions, n, seen, userdata);
}

/* One bounded step of retention deletes. STORE_OK: there may be more, call it again soon, else what
 * is written faster than one step a tick deletes stays for ever. STORE_NOT_FOUND: nothing was old
 * enough. */
MUST_USE static inline int store_retain(struct store *store,
					const struct janitor_retention *retention, store_done done,
					void *userdata)
{
	return store->ops->retain(store, retention, done, userdata);
}

/* Callbacks with this userdata are not called any more; the writes are still done. */
static inline void store_forget(struct store *store, const void *userdata)
{
	store->ops->forget(store, userdata);
}

/* End of a loop turn. now: CLOCK_BOOTTIME, for the retry delay. Callbacks may queue; what they
 * queue waits for the next flush (see store_next_wakeup). */
static inline void store_flush(struct store *store, usec_t now)
{
	store->ops->flush(store, now);
}

/* When flush wants to be called without new work: 0 at once, USEC_NEVER nothing waits. */
static inline usec_t store_next_wakeup(const struct store *store)
{
	return store->ops->next_wakeup(store);
}

static inline struct store_stats store_stats(const struct store *store)
{
	struct store_stats stats;

	store->ops->stats(store, &stats);
	return stats;
}
