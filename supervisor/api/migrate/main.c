/*
 * sandboxd-migrate: the schema of the store on PostgreSQL. Started by `sandboxctl migrate`, by whom
 * the schema belongs to: the service's own role needs no right to change it. Steps go forward only,
 * each in a transaction of its own with its checksum, under an advisory lock, so that two that run
 * at once do it one after the other.
 */
#include <errno.h>
#include <fcntl.h>
#include <libpq-fe.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"
#include "base/num.h"
#include "base/str.h"

#include "supervisor/api/store/migrate.h"
#include "supervisor/api/store/pg_dsn.h"
#include "supervisor/api/store/pg_reason.h"

#define DSN_FILE_MAX     4096
#define DSN_FILE_DEFAULT "/etc/sandboxd/migrate.dsn"

enum mode {
	MODE_APPLY,
	MODE_DRY_RUN,
	MODE_STATUS,
	MODE_PRINT_UNDO,
};

/* As sandboxctl's. */
enum exit_code {
	EXIT_OK = 0,
	EXIT_FAILED = 1,
	EXIT_USAGE = 2,
	EXIT_UNREACHABLE = 5,
};

static const char usage_text[] =
	"usage: sandboxctl migrate [--dry-run | --status | --print-undo] [--dsn-file FILE]\n"
	"The schema of the store on PostgreSQL, brought to this release.\n"
	"  --dry-run       do it and undo it: says whether it would work\n"
	"  --status        which steps are applied\n"
	"  --print-undo    print the SQL that would undo the steps, newest first\n"
	"  --dsn-file FILE postgresql://… of the role that owns the schema; readable by its owner\n"
	"                  only. Default: " DSN_FILE_DEFAULT "; -: standard input\n";

static int complain(int code, const char *what)
{
	(void)fprintf(stderr, "sandboxctl: migrate: %s\n", what);
	return code;
}

static int complain_file(const char *path, const char *what)
{
	(void)fprintf(stderr, "sandboxctl: migrate: the file with the dsn, %s: %s\n", path, what);
	return EXIT_FAILED;
}

/* What the server says of a step of ours holds no value of anybody's. */
static int server_failed(const PGconn *conn, const char *what)
{
	const char *said = PQerrorMessage(conn);

	(void)fprintf(stderr, "sandboxctl: migrate: %s: %.*s\n", what, (int)strcspn(said, "\n"),
		      said);
	return -EIO;
}

static int run(PGconn *conn, const char *sql, const char *what)
{
	PGresult *result = PQexec(conn, sql);
	bool done = PQresultStatus(result) == PGRES_COMMAND_OK ||
		    PQresultStatus(result) == PGRES_TUPLES_OK;

	PQclear(result);
	return done ? 0 : server_failed(conn, what);
}

/* ---- what is applied ---- */

struct applied {
	bool has_table;
	PGresult *rows; /* version, checksum, applied_at */
};

static int read_applied(PGconn *conn, struct applied *applied)
{
	PGresult *result = PQexec(conn, "SELECT to_regclass('schema_migrations') IS NOT NULL");

	if (PQresultStatus(result) != PGRES_TUPLES_OK) {
		PQclear(result);
		return server_failed(conn, "schema_migrations");
	}
	applied->has_table = PQgetvalue(result, 0, 0)[0] == 't';
	PQclear(result);
	if (!applied->has_table)
		return 0;
	applied->rows = PQexec(conn, "SELECT version, checksum, applied_at"
				     " FROM schema_migrations ORDER BY version");
	return PQresultStatus(applied->rows) == PGRES_TUPLES_OK
		       ? 0
		       : server_failed(conn, "schema_migrations");
}

/* Row of a step, or -1. */
static int row_of(const struct applied *applied, uint32_t version)
{
	uint32_t found;

	for (int i = 0; applied->has_table && i < PQntuples(applied->rows); i++)
		if (num_parse_u32(PQgetvalue(applied->rows, i, 0), 0, UINT32_MAX, &found) == 0 &&
		    found == version)
			return i;
	return -1;
}

static bool differs(const struct applied *applied, const struct migration *step)
{
	int row = row_of(applied, step->version);

	return row >= 0 && !str_equal(PQgetvalue(applied->rows, row, 1), step->checksum);
}

