/*
 * Writes wait in one queue, in order. A flush does all of them in one transaction. If the store
 * refuses (full, busy, I/O error), the transaction is rolled back, nobody's write was done, all
 * stay queued, those that have not heard it are told STORE_DEGRADED, and the next try comes after a
 * delay that doubles up to RETRY_MAX. A write that can never succeed is undone by its savepoint and
 * leaves the queue, so that it does not hold up the others.
 */
#include "supervisor/api/store/sqlite.h"

#include <errno.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/list.h"
#include "base/str.h"

#include "supervisor/api/store/migrate.h"
#include "supervisor/api/store/queries.h"
#include "supervisor/api/store/rows.h"
#include "supervisor/api/store/writes.h"

#define RETRY_MIN            (50 * USEC_PER_MS)
#define RETRY_MAX            (5 * USEC_PER_SEC)
#define BUSY_TIMEOUT_MS      20   /* a turn of the loop never waits longer for another writer */
#define OPEN_BUSY_TIMEOUT_MS 5000 /* at start there is nobody to keep waiting */
#define MAX_WAITING_BYTES    (64u * 1024 * 1024)
#define CHECK_MAX_PAGES      16384 /* quick_check at open only while it takes little time */
#define FRAMES_A_READ        256

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

struct read {
	struct list link;
	struct id task;
	uint32_t after;
	size_t max_bytes;
	store_task_read task_read; /* one of the two, or neither after store_forget */
	store_frames_read frames_read;
	void *userdata;
};

struct sqlite_store {
	struct store store;
	sqlite3 *db;
	sqlite3_stmt *statement[QUERY_MAX_];
	char *host;
	struct list waiting;  /* struct write */
	struct list finished; /* struct write: result is set, callback is owed */
	struct list reads;    /* struct read */
	uint64_t waiting_bytes;
	uint64_t max_waiting_bytes;
	usec_t retry_at;
	usec_t retry_delay;
	struct store_stats stats;
};

