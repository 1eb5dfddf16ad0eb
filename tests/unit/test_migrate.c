#include <errno.h>
#include <string.h>

#include "base/str.h"

#include "supervisor/api/store/migrate.h"
#include "tests/lib/test.h"

static const unsigned char one[] = "CREATE TABLE a (x integer);";
static const unsigned char two[] = "CREATE TABLE b (x integer);";
static const unsigned char three[] = "CREATE TABLE c (x integer);";
static const unsigned char broken[] = "CREATE TABLE d (x integer); CREATE nonsense;";

static const struct migration first[] = {
	{1, "0001", "c1", one },
        {0, NULL,   NULL, NULL}
};
static const struct migration all[] = {
	{1, "0001", "c1", one  },
	{2, "0002", "c2", two  },
	{3, "0003", "c3", three},
	{0, NULL,   NULL, NULL }
};

static sqlite3 *open_memory(void)
{
	sqlite3 *db = NULL;

	assert_int_equal(sqlite3_open(":memory:", &db), SQLITE_OK);
	return db;
}

static bool has_table(sqlite3 *db, const char *name)
{
	sqlite3_stmt *statement = NULL;
	bool found;

	assert_int_equal(sqlite3_prepare_v2(db, "SELECT 1 FROM sqlite_master WHERE name = ?1", -1,
					    &statement, NULL),
			 SQLITE_OK);
	assert_int_equal(sqlite3_bind_text(statement, 1, name, -1, SQLITE_STATIC), SQLITE_OK);
	found = sqlite3_step(statement) == SQLITE_ROW;
	(void)sqlite3_finalize(statement);
	return found;
}

static void test_migrate_apply_only_what_is_missing(void **state)
{
	struct err err = ERR_NULL;
	sqlite3 *db = open_memory();

	(void)state;
	assert_int_equal(migrate_apply(db, first, 0, &err), 0);
	assert_true(has_table(db, "a"));
	assert_false(has_table(db, "b"));
	assert_int_equal(migrate_apply(db, all, 0, &err), 0);
	assert_true(has_table(db, "c"));
	assert_int_equal(migrate_apply(db, all, 0, &err), 0);
	assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

static void test_migrate_apply_one_step_ahead_is_used(void **state)
{
	const struct migration two_steps[] = {
		{1, "0001", "c1", one },
                {2, "0002", "c2", two },
                {0, NULL,   NULL, NULL}
        };
	struct err err = ERR_NULL;
	sqlite3 *db = open_memory();

	(void)state;
	assert_int_equal(migrate_apply(db, all, 0, &err), 0);
	/* The release before runs on this schema; the one before that does not. */
	assert_int_equal(migrate_apply(db, two_steps, 0, &err), 0);
	assert_int_equal(migrate_apply(db, first, 0, &err), -EPROTONOSUPPORT);
	assert_non_null(strstr(err.text, "newer"));
	assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

static void test_migrate_apply_changed_text_is_refused(void **state)
{
	const struct migration changed[] = {
		{1, "0001", "other", one },
                {0, NULL,   NULL,    NULL}
        };
	struct err err = ERR_NULL;
	sqlite3 *db = open_memory();

	(void)state;
	assert_int_equal(migrate_apply(db, first, 0, &err), 0);
	assert_int_equal(migrate_apply(db, changed, 0, &err), -EPROTONOSUPPORT);
	assert_non_null(strstr(err.text, "differs"));
	assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

static void test_migrate_apply_failed_step_leaves_nothing(void **state)
{
	const struct migration bad[] = {
		{1, "0001", "c1", one   },
                {2, "0002", "c2", broken},
                {0, NULL,   NULL, NULL  }
        };
	struct err err = ERR_NULL;
	sqlite3 *db = open_memory();

	(void)state;
	assert_true(migrate_apply(db, bad, 0, &err) < 0);
	assert_non_null(strstr(err.text, "0002"));
	assert_false(has_table(db, "a"));
	assert_false(has_table(db, "d"));
	assert_false(has_table(db, "schema_migrations"));
	assert_int_equal(migrate_apply(db, first, 0, &err), 0);
	assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

static void test_migrate_compiled_in_steps_are_numbered(void **state)
{
	uint32_t version = 0;

	(void)state;
	for (const struct migration *step = migrations; step->version != 0; step++) {
		char prefix[8];

		assert_int_equal(step->version, ++version);
		assert_int_equal(str_format(prefix, sizeof(prefix), "%04u_", version), 0);
		assert_true(str_has_prefix(step->name, prefix));
		assert_int_equal(strlen(step->checksum), 64);
		assert_true(strlen((const char *)step->sql) > 0);
	}
	assert_true(version > 0);
}

/* A file of the first schema keeps its component bodies. */
static void test_migrate_bodies_move_to_rows_of_their_own(void **state)
{
	const struct migration before[] = {
		migrations[0], {0, NULL, NULL, NULL}
        };
	sqlite3_stmt *statement = NULL;
	struct err err = ERR_NULL;
	sqlite3 *db = open_memory();

	(void)state;
	assert_int_equal(migrate_apply(db, before, 0, &err), 0);
	assert_int_equal(sqlite3_exec(db,
				      "INSERT INTO dagster_sandbox_sessions (id, created_at,"
				      " updated_at, components_json) VALUES ('s', 't', 't',"
				      " '{\"a.yaml\":\"x: \u00e9\",\"b.yml\":\"\"}'), ('n', 't',"
				      " 't', NULL)",
				      NULL, NULL, NULL),
			 SQLITE_OK);
	assert_int_equal(migrate_apply(db, migrations, 0, &err), 0);
	assert_int_equal(sqlite3_prepare_v2(db,
					    "SELECT group_concat(session_id || file || bytes"
					    " || body, '|') FROM sandbox_components",
					    -1, &statement, NULL),
			 SQLITE_OK);
	assert_int_equal(sqlite3_step(statement), SQLITE_ROW);
	assert_string_equal((const char *)sqlite3_column_text(statement, 0),
			    "sa.yaml5x: \xc3\xa9|sb.yml0");
	(void)sqlite3_finalize(statement);
	assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_migrate_apply_only_what_is_missing),
		cmocka_unit_test(test_migrate_apply_one_step_ahead_is_used),
		cmocka_unit_test(test_migrate_apply_changed_text_is_refused),
		cmocka_unit_test(test_migrate_apply_failed_step_leaves_nothing),
		cmocka_unit_test(test_migrate_compiled_in_steps_are_numbered),
		cmocka_unit_test(test_migrate_bodies_move_to_rows_of_their_own),
	};
	int n_before = test_begin();

	return test_end(n_before, cmocka_run_group_tests(tests, NULL, NULL));
}
