/*
 * Rows: what a session or a task becomes as values of a write, and what a result row says.
 */
#pragma once

#include <sqlite3.h>

#include "base/auto.h"

#include "supervisor/api/store/store.h"
#include "supervisor/api/store/writes.h"

/* Each appends its statements; failures are remembered in the write. */
void rows_session_insert(struct write *write, const struct session *session, const char *host);
void rows_session_status(struct write *write, const struct session *session, usec_t now);
void rows_session_component(struct write *write, const struct id *session,
			    const struct store_component *component, usec_t now);
void rows_session_log(struct write *write, const struct session *session, usec_t now);
void rows_task_insert(struct write *write, const struct job *job);
void rows_task_state(struct write *write, const struct job *job);
void rows_frames(struct write *write, const struct job *job, const struct store_batch *batch);
void rows_retain(struct write *write, const struct janitor_retention *retention);

/* The current row of QUERY_SESSIONS_OPEN or QUERY_TASK_GET/QUERY_TASKS_OPEN. Texts belong to the
 * statement. 0; -EINVAL: not a row that this release understands. */
MUST_USE int rows_read_session(sqlite3_stmt *statement, struct store_session *ret_row);
MUST_USE int rows_read_task(sqlite3_stmt *statement, struct store_task *ret_task);
