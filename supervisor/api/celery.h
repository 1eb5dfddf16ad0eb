/*
 * Celery on Redis, the worker's side and the client's: tasks of a queue of our own are run as if
 * they had been asked for over HTTP, and with `execution = celery` those asked for over HTTP are
 * put there.
 */
#pragma once

#include "base/buf.h"

#include "supervisor/api/app.h"

/* Where it is configured. 0 or -errno. */
MUST_USE int celery_start(struct app *app);
void celery_stop(struct app *app);
/* The worker serves from now on. */
void celery_serve(struct app *app);
/* Nothing more is taken, and what has not begun is put back. */
void celery_leave(struct app *app);
/* Nothing is on its way that would be lost. */
bool celery_is_idle(const struct app *app);

/* Something of the task was stored: it may have ended. */
void celery_task_stored(struct app *app, const struct job *job);
/* Something may start in that session. */
void celery_session_ready(struct app *app, const struct session *session);

void celery_observe(struct app *app); /* its part of readiness */
MUST_USE int celery_append_metrics(struct buf *text, const struct app *app);
