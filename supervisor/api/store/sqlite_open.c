#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/str.h"

#include "supervisor/api/store/migrate.h"
#include "supervisor/api/store/sqlite.h"
#include "supervisor/api/store/sqlite_store.h"
#include "supervisor/api/store/writes.h"

#define BUSY_TIMEOUT_MS      20   /* a turn of the loop never waits longer for another writer */
#define OPEN_BUSY_TIMEOUT_MS 5000 /* at start there is nobody to keep waiting */
#define LOG_ROOM_BYTES       "4325376" /* SQLite checkpoints at 1000 pages; and one large commit */
#define CHECK_MAX_PAGES      16384     /* quick_check at open only while it takes little time */

static void sqlite_free(struct sqlite_store *s)
{
	queue_done(&s->queue);
	for (size_t i = 0; i < QUERY_MAX_; i++)
		(void)sqlite3_finalize(s->statement[i]);
	(void)sqlite3_close(s->db);
	free(s);
}

void sqlite_close(struct store *store)
{
	struct sqlite_store *s = sqlite_store_of(store);

	/* A last try for what waits; what fails now was told as degraded, or nobody was told. */
	if (!list_empty(&s->queue.waiting))
		(void)sqlite_commit_waiting(s);
	sqlite_free(s);
}

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
	int64_t n_pages = 0;
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
		"PRAGMA secure_delete=ON", /* an override that left its row has left the file */
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

/*
 * Make the log as long as it becomes. A commit that lengthens the file has to have the file
 * system's own journal written, which costs several times what an overwrite costs, and the log is
 * new at each start. After a checkpoint SQLite writes it from its beginning again. The pages stay
 * in the database's list of free ones. Where there is no room for that, commits are slower and no
 * more.
 */
static void open_log(struct sqlite_store *s)
{
	static const char *const statements[] = {
		"CREATE TABLE IF NOT EXISTS log_room (bytes blob)",
		"INSERT INTO log_room (bytes) VALUES (zeroblob(" LOG_ROOM_BYTES "))",
		"DROP TABLE log_room",
		"PRAGMA wal_checkpoint(PASSIVE)",
	};

	for (size_t i = 0; i < ARRAY_SIZE(statements); i++)
		(void)sqlite3_exec(s->db, statements[i], NULL, NULL, NULL);
}

bool sqlite_renew_log(struct sqlite_store *s)
{
	if (sqlite3_wal_checkpoint_v2(s->db, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL) !=
	    SQLITE_OK)
		return false;
	if (!s->short_log)
		open_log(s);
	return true;
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
	r = queue_init(&s->queue, &sqlite_ops, options->host, options->max_waiting_bytes);
	r = r == 0 ? open_database(s, options, err) : err_fail(err, r, "store", "no memory");
	if (r == 0)
		r = migrate_apply(s->db, migrations, clock_realtime(), err);
	s->short_log = options->short_log;
	if (r == 0 && !s->short_log)
		open_log(s);
	if (r == 0)
		r = open_statements(s, err);
	if (r < 0) {
		sqlite_free(s);
		return r;
	}
	*ret_store = &s->queue.store;
	return 0;
}