static struct sqlite_store *of(const struct store *store)
{
	return (struct sqlite_store *)(uintptr_t)store;
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
	for (const struct write_step *step = write->first; step; step = step->next) {
		int r = run(s, step->query, step->value, step->n_values);

		if (r != SQLITE_OK)
			return is_final(r, ret_result) ? SQLITE_OK : r;
		if (step->must_change && sqlite3_changes(s->db) == 0) {
			*ret_result = STORE_DUPLICATE;
			return SQLITE_OK;
		}
	}
	*ret_result = STORE_OK;
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

static int commit_waiting(struct sqlite_store *s)
{
	int r;

	r = run(s, QUERY_BEGIN, NULL, 0);
	if (r != SQLITE_OK)
		return r;
	LIST_FOR_EACH (link, &s->waiting) {
		r = run_write(s, LIST_ENTRY(link, struct write, link));
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
	s->stats.degraded = false;
	s->waiting_bytes = 0;
	s->retry_delay = 0;
	s->retry_at = 0;
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

static void read_task(struct sqlite_store *s, struct read *read)
{
	sqlite3_stmt *statement = s->statement[QUERY_TASK_GET];
	enum store_result result = STORE_DEGRADED;
	struct store_task task;
	char id[ID_TEXT_BYTES];
	int r;

	id_format(&read->task, id);
	r = sqlite3_bind_text(statement, 1, id, -1, SQLITE_STATIC);
	if (r == SQLITE_OK)
		r = sqlite3_step(statement);
	if (r == SQLITE_ROW)
		result = rows_read_task(statement, &task) == 0 ? STORE_OK : STORE_NOT_FOUND;
	else if (r == SQLITE_DONE)
		result = STORE_NOT_FOUND;
	if (read->task_read)
		read->task_read(read->userdata, result, result == STORE_OK ? &task : NULL);
	(void)sqlite3_reset(statement);
}

/* Copies, because the texts of a row end with the next row. */
static int collect_frames(sqlite3_stmt *statement, size_t max_bytes, struct store_frame *frames,
			  size_t *ret_n, bool *ret_more)
{
	size_t bytes = 0;
	size_t n = 0;
	int r;

	*ret_more = false;
	while ((r = sqlite3_step(statement)) == SQLITE_ROW) {
		const char *stage = (const char *)sqlite3_column_text(statement, 1);
		const void *text = sqlite3_column_text(statement, 2);
		size_t size = (size_t)sqlite3_column_bytes(statement, 2);
		int known = stage ? frames_stage_from_text(stage) : -1;
		char *copy;

		if (n == FRAMES_A_READ || (n > 0 && bytes + size > max_bytes)) {
			*ret_more = true;
			r = SQLITE_DONE;
			break;
		}
		if (known < 0 || !text)
			continue;
		copy = malloc(size + 1);
		if (!copy) {
			r = SQLITE_NOMEM;
			break;
		}
		memcpy(copy, text, size + 1);
		frames[n++] = (struct store_frame){
			.seq = (uint32_t)sqlite3_column_int64(statement, 0),
			.stage = (enum frames_stage)known,
			.text = copy,
			.size = size,
		};
		bytes += size;
	}
	*ret_n = n;
	return r == SQLITE_DONE ? SQLITE_OK : r;
}

static void read_frames(struct sqlite_store *s, struct read *read)
{
	sqlite3_stmt *statement = s->statement[QUERY_FRAMES_GET];
	struct store_frame frames[FRAMES_A_READ];
	char id[ID_TEXT_BYTES];
	size_t n = 0;
	bool more = false;
	int r;

	id_format(&read->task, id);
	r = sqlite3_bind_text(statement, 1, id, -1, SQLITE_STATIC);
	if (r == SQLITE_OK)
		r = sqlite3_bind_int64(statement, 2, read->after);
	if (r == SQLITE_OK)
		r = collect_frames(statement, read->max_bytes, frames, &n, &more);
	(void)sqlite3_reset(statement);
	if (read->frames_read)
		read->frames_read(read->userdata, r == SQLITE_OK ? STORE_OK : STORE_DEGRADED,
				  frames, r == SQLITE_OK ? n : 0, r == SQLITE_OK && more);
	for (size_t i = 0; i < n; i++)
		free((char *)(uintptr_t)frames[i].text);
}

static void do_reads(struct sqlite_store *s)
{
	struct list *last = s->reads.prev;
	bool end = list_empty(&s->reads);

	/* Reads that a callback queues wait for the next flush. */
	while (!end) {
		struct read *read = LIST_ENTRY(s->reads.next, struct read, link);

		end = &read->link == last;
		list_remove(&read->link);
		if (read->task_read)
			read_task(s, read);
		else if (read->frames_read)
			read_frames(s, read);
		free(read);
	}
}

static void sqlite_flush(struct store *store, usec_t now)
{
	struct sqlite_store *s = of(store);

	if (!list_empty(&s->waiting) && (!s->stats.degraded || now >= s->retry_at)) {
		if (commit_waiting(s) == SQLITE_OK)
			note_commit(s);
		else
			note_failure(s, now);
	}
	tell_finished(s);
	if (s->stats.degraded)
		tell_degraded(s);
	do_reads(s);
}

static usec_t sqlite_next_wakeup(const struct store *store)
{
	const struct sqlite_store *s = of(store);

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
	*ret_stats = of(store)->stats;
}

static void sqlite_forget(struct store *store, const void *userdata)
{
	struct sqlite_store *s = of(store);
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
	if (s->stats.degraded && s->waiting_bytes + write->bytes > s->max_waiting_bytes) {
		write->result = STORE_LOST;
		list_append(&s->finished, &write->link);
		return 0;
	}
	s->waiting_bytes += write->bytes;
	s->stats.n_waiting++;
	list_append(&s->waiting, &write->link);
	return 0;
}

static int sqlite_session_insert(struct store *store, const struct session *session,
				 store_done done, void *userdata)
{
	struct write *write = write_new(done, userdata);

	rows_session_insert(write, session, of(store)->host);
	return queue(of(store), write);
}

static int sqlite_session_status(struct store *store, const struct session *session, usec_t now,
				 store_done done, void *userdata)
{
	struct write *write = write_new(done, userdata);

	rows_session_status(write, session, now);
	return queue(of(store), write);
}

static int sqlite_session_component(struct store *store, const struct id *session, const char *file,
				    const char *body, size_t body_length, usec_t now,
				    store_done done, void *userdata)
{
	struct write *write = write_new(done, userdata);
	char id[ID_TEXT_BYTES];
	char updated[CLOCK_ISO_BYTES];
	const struct value values[] = {
		value_id(session, id),
		value_text(file),
		value_bytes(body, body_length),
		value_time(now, updated),
	};

	write_add(write, QUERY_SESSION_COMPONENT, values, ARRAY_SIZE(values));
	return queue(of(store), write);
}

static int sqlite_session_log(struct store *store, const struct session *session, usec_t now,
			      store_done done, void *userdata)
{
	struct write *write = write_new(done, userdata);

	rows_session_log(write, session, now);
	return queue(of(store), write);
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

	write_add(write, QUERY_SESSION_CLOSE, values, ARRAY_SIZE(values));
	return queue(of(store), write);
}

static int sqlite_task_insert(struct store *store, const struct job *job, store_done done,
			      void *userdata)
{
	struct write *write = write_new(done, userdata);

	rows_task_insert(write, job);
	return queue(of(store), write);
}

static int sqlite_task_state(struct store *store, const struct job *job, store_done done,
			     void *userdata)
{
	struct write *write = write_new(done, userdata);

	rows_task_state(write, job);
	return queue(of(store), write);
}

static int sqlite_frames_put(struct store *store, const struct job *job, uint32_t first_seq,
			     uint64_t wire_number, store_done done, void *userdata)
{
	struct write *write = write_new(done, userdata);

	rows_frames(write, job, first_seq, wire_number);
	return queue(of(store), write);
}

static int sqlite_retain(struct store *store, const struct janitor_retention *retention,
			 store_done done, void *userdata)
{
	struct write *write = write_new(done, userdata);

	rows_retain(write, retention);
	return queue(of(store), write);
}

static int sqlite_task_get(struct store *store, const struct id *task, store_task_read task_read,
			   void *userdata)
{
	struct read *read = calloc(1, sizeof(*read));

	if (!read)
		return -ENOMEM;
	read->task = *task;
	read->task_read = task_read;
	read->userdata = userdata;
	list_append(&of(store)->reads, &read->link);
	return 0;
}

static int sqlite_frames_get(struct store *store, const struct id *task, uint32_t after,
			     size_t max_bytes, store_frames_read frames_read, void *userdata)
{
	struct read *read = calloc(1, sizeof(*read));

	if (!read)
		return -ENOMEM;
	read->task = *task;
	read->after = after;
	read->max_bytes = max_bytes;
	read->frames_read = frames_read;
	read->userdata = userdata;
	list_append(&of(store)->reads, &read->link);
	return 0;
}

/* ---- start and end ---- */

static int sqlite_each_open_session(struct store *store, store_session_seen seen, void *userdata)
{
	sqlite3_stmt *statement = of(store)->statement[QUERY_SESSIONS_OPEN];
	struct store_session row;
	int r = 0;
	int rc;

	while ((rc = sqlite3_step(statement)) == SQLITE_ROW) {
		/* A row that is none of ours is left alone. */
		if (rows_read_session(statement, &row) < 0)
			continue;
		r = seen(userdata, &row);
		if (r < 0)
			break;
	}
	(void)sqlite3_reset(statement);
	if (r < 0)
		return r;
	return migrate_errno(rc);
}

static int sqlite_each_open_task(struct store *store, store_task_seen seen, void *userdata)
{
	sqlite3_stmt *statement = of(store)->statement[QUERY_TASKS_OPEN];
	struct store_task task;
	int r = 0;
	int rc;

	while ((rc = sqlite3_step(statement)) == SQLITE_ROW) {
		if (rows_read_task(statement, &task) < 0)
			continue;
		r = seen(userdata, &task);
		if (r < 0)
			break;
	}
	(void)sqlite3_reset(statement);
	if (r < 0)
		return r;
	return migrate_errno(rc);
}

static void drop_all(struct list *list)
{
	LIST_FOR_EACH_SAFE (link, following, list) {
		list_remove(link);
		(void)write_free(LIST_ENTRY(link, struct write, link));
	}
}

static void sqlite_free(struct sqlite_store *s)
{
	drop_all(&s->waiting);
	drop_all(&s->finished);
	LIST_FOR_EACH_SAFE (link, following, &s->reads) {
		list_remove(link);
		free(LIST_ENTRY(link, struct read, link));
	}
	for (size_t i = 0; i < QUERY_MAX_; i++)
		(void)sqlite3_finalize(s->statement[i]);
	(void)sqlite3_close(s->db);
	free(s->host);
	free(s);
}

static void sqlite_close(struct store *store)
{
	struct sqlite_store *s = of(store);

	/* A last try for what waits; what fails now was told as degraded, or nobody was told. */
	if (!list_empty(&s->waiting))
		(void)commit_waiting(s);
	sqlite_free(s);
}

static const struct store_ops sqlite_ops = {
	.close = sqlite_close,
	.each_open_session = sqlite_each_open_session,
	.each_open_task = sqlite_each_open_task,
	.session_insert = sqlite_session_insert,
	.session_status = sqlite_session_status,
	.session_component = sqlite_session_component,
	.session_log = sqlite_session_log,
	.session_close = sqlite_session_close,
	.task_insert = sqlite_task_insert,
	.task_state = sqlite_task_state,
	.frames_put = sqlite_frames_put,
	.task_get = sqlite_task_get,
	.frames_get = sqlite_frames_get,
	.retain = sqlite_retain,
	.forget = sqlite_forget,
	.flush = sqlite_flush,
	.next_wakeup = sqlite_next_wakeup,
	.stats = sqlite_stats,
};

static int open_fail(struct sqlite_store *s, int rc, const char *what, struct err *err)
{
	int r = migrate_errno(rc);

	return err_fail(err, r < 0 ? r : -EIO, "store", "%s: %s", what,
			s->db ? sqlite3_errmsg(s->db) : "no memory");
}

/* One number of a pragma. */
static int pragma_number(struct sqlite_store *s, const char *pragma, int64_t *ret_number)
{
	sqlite3_stmt *statement = NULL;
	int r;

	r = sqlite3_prepare_v2(s->db, pragma, -1, &statement, NULL);
	if (r == SQLITE_OK)
		r = sqlite3_step(statement);
	if (r == SQLITE_ROW) {
		*ret_number = sqlite3_column_int64(statement, 0);
		r = SQLITE_OK;
	}
	(void)sqlite3_finalize(statement);
	return r;
}

/* A damaged file is refused now, in words, and not by a strange answer later. */
static int open_check(struct sqlite_store *s, struct err *err)
{
	sqlite3_stmt *statement = NULL;
	const char *text;
	int64_t n_pages;
	bool sound;
	int r;

	r = pragma_number(s, "PRAGMA page_count", &n_pages);
	if (r != SQLITE_OK)
		return open_fail(s, r, "not a usable database", err);
	if (n_pages > CHECK_MAX_PAGES)
		return 0;
	r = sqlite3_prepare_v2(s->db, "PRAGMA quick_check(1)", -1, &statement, NULL);
	if (r == SQLITE_OK)
		r = sqlite3_step(statement);
	text = r == SQLITE_ROW ? (const char *)sqlite3_column_text(statement, 0) : NULL;
	sound = text && str_equal(text, "ok");
	(void)sqlite3_finalize(statement);
	if (r != SQLITE_ROW)
		return open_fail(s, r, "check of the database", err);
	if (!sound)
		return err_fail(err, -EBADMSG, "store",
				"the database is damaged: restore it or move it away");
	return 0;
}

static int open_database(struct sqlite_store *s, const struct sqlite_options *options,
			 struct err *err)
{
	static const char *const settings[] = {
		"PRAGMA journal_mode=WAL",
		"PRAGMA synchronous=FULL",
		"PRAGMA temp_store=MEMORY", /* the worker's root has no other writable place */
		"PRAGMA mmap_size=0",       /* a file that shrinks would be SIGBUS */
		"PRAGMA cell_size_check=ON",
		"PRAGMA trusted_schema=OFF",
		"PRAGMA journal_size_limit=16777216",
	};
	char text[64];
	int r;

	r = sqlite3_open_v2(options->path, &s->db,
			    SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX |
				    SQLITE_OPEN_NOFOLLOW | SQLITE_OPEN_EXRESCODE,
			    NULL);
	if (r != SQLITE_OK)
		return open_fail(s, r, "open the database", err);
	(void)sqlite3_busy_timeout(s->db, OPEN_BUSY_TIMEOUT_MS);
	(void)sqlite3_db_config(s->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
	for (size_t i = 0; i < ARRAY_SIZE(settings); i++) {
		r = sqlite3_exec(s->db, settings[i], NULL, NULL, NULL);
		if (r != SQLITE_OK)
			return open_fail(s, r, "not a usable database", err);
	}
	if (options->max_pages != 0) {
		r = str_format(text, sizeof(text), "PRAGMA max_page_count=%u", options->max_pages);
		if (r < 0 || sqlite3_exec(s->db, text, NULL, NULL, NULL) != SQLITE_OK)
			return open_fail(s, SQLITE_ERROR, "max_page_count", err);
	}
	return open_check(s, err);
}

static int open_statements(struct sqlite_store *s, struct err *err)
{
	for (size_t i = 0; i < QUERY_MAX_; i++) {
		int r = sqlite3_prepare_v3(s->db, query_sql((enum query)i), -1,
					   SQLITE_PREPARE_PERSISTENT, &s->statement[i], NULL);

		if (r != SQLITE_OK)
			return open_fail(s, r, "prepare", err);
	}
	(void)sqlite3_busy_timeout(s->db, BUSY_TIMEOUT_MS);
	return 0;
}

int store_open_sqlite(const struct sqlite_options *options, struct store **ret_store,
		      struct err *err)
{
	struct sqlite_store *s = calloc(1, sizeof(*s));
	int r;

	if (!s)
		return err_fail(err, -ENOMEM, "store", "no memory");
	s->store.ops = &sqlite_ops;
	list_init(&s->waiting);
	list_init(&s->finished);
	list_init(&s->reads);
	s->max_waiting_bytes =
		options->max_waiting_bytes ? options->max_waiting_bytes : MAX_WAITING_BYTES;
	s->host = strdup(options->host ? options->host : "");
	r = s->host ? open_database(s, options, err) : err_fail(err, -ENOMEM, "store", "no memory");
	if (r == 0)
		r = migrate_apply(s->db, migrations, clock_realtime(), err);
	if (r == 0)
		r = open_statements(s, err);
	if (r < 0) {
		sqlite_free(s);
		return r;
	}
	*ret_store = &s->store;
	return 0;
}
