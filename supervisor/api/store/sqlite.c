/*
 * A flush does all writes in one transaction. One that can never succeed is undone by its savepoint
 * and leaves the queue, so that it does not hold up the others.
 */
#include <errno.h>

#include "base/auto.h"
#include "base/err.h"

#include "supervisor/api/store/rows.h"
#include "supervisor/api/store/sqlite_store.h"
#include "supervisor/api/store/writes.h"

/* ---- statements ---- */

int sqlite_bind(sqlite3_stmt *statement, const struct value *values, size_t n_values)
{
	int r = SQLITE_OK;

	for (size_t i = 0; r == SQLITE_OK && i < n_values; i++) {
		int at = (int)i + 1;

		switch (values[i].type) {
		case VALUE_NULL:
			r = sqlite3_bind_null(statement, at);
			break;
		case VALUE_INTEGER:
			r = sqlite3_bind_int64(statement, at, values[i].number);
			break;
		case VALUE_TEXT:
			r = sqlite3_bind_text64(statement, at, values[i].text, values[i].size,
						SQLITE_STATIC, SQLITE_UTF8);
			break;
		case VALUE_BLOB:
			r = sqlite3_bind_blob64(statement, at, values[i].text, values[i].size,
						SQLITE_STATIC);
			break;
		}
	}
	return r;
}

/* The result code of the statement's first step. */
static int run_once(struct sqlite_store *s, enum query query, const struct value *values,
		    size_t n_values)
{
	sqlite3_stmt *statement = s->statement[query];
	int r = sqlite_bind(statement, values, n_values);

	if (r == SQLITE_OK)
		r = sqlite3_step(statement);
	(void)sqlite3_reset(statement);
	(void)sqlite3_clear_bindings(statement);
	return r;
}

/* Run one that returns no rows. 0 or SQLite's result code. */
static int run(struct sqlite_store *s, enum query query, const struct value *values,
	       size_t n_values)
{
	int r = run_once(s, query, values, n_values);

	return r == SQLITE_DONE || r == SQLITE_ROW ? SQLITE_OK : r;
}

/* Is it this write that is wrong, and not the store? */
static bool is_final(int r, enum store_result *ret_result)
{
	switch (r & 0xff) {
	case SQLITE_CONSTRAINT:
		*ret_result = STORE_DUPLICATE;
		return true;
	case SQLITE_TOOBIG:
	case SQLITE_MISMATCH:
	case SQLITE_RANGE:
	case SQLITE_ERROR: /* for us: a JSON column that somebody else broke */
		*ret_result = STORE_REFUSED;
		return true;
	default:
		return false;
	}
}

static int run_steps(struct sqlite_store *s, const struct write *write,
		     enum store_result *ret_result)
{
	int n_before = sqlite3_total_changes(s->db);

	for (const struct write_step *step = write->first; step; step = step->next) {
		int r = run_once(s, step->query, step->value, step->n_values);

		if (step->query == QUERY_SESSION_HOLD && r == SQLITE_ROW) {
			*ret_result = STORE_FENCED;
			return SQLITE_OK;
		}
		if (r != SQLITE_DONE && r != SQLITE_ROW)
			return is_final(r, ret_result) ? SQLITE_OK : r;
		if (step->must_change && sqlite3_changes(s->db) == 0) {
			*ret_result = STORE_DUPLICATE;
			return SQLITE_OK;
		}
	}
	*ret_result = write->is_retention && sqlite3_total_changes(s->db) == n_before
			      ? STORE_NOT_FOUND
			      : STORE_OK;
	return SQLITE_OK;
}

/* 0 and write->result is set, or SQLite's code: the whole transaction is void. */
static int run_write(struct sqlite_store *s, struct write *write)
{
	enum store_result result = STORE_OK;
	int r;

	r = run(s, QUERY_SAVEPOINT, NULL, 0);
	if (r == SQLITE_OK)
		r = run_steps(s, write, &result);
	if (r == SQLITE_OK && result != STORE_OK)
		r = run(s, QUERY_UNDO, NULL, 0);
	if (r == SQLITE_OK)
		r = run(s, QUERY_RELEASE, NULL, 0);
	write->result = result;
	return r;
}

/* only_retention: of what waits, the deletes of what is old enough. */
static int commit(struct sqlite_store *s, bool only_retention)
{
	int r;

	r = run(s, QUERY_BEGIN, NULL, 0);
	if (r != SQLITE_OK)
		return r;
	LIST_FOR_EACH (link, &s->queue.waiting) {
		struct write *write = LIST_ENTRY(link, struct write, link);

		if (only_retention && !write->is_retention)
			continue;
		r = run_write(s, write);
		if (r != SQLITE_OK)
			break;
	}
	if (r == SQLITE_OK)
		r = run(s, QUERY_COMMIT, NULL, 0);
	/* Some errors have rolled back already. */
	if (r != SQLITE_OK && !sqlite3_get_autocommit(s->db))
		(void)run(s, QUERY_ROLLBACK, NULL, 0);
	return r;
}

int sqlite_commit_waiting(struct sqlite_store *s)
{
	return commit(s, false);
}

/* ---- flush ---- */

static void note_commit(struct sqlite_store *s)
{
	LIST_FOR_EACH_SAFE (link, following, &s->queue.waiting)
		queue_finish(&s->queue, LIST_ENTRY(link, struct write, link));
	queue_note_commit(&s->queue);
}

