#include "tests/unit/store_rig.h"

#include <libpq-fe.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"

#include "supervisor/api/store/postgres.h"
#include "supervisor/api/store/sqlite.h"

static sd_event *event;

const char *rig_dsn(void)
{
	return getenv("SANDBOX_TEST_DSN"); /* NOLINT(concurrency-mt-unsafe): one thread */
}

static void postgres_sql(const char *sql, const char *wanted)
{
	PGconn *conn = PQconnectdb(rig_dsn());
	PGresult *result = PQexec(conn, sql);

	if (wanted) {
		assert_int_equal(PQntuples(result), 1);
		assert_string_equal(PQgetisnull(result, 0, 0) ? "NULL" : PQgetvalue(result, 0, 0),
				    wanted);
	} else if (PQresultStatus(result) != PGRES_COMMAND_OK) {
		fail_msg("%s", PQerrorMessage(conn));
	}
	PQclear(result);
	PQfinish(conn);
}

static struct store *postgres_open(void)
{
	const struct postgres_options options = {
		.event = event,
		.dsn = rig_dsn(),
		.password = "",
		.instance = "11111111-1111-4111-8111-111111111111",
		.host = "here",
	};
	struct store *store = NULL;
	struct err err = ERR_NULL;

	if (store_open_postgres(&options, &store, &err) < 0)
		fail_msg("%s", err.text);
	return store;
}

static void postgres_begin(void)
{
	if (!event)
		assert_int_equal(sd_event_new(&event), 0);
	postgres_sql("DELETE FROM dagster_sandbox_sessions; DELETE FROM sandbox_components;"
		     " DELETE FROM sandbox_tasks; DELETE FROM sandbox_frames;"
		     " DELETE FROM sandbox_task_output; DELETE FROM sandbox_usage;"
		     " DELETE FROM sandbox_registry",
		     NULL);
}

/* The lease is renewed for ever, after a longer pause than anything else takes. */
static bool waits(const struct store *store)
{
	return store_next_wakeup(store) <= clock_add(clock_boottime(), 6 * USEC_PER_SEC);
}

void rig_flush(struct store *store, usec_t now)
{
	store_flush(store, rig_dsn() ? clock_boottime() : now);
	for (int i = 0; rig_dsn() && waits(store); i++) {
		assert_true(i < 60000);
		assert_true(sd_event_run(event, USEC_PER_MS) >= 0);
		store_flush(store, clock_boottime());
	}
}

void rig_listen(void)
{
	assert_true(sd_event_run(event, 10 * USEC_PER_MS) >= 0);
}

void rig_note(void *userdata, enum store_result result)
{
	struct answers *answers = userdata;

	assert_true(answers->n < (int)ARRAY_SIZE(answers->all));
	answers->all[answers->n++] = result;
	answers->last = result;
}

void rig_put(struct rig *rig, const char *file, const char *body, size_t length,
	     struct answers *answers)
{
	const struct store_component component = {
		.file = file, .body = body, .body_length = length};

	assert_int_equal(store_session_component(rig->store, &rig->session->id, &component, 1,
						 rig_note, answers),
			 0);
}

struct id rig_id(uint8_t n)
{
	return (struct id){
		{n, 1, 2, 3, 4, 5, 0x46, 7, 0x88, 9, 10, 11, 12, 13, 14, 15}
        };
}

struct store *rig_open(const char *path, uint32_t max_pages)
{
	const struct sqlite_options options = {
		.path = path, .host = "here", .max_pages = max_pages, .short_log = true};
	struct store *store = NULL;
	struct err err = ERR_NULL;

	if (rig_dsn())
		return postgres_open();
	if (store_open_sqlite(&options, &store, &err) < 0)
		fail_msg("%s", err.text);
	return store;
}

int rig_set_up(void **state)
{
	static struct rig the_rig;
	struct rig *rig = &the_rig;
	struct spec_create spec = {.profile = "component", .ttl_minutes = 60};
	struct id id = rig_id(1);

	*rig = (struct rig){.now = 1};
	test_temp_init(&rig->temp);
	if (rig_dsn())
		postgres_begin();
	assert_int_equal(str_format(rig->path, sizeof(rig->path), "%s/api.db", rig->temp.path), 0);
	rig->store = rig_open(rig->path, 0);
	spec.endpoint[5] = strdup("kafka.example:9092");
	spec.env = calloc(2, sizeof(*spec.env));
	spec.env[0] = strdup("FOO=bar");
	spec.n_env = 1;
	rig->session = session_new(&id, &spec, 1764422886116877);
	assert_non_null(rig->session);
	rig->session->dagster = true;
	rig->session->plan.memory_bytes = 5;
	(void)strcpy(rig->session->spec.name, "web");
	(void)strcpy(rig->session->owner, "alice");
	(void)strcpy(rig->session->workspace, "w1");
	id = rig_id(2);
	rig->job = job_new(&id, rig->session, 1764422886116878);
	assert_non_null(rig->job);
	*state = rig;
	return 0;
}

