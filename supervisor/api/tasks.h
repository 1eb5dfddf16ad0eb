/*
 * What tasks.c and task_stream.c tell each other.
 */
#pragma once

#include "base/buf.h"

#include "supervisor/api/live.h"

struct request;

/* task_cancel.c: the task has not ended; the request is answered when it has. */
void task_cancel(struct request *request, struct job *job);
/* Its end is asked for; it may be there at once. */
void task_cancel_ask(struct app *app, struct job *job);
void task_cancel_ended(struct app *app, const struct job *job);
void task_cancel_drop(struct app *app); /* the worker ends */

/* Wire numbers that were fed to a task, and what they brought, not yet handed to the store. */
struct held {
	struct buf numbers;
	struct buf data;
};
void held_init(struct held *held);
MUST_USE int held_add(struct held *held, uint64_t number, const void *data, size_t size);
void held_done(struct held *held, struct live *live); /* settles what is left */

/* The job's frames from first_seq on, with those of the held numbers that frames show (held may be
 * NULL). */
void tasks_store_frames(struct app *app, struct job *job, uint32_t first_seq, struct held *held);
void tasks_store_state(struct app *app, struct job *job);
/* After the terminal frame was added. session: NULL where it is gone. */
void tasks_end(struct app *app, struct job *job, struct session *session, enum job_state state);
/* One error frame and the end, whatever state the task is in; nothing where it has ended. */
void tasks_fail_held(struct app *app, struct job *job, struct session *session, const char *code,
		     const char *message, struct held *held);

/* task_run.c. 0; -EBUSY or -ENOBUFS: later; other: the task cannot run. */
MUST_USE int task_run_start(struct app *app, struct session *session, struct job *job);
/* An earlier worker started it, in a session that was adopted. 0, or it cannot go on. */
MUST_USE int task_run_resume(struct app *app, struct session *session, struct job *job,
			     uint32_t wire_job);

/* A task of that id that nobody waits for; quotas were judged. Steals the tags (or NULL). 0 or
 * -ENOMEM. */
MUST_USE int tasks_begin(struct app *app, struct session *session, const struct id *task,
			 json_t *tags);
/* 200 {task_id, status, stream_url} */
void task_reply_accepted(struct request *request, const struct id *task);

/* A task that is only in the store, to be described: what has not ended is in memory. Where the
 * store lost how it ended, that was an error. NULL: no memory; else job_free it. */
struct job *tasks_stored(const struct store_task *task);

/* task_stream.c: answers with the frames behind `after`. */
void task_stream_start(struct request *request, const struct id *task, uint32_t after,
		       bool as_lines);
/* Readers of this task look again. */
void task_streams_wake(struct app *app, const struct id *task);