/* A full store takes nothing more, but may still lose what is old enough: that goes first, by
 * itself, or it would wait for ever behind what does not fit. */
static void make_room(struct sqlite_store *s)
{
	struct store_queue *queue = &s->queue;

	if (!queue->stats.degraded || queue->n_retentions == 0 || commit(s, true) != SQLITE_OK)
		return;
	LIST_FOR_EACH_SAFE (link, following, &queue->waiting) {
		struct write *write = LIST_ENTRY(link, struct write, link);

		if (write->is_retention)
			queue_finish(queue, write);
	}
	queue->stats.n_commits++;
	queue->retry_delay = 0; /* there is room again, or soon more of it */
}

/* ---- flush ---- */

static void sqlite_flush(struct store *store, usec_t now)
{
	struct sqlite_store *s = sqlite_store_of(store);
	struct store_queue *queue = &s->queue;
	bool is_retention = false;
	int r;

	if (!list_empty(&queue->waiting) && !queue_answers_early(queue, now) &&
	    (!queue->stats.degraded || now >= queue->retry_at)) {
		make_room(s);
		is_retention = queue->n_retentions > 0;
		r = sqlite_commit_waiting(s);
		if (r == SQLITE_OK)
			note_commit(s);
		else
			queue_note_failure(queue, now, sqlite3_errstr(r));
	}
	queue_tell_finished(queue);
	if (queue->stats.degraded)
		queue_tell_degraded(queue);
	sqlite_do_reads(s);
	/* Costs some milliseconds, so not at each close. */
	if (is_retention && s->log_is_stale && !queue->stats.degraded)
		s->log_is_stale = !sqlite_renew_log(s);
}

static usec_t sqlite_next_wakeup(const struct store *store)
{
	const struct store_queue *queue = &sqlite_store_of_const(store)->queue;

	if (!list_empty(&queue->reads) || !list_empty(&queue->finished))
		return 0;
	if (list_empty(&queue->waiting))
		return USEC_NEVER;
	if (!queue->stats.degraded || queue_has_untold(queue))
		return 0;
	return queue->retry_at;
}

static int sqlite_session_close(struct store *store, const struct id *session, const char *reason,
				usec_t now, store_done done, void *userdata)
{
	sqlite_store_of(store)->log_is_stale = true; /* of its overrides */
	return queue_session_close(store, session, reason, now, done, userdata);
}

/* Nobody else writes sessions into the file. */
static int no_session_take(struct store *store, const struct store_viewer *viewer,
			   const struct id *session, store_session_read read, void *userdata)
{
	(void)store;
	(void)viewer;
	(void)session;
	(void)read;
	(void)userdata;
	return -EOPNOTSUPP;
}

/* The file has one service. */
static int no_sessions_gone(struct store *store, const struct id *sessions, size_t n,
			    store_gone_seen seen, void *userdata)
{
	(void)store;
	(void)sessions;
	(void)n;
	(void)seen;
	(void)userdata;
	return -EOPNOTSUPP;
}

static bool no_lease_lapsed(const struct store *store, usec_t now)
{
	(void)store;
	(void)now;
	return false;
}

static bool no_lease_regained(struct store *store)
{
	(void)store;
	return false;
}

static void no_give_back(struct store *store, const struct id *sessions, size_t n)
{
	(void)store;
	(void)sessions;
	(void)n;
}

static usec_t no_lease_end(const struct store *store)
{
	(void)store;
	return USEC_NEVER;
}

const struct store_ops sqlite_ops = {
	.close = sqlite_close,
	.each_open_session = sqlite_each_open_session,
	.each_open_task = sqlite_each_open_task,
	.task_progress = sqlite_task_progress,
	.hold = queue_hold,
	.let_go = queue_let_go,
	.session_check = queue_session_check,
	.lease_lapsed = no_lease_lapsed,
	.lease_regained = no_lease_regained,
	.lease_end = no_lease_end,
	.give_back = no_give_back,
	.session_insert = queue_session_insert,
	.session_status = queue_session_status,
	.session_component = queue_session_component,
	.session_tree = queue_session_tree,
	.session_egress = queue_session_egress,
	.registry_put = queue_registry_put,
	.session_runtime = queue_session_runtime,
	.session_log = queue_session_log,
	.session_close = sqlite_session_close,
	.session_redis = queue_session_redis,
	.each_redis_left = sqlite_each_redis_left,
	.task_insert = queue_task_insert,
	.task_state = queue_task_state,
	.frames_put = queue_frames_put,
	.task_get = queue_task_get,
	.tasks_of_session = queue_tasks_of_session,
	.frames_get = queue_frames_get,
	.component_get = queue_component_get,
	.session_take = no_session_take,
	.airbyte_get = queue_airbyte_get,
	.airbyte_put = queue_airbyte_put,
	.airbyte_drop = queue_airbyte_drop,
	.usage_put = queue_usage_put,
	.each_usage = sqlite_each_usage,
	.frames_use = queue_frames_use,
	.sessions_gone = no_sessions_gone,
	.retain = queue_retain,
	.forget = queue_forget,
	.flush = sqlite_flush,
	.next_wakeup = sqlite_next_wakeup,
	.stats = queue_stats,
};
