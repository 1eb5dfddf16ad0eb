#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/io.h"
#include "base/json.h"
#include "base/str.h"

#include "sandboxd/limits.h"
#include "supervisor/api/store/postgres.h"
#include "tests/unit/store_rig.h"

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
	struct rig *rig = *state;
	struct seen_session seen = {0};
	struct answers answers = {0};

	rig_insert(rig);
	rig_put(rig, "a.yaml", "x: 1\n", 5, &answers);
	rig_put(rig, "a.yaml", "y: \"2\"\n", 7, &answers);
	rig_put(rig, "b \xc3\xa9/c.yaml", "\xc3\xa9", 2, &answers);
	(void)strcpy(rig->session->last_run_id, "run");
	assert_int_equal(store_session_status(rig->store, rig->session, 1, rig_note, &answers), 0);
	assert_int_equal(store_session_log(rig->store, rig->session, 1, rig_note, &answers), 0);
	rig_flush(rig->store, 1);
	assert_int_equal(answers.n, 5);
	assert_int_equal(answers.last, STORE_OK);
	rig_reopen(rig);
	assert_int_equal(store_each_open_session(rig->store, rig_see_session, &seen), 0);
	assert_int_equal(seen.n, 1);
	assert_string_equal(
		seen.text,
		rig_dsn() ? HEAD "[\"FOO=bar\"]|{ \"a.yaml\" : 7, \"b \xc3\xa9/c.yaml\" : 2 }|web"
			  : HEAD "[\"FOO=bar\"]|{\"a.yaml\":7,\"b \xc3\xa9/c.yaml\":2}|web");
	assert_int_equal(seen.row.created_at, rig->session->created_at);
	assert_int_equal(seen.row.expires_at, rig->session->expires_at);
	assert_int_equal(seen.row.ttl_minutes, 60);
	assert_true(seen.row.dagster && seen.row.has_plan);
	assert_int_equal(seen.row.plan.memory_bytes, 5);
	rig_assert_sql(rig,
		       rig_dsn() ? "SELECT convert_from(body, 'UTF8') FROM sandbox_components"
				   " WHERE file = 'a.yaml'"
				 : "SELECT body FROM sandbox_components WHERE file = 'a.yaml'",
		       "y: \"2\"\n");
	rig_assert_sql(rig, "SELECT host || status FROM dagster_sandbox_sessions", "hereopen");
}

static void test_store_operator_is_stored_as_nobody(void **state)
{
	struct rig *rig = *state;
	struct seen_session seen = {0};

	rig->session->operator_owned = true;
	(void)strcpy(rig->session->owner, "operator");
	rig->session->workspace[0] = '\0';
	rig_insert(rig);
	rig_assert_sql(rig, "SELECT owner_user_id FROM dagster_sandbox_sessions", "NULL");
	rig_assert_sql(rig, "SELECT workspace_id FROM dagster_sandbox_sessions", "NULL");
	rig_assert_sql(rig, "SELECT owner_text FROM dagster_sandbox_sessions", "operator");
	assert_int_equal(store_each_open_session(rig->store, rig_see_session, &seen), 0);
	assert_true(seen.row.operator_owned);
}

static void test_store_session_close_keeps_the_first_reason(void **state)
{
	struct rig *rig = *state;
	struct seen_session seen = {0};
	struct answers answers = {0};

	rig_insert(rig);
	assert_int_equal(store_session_close(rig->store, &rig->session->id, "deleted", 5, rig_note,
					     &answers),
			 0);
	assert_int_equal(store_session_close(rig->store, &rig->session->id, "restart", 6, rig_note,
					     &answers),
			 0);
	/* Late news of a session that is closed does not open it again. */
	assert_int_equal(store_session_status(rig->store, rig->session, 7, rig_note, &answers), 0);
	rig_flush(rig->store, 1);
	assert_int_equal(answers.n, 3);
	rig_assert_sql(rig, "SELECT status || closed_reason FROM dagster_sandbox_sessions",
		       "closeddeleted");
	rig_assert_sql(rig, "SELECT env_overrides_json FROM dagster_sandbox_sessions", "NULL");
	assert_int_equal(store_each_open_session(rig->store, rig_see_session, &seen), 0);
	assert_int_equal(seen.n, 0);
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
	struct rig *rig = *state;
	struct answers answers = {0};

	SQLITE_ONLY();
	rig_insert(rig);
	rig_reopen(rig); /* what is in the log goes into the file */
	assert_true(file_holds(rig->path, "kafka.example:9092"));
	assert_int_equal(store_session_close(rig->store, &rig->session->id, "deleted", 5, rig_note,
					     &answers),
			 0);
	rig_flush(rig->store, ++rig->now);
	rig_reopen(rig);
	assert_false(file_holds(rig->path, "kafka.example:9092"));
}