static int print_status(const struct applied *applied)
{
	uint32_t newest = 0;
	int r = 0;

	for (const struct migration *step = postgres_migrations; step->version; step++) {
		int row = row_of(applied, step->version);
		bool wrong = differs(applied, step);

		newest = step->version;
		(void)printf("%04u  %-24s  %s%s\n", step->version, step->name,
			     row < 0 ? "not applied" : PQgetvalue(applied->rows, row, 2),
			     wrong ? "  differs from this release's" : "");
		if (wrong)
			r = -EPROTONOSUPPORT;
	}
	for (int i = 0; applied->has_table && i < PQntuples(applied->rows); i++) {
		uint32_t version;

		if (num_parse_u32(PQgetvalue(applied->rows, i, 0), 0, UINT32_MAX, &version) == 0 &&
		    version > newest)
			(void)printf("%04u  %-24s  %s\n", version, "(of a newer release)",
				     PQgetvalue(applied->rows, i, 2));
	}
	return r;
}

/* ---- steps ---- */

static int record(PGconn *conn, const struct migration *step)
{
	char version[16];
	const char *const values[] = {version, step->name, step->checksum};
	PGresult *result;
	bool done;

	(void)snprintf(version, sizeof(version), "%u", step->version);
	result = PQexecParams(conn,
			      "INSERT INTO schema_migrations (version, name, checksum, applied_at)"
			      " VALUES ($1, $2, $3, timezone('UTC', now()))",
			      3, NULL, values, NULL, NULL, 0);
	done = PQresultStatus(result) == PGRES_COMMAND_OK;
	PQclear(result);
	return done ? 0 : server_failed(conn, step->name);
}

static int apply_step(PGconn *conn, const struct migration *step)
{
	int r = run(conn, (const char *)step->sql, step->name);

	return r < 0 ? r : record(conn, step);
}

static int make_table(PGconn *conn)
{
	return run(conn,
		   "CREATE TABLE IF NOT EXISTS schema_migrations (version integer NOT NULL"
		   " PRIMARY KEY, name varchar(128) NOT NULL, checksum varchar(64) NOT NULL,"
		   " applied_at timestamp without time zone NOT NULL)",
		   "schema_migrations");
}

/* With dry_run all steps are one transaction, which is undone. */
static int apply_all(PGconn *conn, const struct applied *applied, bool dry_run)
{
	uint32_t n = 0;
	int r = 0;

	for (const struct migration *step = postgres_migrations; step->version; step++)
		if (differs(applied, step)) {
			(void)fprintf(stderr,
				      "sandboxctl: migrate: %s differs from the one applied\n",
				      step->name);
			return -EPROTONOSUPPORT;
		}
	if (dry_run)
		r = run(conn, "BEGIN", "begin");
	if (r == 0)
		r = make_table(conn);
	for (const struct migration *step = postgres_migrations; r == 0 && step->version; step++) {
		if (row_of(applied, step->version) >= 0)
			continue;
		if (!dry_run)
			r = run(conn, "BEGIN", "begin");
		if (r == 0)
			r = apply_step(conn, step);
		if (r == 0 && !dry_run)
			r = run(conn, "COMMIT", "commit");
		if (r == 0)
			(void)printf("%s %s\n", dry_run ? "would apply" : "applied", step->name);
		n++;
	}
	if (dry_run || r < 0)
		(void)run(conn, "ROLLBACK", "rollback");
	if (r == 0 && n == 0)
		(void)printf("nothing to do\n");
	return r;
}

/* Others who read values that may hold credentials. Names only of roles; the owner is none of them.
 */
static int warn_of_readers(PGconn *conn)
{
	PGresult *result =
		PQexec(conn, "SELECT string_agg(DISTINCT CASE WHEN a.grantee = 0 THEN 'PUBLIC'"
			     " ELSE pg_get_userbyid(a.grantee)::text END, ', ')"
			     " FROM pg_class c, aclexplode(c.relacl) a"
			     " WHERE c.oid = to_regclass('dagster_sandbox_sessions')"
			     " AND a.privilege_type = 'SELECT' AND a.grantee <> c.relowner"
			     /* Whoever writes the sessions is the service. */
			     " AND NOT CASE a.grantee WHEN 0 THEN false ELSE"
			     " has_table_privilege(a.grantee, 'sandbox_writers', 'UPDATE') END");
	int r = PQresultStatus(result) == PGRES_TUPLES_OK ? 0 : server_failed(conn, "grants");

	if (r == 0 && PQntuples(result) == 1 && !PQgetisnull(result, 0, 0))
		(void)fprintf(stderr,
			      "sandboxctl: migrate: warning: these roles read all columns of"
			      " dagster_sandbox_sessions, env_overrides_json too: %s\n",
			      PQgetvalue(result, 0, 0));
	PQclear(result);
	return r;
}

