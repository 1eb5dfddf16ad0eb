/*
 * Writes wait in one queue, in order. A flush does all of them in one transaction. If the store
 * refuses (full, busy, I/O error), the transaction is rolled back, nobody's write was done, all
 * stay queued, those that have not heard it are told STORE_DEGRADED, and the next try comes after a
 * delay that doubles up to RETRY_MAX. A write that can never succeed is undone by its savepoint and
 * leaves the queue, so that it does not hold up the others. Once one does not fit the queue, those
 * behind it are given up as well, small as they may be: rows then end early, but have no hole.
 */
#include <errno.h>

#include "base/auto.h"
#include "base/err.h"

#include "supervisor/api/store/rows.h"
#include "supervisor/api/store/sqlite_store.h"
#include "supervisor/api/store/writes.h"

#define RETRY_MIN (50 * USEC_PER_MS)
#define RETRY_MAX (5 * USEC_PER_SEC)

static const char *const result_text[] = {
	[STORE_OK] = "ok",
	[STORE_NOT_FOUND] = "not found",
	[STORE_DUPLICATE] = "duplicate",
	[STORE_DEGRADED] = "degraded",
	[STORE_REFUSED] = "refused",
	[STORE_LOST] = "lost",
};
_Static_assert(ARRAY_SIZE(result_text) == STORE_RESULT_MAX_, "one text per result");

const char *store_result_text(enum store_result result)
{
	ASSERT((size_t)result < ARRAY_SIZE(result_text));
	return result_text[result];
}

/* ---- statements ---- */