static void test_store_retention_leaves_no_override_in_the_log(void **state)
{
	struct rig *rig = *state;
	const struct janitor_retention retention = {0};
	struct answers answers = {0};
	char log[128];

	SQLITE_ONLY();
	rig_insert(rig);
	assert_int_equal(str_format(log, sizeof(log), "%s-wal", rig->path), 0);
	assert_true(file_holds(log, "kafka.example:9092"));
	assert_int_equal(store_session_close(rig->store, &rig->session->id, "deleted", 5, rig_note,
					     &answers),
			 0);
	rig_flush(rig->store, ++rig->now);
	assert_true(file_holds(log, "kafka.example:9092"));
	assert_int_equal(store_retain(rig->store, &retention, rig_note, &answers), 0);
	rig_flush(rig->store, ++rig->now);
	assert_false(file_holds(log, "kafka.example:9092"));
	assert_false(file_holds(rig->path, "kafka.example:9092"));
}

static void test_store_duplicate_id_does_not_hurt_its_neighbours(void **state)
{
	struct rig *rig = *state;
	struct answers answers = {0};

	assert_int_equal(store_session_insert(rig->store, rig->session, rig_note, &answers), 0);
	assert_int_equal(store_session_insert(rig->store, rig->session, rig_note, &answers), 0);
	assert_int_equal(store_task_insert(rig->store, rig->job, rig_note, &answers), 0);
	rig_flush(rig->store, 1);
	assert_int_equal(answers.n, 3);
	assert_int_equal(answers.all[0], STORE_OK);
	assert_int_equal(answers.all[1], STORE_DUPLICATE);
	assert_int_equal(answers.all[2], STORE_OK);
	assert_int_equal(store_stats(rig->store).n_commits, 1);
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
	struct rig *rig = *state;
	static const char *const wanted[] = {"a.yaml=x", "b.yaml=mine", "c=theirs"};
	struct answers answers = {0};
	struct seen_component seen = {0};
	char name[64] = "";

	rig_insert(rig);
	rig_put(rig, "b.yaml", "mine", 4, &answers);
	rig_put(rig, "a.yaml", "x", 1, &answers);
	rig_flush(rig->store, 1);
	rig_run_sql(rig, "UPDATE dagster_sandbox_sessions SET components_json ="
			 " '{\"b.yaml\":\"theirs\",\"c\":\"theirs\",\"d\":5,\"\":\"e\"}'");
	for (size_t i = 0; i <= ARRAY_SIZE(wanted); i++) {
		assert_int_equal(store_component_get(rig->store, &rig->session->id,
						     i > 0 ? name : NULL, 0, see_component, &seen),
				 0);
		rig_flush(rig->store, 1);
		assert_int_equal(seen.n, (int)i + 1);
		if (i == ARRAY_SIZE(wanted))
			break;
		assert_string_equal(seen.text, wanted[i]);
		assert_int_equal(str_copy_n(name, sizeof(name), seen.text, strcspn(seen.text, "=")),
				 0);
	}
	assert_int_equal(seen.result, STORE_NOT_FOUND);
}

