#include "supervisor/api/store/migrate.h"

#include <errno.h>
#include <inttypes.h>

#include "base/num.h"
#include "base/str.h"

static const char create_table[] =
	"CREATE TABLE IF NOT EXISTS schema_migrations (version integer NOT NULL PRIMARY KEY,"
	" name varchar(128) NOT NULL, checksum varchar(64) NOT NULL, applied_at timestamp NOT NULL)";

int migrate_errno(int sqlite_result)
{
	switch (sqlite_result & 0xff) {
	case SQLITE_OK:
	case SQLITE_DONE:
	case SQLITE_ROW:
		return 0;
	case SQLITE_NOMEM:
		return -ENOMEM;
	case SQLITE_BUSY:
	case SQLITE_LOCKED:
		return -EBUSY;
	case SQLITE_FULL:
		return -ENOSPC;
	case SQLITE_PERM:
	case SQLITE_READONLY:
		return -EROFS;
	case SQLITE_CANTOPEN:
		return -ENOENT;
	case SQLITE_CORRUPT:
	case SQLITE_NOTADB:
		return -EBADMSG;
	default:
		return -EIO;
	}
}

static int fail(sqlite3 *db, const char *what, struct err *err)
{
	int r = migrate_errno(sqlite3_errcode(db));

	return err_fail(err, r < 0 ? r : -EIO, "migrate", "%s: %s", what, sqlite3_errmsg(db));
}

static const struct migration *find(const struct migration *steps, int64_t version)
{
	for (; steps->version != 0; steps++)
		if (steps->version == version)
			return steps;
	return NULL;
}

static uint32_t newest(const struct migration *steps)
{
	uint32_t version = 0;

	for (; steps->version != 0; steps++)
		version = steps->version;
	return version;
}

/* What is applied already, checked against what we know. */
static int check_applied(sqlite3 *db, const struct migration *steps, int64_t *ret_version,
			 struct err *err)
{
	sqlite3_stmt *statement = NULL;
	int64_t version = 0;
	int r;

	r = sqlite3_prepare_v2(db,
			       "SELECT version, checksum FROM schema_migrations"
			       " ORDER BY version",
			       -1, &statement, NULL);
	if (r != SQLITE_OK)
		return fail(db, "schema_migrations", err);
	while ((r = sqlite3_step(statement)) == SQLITE_ROW) {
		const char *checksum = (const char *)sqlite3_column_text(statement, 1);
		const struct migration *step;

		version = sqlite3_column_int64(statement, 0);
		step = find(steps, version);
		if (step && (!checksum || !str_equal(checksum, step->checksum))) {
			(void)sqlite3_finalize(statement);
			return err_fail(err, -EPROTONOSUPPORT, "migrate",
					"migration %" PRId64 " differs from the one applied",
					version);
		}
	}
	(void)sqlite3_finalize(statement);
	if (r != SQLITE_DONE)
		return fail(db, "schema_migrations", err);
	if (version > (int64_t)newest(steps) + 1)
		return err_fail(err, -EPROTONOSUPPORT, "migrate",
				"schema %" PRId64 " is newer than this release can use (%u)",
				version, newest(steps));
	*ret_version = version;
	return 0;
}

static int record(sqlite3 *db, const struct migration *step, usec_t now, struct err *err)
{
	char at[CLOCK_ISO_BYTES];
	sqlite3_stmt *statement = NULL;
	int r;

	clock_format_iso(now, at);
	r = sqlite3_prepare_v2(db, "INSERT INTO schema_migrations VALUES (?1, ?2, ?3, ?4)", -1,
			       &statement, NULL);
	if (r == SQLITE_OK)
		r = sqlite3_bind_int64(statement, 1, step->version);
	if (r == SQLITE_OK)
		r = sqlite3_bind_text(statement, 2, step->name, -1, SQLITE_STATIC);
	if (r == SQLITE_OK)
		r = sqlite3_bind_text(statement, 3, step->checksum, -1, SQLITE_STATIC);
	if (r == SQLITE_OK)
		r = sqlite3_bind_text(statement, 4, at, -1, SQLITE_STATIC);
	if (r == SQLITE_OK)
		r = sqlite3_step(statement);
	(void)sqlite3_finalize(statement);
	return r == SQLITE_DONE ? 0 : fail(db, step->name, err);
}

static int apply(sqlite3 *db, const struct migration *steps, usec_t now, struct err *err)
{
	int64_t version = 0;
	int r;

	if (sqlite3_exec(db, create_table, NULL, NULL, NULL) != SQLITE_OK)
		return fail(db, "schema_migrations", err);
	r = check_applied(db, steps, &version, err);
	if (r < 0)
		return r;
	for (; steps->version != 0; steps++) {
		if (steps->version <= version)
			continue;
		if (sqlite3_exec(db, (const char *)steps->sql, NULL, NULL, NULL) != SQLITE_OK)
			return fail(db, steps->name, err);
		r = record(db, steps, now, err);
		if (r < 0)
			return r;
	}
	return 0;
}

/* One transaction for all: a step that fails leaves the schema as it was. IMMEDIATE, so that two
 * that start at once do it one after the other. */
int migrate_apply(sqlite3 *db, const struct migration *steps, usec_t now, struct err *err)
{
	int r;

	if (sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL) != SQLITE_OK)
		return fail(db, "begin", err);
	r = apply(db, steps, now, err);
	if (r == 0 && sqlite3_exec(db, "COMMIT", NULL, NULL, NULL) != SQLITE_OK)
		r = fail(db, "commit", err);
	if (r < 0)
		(void)sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
	return r;
}
