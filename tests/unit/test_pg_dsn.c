#include <errno.h>
#include <string.h>

#include "base/str.h"

#include "supervisor/api/store/pg_dsn.h"
#include "tests/lib/test.h"

static const char *value_of(const struct pg_dsn *dsn, const char *keyword)
{
	for (size_t i = 0; dsn->keyword[i]; i++)
		if (str_equal(dsn->keyword[i], keyword))
			return dsn->value[i];
	return "-";
}

static void test_pg_dsn_forms(void **state)
{
	static const char *const forms[] = {
		"postgresql://me:p%40ss@127.0.0.1:6543/db?sslmode=require",
		"postgres://me:p%40ss@127.0.0.1:6543/db?sslmode=require",
		"postgresql+psycopg2://me:p%40ss@127.0.0.1:6543/db?sslmode=require",
		"postgresql+asyncpg://me:p%40ss@localhost:6543/db?sslmode=require",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(forms); i++) {
		struct pg_dsn dsn;
		struct err err = ERR_NULL;

		assert_int_equal(pg_dsn_parse(&dsn, forms[i], "", false, &err), 0);
		assert_string_equal(value_of(&dsn, "host"), "127.0.0.1");
		assert_string_equal(value_of(&dsn, "port"), "6543");
		assert_string_equal(value_of(&dsn, "user"), "me");
		assert_string_equal(value_of(&dsn, "password"), "p@ss");
		assert_string_equal(value_of(&dsn, "dbname"), "db");
		assert_string_equal(value_of(&dsn, "sslmode"), "require");
		assert_string_equal(value_of(&dsn, "client_encoding"), "UTF8");
		pg_dsn_done(&dsn);
	}
}

static void test_pg_dsn_password_of_its_own(void **state)
{
	struct pg_dsn dsn;
	struct err err = ERR_NULL;

	(void)state;
	assert_int_equal(pg_dsn_parse(&dsn, "postgresql://me:old@[::1]/db", "new", false, &err), 0);
	assert_string_equal(value_of(&dsn, "password"), "new");
	assert_string_equal(value_of(&dsn, "host"), "::1");
	pg_dsn_done(&dsn);
}

/* What the dsn says for the service is not taken from it. */
static void test_pg_dsn_ours_win(void **state)
{
	struct pg_dsn dsn;
	struct err err = ERR_NULL;

	(void)state;
	assert_int_equal(pg_dsn_parse(&dsn,
				      "postgresql://me@10.0.0.1,10.0.0.2/db?client_encoding=LATIN1"
				      "&options=-cstatement_timeout%3D0&application_name=x",
				      "", false, &err),
			 0);
	assert_string_equal(value_of(&dsn, "client_encoding"), "UTF8");
	assert_non_null(strstr(value_of(&dsn, "options"), "statement_timeout=5000"));
	assert_string_equal(value_of(&dsn, "application_name"), "sandboxd");
	pg_dsn_done(&dsn);
}

static void test_pg_dsn_refusals_repeat_nothing(void **state)
{
	static const char *const wrong[] = {
		"",
		"mysql://me:hidden@127.0.0.1/db",
		"postgresql:me:hidden@127.0.0.1/db",
		"postgresql+psycopg2:/hidden",
		"host=127.0.0.1 password=hidden",
		"postgresql://me:hidden@db.example/x",
		"postgresql://me:hidden@127.0.0.1,db.example/x",
		"postgresql://me:hidden@%2Frun%2Fpostgresql/x",
		"postgresql:///hidden",
		"postgresql://me:hidden@127.0.0.1/x?service=hidden",
		"postgresql://me:hidden@127.0.0.1/x?sslkey=%2Fhidden",
		"postgresql://me:hidden@127.0.0.1/x?sslrootcert=%2Fhidden",
		"postgresql://me:hidden@127.0.0.1/x?sslrootcert=%2Fetc%2Fssl%2Fcerts%2F..%2Fhidden",
		"postgresql://me:hidden@db.example/x?sslmode=verify-full",
		"postgresql://me:hidden@db.example/x?hostaddr=db2.example",
		"postgresql://me:hidden@%2Frun%2Fhidden/x?hostaddr=127.0.0.1",
		"postgresql://me:hidden@127.0.0.1/x?hidden=1",
		"postgresql://me:hid%00den@127.0.0.1/x",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		struct pg_dsn dsn;
		struct err err = ERR_NULL;

		assert_int_equal(pg_dsn_parse(&dsn, wrong[i], "", false, &err), -EINVAL);
		assert_null(strstr(err.text, "hid"));
		assert_null(dsn.options);
	}
}

/* A name is whom the certificate has to name; the host's list of authorities is the default. */
static void test_pg_dsn_certificate_is_checked(void **state)
{
	static const char *const roots[][2] = {
		{"",					     "/etc/ssl/certs/ca-certificates.crt"},
		{"&sslrootcert=%2Fetc%2Fssl%2Fcerts%2Fours.pem", "/etc/ssl/certs/ours.pem"           },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(roots); i++) {
		char text[256];
		struct pg_dsn dsn;
		struct err err = ERR_NULL;

		assert_int_equal(str_format(text, sizeof(text),
					    "postgresql://me@db.example/x?hostaddr=10.0.0.1"
					    "&sslmode=verify-full%s",
					    roots[i][0]),
				 0);
		assert_int_equal(pg_dsn_parse(&dsn, text, "", false, &err), 0);
		assert_string_equal(value_of(&dsn, "host"), "db.example");
		assert_string_equal(value_of(&dsn, "hostaddr"), "10.0.0.1");
		assert_string_equal(value_of(&dsn, "sslmode"), "verify-full");
		assert_string_equal(value_of(&dsn, "sslrootcert"), roots[i][1]);
		pg_dsn_done(&dsn);
	}
}

static void test_pg_dsn_names_and_files_where_there_are_any(void **state)
{
	struct pg_dsn dsn;
	struct err err = ERR_NULL;

	(void)state;
	assert_int_equal(pg_dsn_parse(&dsn, "postgresql://me@db.example/x", "", true, &err), 0);
	assert_string_equal(value_of(&dsn, "host"), "db.example");
	pg_dsn_done(&dsn);
	assert_int_equal(pg_dsn_parse(&dsn,
				      "postgresql://me@db.example/x?sslmode=verify-full"
				      "&sslrootcert=%2Fca&sslcert=%2Fc&sslkey=%2Fk",
				      "", true, &err),
			 0);
	assert_string_equal(value_of(&dsn, "sslmode"), "verify-full");
	assert_string_equal(value_of(&dsn, "sslkey"), "/k");
	pg_dsn_done(&dsn);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_pg_dsn_forms),
		cmocka_unit_test(test_pg_dsn_password_of_its_own),
		cmocka_unit_test(test_pg_dsn_ours_win),
		cmocka_unit_test(test_pg_dsn_refusals_repeat_nothing),
		cmocka_unit_test(test_pg_dsn_certificate_is_checked),
		cmocka_unit_test(test_pg_dsn_names_and_files_where_there_are_any),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
