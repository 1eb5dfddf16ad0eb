#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/io.h"
#include "base/str.h"

#include "supervisor/api/store/sqlite.h"
#include "tests/unit/store_rig.h"

static void test_store_forget_silences_but_writes(void **state)
{
	struct rig *rig = *state;
	struct answers answers = {0};
	struct seen_task seen = {0};

	assert_int_equal(store_session_insert(rig->store, rig->session, rig_note, &answers), 0);
	assert_int_equal(store_task_get(rig->store, &rig->job->id, rig_see_task, &seen), 0);
	store_forget(rig->store, &answers);
	store_forget(rig->store, &seen);
	rig_flush(rig->store, 1);
	assert_int_equal(answers.n, 0);
	assert_int_equal(seen.n_calls, 0);
	rig_assert_sql(rig, "SELECT count(*) FROM dagster_sandbox_sessions", "1");
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
	struct rig *rig = *state;
	struct chain chain = {.rig = rig};

	SQLITE_ONLY();
	assert_int_equal(store_next_wakeup(rig->store), USEC_NEVER);
	assert_int_equal(store_session_insert(rig->store, rig->session, queue_again, &chain), 0);
	for (int i = 1; i <= 3; i++) {
		assert_int_equal(store_next_wakeup(rig->store), 0);
		rig_flush(rig->store, 1);
		assert_int_equal(chain.n, i);
	}
	assert_int_equal(store_next_wakeup(rig->store), USEC_NEVER);
}

/* The disk is full: requests go on degraded, in order, and turn durable by themselves. */
static void test_store_full_disk_degrades_and_recovers(void **state)
{
	struct rig *rig = *state;
	static char body[200000];
	struct answers big = {0};
	struct answers later = {0};
	struct seen_frames frames = {0};

	SQLITE_ONLY();
	memset(body, 'x', sizeof(body));
	/* A bound on pages stands for the disk; the filler is what somebody deletes later. */
	rig_run_sql(rig, "CREATE TABLE filler (x); INSERT INTO filler VALUES (zeroblob(800000))");
	rig->store = store_close(rig->store);
	rig->store = rig_open(rig->path, 230);
	rig_insert(rig);
	rig_put(rig, "a.yaml", body, sizeof(body), &big);
	assert_int_equal(store_session_log(rig->store, rig->session, 1, rig_note, &later), 0);
	rig_flush(rig->store, 1000);
	assert_int_equal(big.n, 1);
	assert_int_equal(big.last, STORE_DEGRADED);
	assert_int_equal(later.last, STORE_DEGRADED);
	assert_true(store_stats(rig->store).degraded);
	assert_int_equal(store_stats(rig->store).n_waiting, 2);
	/* Not tried again before its time, and nobody is told twice. */
	assert_true(store_next_wakeup(rig->store) > 1001);
	rig_flush(rig->store, 1001);
	assert_int_equal(store_stats(rig->store).n_failed_commits, 1);
	assert_int_equal(big.n + later.n, 2);
	/* What comes meanwhile is told at the end of its turn, and reads still work. */
	assert_int_equal(store_session_log(rig->store, rig->session, 1, rig_note, &later), 0);
	assert_int_equal(store_frames_get(rig->store, &rig->job->id, 0, 1, rig_see_frames, &frames),
			 0);
	assert_int_equal(store_next_wakeup(rig->store), 0);
	rig_flush(rig->store, 1002);
	assert_int_equal(later.n, 2);
	assert_int_equal(frames.result, STORE_OK);
	/* Still full: the delay grows, silently. */
	rig_flush(rig->store, store_next_wakeup(rig->store));
	assert_int_equal(store_stats(rig->store).n_failed_commits, 2);
	assert_int_equal(big.n + later.n, 3);
	rig_run_sql(rig, "DROP TABLE filler");
	rig_flush(rig->store, store_next_wakeup(rig->store));
	assert_int_equal(big.n, 2);
	assert_int_equal(big.last, STORE_OK);
	assert_int_equal(later.n, 4);
	assert_int_equal(later.last, STORE_OK);
	assert_false(store_stats(rig->store).degraded);
	rig_assert_sql(rig, "SELECT length(body) FROM sandbox_components WHERE file = 'a.yaml'",
		       "200000");
}