/* The lock is the session's; it ends with the connection. */
static int work(PGconn *conn, enum mode mode)
{
	struct applied applied = {0};
	int r;

	r = run(conn, "SET statement_timeout = '30min'; SET lock_timeout = '60s'", "settings");
	if (r == 0 && mode != MODE_STATUS)
		r = run(conn, "SELECT pg_advisory_lock(hashtext('sandboxd schema'))",
			"another migration is running");
	if (r == 0)
		r = read_applied(conn, &applied);
	if (r == 0 && mode == MODE_STATUS)
		r = print_status(&applied);
	else if (r == 0)
		r = apply_all(conn, &applied, mode == MODE_DRY_RUN);
	if (r == 0 && mode == MODE_APPLY)
		r = warn_of_readers(conn);
	PQclear(applied.rows);
	return r;
}

/* ---- start ---- */

static void print_undo(void)
{
	size_t n = 0;

	while (postgres_undo[n].version)
		n++;
	while (n-- > 0)
		(void)fputs((const char *)postgres_undo[n].sql, stdout);
}

/* Whoever can read the file can use the role. */
static int read_dsn(const char *path, char **ret_dsn)
{
	AUTO_CLOSE int fd = str_equal(path, "-") ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;
	size_t size;
	int r;

	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (S_ISREG(st.st_mode) && (st.st_mode & 077) != 0)
		return -EPERM;
	r = io_read_file(fd, DSN_FILE_MAX, ret_dsn, &size);
	if (r == 0)
		(*ret_dsn)[strcspn(*ret_dsn, "\r\n")] = '\0';
	return r;
}

static int connect_and_work(const char *path, enum mode mode)
{
	AUTO_FREE char *text = NULL;
	struct pg_dsn dsn = PG_DSN_NULL;
	struct err err = ERR_NULL;
	PGconn *conn;
	int r = read_dsn(path, &text);

	if (r == -EPERM)
		return complain_file(path, "others can read it: chmod 600");
	if (r < 0 || !text)
		return complain_file(path, strerrordesc_np(r < 0 ? -r : EINVAL));
	r = pg_dsn_parse(&dsn, text, "", true, &err);
	explicit_bzero(text, strlen(text));
	if (r < 0)
		return complain(EXIT_FAILED, err.text);
	conn = PQconnectdbParams(dsn.keyword, dsn.value, 0);
	pg_dsn_done(&dsn);
	if (PQstatus(conn) != CONNECTION_OK) {
		const char *why = pg_reason_of_connection(conn);

		PQfinish(conn);
		return complain(EXIT_UNREACHABLE, why);
	}
	/* What is there already is no news. */
	r = run(conn, "SET client_min_messages = warning", "client_min_messages");
	if (r == 0)
		r = work(conn, mode);
	PQfinish(conn);
	return r < 0 ? EXIT_FAILED : EXIT_OK;
}

int main(int argc, char *argv[])
{
	static const struct {
		const char *option;
		enum mode mode;
	} modes[] = {
		{"--dry-run",    MODE_DRY_RUN   },
		{"--status",     MODE_STATUS    },
		{"--print-undo", MODE_PRINT_UNDO},
	};
	const char *path = DSN_FILE_DEFAULT;
	enum mode mode = MODE_APPLY;

	for (int i = 1; i < argc; i++) {
		bool known = false;

		for (size_t k = 0; k < ARRAY_SIZE(modes); k++)
			if (str_equal(argv[i], modes[k].option)) {
				known = mode == MODE_APPLY;
				mode = modes[k].mode;
			}
		if (str_equal(argv[i], "--dsn-file") && i + 1 < argc) {
			known = true;
			path = argv[++i];
		}
		if (str_equal(argv[i], "--help")) {
			(void)fputs(usage_text, stdout);
			return EXIT_OK;
		}
		if (!known) {
			(void)fputs(usage_text, stderr);
			return EXIT_USAGE;
		}
	}
	if (mode != MODE_PRINT_UNDO)
		return connect_and_work(path, mode);
	print_undo();
	return EXIT_OK;
}