static void expect_component(struct rig *rig, const char *after, uint64_t generation,
			     const char *wanted)
{
	struct seen_component seen = {0};

	assert_int_equal(store_component_get(rig->store, &rig->session->id, after, generation,
					     see_component, &seen),
			 0);
	rig_flush(rig->store, 1);
	assert_int_equal(seen.result, wanted ? STORE_OK : STORE_NOT_FOUND);
	assert_string_equal(seen.text, wanted ? wanted : "");
}

/* Of those that this store has; others are as old as can be. */
static void test_store_component_get_of_a_generation(void **state)
{
	struct rig *rig = *state;
	struct store_component component = {.file = "b.yaml", .body = "one", .body_length = 3};
	struct answers answers = {0};

	rig_insert(rig);
	rig_put(rig, "a.yaml", "old", 3, &answers);
	component.generation = 1;
	assert_int_equal(store_session_component(rig->store, &rig->session->id, &component, 1,
						 rig_note, &answers),
			 0);
	rig_flush(rig->store, 1);
	rig_run_sql(rig, "UPDATE dagster_sandbox_sessions SET components_json ="
			 " '{\"c\":\"theirs\"}'");
	expect_component(rig, NULL, 0, "a.yaml=old");
	expect_component(rig, "b.yaml", 0, "c=theirs");
	expect_component(rig, NULL, 1, "b.yaml=one");
	expect_component(rig, "b.yaml", 1, NULL);
	expect_component(rig, NULL, 2, NULL);
	/* Written again, it is as new as that. */
	component.file = "a.yaml";
	component.generation = 2;
	assert_int_equal(store_session_component(rig->store, &rig->session->id, &component, 1,
						 rig_note, &answers),
			 0);
	rig_flush(rig->store, 1);
	expect_component(rig, NULL, 2, "a.yaml=one");
	expect_component(rig, "a.yaml", 2, NULL);
}

struct seen_suspension {
	int n;
	struct suspension suspension;
};

static int see_suspension(void *userdata, const struct store_session *row)
{
	struct seen_suspension *seen = userdata;
	const char *reason;
	json_t *doc = NULL;

	assert_non_null(row->registry_json);
	assert_int_equal(doc_parse(row->registry_json, strlen(row->registry_json), &doc, &reason),
			 0);
	suspension_read(doc, &seen->suspension);
	json_decref(doc);
	seen->n++;
	return 0;
}

/* What the next worker must know of a suspend. */
static void test_store_registry_row_round_trip(void **state)
{
	struct rig *rig = *state;
	struct suspension *own = &rig->session->suspension;
	struct answers answers = {0};

	rig_insert(rig);
	for (int i = 0; i < 2; i++) {
		struct seen_suspension seen = {0};

		suspension_begin(own, 1000, 5000, i == 0);
		assert_int_equal(
			store_registry_put(rig->store, rig->session, 1, rig_note, &answers), 0);
		rig_flush(rig->store, 1);
		assert_int_equal(answers.last, STORE_OK);
		assert_int_equal(store_each_open_session(rig->store, see_suspension, &seen), 0);
		assert_int_equal(seen.n, 1);
		assert_int_equal(seen.suspension.state, SUSPENSION_SUSPENDED);
		assert_int_equal(seen.suspension.generation, i + 1);
		assert_int_equal(seen.suspension.ttl_left, 4000);
		assert_int_equal(seen.suspension.is_wanted, i == 0);
		suspension_done(&seen.suspension);
	}
}

static int see_id(void *userdata, const struct id *session)
{
	struct id *seen = userdata;

	*seen = *session;
	return 0;
}

static void test_store_names_closed_sessions_with_keys_left(void **state)
{
	struct rig *rig = *state;
	const struct id none = {0};
	struct answers answers = {0};
	struct id seen = none;

	rig_insert(rig);
	assert_int_equal(store_session_redis(rig->store, &rig->session->id, true), 0);
	rig_flush(rig->store, 1);
	assert_int_equal(store_each_redis_left(rig->store, 9, see_id, &seen), 0);
	assert_memory_equal(&seen, &none, sizeof(seen)); /* it is open */
	assert_int_equal(store_session_close(rig->store, &rig->session->id, "deleted", 5, rig_note,
					     &answers),
			 0);
	rig_flush(rig->store, 1);
	assert_int_equal(answers.last, STORE_OK);
	assert_int_equal(store_each_redis_left(rig->store, 9, see_id, &seen), 0);
	assert_memory_equal(&seen, &rig->session->id, sizeof(seen));
	assert_int_equal(store_session_redis(rig->store, &rig->session->id, false), 0);
	rig_flush(rig->store, 1);
	seen = none;
	assert_int_equal(store_each_redis_left(rig->store, 9, see_id, &seen), 0);
	assert_memory_equal(&seen, &none, sizeof(seen));
}

