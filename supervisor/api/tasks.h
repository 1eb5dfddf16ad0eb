/*
 * What tasks.c and task_stream.c tell each other.
 */
#pragma once

#include "supervisor/api/app.h"

/* Readers of this task look again. */
void task_streams_wake(struct app *app, const struct id *task);
