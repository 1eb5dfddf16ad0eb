#include <errno.h>
#include <fcntl.h>
#include <libpq-fe.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/io.h"
#include "base/str.h"

#include "sandboxd/limits.h"
#include "supervisor/api/store/postgres.h"
#include "supervisor/api/store/sqlite.h"
#include "supervisor/api/store/store.h"
#include "tests/lib/test.h"

/* ---- the other store: SANDBOX_TEST_DSN names a database with its schema ---- */

static sd_event *event;

static const char *postgres_dsn(void)
{
	return getenv("SANDBOX_TEST_DSN"); /* NOLINT(concurrency-mt-unsafe): one thread */
}

/* Of the file, or of a library call that only it has. */
#define SQLITE_ONLY()                                                                              \
	do {                                                                                       \
		if (postgres_dsn())                                                                \
			skip();                                                                    \
	} while (0)

static void postgres_sql(const char *sql, const char *wanted)
{
	PGconn *conn = PQconnectdb(postgres_dsn());
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
		.dsn = postgres_dsn(),
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
		     " DELETE FROM sandbox_task_output; DELETE FROM sandbox_usage",
		     NULL);
}

/* One turn of the embedded store; of a server, turns until nothing waits. */
static void flush(struct store *store, usec_t now)
{
	store_flush(store, postgres_dsn() ? clock_boottime() : now);
	for (int i = 0; postgres_dsn() && store_next_wakeup(store) != USEC_NEVER; i++) {
		assert_true(i < 10000);
		assert_true(sd_event_run(event, USEC_PER_MS) >= 0);
		store_flush(store, clock_boottime());
	}
}

/* ---- a store in a folder of its own, and what its callbacks said ---- */

struct rig {
	struct test_temp temp;
	char path[96];
	struct store *store;
	struct session *session;
	struct job *job;
	usec_t now;
};

struct answers {
	int n;
	enum store_result last;
	enum store_result all[64];
};

static void note(void *userdata, enum store_result result)
{
	struct answers *answers = userdata;

	assert_true(answers->n < (int)ARRAY_SIZE(answers->all));
	answers->all[answers->n++] = result;
	answers->last = result;
}

/* store_session_component as one writes it in a test. */
static void put(struct rig *rig, const char *file, const char *body, size_t length,
		struct answers *answers)
{
	const struct store_component component = {
		.file = file, .body = body, .body_length = length};

	assert_int_equal(store_session_component(rig->store, &rig->session->id, &component, 1, note,
						 answers),
			 0);
}

static struct id make_id(uint8_t n)
{
	return (struct id){
		{n, 1, 2, 3, 4, 5, 0x46, 7, 0x88, 9, 10, 11, 12, 13, 14, 15}
        };
}

static struct store *reopen_path(const char *path, uint32_t max_pages)
{
	const struct sqlite_options options = {
		.path = path, .host = "here", .max_pages = max_pages, .short_log = true};
	struct store *store = NULL;
	struct err err = ERR_NULL;

	if (postgres_dsn())
		return postgres_open();
	if (store_open_sqlite(&options, &store, &err) < 0)
		fail_msg("%s", err.text);
	return store;
}

static void rig_init(struct rig *rig)
{
	struct spec_create spec = {.profile = "component", .ttl_minutes = 60};
	struct id id = make_id(1);

	*rig = (struct rig){.now = 1};
	test_temp_init(&rig->temp);
	if (postgres_dsn())
		postgres_begin();
	assert_int_equal(str_format(rig->path, sizeof(rig->path), "%s/api.db", rig->temp.path), 0);
	rig->store = reopen_path(rig->path, 0);
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
	id = make_id(2);
	rig->job = job_new(&id, rig->session, 1764422886116878);
	assert_non_null(rig->job);
}

static void rig_done(struct rig *rig)
{
	rig->store = store_close(rig->store);
	event = sd_event_unref(event);
	(void)job_free(rig->job);
	(void)session_free(rig->session);
	test_temp_done(&rig->temp);
}

static void reopen(struct rig *rig)
{
	rig->store = store_close(rig->store);
	rig->store = reopen_path(rig->path, 0);
}

static void insert(struct rig *rig)
{
	struct answers answers = {0};

	assert_int_equal(store_session_insert(rig->store, rig->session, note, &answers), 0);
	assert_int_equal(store_task_insert(rig->store, rig->job, note, &answers), 0);
	assert_int_equal(answers.n, 0); /* never from inside the call */
	flush(rig->store, rig->now);
	assert_int_equal(answers.n, 2);
	assert_int_equal(answers.all[0], STORE_OK);
	assert_int_equal(answers.all[1], STORE_OK);
}

static void add_frame(struct rig *rig, enum frames_stage stage, const char *text)
{
	assert_int_equal(frames_add(&rig->job->frames, stage, text, NULL, 0, NULL), 0);
}

