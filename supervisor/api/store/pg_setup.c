/*
 * What every new connection is asked first, in one pipeline: who we are, what the schema is, which
 * of our batches is there, and to prepare the statements.
 */
#include <errno.h>
#include <string.h>

#include "base/num.h"
#include "base/str.h"

#include "supervisor/api/store/migrate.h"
#include "supervisor/api/store/pg_reason.h"
#include "supervisor/api/store/pg_store.h"

#define UNDEFINED_TABLE "42P01"
#define NO_RIGHT        "42501"

enum setup {
	SETUP_INSTANCE,
	SETUP_ENCODING,
	SETUP_SCHEMA,
	SETUP_WRITER,
	SETUP_PREPARES, /* the first of them */
};

static const char *const texts[SETUP_PREPARES] = {
	[SETUP_INSTANCE] = "SELECT set_config('sandboxd.instance', $1, false)",
	[SETUP_ENCODING] = "SELECT current_setting('server_encoding')",
	[SETUP_SCHEMA] = "SELECT version, checksum FROM schema_migrations ORDER BY version",
	/* Waits for a batch of an earlier connection that is being committed; what comes after is
	 * refused by its number. */
	[SETUP_WRITER] =
		"INSERT INTO sandbox_writers AS w (id, host, generation, batch, seen_at, since)"
		" VALUES (current_setting('sandboxd.instance'), $1, 1, 0, timezone('UTC', now()),"
		" timezone('UTC', now()))"
		" ON CONFLICT (id) DO UPDATE SET generation = w.generation + 1,"
		" host = excluded.host, seen_at = excluded.seen_at,"
		" since = coalesce(w.since, excluded.since)"
		" RETURNING generation, batch",
};

bool pg_setup_send(struct pg_store *s)
{
	const char *const param[SETUP_PREPARES] = {
		[SETUP_INSTANCE] = s->instance,
		[SETUP_WRITER] = s->queue.host,
	};

	if (!pg_sent_new(s, PG_SENT_SETUP))
		return false;
	for (size_t i = 0; i < SETUP_PREPARES; i++)
		if (PQsendQueryParams(s->conn, texts[i], param[i] ? 1 : 0, NULL, &param[i], NULL,
				      NULL, 0) != 1)
			return false;
	for (unsigned int i = 0; i < PG_QUERY_MAX_; i++) {
		const struct pg_query_text *query = pg_query(i);

		if (query->name && PQsendPrepare(s->conn, query->name, query->sql, 0, NULL) != 1)
			return false;
	}
	return pg_sync(s);
}

static const struct migration *find(int64_t version)
{
	for (const struct migration *step = postgres_migrations; step->version != 0; step++)
		if (step->version == version)
			return step;
	return NULL;
}

static uint32_t newest(void)
{
	uint32_t version = 0;

	for (const struct migration *step = postgres_migrations; step->version != 0; step++)
		version = step->version;
	return version;
}

static int check_schema(struct pg_store *s, const PGresult *result)
{
	uint32_t version = 0;

	for (int i = 0; i < PQntuples(result); i++) {
		const struct migration *step;

		if (num_parse_u32(PQgetvalue(result, i, 0), 1, UINT32_MAX, &version) < 0)
			version = UINT32_MAX;
		step = find(version);
		if (step && !str_equal(PQgetvalue(result, i, 1), step->checksum))
			return err_fail(&s->err, -EPROTONOSUPPORT, "store",
					"migration %u differs from the one applied", version);
	}
	if (version < newest())
		return err_fail(&s->err, -EPROTONOSUPPORT, "store",
				"the schema is older than this release: run sandboxctl migrate");
	if (version > newest() + 1)
		return err_fail(&s->err, -EPROTONOSUPPORT, "store",
				"schema %u is newer than this release can use (%u)", version,
				newest());
	return 0;
}

static int take_writer(struct pg_store *s, const PGresult *result)
{
	uint64_t batch;

	if (PQntuples(result) != 1 ||
	    num_parse_u64(PQgetvalue(result, 0, 0), 0, INT64_MAX, &s->generation) < 0 ||
	    num_parse_u64(PQgetvalue(result, 0, 1), 0, INT64_MAX, &batch) < 0)
		return err_fail(&s->err, -EIO, "store", "the row of this instance");
	s->found_batch = batch;
	return 0;
}

/* The server's own words may repeat values: only its code is shown. */
static int refused(struct pg_store *s, const struct pg_sent *sent, const PGresult *result)
{
	const char *code = PQresultErrorField(result, PG_DIAG_SQLSTATE);
	const char *known;

	if (code && str_equal(code, UNDEFINED_TABLE))
		return err_fail(&s->err, -EPROTONOSUPPORT, "store",
				"the schema is missing: run sandboxctl migrate");
	if (code && str_equal(code, NO_RIGHT))
		return err_fail(&s->err, -EPROTONOSUPPORT, "store",
				"the role lacks a right on the schema");
	known = code ? pg_reason_of_sqlstate(code) : NULL;
	if (known)
		return err_fail(&s->err, -EIO, "store", "%s", known);
	return err_fail(&s->err, -EIO, "store", "setup step %u: SQLSTATE %s", sent->n_results,
			code ? code : "unknown");
}

int pg_setup_result(struct pg_store *s, struct pg_sent *sent, const PGresult *result)
{
	ExecStatusType status = PQresultStatus(result);

	s->err = ERR_NULL;
	if (status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK)
		return refused(s, sent, result);
	switch (sent->n_results) {
	case SETUP_ENCODING:
		if (PQntuples(result) != 1 || !str_equal(PQgetvalue(result, 0, 0), "UTF8"))
			return err_fail(&s->err, -EPROTONOSUPPORT, "store",
					"the database's encoding is not UTF8");
		return 0;
	case SETUP_SCHEMA:
		return check_schema(s, result);
	case SETUP_WRITER:
		return take_writer(s, result);
	default:
		return 0;
	}
}
