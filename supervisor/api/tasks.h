/*
 * What tasks.c and task_stream.c tell each other.
 */
#pragma once

#include "supervisor/api/app.h"

struct request;

/* task_cancel.c: the task has not ended; the request is answered when it has. */
void task_cancel(struct request *request, struct job *job);
void task_cancel_ended(struct app *app, const struct job *job);
void task_cancel_drop(struct app *app); /* the worker ends */
/* One error frame and the end, whatever state the task is in; nothing where it has ended. */
void tasks_fail_one(struct app *app, struct job *job, struct session *session, const char *code,
		    const char *message);
/* Readers of this task look again. */
void task_streams_wake(struct app *app, const struct id *task);
