/*
 * Rows: what a session or a task becomes as values of a write, and what a result row says.
 */
#pragma once

#include "base/auto.h"

#include "supervisor/api/store/store.h"
#include "supervisor/api/store/writes.h"

/* Each appends its statements; failures are remembered in the write. */
void rows_session_insert(struct write *write, const struct session *session, const char *host);
void rows_session_status(struct write *write, const struct session *session, usec_t now);
void rows_session_component(struct write *write, const struct id *session,
			    const struct store_component *component, usec_t now);
void rows_session_egress(struct write *write, const struct session *session, usec_t now);
void rows_registry(struct write *write, const struct session *session, usec_t now);
void rows_session_runtime(struct write *write, const struct session *session, usec_t now);
void rows_session_log(struct write *write, const struct session *session, usec_t now);
void rows_task_insert(struct write *write, const struct job *job);
void rows_task_state(struct write *write, const struct job *job);
void rows_frames(struct write *write, const struct job *job, const struct store_batch *batch);
void rows_retain(struct write *write, const struct janitor_retention *retention);

/* A row of a result as texts, NULL for a NULL value; they belong to whoever filled it in. */
#define COLUMNS_MAX 24
struct columns {
	const char *text[COLUMNS_MAX];
};

/* A row of QUERY_SESSIONS_OPEN or QUERY_TASK_GET/QUERY_TASKS_OPEN. 0; -EINVAL: not a row that this
 * release understands. */
MUST_USE int rows_read_session(const struct columns *columns, struct store_session *ret_row);
MUST_USE int rows_read_task(const struct columns *columns, struct store_task *ret_task);
/* Of a number; 0: none. */
uint64_t columns_number(const struct columns *columns, size_t at);