/* Run one that returns no rows. 0 or SQLite's result code. */
static int run(struct sqlite_store *s, enum query query, const struct value *values,
	       size_t n_values)
{
	sqlite3_stmt *statement = s->statement[query];
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
	if (r == SQLITE_OK)
		r = sqlite3_step(statement);
	(void)sqlite3_reset(statement);
	(void)sqlite3_clear_bindings(statement);
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
		int r = run(s, step->query, step->value, step->n_values);

		if (r != SQLITE_OK)
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
	LIST_FOR_EACH (link, &s->waiting) {
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
	LIST_FOR_EACH_SAFE (link, following, &s->waiting) {
		list_remove(link);
		list_append(&s->finished, link);
		s->stats.n_writes++;
	}
	s->stats.n_commits++;
	s->stats.n_waiting = 0;
	s->n_retentions = 0;
	s->stats.degraded = false;
	s->waiting_bytes = 0;
	s->is_full = false;
	s->retry_delay = 0;
	s->retry_at = 0;
}

/* A full store takes nothing more, but may still lose what is old enough: that goes first, by
 * itself, or it would wait for ever behind what does not fit. */
static void make_room(struct sqlite_store *s)
{
	uint32_t n_done = 0;

	if (!s->stats.degraded || s->n_retentions == 0 || commit(s, true) != SQLITE_OK)
		return;
	LIST_FOR_EACH_SAFE (link, following, &s->waiting) {
		struct write *write = LIST_ENTRY(link, struct write, link);

		if (!write->is_retention)
			continue;
		list_remove(link);
		list_append(&s->finished, link);
		s->waiting_bytes -= write->bytes;
		n_done++;
	}
	s->n_retentions = 0;
	s->stats.n_writes += n_done;
	s->stats.n_commits++;
	s->stats.n_waiting -= n_done;
	s->retry_delay = 0; /* there is room again, or soon more of it */
}

static void note_failure(struct sqlite_store *s, usec_t now)
{
	s->stats.n_failed_commits++;
	s->stats.degraded = true;
	s->retry_delay = s->retry_delay ? s->retry_delay * 2 : RETRY_MIN;
	if (s->retry_delay > RETRY_MAX)
		s->retry_delay = RETRY_MAX;
	s->retry_at = clock_add(now, s->retry_delay);
}

static void tell_finished(struct sqlite_store *s)
{
	struct list *last = s->finished.prev;
	bool end = list_empty(&s->finished);

	/* What a callback queues and loses at once waits for the next flush. */
	while (!end) {
		struct write *write = LIST_ENTRY(s->finished.next, struct write, link);

		end = &write->link == last;
		list_remove(&write->link);
		if (write->done)
			write->done(write->userdata, write->result);
		(void)write_free(write);
	}
}

static void tell_degraded(struct sqlite_store *s)
{
	uint32_t n = s->stats.n_waiting;

	LIST_FOR_EACH (link, &s->waiting) {
		struct write *write = LIST_ENTRY(link, struct write, link);

		if (n-- == 0)
			break;
		if (write->told)
			continue;
		write->told = true;
		if (write->done)
			write->done(write->userdata, STORE_DEGRADED);
	}
}

static void sqlite_flush(struct store *store, usec_t now)
{
	struct sqlite_store *s = sqlite_store_of(store);
	bool is_retention = false;

	if (!list_empty(&s->waiting) && (!s->stats.degraded || now >= s->retry_at)) {
		make_room(s);
		is_retention = s->n_retentions > 0;
		if (sqlite_commit_waiting(s) == SQLITE_OK)
			note_commit(s);
		else
			note_failure(s, now);
	}
	tell_finished(s);
	if (s->stats.degraded)
		tell_degraded(s);
	sqlite_do_reads(s);
	/* Costs some milliseconds, so not at each close. */
	if (is_retention && s->log_is_stale && !s->stats.degraded)
		s->log_is_stale = !sqlite_renew_log(s);
}

static usec_t sqlite_next_wakeup(const struct store *store)
{
	const struct sqlite_store *s = sqlite_store_of_const(store);

	if (!list_empty(&s->reads) || !list_empty(&s->finished))
		return 0;
	if (list_empty(&s->waiting))
		return USEC_NEVER;
	if (!s->stats.degraded || !LIST_ENTRY(s->waiting.prev, struct write, link)->told)
		return 0;
	return s->retry_at;
}

static void sqlite_stats(const struct store *store, struct store_stats *ret_stats)
{
	*ret_stats = sqlite_store_of_const(store)->stats;
}

static void sqlite_forget(struct store *store, const void *userdata)
{
	struct sqlite_store *s = sqlite_store_of(store);
	struct list *lists[] = {&s->waiting, &s->finished};

	for (size_t i = 0; i < ARRAY_SIZE(lists); i++)
		LIST_FOR_EACH (link, lists[i]) {
			struct write *write = LIST_ENTRY(link, struct write, link);

			if (write->userdata == userdata)
				write->done = NULL;
		}
	LIST_FOR_EACH (link, &s->reads) {
		struct read *read = LIST_ENTRY(link, struct read, link);

		if (read->userdata == userdata) {
			read->task_read = NULL;
			read->frames_read = NULL;
			read->component_read = NULL;
		}
	}
}

/* ---- queueing ---- */

static int queue(struct sqlite_store *s, struct write *write)
{
	if (!write)
		return -ENOMEM;
	if (write->failed) {
		(void)write_free(write);
		return -ENOMEM;
	}
	if (!write->is_retention && s->stats.degraded &&
	    s->waiting_bytes + write->bytes > s->max_waiting_bytes)
		s->is_full = true;
	if (s->is_full && !write->is_retention) {
		write->result = STORE_LOST;
		list_append(&s->finished, &write->link);
		return 0;
	}
	s->waiting_bytes += write->bytes;
	s->stats.n_waiting++;
	s->n_retentions += write->is_retention;
	list_append(&s->waiting, &write->link);
	return 0;
}

static int sqlite_session_insert(struct store *store, const struct session *session,
				 store_done done, void *userdata)
{
	struct write *write = write_new(done, userdata);

	rows_session_insert(write, session, sqlite_store_of(store)->host);
	return queue(sqlite_store_of(store), write);
}

static int sqlite_session_status(struct store *store, const struct session *session, usec_t now,
				 store_done done, void *userdata)
{
	struct write *write = write_new(done, userdata);

	rows_session_status(write, session, now);
	return queue(sqlite_store_of(store), write);
}

static int sqlite_session_component(struct store *store, const struct id *session,
				    const struct store_component *component, usec_t now,
				    store_done done, void *userdata)
{
	struct write *write = write_new(done, userdata);

	rows_session_component(write, session, component, now);
	return queue(sqlite_store_of(store), write);
}

static int sqlite_session_tree(struct store *store, const struct id *session, enum store_tree tree,
			       store_done done, void *userdata)
{
	struct write *write = write_new(done, userdata);
	char id[ID_TEXT_BYTES];
	const struct value values[] = {value_id(session, id), value_integer(tree)};

	write_add(write, QUERY_SESSION_TREE, values, ARRAY_SIZE(values));
	return queue(sqlite_store_of(store), write);
}

static int sqlite_session_log(struct store *store, const struct session *session, usec_t now,
			      store_done done, void *userdata)
{
	struct write *write = write_new(done, userdata);

	rows_session_log(write, session, now);
	return queue(sqlite_store_of(store), write);
}

static int sqlite_session_close(struct store *store, const struct id *session, const char *reason,
				usec_t now, store_done done, void *userdata)
{
	struct write *write = write_new(done, userdata);
	char id[ID_TEXT_BYTES];
	char closed[CLOCK_ISO_BYTES];
	const struct value values[] = {
		value_id(session, id),
		value_text(reason),
		value_time(now, closed),
	};

	sqlite_store_of(store)->log_is_stale = true; /* of its overrides */
	write_add(write, QUERY_SESSION_CLOSE, values, ARRAY_SIZE(values));
	return queue(sqlite_store_of(store), write);
}

static int sqlite_task_insert(struct store *store, const struct job *job, store_done done,
			      void *userdata)
{
	struct write *write = write_new(done, userdata);

	rows_task_insert(write, job);
	return queue(sqlite_store_of(store), write);
}

static int sqlite_task_state(struct store *store, const struct job *job, store_done done,
			     void *userdata)
{
	struct write *write = write_new(done, userdata);

	rows_task_state(write, job);
	return queue(sqlite_store_of(store), write);
}

static int sqlite_frames_put(struct store *store, const struct job *job,
			     const struct store_batch *batch, store_done done, void *userdata)
{
	struct write *write = write_new(done, userdata);

	rows_frames(write, job, batch);
	return queue(sqlite_store_of(store), write);
}

static int sqlite_usage_put(struct store *store, const struct store_usage *usage)
{
	struct write *write = write_new(NULL, NULL);
	const struct value values[] = {
		value_integer(usage->day),
		value_integer(usage->scope),
		value_text(usage->name),
		value_integer((int64_t)usage->cpu_us),
	};

	write_add(write, QUERY_USAGE_FORGET, values, 1);
	write_add(write, QUERY_USAGE_PUT, values, ARRAY_SIZE(values));
	return queue(sqlite_store_of(store), write);
}

static int sqlite_retain(struct store *store, const struct janitor_retention *retention,
			 store_done done, void *userdata)
{
	struct write *write = write_new(done, userdata);

	if (write)
		write->is_retention = true;
	rows_retain(write, retention);
	return queue(sqlite_store_of(store), write);
}

const struct store_ops sqlite_ops = {
	.close = sqlite_close,
	.each_open_session = sqlite_each_open_session,
	.each_open_task = sqlite_each_open_task,
	.task_progress = sqlite_task_progress,
	.session_insert = sqlite_session_insert,
	.session_status = sqlite_session_status,
	.session_component = sqlite_session_component,
	.session_tree = sqlite_session_tree,
	.session_log = sqlite_session_log,
	.session_close = sqlite_session_close,
	.task_insert = sqlite_task_insert,
	.task_state = sqlite_task_state,
	.frames_put = sqlite_frames_put,
	.task_get = sqlite_task_get,
	.tasks_of_session = sqlite_tasks_of_session,
	.frames_get = sqlite_frames_get,
	.component_get = sqlite_component_get,
	.usage_put = sqlite_usage_put,
	.each_usage = sqlite_each_usage,
	.each_frames_use = sqlite_each_frames_use,
	.retain = sqlite_retain,
	.forget = sqlite_forget,
	.flush = sqlite_flush,
	.next_wakeup = sqlite_next_wakeup,
	.stats = sqlite_stats,
};