static void test_store_session_tree_begins_numbers_again(void **state)
{
	struct rig *rig = *state;
	struct seen_session seen = {0};
	struct answers answers = {0};

	rig_insert(rig);
	assert_int_equal(store_frames_put(rig->store, rig->job, &(struct store_batch){1, 40, NULL},
					  rig_note, &answers),
			 0);
	assert_int_equal(store_session_tree(rig->store, &rig->session->id, STORE_TREE_RESTORING,
					    rig_note, &answers),
			 0);
	rig_flush(rig->store, 1);
	assert_int_equal(store_each_open_session(rig->store, rig_see_session, &seen), 0);
	assert_true(seen.row.restoring);
	assert_int_equal(seen.row.acked, 0);
	rig_add_frame(rig, FRAMES_STAGE_START, "one");
	assert_int_equal(store_frames_put(rig->store, rig->job, &(struct store_batch){1, 2, NULL},
					  rig_note, &answers),
			 0);
	assert_int_equal(store_session_tree(rig->store, &rig->session->id, STORE_TREE_COMPLETE,
					    rig_note, &answers),
			 0);
	rig_flush(rig->store, 1);
	assert_int_equal(answers.last, STORE_OK);
	assert_int_equal(store_each_open_session(rig->store, rig_see_session, &seen), 0);
	assert_false(seen.row.restoring);
	assert_int_equal(seen.row.acked, 2);
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
	rig_flush(rig->store, 1);
}

static void test_store_usage_is_of_one_day(void **state)
{
	struct rig *rig = *state;
	struct usages usages = {0};

	put_usage(rig, 20000, 5);
	put_usage(rig, 20000, 1ull << 40);
	rig_reopen(rig);
	assert_int_equal(store_each_usage(rig->store, 20000, see_usage, &usages), 0);
	assert_int_equal(usages.n, 1);
	assert_int_equal(usages.cpu_us, 1ull << 40);
	assert_string_equal(usages.name, "w:1");
	assert_int_equal(store_each_usage(rig->store, 20001, see_usage, &usages), 0);
	assert_int_equal(usages.n, 1);
	/* The next day's first write forgets it. */
	put_usage(rig, 20001, 7);
	rig_assert_sql(rig, "SELECT count(*) || ' ' || sum(cpu_us) FROM sandbox_usage", "1 7");
}

static void test_store_component_writes_only_itself(void **state)
{
	struct rig *rig = *state;
	enum {
		BODY_BYTES = 1000000,
		N = 20
	};
	AUTO_FREE char *body = NULL;
	struct answers answers = {0};
	struct seen_session seen = {0};
	char wal[128];
	struct stat st;

	SQLITE_ONLY(); /* leaves at once: what was allocated before would be lost */
	body = malloc(BODY_BYTES);
	assert_non_null(body);
	memset(body, 'x', BODY_BYTES);
	rig_insert(rig);
	for (int i = 0; i < N; i++) {
		char file[16];

		assert_int_equal(str_format(file, sizeof(file), "c%d.yaml", i), 0);
		rig_put(rig, file, body, BODY_BYTES, &answers);
	}
	rig_flush(rig->store, 1);
	rig_reopen(rig); /* which empties the log */
	rig_put(rig, "c0.yaml", "x", 1, &answers);
	rig_flush(rig->store, 1);
	assert_int_equal(answers.last, STORE_OK);
	assert_int_equal(str_format(wal, sizeof(wal), "%s-wal", rig->path), 0);
	assert_int_equal(stat(wal, &st), 0);
	assert_true(st.st_size < 2 * BODY_BYTES);
	/* A body for a session without a row is nobody's: it would never be deleted. */
	rig->session->id.bytes[0]++;
	rig_put(rig, "c0.yaml", "x", 1, &answers);
	rig_flush(rig->store, 1);
	rig_assert_sql(rig, "SELECT count(DISTINCT session_id) FROM sandbox_components", "1");
	assert_int_equal(store_each_open_session(rig->store, rig_see_session, &seen), 0);
	assert_non_null(strstr(seen.text, "\"c0.yaml\":1,\"c1.yaml\":1000000"));
}