int rig_tear_down(void **state)
{
	struct rig *rig = *state;

	rig->store = store_close(rig->store);
	event = sd_event_unref(event);
	(void)job_free(rig->job);
	(void)session_free(rig->session);
	test_temp_done(&rig->temp);
	return 0;
}

void rig_reopen(struct rig *rig)
{
	rig->store = store_close(rig->store);
	rig->store = rig_open(rig->path, 0);
}

void rig_insert(struct rig *rig)
{
	struct answers answers = {0};

	assert_int_equal(store_session_insert(rig->store, rig->session, rig_note, &answers), 0);
	assert_int_equal(store_task_insert(rig->store, rig->job, rig_note, &answers), 0);
	assert_int_equal(answers.n, 0); /* never from inside the call */
	rig_flush(rig->store, rig->now);
	assert_int_equal(answers.n, 2);
	assert_int_equal(answers.all[0], STORE_OK);
	assert_int_equal(answers.all[1], STORE_OK);
}

void rig_add_frame(struct rig *rig, enum frames_stage stage, const char *text)
{
	assert_int_equal(frames_add(&rig->job->frames, stage, text, NULL, 0, NULL), 0);
}

void rig_assert_sql(const struct rig *rig, const char *sql, const char *wanted)
{
	sqlite3_stmt *statement = NULL;
	sqlite3 *db = NULL;
	const char *got;

	if (rig_dsn()) {
		postgres_sql(sql, wanted);
		return;
	}
	assert_int_equal(sqlite3_open(rig->path, &db), SQLITE_OK);
	assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &statement, NULL), SQLITE_OK);
	assert_int_equal(sqlite3_step(statement), SQLITE_ROW);
	got = (const char *)sqlite3_column_text(statement, 0);
	assert_string_equal(got ? got : "NULL", wanted);
	(void)sqlite3_finalize(statement);
	assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

int rig_see_session(void *userdata, const struct store_session *row)
{
	struct seen_session *seen = userdata;

	seen->n++;
	seen->row = *row;
	(void)snprintf(seen->text, sizeof(seen->text), "%s|%s|%s|%s|%s|%s|%s|%s", row->owner,
		       row->workspace, row->profile, row->last_run_id,
		       row->overrides_json ? row->overrides_json : "-",
		       row->envs_json ? row->envs_json : "-", row->components_json, row->name);
	return 0;
}

void rig_see_frames(void *userdata, enum store_result result, const struct store_frame *frames,
		    size_t n, bool more)
{
	struct seen_frames *seen = userdata;

	seen->n_calls++;
	seen->result = result;
	seen->n = n;
	seen->more = more;
	if (n == 0)
		return;
	seen->first = frames[0].seq;
	seen->last = frames[n - 1].seq;
	(void)snprintf(seen->text, sizeof(seen->text), "%s", frames[n - 1].text);
}

struct seen_frames rig_get_frames(struct rig *rig, uint32_t after, size_t max_bytes)
{
	struct seen_frames seen = {0};

	assert_int_equal(store_frames_get(rig->store, &rig->job->id, after, max_bytes,
					  rig_see_frames, &seen),
			 0);
	assert_int_equal(seen.n_calls, 0);
	assert_int_equal(store_next_wakeup(rig->store), 0);
	rig_flush(rig->store, rig->now);
	assert_int_equal(seen.n_calls, 1);
	return seen;
}

void rig_see_task(void *userdata, enum store_result result, const struct store_task *task)
{
	struct seen_task *seen = userdata;

	seen->n_calls++;
	seen->result = result;
	if (!task)
		return;
	seen->task = *task;
	(void)snprintf(seen->owner, sizeof(seen->owner), "%s", task->owner);
}

void rig_run_sql(const struct rig *rig, const char *sql)
{
	sqlite3 *db = NULL;

	if (rig_dsn()) {
		postgres_sql(sql, NULL);
		return;
	}
	assert_int_equal(sqlite3_open(rig->path, &db), SQLITE_OK);
	assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
	assert_int_equal(sqlite3_close(db), SQLITE_OK);
}