/* One value of the file by another connection, as text. */
static void assert_sql(const struct rig *rig, const char *sql, const char *wanted)
{
	sqlite3_stmt *statement = NULL;
	sqlite3 *db = NULL;
	const char *got;

	if (postgres_dsn()) {
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

/* ---- reads ---- */

struct seen_session {
	int n;
	struct store_session row;
	char text[512];
};

static int see_session(void *userdata, const struct store_session *row)
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

struct seen_frames {
	int n_calls;
	enum store_result result;
	uint32_t first;
	uint32_t last;
	size_t n;
	bool more;
	char text[256];
};

static void see_frames(void *userdata, enum store_result result, const struct store_frame *frames,
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

static struct seen_frames get_frames(struct rig *rig, uint32_t after, size_t max_bytes)
{
	struct seen_frames seen = {0};

	assert_int_equal(
		store_frames_get(rig->store, &rig->job->id, after, max_bytes, see_frames, &seen),
		0);
	assert_int_equal(seen.n_calls, 0);
	assert_int_equal(store_next_wakeup(rig->store), 0);
	flush(rig->store, rig->now);
	assert_int_equal(seen.n_calls, 1);
	return seen;
}

struct seen_task {
	int n_calls;
	enum store_result result;
	struct store_task task;
	char owner[64];
};

static void see_task(void *userdata, enum store_result result, const struct store_task *task)
{
	struct seen_task *seen = userdata;

	seen->n_calls++;
	seen->result = result;
	if (!task)
		return;
	seen->task = *task;
	(void)snprintf(seen->owner, sizeof(seen->owner), "%s", task->owner);
}

static int count_task(void *userdata, const struct store_task *task)
{
	(void)task;
	++*(int *)userdata;
	return 0;
}

/* One statement by another connection. */
static void run_sql(const struct rig *rig, const char *sql)
{
	sqlite3 *db = NULL;

	if (postgres_dsn()) {
		postgres_sql(sql, NULL);
		return;
	}
	assert_int_equal(sqlite3_open(rig->path, &db), SQLITE_OK);
	assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
	assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

/* ---- tests ---- */

#define HEAD "alice|w1|component|run|{\"kafka_bootstrap\":\"kafka.example:9092\"}|"

/* Also where a crash left the file without a word in it. */
static void test_postgres_instance_is_made_once(void **state)
{
	struct test_temp temp;
	char first[ID_TEXT_BYTES] = "";
	char second[ID_TEXT_BYTES] = "";

	(void)state;
	test_temp_init(&temp);
	test_temp_write(&temp, STORE_INSTANCE_NAME, "");
	assert_int_equal(postgres_instance(temp.fd, first), 0);
	assert_int_equal(strlen(first), ID_TEXT_BYTES - 1);
	assert_int_equal(postgres_instance(temp.fd, second), 0);
	assert_string_equal(first, second);
	test_temp_done(&temp);
}

static void test_store_session_row_round_trip(void **state)
{
	struct seen_session seen = {0};
	struct answers answers = {0};
	struct rig rig;

	(void)state;
	rig_init(&rig);
	insert(&rig);
	put(&rig, "a.yaml", "x: 1\n", 5, &answers);
	put(&rig, "a.yaml", "y: \"2\"\n", 7, &answers);
	put(&rig, "b \xc3\xa9/c.yaml", "\xc3\xa9", 2, &answers);
	(void)strcpy(rig.session->last_run_id, "run");
	assert_int_equal(store_session_status(rig.store, rig.session, 1, note, &answers), 0);
	assert_int_equal(store_session_log(rig.store, rig.session, 1, note, &answers), 0);
	flush(rig.store, 1);
	assert_int_equal(answers.n, 5);
	assert_int_equal(answers.last, STORE_OK);
	reopen(&rig);
	assert_int_equal(store_each_open_session(rig.store, see_session, &seen), 0);
	assert_int_equal(seen.n, 1);
	assert_string_equal(
		seen.text, postgres_dsn() ? HEAD
				   "[\"FOO=bar\"]|{ \"a.yaml\" : 7, \"b \xc3\xa9/c.yaml\" : 2 }|web"
					  : HEAD
				   "[\"FOO=bar\"]|{\"a.yaml\":7,\"b \xc3\xa9/c.yaml\":2}|web");
	assert_int_equal(seen.row.created_at, rig.session->created_at);
	assert_int_equal(seen.row.expires_at, rig.session->expires_at);
	assert_int_equal(seen.row.ttl_minutes, 60);
	assert_true(seen.row.dagster && seen.row.has_plan);
	assert_int_equal(seen.row.plan.memory_bytes, 5);
	assert_sql(&rig,
		   postgres_dsn() ? "SELECT convert_from(body, 'UTF8') FROM sandbox_components"
				    " WHERE file = 'a.yaml'"
				  : "SELECT body FROM sandbox_components WHERE file = 'a.yaml'",
		   "y: \"2\"\n");
	assert_sql(&rig, "SELECT host || status FROM dagster_sandbox_sessions", "hereopen");
	rig_done(&rig);
}

static void test_store_operator_is_stored_as_nobody(void **state)
{
	struct seen_session seen = {0};
	struct rig rig;

	(void)state;
	rig_init(&rig);
	rig.session->operator_owned = true;
	(void)strcpy(rig.session->owner, "operator");
	rig.session->workspace[0] = '\0';
	insert(&rig);
	assert_sql(&rig, "SELECT owner_user_id FROM dagster_sandbox_sessions", "NULL");
	assert_sql(&rig, "SELECT workspace_id FROM dagster_sandbox_sessions", "NULL");
	assert_sql(&rig, "SELECT owner_text FROM dagster_sandbox_sessions", "operator");
	assert_int_equal(store_each_open_session(rig.store, see_session, &seen), 0);
	assert_true(seen.row.operator_owned);
	rig_done(&rig);
}

static void test_store_session_close_keeps_the_first_reason(void **state)
{
	struct seen_session seen = {0};
	struct answers answers = {0};
	struct rig rig;

	(void)state;
	rig_init(&rig);
	insert(&rig);
	assert_int_equal(
		store_session_close(rig.store, &rig.session->id, "deleted", 5, note, &answers), 0);
	assert_int_equal(
		store_session_close(rig.store, &rig.session->id, "restart", 6, note, &answers), 0);
	/* Late news of a session that is closed does not open it again. */
	assert_int_equal(store_session_status(rig.store, rig.session, 7, note, &answers), 0);
	flush(rig.store, 1);
	assert_int_equal(answers.n, 3);
	assert_sql(&rig, "SELECT status || closed_reason FROM dagster_sandbox_sessions",
		   "closeddeleted");
	assert_sql(&rig, "SELECT env_overrides_json FROM dagster_sandbox_sessions", "NULL");
	assert_int_equal(store_each_open_session(rig.store, see_session, &seen), 0);
	assert_int_equal(seen.n, 0);
	rig_done(&rig);
}

static bool file_holds(const char *path, const char *text)
{
	AUTO_FREE char *data = NULL;
	size_t size = 0;
	AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(io_read_file(fd, (size_t)16 << 20, &data, &size), 0);
	return memmem(data, size, text, strlen(text)) != NULL;
}

static void test_store_session_close_leaves_no_override_in_the_file(void **state)
{
	struct answers answers = {0};
	struct rig rig;

	(void)state;
	SQLITE_ONLY();
	rig_init(&rig);
	insert(&rig);
	reopen(&rig); /* what is in the log goes into the file */
	assert_true(file_holds(rig.path, "kafka.example:9092"));
	assert_int_equal(
		store_session_close(rig.store, &rig.session->id, "deleted", 5, note, &answers), 0);
	flush(rig.store, ++rig.now);
	reopen(&rig);
	assert_false(file_holds(rig.path, "kafka.example:9092"));
	rig_done(&rig);
}

static void test_store_retention_leaves_no_override_in_the_log(void **state)
{
	const struct janitor_retention retention = {0};
	struct answers answers = {0};
	char log[128];
	struct rig rig;

	(void)state;
	SQLITE_ONLY();
	rig_init(&rig);
	insert(&rig);
	assert_int_equal(str_format(log, sizeof(log), "%s-wal", rig.path), 0);
	assert_true(file_holds(log, "kafka.example:9092"));
	assert_int_equal(
		store_session_close(rig.store, &rig.session->id, "deleted", 5, note, &answers), 0);
	flush(rig.store, ++rig.now);
	assert_true(file_holds(log, "kafka.example:9092"));
	assert_int_equal(store_retain(rig.store, &retention, note, &answers), 0);
	flush(rig.store, ++rig.now);
	assert_false(file_holds(log, "kafka.example:9092"));
	assert_false(file_holds(rig.path, "kafka.example:9092"));
	rig_done(&rig);
}

static void test_store_duplicate_id_does_not_hurt_its_neighbours(void **state)
{
	struct answers answers = {0};
	struct rig rig;

	(void)state;
	rig_init(&rig);
	assert_int_equal(store_session_insert(rig.store, rig.session, note, &answers), 0);
	assert_int_equal(store_session_insert(rig.store, rig.session, note, &answers), 0);
	assert_int_equal(store_task_insert(rig.store, rig.job, note, &answers), 0);
	flush(rig.store, 1);
	assert_int_equal(answers.n, 3);
	assert_int_equal(answers.all[0], STORE_OK);
	assert_int_equal(answers.all[1], STORE_DUPLICATE);
	assert_int_equal(answers.all[2], STORE_OK);
	assert_int_equal(store_stats(rig.store).n_commits, 1);
	rig_done(&rig);
}

struct seen_component {
	int n;
	enum store_result result;
	char text[256];
};

static void see_component(void *userdata, enum store_result result,
			  const struct store_component *component)
{
	struct seen_component *seen = userdata;

	seen->n++;
	seen->result = result;
	if (component)
		assert_int_equal(str_format(seen->text, sizeof(seen->text), "%s=%.*s",
					    component->file, (int)component->body_length,
					    component->body),
				 0);
}

/* Also those that another program wrote by its own convention; what this store has goes first. */
static void test_store_component_get_in_order(void **state)
{
	static const char *const wanted[] = {"a.yaml=x", "b.yaml=mine", "c=theirs"};
	struct answers answers = {0};
	struct seen_component seen = {0};
	char name[64] = "";
	struct rig rig;

	(void)state;
	rig_init(&rig);
	insert(&rig);
	put(&rig, "b.yaml", "mine", 4, &answers);
	put(&rig, "a.yaml", "x", 1, &answers);
	flush(rig.store, 1);
	run_sql(&rig, "UPDATE dagster_sandbox_sessions SET components_json ="
		      " '{\"b.yaml\":\"theirs\",\"c\":\"theirs\",\"d\":5,\"\":\"e\"}'");
	for (size_t i = 0; i <= ARRAY_SIZE(wanted); i++) {
		assert_int_equal(store_component_get(rig.store, &rig.session->id,
						     i > 0 ? name : NULL, see_component, &seen),
				 0);
		flush(rig.store, 1);
		assert_int_equal(seen.n, (int)i + 1);
		if (i == ARRAY_SIZE(wanted))
			break;
		assert_string_equal(seen.text, wanted[i]);
		assert_int_equal(str_copy_n(name, sizeof(name), seen.text, strcspn(seen.text, "=")),
				 0);
	}
	assert_int_equal(seen.result, STORE_NOT_FOUND);
	rig_done(&rig);
}

static void test_store_session_tree_begins_numbers_again(void **state)
{
	struct seen_session seen = {0};
	struct answers answers = {0};
	struct rig rig;

	(void)state;
	rig_init(&rig);
	insert(&rig);
	assert_int_equal(store_frames_put(rig.store, rig.job, &(struct store_batch){1, 40, NULL},
					  note, &answers),
			 0);
	assert_int_equal(store_session_tree(rig.store, &rig.session->id, STORE_TREE_RESTORING, note,
					    &answers),
			 0);
	flush(rig.store, 1);
	assert_int_equal(store_each_open_session(rig.store, see_session, &seen), 0);
	assert_true(seen.row.restoring);
	assert_int_equal(seen.row.acked, 0);
	add_frame(&rig, FRAMES_STAGE_START, "one");
	assert_int_equal(store_frames_put(rig.store, rig.job, &(struct store_batch){1, 2, NULL},
					  note, &answers),
			 0);
	assert_int_equal(store_session_tree(rig.store, &rig.session->id, STORE_TREE_COMPLETE, note,
					    &answers),
			 0);
	flush(rig.store, 1);
	assert_int_equal(answers.last, STORE_OK);
	assert_int_equal(store_each_open_session(rig.store, see_session, &seen), 0);
	assert_false(seen.row.restoring);
	assert_int_equal(seen.row.acked, 2);
	rig_done(&rig);
}

static int see_output(void *userdata, const struct store_output *output)
{
	char *text = userdata;

	(void)strncat(text, output->data, output->size);
	return 0;
}

static void test_store_task_progress_until_the_end(void **state)
{
	struct store_output output = {.data = "abc", .size = 3};
	struct store_progress progress;
	struct answers answers = {0};
	char text[32] = "";
	struct rig rig;

	(void)state;
	rig_init(&rig);
	insert(&rig);
	assert_int_equal(store_task_progress(rig.store, &rig.job->id, &progress, see_output, text),
			 0);
	assert_false(progress.resumable); /* as an earlier release left it */
	job_enqueue(rig.job, rig.session);
	job_start(rig.job, 9, 5);
	assert_int_equal(store_task_state(rig.store, rig.job, note, &answers), 0);
	rig.job->n_assets_shown = 2;
	add_frame(&rig, FRAMES_STAGE_MATERIALIZE, "one");
	assert_int_equal(store_frames_put(rig.store, rig.job, &(struct store_batch){1, 11, &output},
					  note, &answers),
			 0);
	rig.job->n_problems_shown = 7;
	output = (struct store_output){.data = "def", .size = 3};
	assert_int_equal(store_frames_put(rig.store, rig.job, &(struct store_batch){2, 12, &output},
					  note, &answers),
			 0);
	/* A number that is stored already brings no output either. */
	assert_int_equal(store_frames_put(rig.store, rig.job, &(struct store_batch){2, 12, &output},
					  note, &answers),
			 0);
	flush(rig.store, 1);
	assert_int_equal(answers.all[2], STORE_OK);
	assert_int_equal(answers.all[3], STORE_DUPLICATE);
	assert_int_equal(store_task_progress(rig.store, &rig.job->id, &progress, see_output, text),
			 0);
	assert_true(progress.resumable);
	assert_int_equal(progress.n_assets_shown, 2);
	assert_int_equal(progress.n_problems_shown, 7);
	assert_true(progress.frames_bytes > 20);
	assert_string_equal(text, "abcdef");
	add_frame(&rig, FRAMES_STAGE_DONE, "end");
	job_end(rig.job, rig.session, JOB_STATE_DONE, 9);
	assert_int_equal(store_task_state(rig.store, rig.job, note, &answers), 0);
	flush(rig.store, 1);
	assert_sql(&rig, "SELECT count(*) FROM sandbox_task_output", "0");
	rig_done(&rig);
}

static void test_store_frames_and_number_commit_together(void **state)
{
	struct answers answers = {0};
	struct seen_session seen = {0};
	struct seen_frames frames;
	struct rig rig;

	(void)state;
	rig_init(&rig);
	insert(&rig);
	add_frame(&rig, FRAMES_STAGE_START, "one");
	assert_int_equal(store_frames_put(rig.store, rig.job, &(struct store_batch){1, 0, NULL},
					  note, &answers),
			 0);
	add_frame(&rig, FRAMES_STAGE_LOG, "two");
	add_frame(&rig, FRAMES_STAGE_LOG, "three");
	assert_int_equal(store_frames_put(rig.store, rig.job, &(struct store_batch){2, 7, NULL},
					  note, &answers),
			 0);
	flush(rig.store, 1);
	assert_int_equal(answers.n, 2);
	assert_int_equal(answers.last, STORE_OK);
	/* The same number again, and an older one: refused, nothing is written. */
	add_frame(&rig, FRAMES_STAGE_LOG, "four");
	assert_int_equal(store_frames_put(rig.store, rig.job, &(struct store_batch){4, 7, NULL},
					  note, &answers),
			 0);
	assert_int_equal(store_frames_put(rig.store, rig.job, &(struct store_batch){4, 6, NULL},
					  note, &answers),
			 0);
	flush(rig.store, 1);
	assert_int_equal(answers.all[2], STORE_DUPLICATE);
	assert_int_equal(answers.all[3], STORE_DUPLICATE);
	/* A number whose frames cannot be written does not advance either. */
	assert_int_equal(store_frames_put(rig.store, rig.job, &(struct store_batch){3, 8, NULL},
					  note, &answers),
			 0);
	flush(rig.store, 1);
	assert_int_equal(answers.all[4], STORE_DUPLICATE);
	assert_int_equal(store_each_open_session(rig.store, see_session, &seen), 0);
	assert_int_equal(seen.row.acked, 7);
	/* A number alone. */
	assert_int_equal(store_frames_put(rig.store, rig.job, &(struct store_batch){5, 9, NULL},
					  note, &answers),
			 0);
	flush(rig.store, 1);
	assert_int_equal(answers.last, STORE_OK);
	reopen(&rig);
	assert_int_equal(store_each_open_session(rig.store, see_session, &seen), 0);
	assert_int_equal(seen.row.acked, 9);
	frames = get_frames(&rig, 0, 1 << 20);
	assert_int_equal(frames.n, 3);
	assert_int_equal(frames.last, 3);
	assert_non_null(strstr(frames.text, "three"));
	rig_done(&rig);
}

static void test_store_frames_get_pages_without_gap(void **state)
{
	struct seen_frames frames;
	struct answers answers = {0};
	uint32_t after = 0;
	int n_pages = 0;
	struct rig rig;

	(void)state;
	rig_init(&rig);
	insert(&rig);
	for (int i = 0; i < 1000; i++)
		add_frame(&rig, FRAMES_STAGE_LOG, "text");
	assert_int_equal(store_frames_put(rig.store, rig.job, &(struct store_batch){1, 0, NULL},
					  note, &answers),
			 0);
	flush(rig.store, 1);
	do {
		frames = get_frames(&rig, after, 4096);
		assert_int_equal(frames.result, STORE_OK);
		if (frames.n == 0)
			break;
		assert_int_equal(frames.first, after + 1);
		assert_int_equal(frames.last, after + frames.n);
		after = frames.last;
		n_pages++;
	} while (frames.more);
	assert_int_equal(after, 1000);
	assert_true(n_pages > 10);
	assert_int_equal(get_frames(&rig, 0, 1).n, 1); /* one always goes */
	assert_int_equal(get_frames(&rig, 1000, 4096).n, 0);
	rig_done(&rig);
}

static void test_store_task_states(void **state)
{
	struct seen_task seen = {0};
	struct answers answers = {0};
	struct id unknown = make_id(9);
	struct rig rig;
	int n = 0;

	(void)state;
	rig_init(&rig);
	insert(&rig);
	assert_int_equal(store_each_open_task(rig.store, count_task, &n), 0);
	assert_int_equal(n, 1);
	job_start(rig.job, 4, 1764422886116879);
	add_frame(&rig, FRAMES_STAGE_DONE, "end");
	job_end(rig.job, NULL, JOB_STATE_DONE, 1764422886116880);
	assert_int_equal(store_frames_put(rig.store, rig.job, &(struct store_batch){1, 0, NULL},
					  note, &answers),
			 0);
	assert_int_equal(store_task_state(rig.store, rig.job, note, &answers), 0);
	assert_int_equal(store_task_get(rig.store, &rig.job->id, see_task, &seen), 0);
	flush(rig.store, 1);
	assert_int_equal(seen.result, STORE_OK);
	assert_int_equal(seen.task.state, JOB_STATE_DONE);
	assert_int_equal(seen.task.last_seq, 1);
	assert_int_equal(seen.task.wire_job, 4);
	assert_int_equal(seen.task.ended_at, 1764422886116880);
	assert_string_equal(seen.owner, "alice");
	n = 0;
	assert_int_equal(store_each_open_task(rig.store, count_task, &n), 0);
	assert_int_equal(n, 0);
	assert_int_equal(store_task_get(rig.store, &unknown, see_task, &seen), 0);
	flush(rig.store, 1);
	assert_int_equal(seen.result, STORE_NOT_FOUND);
	rig_done(&rig);
}

static int keep_state(void *userdata, const struct store_task *task)
{
	*(enum job_state *)userdata = task->state;
	return 0;
}

static void test_store_task_with_a_terminal_frame_has_ended(void **state)
{
	enum job_state seen = JOB_STATE_MAX_;
	struct answers answers = {0};
	struct rig rig;

	(void)state;
	rig_init(&rig);
	insert(&rig);
	add_frame(&rig, FRAMES_STAGE_START, "start");
	assert_int_equal(store_frames_put(rig.store, rig.job, &(struct store_batch){1, 0, NULL},
					  note, &answers),
			 0);
	flush(rig.store, 1);
	assert_int_equal(store_each_open_task(rig.store, keep_state, &seen), 0);
	assert_int_equal(seen, JOB_STATE_QUEUED);
	add_frame(&rig, FRAMES_STAGE_DONE, "end");
	assert_int_equal(store_frames_put(rig.store, rig.job, &(struct store_batch){2, 0, NULL},
					  note, &answers),
			 0);
	flush(rig.store, 1); /* and the write of its state never came */
	reopen(&rig);
	assert_int_equal(store_each_open_task(rig.store, keep_state, &seen), 0);
	assert_int_equal(seen, JOB_STATE_DONE);
	rig_done(&rig);
}

static void test_store_forget_silences_but_writes(void **state)
{
	struct answers answers = {0};
	struct seen_task seen = {0};
	struct rig rig;

	(void)state;
	rig_init(&rig);
	assert_int_equal(store_session_insert(rig.store, rig.session, note, &answers), 0);
	assert_int_equal(store_task_get(rig.store, &rig.job->id, see_task, &seen), 0);
	store_forget(rig.store, &answers);
	store_forget(rig.store, &seen);
	flush(rig.store, 1);
	assert_int_equal(answers.n, 0);
	assert_int_equal(seen.n_calls, 0);
	assert_sql(&rig, "SELECT count(*) FROM dagster_sandbox_sessions", "1");
	rig_done(&rig);
}

struct chain {
	struct rig *rig;
	int n;
};

static void queue_again(void *userdata, enum store_result result)
{
	struct chain *chain = userdata;

	assert_int_equal(result, STORE_OK);
	if (++chain->n < 3)
		assert_int_equal(store_session_log(chain->rig->store, chain->rig->session, 1,
						   queue_again, chain),
				 0);
}

static void test_store_callback_may_queue(void **state)
{
	struct rig rig;
	struct chain chain = {.rig = &rig};

	(void)state;
	SQLITE_ONLY();
	rig_init(&rig);
	assert_int_equal(store_next_wakeup(rig.store), USEC_NEVER);
	assert_int_equal(store_session_insert(rig.store, rig.session, queue_again, &chain), 0);
	for (int i = 1; i <= 3; i++) {
		assert_int_equal(store_next_wakeup(rig.store), 0);
		flush(rig.store, 1);
		assert_int_equal(chain.n, i);
	}
	assert_int_equal(store_next_wakeup(rig.store), USEC_NEVER);
	rig_done(&rig);
}

static void sql_exec(const struct rig *rig, const char *sql)
{
	sqlite3 *db = NULL;

	assert_int_equal(sqlite3_open(rig->path, &db), SQLITE_OK);
	assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
	assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

/* The disk is full: requests go on degraded, in order, and turn durable by themselves. */
static void test_store_full_disk_degrades_and_recovers(void **state)
{
	static char body[200000];
	struct answers big = {0};
	struct answers later = {0};
	struct seen_frames frames = {0};
	struct rig rig;

	(void)state;
	SQLITE_ONLY();
	memset(body, 'x', sizeof(body));
	rig_init(&rig);
	/* A bound on pages stands for the disk; the filler is what somebody deletes later. */
	sql_exec(&rig, "CREATE TABLE filler (x); INSERT INTO filler VALUES (zeroblob(800000))");
	rig.store = store_close(rig.store);
	rig.store = reopen_path(rig.path, 230);
	insert(&rig);
	put(&rig, "a.yaml", body, sizeof(body), &big);
	assert_int_equal(store_session_log(rig.store, rig.session, 1, note, &later), 0);
	flush(rig.store, 1000);
	assert_int_equal(big.n, 1);
	assert_int_equal(big.last, STORE_DEGRADED);
	assert_int_equal(later.last, STORE_DEGRADED);
	assert_true(store_stats(rig.store).degraded);
	assert_int_equal(store_stats(rig.store).n_waiting, 2);
	/* Not tried again before its time, and nobody is told twice. */
	assert_true(store_next_wakeup(rig.store) > 1001);
	flush(rig.store, 1001);
	assert_int_equal(store_stats(rig.store).n_failed_commits, 1);
	assert_int_equal(big.n + later.n, 2);
	/* What comes meanwhile is told at the end of its turn, and reads still work. */
	assert_int_equal(store_session_log(rig.store, rig.session, 1, note, &later), 0);
	assert_int_equal(store_frames_get(rig.store, &rig.job->id, 0, 1, see_frames, &frames), 0);
	assert_int_equal(store_next_wakeup(rig.store), 0);
	flush(rig.store, 1002);
	assert_int_equal(later.n, 2);
	assert_int_equal(frames.result, STORE_OK);
	/* Still full: the delay grows, silently. */
	flush(rig.store, store_next_wakeup(rig.store));
	assert_int_equal(store_stats(rig.store).n_failed_commits, 2);
	assert_int_equal(big.n + later.n, 3);
	sql_exec(&rig, "DROP TABLE filler");
	flush(rig.store, store_next_wakeup(rig.store));
	assert_int_equal(big.n, 2);
	assert_int_equal(big.last, STORE_OK);
	assert_int_equal(later.n, 4);
	assert_int_equal(later.last, STORE_OK);
	assert_false(store_stats(rig.store).degraded);
	assert_sql(&rig, "SELECT length(body) FROM sandbox_components WHERE file = 'a.yaml'",
		   "200000");
	rig_done(&rig);
}

/* A store at its bound lets go of what is old enough, and then takes what waited. */
static void test_store_full_makes_room_by_retention(void **state)
{
	struct janitor_retention retention = {.bodies_before = 51 * USEC_PER_SEC};
	static char body[600000];
	struct answers puts = {0};
	struct answers room = {0};
	struct rig rig;

	(void)state;
	SQLITE_ONLY();
	memset(body, 'x', sizeof(body));
	rig_init(&rig);
	insert(&rig);
	put(&rig, "old.yaml", body, sizeof(body), &puts);
	assert_int_equal(store_session_close(rig.store, &rig.session->id, "deleted",
					     50 * USEC_PER_SEC, NULL, NULL),
			 0);
	rig.store = store_close(rig.store);
	rig.store = reopen_path(rig.path, 230);
	put(&rig, "new.yaml", body, sizeof(body), &puts);
	flush(rig.store, 1000);
	assert_int_equal(puts.last, STORE_DEGRADED);
	assert_int_equal(store_retain(rig.store, &retention, note, &room), 0);
	flush(rig.store, store_next_wakeup(rig.store));
	flush(rig.store, clock_add(1000, USEC_PER_SEC));
	assert_int_equal(room.last, STORE_OK);
	assert_int_equal(puts.last, STORE_OK);
	assert_false(store_stats(rig.store).degraded);
	assert_int_equal(store_stats(rig.store).n_waiting, 0);
	assert_sql(&rig, "SELECT file FROM sandbox_components", "new.yaml");
	rig_done(&rig);
}

/* Another process holds the write lock. */
static void test_store_two_writers_wait_and_recover(void **state)
{
	struct answers answers = {0};
	struct rig rig;
	sqlite3 *other = NULL;

	(void)state;
	SQLITE_ONLY();
	rig_init(&rig);
	assert_int_equal(sqlite3_open(rig.path, &other), SQLITE_OK);
	assert_int_equal(sqlite3_exec(other, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
	assert_int_equal(store_session_insert(rig.store, rig.session, note, &answers), 0);
	assert_int_equal(store_task_insert(rig.store, rig.job, note, &answers), 0);
	flush(rig.store, 1);
	assert_int_equal(answers.n, 2);
	assert_int_equal(answers.last, STORE_DEGRADED);
	assert_int_equal(sqlite3_exec(other, "COMMIT", NULL, NULL, NULL), SQLITE_OK);
	flush(rig.store, store_next_wakeup(rig.store));
	assert_int_equal(answers.n, 4);
	assert_int_equal(answers.all[2], STORE_OK);
	assert_int_equal(answers.all[3], STORE_OK);
	assert_false(store_stats(rig.store).degraded);
	assert_int_equal(store_next_wakeup(rig.store), USEC_NEVER);
	assert_int_equal(sqlite3_close(other), SQLITE_OK);
	assert_sql(&rig, "SELECT count(*) FROM sandbox_tasks", "1");
	rig_done(&rig);
}

static void test_store_waiting_queue_is_bounded(void **state)
{
	struct sqlite_options options = {.host = "h", .max_waiting_bytes = 100000};
	struct answers answers = {0};
	struct err err = ERR_NULL;
	struct rig rig;
	sqlite3 *other = NULL;
	static char body[60000];
	int n_lost = 0;

	(void)state;
	SQLITE_ONLY();
	memset(body, 'x', sizeof(body));
	rig_init(&rig);
	insert(&rig);
	rig.store = store_close(rig.store);
	options.path = rig.path;
	assert_int_equal(store_open_sqlite(&options, &rig.store, &err), 0);
	assert_int_equal(sqlite3_open(rig.path, &other), SQLITE_OK);
	assert_int_equal(sqlite3_exec(other, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
	for (int i = 0; i < 4; i++) {
		put(&rig, "a.yaml", body, sizeof(body), &answers);
		flush(rig.store, 1);
	}
	/* It would fit, but what comes before it is not there. */
	assert_int_equal(store_task_state(rig.store, rig.job, note, &answers), 0);
	flush(rig.store, 1);
	assert_int_equal(answers.last, STORE_LOST);
	assert_int_equal(sqlite3_exec(other, "COMMIT", NULL, NULL, NULL), SQLITE_OK);
	flush(rig.store, store_next_wakeup(rig.store));
	for (int i = 0; i < answers.n; i++)
		n_lost += answers.all[i] == STORE_LOST;
	assert_int_equal(n_lost, 4);
	assert_int_equal(answers.last, STORE_OK);
	assert_int_equal(store_task_state(rig.store, rig.job, note, &answers), 0);
	flush(rig.store, 1);
	assert_int_equal(answers.last, STORE_OK);
	assert_int_equal(sqlite3_close(other), SQLITE_OK);
	rig_done(&rig);
}

/* What was told as durable is there after kill -9, what was not is not half there. */
static void test_store_killed_process_keeps_what_it_promised(void **state)
{
	struct seen_frames frames;
	struct rig rig;
	int to_parent[2];
	char byte;
	pid_t pid;
	int status;

	(void)state;
	SQLITE_ONLY();
	rig_init(&rig);
	rig.store = store_close(rig.store);
	assert_int_equal(pipe2(to_parent, O_CLOEXEC), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		struct answers answers = {0};
		struct store *store = reopen_path(rig.path, 0);

		if (store_session_insert(store, rig.session, note, &answers) < 0 ||
		    store_task_insert(store, rig.job, note, &answers) < 0)
			_exit(1);
		add_frame(&rig, FRAMES_STAGE_START, "kept");
		if (store_frames_put(store, rig.job, &(struct store_batch){1, 3, NULL}, note,
				     &answers) < 0)
			_exit(1);
		flush(store, 1);
		if (answers.n != 3 || answers.last != STORE_OK)
			_exit(2);
		/* Queued, never flushed. */
		add_frame(&rig, FRAMES_STAGE_LOG, "lost");
		if (store_frames_put(store, rig.job, &(struct store_batch){2, 4, NULL}, note,
				     &answers) < 0)
			_exit(1);
		if (write(to_parent[1], "r", 1) != 1)
			_exit(3);
		(void)pause();
		_exit(4);
	}
	assert_int_equal(read(to_parent[0], &byte, 1), 1);
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status));
	(void)close(to_parent[0]);
	(void)close(to_parent[1]);
	rig.store = reopen_path(rig.path, 0);
	frames = get_frames(&rig, 0, 1 << 20);
	assert_int_equal(frames.n, 1);
	assert_non_null(strstr(frames.text, "kept"));
	assert_sql(&rig, "SELECT acked FROM dagster_sandbox_sessions", "3");
	rig_done(&rig);
}

static void test_store_open_damaged_file_is_a_clear_error(void **state)
{
	const char *const texts[] = {
		"this is no database, but long enough to be looked at: "
		"............................................................"};
	struct sqlite_options options = {.host = "h"};
	struct store *store = NULL;
	struct err err = ERR_NULL;
	struct rig rig;
	FILE *file;

	(void)state;
	SQLITE_ONLY();
	rig_init(&rig);
	options.path = rig.path;
	insert(&rig);
	rig.store = store_close(rig.store);
	/* Damage in the middle of the file. */
	file = fopen(rig.path, "r+e");
	assert_non_null(file);
	assert_int_equal(fseek(file, 4096 * 2, SEEK_SET), 0);
	for (int i = 0; i < 4096 * 3; i++)
		assert_true(fputc(0xa5, file) != EOF);
	assert_int_equal(fclose(file), 0);
	assert_int_equal(store_open_sqlite(&options, &store, &err), -EBADMSG);
	assert_true(err.text[0] != '\0');
	/* No database at all. */
	file = fopen(rig.path, "we");
	assert_non_null(file);
	for (int i = 0; i < 100; i++)
		assert_true(fputs(texts[0], file) >= 0);
	assert_int_equal(fclose(file), 0);
	assert_int_equal(store_open_sqlite(&options, &store, &err), -EBADMSG);
	/* A folder that does not exist. */
	options.path = "/nonexistent/x/api.db";
	assert_true(store_open_sqlite(&options, &store, &err) < 0);
	assert_null(store);
	rig_done(&rig);
}

struct frames_use {
	enum store_result result;
	size_t n;
	uint64_t bytes;
};

static void see_frames_use(void *userdata, enum store_result result,
			   const struct store_frames_use *seen)
{
	struct frames_use *use = userdata;

	use->result = result;
	if (!seen)
		return;
	use->n++;
	use->bytes += seen->bytes;
}

static void get_frames_use(struct rig *rig, struct frames_use *use)
{
	assert_int_equal(store_frames_use(rig->store, see_frames_use, use), 0);
	flush(rig->store, rig->now);
	assert_int_equal(use->result, STORE_NOT_FOUND);
}

/* Counted with each batch, over sessions' ends and restarts, until the frames are deleted. */
static void test_store_frames_use_is_what_is_kept(void **state)
{
	const struct janitor_retention retention = {.frames_before = 51 * USEC_PER_SEC};
	struct answers answers = {0};
	struct frames_use use = {0};
	uint64_t expected;
	struct rig rig;

	(void)state;
	rig_init(&rig);
	insert(&rig);
	get_frames_use(&rig, &use);
	assert_int_equal(use.n, 0);
	for (uint32_t seq = 1; seq <= 3; seq++) {
		add_frame(&rig, seq == 3 ? FRAMES_STAGE_DONE : FRAMES_STAGE_LOG, "text");
		assert_int_equal(store_frames_put(rig.store, rig.job,
						  &(struct store_batch){seq, 0, NULL}, note,
						  &answers),
				 0);
	}
	flush(rig.store, 1);
	expected = rig.job->frames.total_bytes + (uint64_t)3 * FRAMES_ROW_BYTES;
	assert_int_equal(store_session_close(rig.store, &rig.session->id, "deleted",
					     50 * USEC_PER_SEC, note, &answers),
			 0);
	flush(rig.store, 1);
	reopen(&rig);
	get_frames_use(&rig, &use);
	assert_int_equal(use.n, 1);
	assert_int_equal(use.bytes, expected);
	assert_int_equal(store_retain(rig.store, &retention, note, &answers), 0);
	flush(rig.store, 1);
	get_frames_use(&rig, &use);
	assert_int_equal(use.n, 1);
	rig_done(&rig);
}

static void test_store_retain_deletes_by_age(void **state)
{
	struct janitor_retention retention = {.frames_before = 100 * USEC_PER_SEC};
	struct answers answers = {0};
	struct rig rig;

	(void)state;
	rig_init(&rig);
	insert(&rig);
	put(&rig, "a.yaml", "x", 1, &answers);
	add_frame(&rig, FRAMES_STAGE_DONE, "end");
	assert_int_equal(store_frames_put(rig.store, rig.job, &(struct store_batch){1, 0, NULL},
					  note, &answers),
			 0);
	/* An open session is never touched. */
	retention.bodies_before = retention.rows_before = retention.frames_before =
		USEC_PER_SEC * 4000000000;
	assert_int_equal(store_retain(rig.store, &retention, note, &answers), 0);
	flush(rig.store, 1);
	assert_sql(&rig, "SELECT count(*) FROM sandbox_frames", "1");
	assert_sql(&rig, "SELECT count(*) FROM sandbox_components", "1");
	assert_int_equal(store_session_close(rig.store, &rig.session->id, "deleted",
					     50 * USEC_PER_SEC, note, &answers),
			 0);
	retention = (struct janitor_retention){.frames_before = 49 * USEC_PER_SEC};
	assert_int_equal(store_retain(rig.store, &retention, note, &answers), 0);
	flush(rig.store, 1);
	assert_sql(&rig, "SELECT count(*) FROM sandbox_frames", "1");
	retention = (struct janitor_retention){.frames_before = 51 * USEC_PER_SEC};
	assert_int_equal(store_retain(rig.store, &retention, note, &answers), 0);
	flush(rig.store, 1);
	assert_sql(&rig, "SELECT count(*) FROM sandbox_frames", "0");
	assert_sql(&rig, "SELECT count(*) FROM sandbox_tasks", "1");
	assert_sql(&rig, "SELECT count(*) FROM sandbox_components", "1");
	retention = (struct janitor_retention){.bodies_before = 51 * USEC_PER_SEC};
	assert_int_equal(store_retain(rig.store, &retention, note, &answers), 0);
	flush(rig.store, 1);
	assert_sql(&rig, "SELECT count(*) FROM sandbox_components", "0");
	retention = (struct janitor_retention){.rows_before = 51 * USEC_PER_SEC};
	assert_int_equal(store_retain(rig.store, &retention, note, &answers), 0);
	flush(rig.store, 1);
	assert_sql(&rig, "SELECT count(*) FROM sandbox_tasks", "0");
	assert_sql(&rig, "SELECT count(*) FROM dagster_sandbox_sessions", "0");
	assert_int_equal(answers.last, STORE_OK);
	/* Said, so that a caller goes on as long as there is something, and no longer. */
	assert_int_equal(store_retain(rig.store, &retention, note, &answers), 0);
	flush(rig.store, 1);
	assert_int_equal(answers.last, STORE_NOT_FOUND);
	rig_done(&rig);
}

/* What one component's write costs does not grow with the others of its session. */
struct usages {
	int n;
	uint64_t cpu_us;
	char name[64];
};

static int see_usage(void *userdata, const struct store_usage *usage)
{
	struct usages *usages = userdata;

	usages->n++;
	usages->cpu_us = usage->cpu_us;
	assert_int_equal(usage->scope, QUOTA_SCOPE_WORKSPACE);
	assert_int_equal(str_copy(usages->name, sizeof(usages->name), usage->name), 0);
	return 0;
}

static void put_usage(struct rig *rig, uint32_t day, uint64_t cpu_us)
{
	const struct store_usage usage = {
		.day = day, .scope = QUOTA_SCOPE_WORKSPACE, .name = "w:1", .cpu_us = cpu_us};

	assert_int_equal(store_usage_put(rig->store, &usage), 0);
	flush(rig->store, 1);
}

static void test_store_usage_is_of_one_day(void **state)
{
	struct usages usages = {0};
	struct rig rig;

	(void)state;
	rig_init(&rig);
	put_usage(&rig, 20000, 5);
	put_usage(&rig, 20000, 1ull << 40);
	reopen(&rig);
	assert_int_equal(store_each_usage(rig.store, 20000, see_usage, &usages), 0);
	assert_int_equal(usages.n, 1);
	assert_int_equal(usages.cpu_us, 1ull << 40);
	assert_string_equal(usages.name, "w:1");
	assert_int_equal(store_each_usage(rig.store, 20001, see_usage, &usages), 0);
	assert_int_equal(usages.n, 1);
	/* The next day's first write forgets it. */
	put_usage(&rig, 20001, 7);
	assert_sql(&rig, "SELECT count(*) || ' ' || sum(cpu_us) FROM sandbox_usage", "1 7");
	rig_done(&rig);
}

static void test_store_component_writes_only_itself(void **state)
{
	enum {
		BODY_BYTES = 1000000,
		N = 20
	};
	AUTO_FREE char *body = NULL;
	struct answers answers = {0};
	struct seen_session seen = {0};
	struct rig rig;
	char wal[128];
	struct stat st;

	(void)state;
	SQLITE_ONLY(); /* leaves at once: what was allocated before would be lost */
	body = malloc(BODY_BYTES);
	assert_non_null(body);
	memset(body, 'x', BODY_BYTES);
	rig_init(&rig);
	insert(&rig);
	for (int i = 0; i < N; i++) {
		char file[16];

		assert_int_equal(str_format(file, sizeof(file), "c%d.yaml", i), 0);
		put(&rig, file, body, BODY_BYTES, &answers);
	}
	flush(rig.store, 1);
	reopen(&rig); /* which empties the log */
	put(&rig, "c0.yaml", "x", 1, &answers);
	flush(rig.store, 1);
	assert_int_equal(answers.last, STORE_OK);
	assert_int_equal(str_format(wal, sizeof(wal), "%s-wal", rig.path), 0);
	assert_int_equal(stat(wal, &st), 0);
	assert_true(st.st_size < 2 * BODY_BYTES);
	/* A body for a session without a row is nobody's: it would never be deleted. */
	rig.session->id.bytes[0]++;
	put(&rig, "c0.yaml", "x", 1, &answers);
	flush(rig.store, 1);
	assert_sql(&rig, "SELECT count(DISTINCT session_id) FROM sandbox_components", "1");
	assert_int_equal(store_each_open_session(rig.store, see_session, &seen), 0);
	assert_non_null(strstr(seen.text, "\"c0.yaml\":1,\"c1.yaml\":1000000"));
	rig_done(&rig);
}

static void test_store_close_writes_what_waits(void **state)
{
	struct answers answers = {0};
	struct rig rig;

	(void)state;
	rig_init(&rig);
	assert_int_equal(store_session_insert(rig.store, rig.session, note, &answers), 0);
	reopen(&rig);
	assert_int_equal(answers.n, 0);
	assert_sql(&rig, "SELECT count(*) FROM dagster_sandbox_sessions", "1");
	rig_done(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_postgres_instance_is_made_once),
		cmocka_unit_test(test_store_session_row_round_trip),
		cmocka_unit_test(test_store_operator_is_stored_as_nobody),
		cmocka_unit_test(test_store_session_close_keeps_the_first_reason),
		cmocka_unit_test(test_store_session_close_leaves_no_override_in_the_file),
		cmocka_unit_test(test_store_retention_leaves_no_override_in_the_log),
		cmocka_unit_test(test_store_duplicate_id_does_not_hurt_its_neighbours),
		cmocka_unit_test(test_store_component_get_in_order),
		cmocka_unit_test(test_store_session_tree_begins_numbers_again),
		cmocka_unit_test(test_store_task_progress_until_the_end),
		cmocka_unit_test(test_store_frames_and_number_commit_together),
		cmocka_unit_test(test_store_frames_get_pages_without_gap),
		cmocka_unit_test(test_store_task_states),
		cmocka_unit_test(test_store_task_with_a_terminal_frame_has_ended),
		cmocka_unit_test(test_store_forget_silences_but_writes),
		cmocka_unit_test(test_store_callback_may_queue),
		cmocka_unit_test(test_store_full_disk_degrades_and_recovers),
		cmocka_unit_test(test_store_full_makes_room_by_retention),
		cmocka_unit_test(test_store_two_writers_wait_and_recover),
		cmocka_unit_test(test_store_waiting_queue_is_bounded),
		cmocka_unit_test(test_store_killed_process_keeps_what_it_promised),
		cmocka_unit_test(test_store_open_damaged_file_is_a_clear_error),
		cmocka_unit_test(test_store_frames_use_is_what_is_kept),
		cmocka_unit_test(test_store_retain_deletes_by_age),
		cmocka_unit_test(test_store_usage_is_of_one_day),
		cmocka_unit_test(test_store_component_writes_only_itself),
		cmocka_unit_test(test_store_close_writes_what_waits),
	};
	int n_before = test_begin();

	return test_end(n_before, cmocka_run_group_tests(tests, NULL, NULL));
}