static void test_store_older_fence_writes_nothing(void **state)
{
	struct rig *rig = *state;
	struct answers answers = {0};

	rig_insert(rig); /* of the session, and of a task, which raises it */
	rig_assert_sql(rig, "SELECT lease_fence FROM dagster_sandbox_sessions", "1");
	assert_int_equal(store_session_tree(rig->store, &rig->session->id, STORE_TREE_RESTORING,
					    rig_note, &answers),
			 0);
	rig_flush(rig->store, 1);
	assert_int_equal(answers.last, STORE_OK);
	rig_assert_sql(rig, "SELECT lease_fence FROM dagster_sandbox_sessions", "2");
	/* Another one has taken it. */
	rig_run_sql(rig, "UPDATE dagster_sandbox_sessions SET lease_fence = 3");
	rig_add_frame(rig, FRAMES_STAGE_LOG, "late");
	assert_int_equal(store_frames_put(rig->store, rig->job, &(struct store_batch){1, 7, NULL},
					  rig_note, &answers),
			 0);
	assert_int_equal(store_session_close(rig->store, &rig->session->id, "deleted", 1, rig_note,
					     &answers),
			 0);
	assert_int_equal(store_session_check(rig->store, &rig->session->id, rig_note, &answers), 0);
	rig_flush(rig->store, 2);
	assert_int_equal(answers.n, 4);
	assert_int_equal(answers.all[1], STORE_FENCED);
	assert_int_equal(answers.all[2], STORE_FENCED);
	assert_int_equal(answers.all[3], STORE_FENCED);
	rig_assert_sql(rig, "SELECT count(*) FROM sandbox_frames", "0");
	rig_assert_sql(rig, "SELECT status FROM dagster_sandbox_sessions", "open");
	/* The control: with that number. */
	assert_int_equal(store_hold(rig->store, &rig->session->id, 3), 0);
	assert_int_equal(store_frames_put(rig->store, rig->job, &(struct store_batch){1, 7, NULL},
					  rig_note, &answers),
			 0);
	rig_flush(rig->store, 3);
	assert_int_equal(answers.last, STORE_OK);
	rig_assert_sql(rig, "SELECT count(*) FROM sandbox_frames", "1");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_postgres_instance_is_made_once),
		STORE_TEST(test_store_session_row_round_trip),
		STORE_TEST(test_store_operator_is_stored_as_nobody),
		STORE_TEST(test_store_session_close_keeps_the_first_reason),
		STORE_TEST(test_store_session_close_leaves_no_override_in_the_file),
		STORE_TEST(test_store_retention_leaves_no_override_in_the_log),
		STORE_TEST(test_store_duplicate_id_does_not_hurt_its_neighbours),
		STORE_TEST(test_store_component_get_in_order),
		STORE_TEST(test_store_component_get_of_a_generation),
		STORE_TEST(test_store_registry_row_round_trip),
		STORE_TEST(test_store_session_tree_begins_numbers_again),
		STORE_TEST(test_store_names_closed_sessions_with_keys_left),
		STORE_TEST(test_store_usage_is_of_one_day),
		STORE_TEST(test_store_component_writes_only_itself),
		STORE_TEST(test_store_older_fence_writes_nothing),
	};

	int n_before = test_begin();

	return test_end(n_before, cmocka_run_group_tests(tests, NULL, NULL));
}