/* A store at its bound lets go of what is old enough, and then takes what waited. */
static void test_store_full_makes_room_by_retention(void **state)
{
	struct rig *rig = *state;
	struct janitor_retention retention = {.bodies_before = 51 * USEC_PER_SEC};
	static char body[600000];
	struct answers puts = {0};
	struct answers room = {0};

	SQLITE_ONLY();
	memset(body, 'x', sizeof(body));
	rig_insert(rig);
	rig_put(rig, "old.yaml", body, sizeof(body), &puts);
	assert_int_equal(store_session_close(rig->store, &rig->session->id, "deleted",
					     50 * USEC_PER_SEC, NULL, NULL),
			 0);
	rig->store = store_close(rig->store);
	rig->store = rig_open(rig->path, 230);
	rig_put(rig, "new.yaml", body, sizeof(body), &puts);
	rig_flush(rig->store, 1000);
	assert_int_equal(puts.last, STORE_DEGRADED);
	assert_int_equal(store_retain(rig->store, &retention, rig_note, &room), 0);
	rig_flush(rig->store, store_next_wakeup(rig->store));
	rig_flush(rig->store, clock_add(1000, USEC_PER_SEC));
	assert_int_equal(room.last, STORE_OK);
	assert_int_equal(puts.last, STORE_OK);
	assert_false(store_stats(rig->store).degraded);
	assert_int_equal(store_stats(rig->store).n_waiting, 0);
	rig_assert_sql(rig, "SELECT file FROM sandbox_components", "new.yaml");
}

