#include <errno.h>
#include <libpq-fe.h>
#include <string.h>
#include <sys/socket.h>

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

/* As libpq takes it. */
static const char *last_value_of(const struct pg_dsn *dsn, const char *keyword)
{
	const char *value = "-";

	for (size_t i = 0; dsn->keyword[i]; i++)
		if (str_equal(dsn->keyword[i], keyword))
			value = dsn->value[i];
	return value;
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

/* The reader of the configuration has no libpq: it is to know what that would say. */
static void test_dsn_options_are_those_of_libpq(void **state)
{
	PQconninfoOption *options = PQconndefaults();

	(void)state;
	assert_non_null(options);
	for (const PQconninfoOption *at = options; at->keyword; at++) {
		bool is_text = dsn_option_is_taken(at->keyword, NULL);

		/* What one has that nobody has set is good. */
		if (!is_text && at->compiled && !dsn_option_is_taken(at->keyword, at->compiled))
			fail_msg("%s=%s", at->keyword, at->compiled);
		else if (!is_text && !at->compiled && !dsn_option_is_taken(at->keyword, "1") &&
			 !dsn_option_is_taken(at->keyword, "TLSv1.2"))
			fail_msg("%s is not known", at->keyword);
	}
	PQconninfoFree(options);
	assert_false(dsn_option_is_taken("nonsense", "1"));
}

/* Nothing is sent before it judges them. */
static bool libpq_takes(const char *keyword, const char *value)
{
	const char *const keywords[] = {"host", "port", keyword, NULL};
	const char *const values[] = {"127.0.0.1", "1", value, NULL};
	PGconn *conn = PQconnectStartParams(keywords, values, 0);
	bool is_taken = conn && !strstr(PQerrorMessage(conn), "invalid");

	PQfinish(conn);
	return is_taken;
}

static void test_dsn_values_are_those_of_libpq(void **state)
{
	static const struct {
		const char *keyword;
		const char *value;
		bool is_taken;
	} rows[] = {
		{"sslmode",                  "disable",        true },
		{"sslmode",                  "allow",          true },
		{"sslmode",                  "prefer",         true },
		{"sslmode",                  "require",        true },
		{"sslmode",                  "verify-ca",      true },
		{"sslmode",                  "verify-full",    true },
		{"sslmode",                  "verify",         false},
		{"sslmode",                  "Require",        false},
		{"channel_binding",          "disable",        true },
		{"channel_binding",          "prefer",         true },
		{"channel_binding",          "require",        true },
		{"channel_binding",          "1",              false},
		{"target_session_attrs",     "any",            true },
		{"target_session_attrs",     "read-write",     true },
		{"target_session_attrs",     "read-only",      true },
		{"target_session_attrs",     "primary",        true },
		{"target_session_attrs",     "standby",        true },
		{"target_session_attrs",     "prefer-standby", true },
		{"target_session_attrs",     "master",         false},
		{"ssl_min_protocol_version", "TLSv1",          true },
		{"ssl_min_protocol_version", "TLSv1.2",        true },
		{"ssl_min_protocol_version", "TLSv1.3",        true },
		{"ssl_min_protocol_version", "tlsv1.2",        true },
		{"ssl_max_protocol_version", "",               true },
		{"ssl_min_protocol_version", "1.2",            false},
		{"port",                     "5432",           true },
		{"port",                     "543210",         false},
		{"port",                     "0",              false},
		{"port",                     "a",              false},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		if (libpq_takes(rows[i].keyword, rows[i].value) != rows[i].is_taken ||
		    dsn_option_is_taken(rows[i].keyword, rows[i].value) != rows[i].is_taken)
			fail_msg("%s=%s", rows[i].keyword, rows[i].value);
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
		"postgresql://me:hidden@db_hidden/x",
		"postgresql://me:hidden@h1,h2,h3,h4,h5,h6,h7,h8,h9/x",
		"postgresql://me:hidden@h1,h2,h3/x?port=1,2",
		"postgresql://me:hidden@%2Frun%2Fpostgresql/x",
		"postgresql:///hidden",
		"postgresql://me:hidden@127.0.0.1/x?service=hidden",
		"postgresql://me:hidden@127.0.0.1/x?sslkey=%2Fhidden",
		"postgresql://me:hidden@127.0.0.1/x?sslrootcert=%2Fhidden",
		"postgresql://me:hidden@127.0.0.1/x?sslrootcert=%2Fetc%2Fssl%2Fcerts%2F..%2Fhidden",
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

/* libpq gets an address for each name, and the name for the certificate. */
static void test_pg_dsn_names_get_their_addresses(void **state)
{
	static const struct names_answer first = {
		.n = 2,
		.address = {{.bytes = {10, 0, 0, 1}, .family = AF_INET, .prefix = 32},
			    {.bytes = {[15] = 1}, .family = AF_INET6, .prefix = 128}},
	};
	static const struct names_answer none = {.n = 0};
	static const struct names_answer number = {
		.n = 1,
		.address = {{.bytes = {10, 0, 0, 3}, .family = AF_INET, .prefix = 32}},
	};
	static const struct names_answer *const answers[] = {&first, &none, &number};
	static const struct names_answer *const nothing[] = {&none, &none, &none};
	struct pg_dsn dsn;
	struct err err = ERR_NULL;

	(void)state;
	assert_int_equal(pg_dsn_parse(&dsn,
				      "postgresql://me@DB.example:1,gone.example,10.0.0.3:3/x"
				      "?sslmode=verify-full",
				      "", false, &err),
			 0);
	assert_int_equal(dsn.n_hosts, 3);
	assert_string_equal(dsn.host[0], "db.example");
	assert_int_equal(pg_dsn_place(&dsn, nothing), -ENOENT);
	/* The second time, as at the next try. */
	for (int i = 0; i < 2; i++) {
		assert_int_equal(pg_dsn_place(&dsn, answers), 0);
		assert_string_equal(last_value_of(&dsn, "host"), "db.example,db.example,10.0.0.3");
		assert_string_equal(last_value_of(&dsn, "hostaddr"), "10.0.0.1,::1,10.0.0.3");
		assert_string_equal(last_value_of(&dsn, "port"), "1,1,3");
	}
	pg_dsn_done(&dsn);
	assert_int_equal(
		pg_dsn_parse(&dsn, "postgresql://me@10.0.0.1,db.example/x?port=7", "", false, &err),
		0);
	assert_string_equal(dsn.port[0], "7");
	assert_string_equal(dsn.port[1], "7");
	pg_dsn_done(&dsn);
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
		cmocka_unit_test(test_dsn_options_are_those_of_libpq),
		cmocka_unit_test(test_dsn_values_are_those_of_libpq),
		cmocka_unit_test(test_pg_dsn_password_of_its_own),
		cmocka_unit_test(test_pg_dsn_ours_win),
		cmocka_unit_test(test_pg_dsn_refusals_repeat_nothing),
		cmocka_unit_test(test_pg_dsn_certificate_is_checked),
		cmocka_unit_test(test_pg_dsn_names_get_their_addresses),
		cmocka_unit_test(test_pg_dsn_names_and_files_where_there_are_any),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