/* Another process holds the write lock. */
static void test_store_two_writers_wait_and_recover(void **state)
{
	struct rig *rig = *state;
	struct answers answers = {0};
	sqlite3 *other = NULL;

	SQLITE_ONLY();
	assert_int_equal(sqlite3_open(rig->path, &other), SQLITE_OK);
	assert_int_equal(sqlite3_exec(other, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
	assert_int_equal(store_session_insert(rig->store, rig->session, rig_note, &answers), 0);
	assert_int_equal(store_task_insert(rig->store, rig->job, rig_note, &answers), 0);
	rig_flush(rig->store, 1);
	assert_int_equal(answers.n, 2);
	assert_int_equal(answers.last, STORE_DEGRADED);
	assert_int_equal(sqlite3_exec(other, "COMMIT", NULL, NULL, NULL), SQLITE_OK);
	rig_flush(rig->store, store_next_wakeup(rig->store));
	assert_int_equal(answers.n, 4);
	assert_int_equal(answers.all[2], STORE_OK);
	assert_int_equal(answers.all[3], STORE_OK);
	assert_false(store_stats(rig->store).degraded);
	assert_int_equal(store_next_wakeup(rig->store), USEC_NEVER);
	assert_int_equal(sqlite3_close(other), SQLITE_OK);
	rig_assert_sql(rig, "SELECT count(*) FROM sandbox_tasks", "1");
}

static void test_store_waiting_queue_is_bounded(void **state)
{
	struct rig *rig = *state;
	struct sqlite_options options = {.host = "h", .max_waiting_bytes = 100000};
	struct answers answers = {0};
	struct err err = ERR_NULL;
	sqlite3 *other = NULL;
	static char body[60000];
	int n_lost = 0;

	SQLITE_ONLY();
	memset(body, 'x', sizeof(body));
	rig_insert(rig);
	rig->store = store_close(rig->store);
	options.path = rig->path;
	assert_int_equal(store_open_sqlite(&options, &rig->store, &err), 0);
	assert_int_equal(sqlite3_open(rig->path, &other), SQLITE_OK);
	assert_int_equal(sqlite3_exec(other, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
	for (int i = 0; i < 4; i++) {
		rig_put(rig, "a.yaml", body, sizeof(body), &answers);
		rig_flush(rig->store, 1);
	}
	/* It would fit, but what comes before it is not there. */
	assert_int_equal(store_task_state(rig->store, rig->job, rig_note, &answers), 0);
	rig_flush(rig->store, 1);
	assert_int_equal(answers.last, STORE_LOST);
	assert_int_equal(sqlite3_exec(other, "COMMIT", NULL, NULL, NULL), SQLITE_OK);
	rig_flush(rig->store, store_next_wakeup(rig->store));
	for (int i = 0; i < answers.n; i++)
		n_lost += answers.all[i] == STORE_LOST;
	assert_int_equal(n_lost, 4);
	assert_int_equal(answers.last, STORE_OK);
	assert_int_equal(store_task_state(rig->store, rig->job, rig_note, &answers), 0);
	rig_flush(rig->store, 1);
	assert_int_equal(answers.last, STORE_OK);
	assert_int_equal(sqlite3_close(other), SQLITE_OK);
}

/* What was told as durable is there after kill -9, what was not is not half there. */
static void test_store_killed_process_keeps_what_it_promised(void **state)
{
	struct rig *rig = *state;
	struct seen_frames frames;
	int to_parent[2];
	char byte;
	pid_t pid;
	int status;

	SQLITE_ONLY();
	rig->store = store_close(rig->store);
	assert_int_equal(pipe2(to_parent, O_CLOEXEC), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		struct answers answers = {0};
		struct store *store = rig_open(rig->path, 0);

		if (store_session_insert(store, rig->session, rig_note, &answers) < 0 ||
		    store_task_insert(store, rig->job, rig_note, &answers) < 0)
			_exit(1);
		rig_add_frame(rig, FRAMES_STAGE_START, "kept");
		if (store_frames_put(store, rig->job, &(struct store_batch){1, 3, NULL}, rig_note,
				     &answers) < 0)
			_exit(1);
		rig_flush(store, 1);
		if (answers.n != 3 || answers.last != STORE_OK)
			_exit(2);
		/* Queued, never flushed. */
		rig_add_frame(rig, FRAMES_STAGE_LOG, "lost");
		if (store_frames_put(store, rig->job, &(struct store_batch){2, 4, NULL}, rig_note,
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
	rig->store = rig_open(rig->path, 0);
	frames = rig_get_frames(rig, 0, 1 << 20);
	assert_int_equal(frames.n, 1);
	assert_non_null(strstr(frames.text, "kept"));
	rig_assert_sql(rig, "SELECT acked FROM dagster_sandbox_sessions", "3");
}

static void test_store_open_damaged_file_is_a_clear_error(void **state)
{
	struct rig *rig = *state;
	const char *const texts[] = {
		"this is no database, but long enough to be looked at: "
		"............................................................"};
	struct sqlite_options options = {.host = "h"};
	struct store *store = NULL;
	struct err err = ERR_NULL;
	FILE *file;

	SQLITE_ONLY();
	options.path = rig->path;
	rig_insert(rig);
	rig->store = store_close(rig->store);
	/* Damage in the middle of the file. */
	file = fopen(rig->path, "r+e");
	assert_non_null(file);
	assert_int_equal(fseek(file, 4096 * 2, SEEK_SET), 0);
	for (int i = 0; i < 4096 * 3; i++)
		assert_true(fputc(0xa5, file) != EOF);
	assert_int_equal(fclose(file), 0);
	assert_int_equal(store_open_sqlite(&options, &store, &err), -EBADMSG);
	assert_true(err.text[0] != '\0');
	/* No database at all. */
	file = fopen(rig->path, "we");
	assert_non_null(file);
	for (int i = 0; i < 100; i++)
		assert_true(fputs(texts[0], file) >= 0);
	assert_int_equal(fclose(file), 0);
	assert_int_equal(store_open_sqlite(&options, &store, &err), -EBADMSG);
	/* A folder that does not exist. */
	options.path = "/nonexistent/x/api.db";
	assert_true(store_open_sqlite(&options, &store, &err) < 0);
	assert_null(store);
}

static void test_store_close_writes_what_waits(void **state)
{
	struct rig *rig = *state;
	struct answers answers = {0};

	assert_int_equal(store_session_insert(rig->store, rig->session, rig_note, &answers), 0);
	rig_reopen(rig);
	assert_int_equal(answers.n, 0);
	rig_assert_sql(rig, "SELECT count(*) FROM dagster_sandbox_sessions", "1");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		STORE_TEST(test_store_forget_silences_but_writes),
		STORE_TEST(test_store_callback_may_queue),
		STORE_TEST(test_store_full_disk_degrades_and_recovers),
		STORE_TEST(test_store_full_makes_room_by_retention),
		STORE_TEST(test_store_two_writers_wait_and_recover),
		STORE_TEST(test_store_waiting_queue_is_bounded),
		STORE_TEST(test_store_killed_process_keeps_what_it_promised),
		STORE_TEST(test_store_open_damaged_file_is_a_clear_error),
		STORE_TEST(test_store_close_writes_what_waits),
	};

	int n_before = test_begin();

	return test_end(n_before, cmocka_run_group_tests(tests, NULL, NULL));
}
