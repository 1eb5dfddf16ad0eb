#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"

#include "tests/unit/store_rig.h"

static int count_task(void *userdata, const struct store_task *task)
{
	(void)task;
	++*(int *)userdata;
	return 0;
}

static int see_output(void *userdata, const struct store_output *output)
{
	char *text = userdata;

	(void)strncat(text, output->data, output->size);
	return 0;
}

static void test_store_task_progress_until_the_end(void **state)
{
	struct rig *rig = *state;
	struct store_output output = {.data = "abc", .size = 3};
	struct store_progress progress;
	struct answers answers = {0};
	char text[32] = "";

	rig_insert(rig);
	assert_int_equal(
		store_task_progress(rig->store, &rig->job->id, &progress, see_output, text), 0);
	assert_false(progress.resumable); /* as an earlier release left it */
	job_enqueue(rig->job, rig->session);
	job_start(rig->job, 9, 5);
	assert_int_equal(store_task_state(rig->store, rig->job, rig_note, &answers), 0);
	rig->job->n_assets_shown = 2;
	rig_add_frame(rig, FRAMES_STAGE_MATERIALIZE, "one");
	assert_int_equal(store_frames_put(rig->store, rig->job,
					  &(struct store_batch){1, 11, &output}, rig_note,
					  &answers),
			 0);
	rig->job->n_problems_shown = 7;
	output = (struct store_output){.data = "def", .size = 3};
	assert_int_equal(store_frames_put(rig->store, rig->job,
					  &(struct store_batch){2, 12, &output}, rig_note,
					  &answers),
			 0);
	/* A number that is stored already brings no output either. */
	assert_int_equal(store_frames_put(rig->store, rig->job,
					  &(struct store_batch){2, 12, &output}, rig_note,
					  &answers),
			 0);
	rig_flush(rig->store, 1);
	assert_int_equal(answers.all[2], STORE_OK);
	assert_int_equal(answers.all[3], STORE_DUPLICATE);
	assert_int_equal(
		store_task_progress(rig->store, &rig->job->id, &progress, see_output, text), 0);
	assert_true(progress.resumable);
	assert_int_equal(progress.n_assets_shown, 2);
	assert_int_equal(progress.n_problems_shown, 7);
	assert_true(progress.frames_bytes > 20);
	assert_string_equal(text, "abcdef");
	rig_add_frame(rig, FRAMES_STAGE_DONE, "end");
	job_end(rig->job, rig->session, JOB_STATE_DONE, 9);
	assert_int_equal(store_task_state(rig->store, rig->job, rig_note, &answers), 0);
	rig_flush(rig->store, 1);
	rig_assert_sql(rig, "SELECT count(*) FROM sandbox_task_output", "0");
}

static void test_store_frames_and_number_commit_together(void **state)
{
	struct rig *rig = *state;
	struct answers answers = {0};
	struct seen_session seen = {0};
	struct seen_frames frames;

	rig_insert(rig);
	rig_add_frame(rig, FRAMES_STAGE_START, "one");
	assert_int_equal(store_frames_put(rig->store, rig->job, &(struct store_batch){1, 0, NULL},
					  rig_note, &answers),
			 0);
	rig_add_frame(rig, FRAMES_STAGE_LOG, "two");
	rig_add_frame(rig, FRAMES_STAGE_LOG, "three");
	assert_int_equal(store_frames_put(rig->store, rig->job, &(struct store_batch){2, 7, NULL},
					  rig_note, &answers),
			 0);
	rig_flush(rig->store, 1);
	assert_int_equal(answers.n, 2);
	assert_int_equal(answers.last, STORE_OK);
	/* The same number again, and an older one: refused, nothing is written. */
	rig_add_frame(rig, FRAMES_STAGE_LOG, "four");
	assert_int_equal(store_frames_put(rig->store, rig->job, &(struct store_batch){4, 7, NULL},
					  rig_note, &answers),
			 0);
	assert_int_equal(store_frames_put(rig->store, rig->job, &(struct store_batch){4, 6, NULL},
					  rig_note, &answers),
			 0);
	rig_flush(rig->store, 1);
	assert_int_equal(answers.all[2], STORE_DUPLICATE);
	assert_int_equal(answers.all[3], STORE_DUPLICATE);
	/* A number whose frames cannot be written does not advance either. */
	assert_int_equal(store_frames_put(rig->store, rig->job, &(struct store_batch){3, 8, NULL},
					  rig_note, &answers),
			 0);
	rig_flush(rig->store, 1);
	assert_int_equal(answers.all[4], STORE_DUPLICATE);
	assert_int_equal(store_each_open_session(rig->store, rig_see_session, &seen), 0);
	assert_int_equal(seen.row.acked, 7);
	/* A number alone. */
	assert_int_equal(store_frames_put(rig->store, rig->job, &(struct store_batch){5, 9, NULL},
					  rig_note, &answers),
			 0);
	rig_flush(rig->store, 1);
	assert_int_equal(answers.last, STORE_OK);
	rig_reopen(rig);
	assert_int_equal(store_each_open_session(rig->store, rig_see_session, &seen), 0);
	assert_int_equal(seen.row.acked, 9);
	frames = rig_get_frames(rig, 0, 1 << 20);
	assert_int_equal(frames.n, 3);
	assert_int_equal(frames.last, 3);
	assert_non_null(strstr(frames.text, "three"));
}

static void test_store_frames_get_pages_without_gap(void **state)
{
	struct rig *rig = *state;
	struct seen_frames frames;
	struct answers answers = {0};
	uint32_t after = 0;
	int n_pages = 0;

	rig_insert(rig);
	for (int i = 0; i < 1000; i++)
		rig_add_frame(rig, FRAMES_STAGE_LOG, "text");
	assert_int_equal(store_frames_put(rig->store, rig->job, &(struct store_batch){1, 0, NULL},
					  rig_note, &answers),
			 0);
	rig_flush(rig->store, 1);
	do {
		frames = rig_get_frames(rig, after, 4096);
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
	assert_int_equal(rig_get_frames(rig, 0, 1).n, 1); /* one always goes */
	assert_int_equal(rig_get_frames(rig, 1000, 4096).n, 0);
}

static void test_store_task_states(void **state)
{
	struct rig *rig = *state;
	struct seen_task seen = {0};
	struct answers answers = {0};
	struct id unknown = rig_id(9);
	int n = 0;

	rig_insert(rig);
	assert_int_equal(store_each_open_task(rig->store, count_task, &n), 0);
	assert_int_equal(n, 1);
	job_start(rig->job, 4, 1764422886116879);
	rig_add_frame(rig, FRAMES_STAGE_DONE, "end");
	job_end(rig->job, NULL, JOB_STATE_DONE, 1764422886116880);
	assert_int_equal(store_frames_put(rig->store, rig->job, &(struct store_batch){1, 0, NULL},
					  rig_note, &answers),
			 0);
	assert_int_equal(store_task_state(rig->store, rig->job, rig_note, &answers), 0);
	assert_int_equal(store_task_get(rig->store, &rig->job->id, rig_see_task, &seen), 0);
	rig_flush(rig->store, 1);
	assert_int_equal(seen.result, STORE_OK);
	assert_int_equal(seen.task.state, JOB_STATE_DONE);
	assert_int_equal(seen.task.last_seq, 1);
	assert_int_equal(seen.task.wire_job, 4);
	assert_int_equal(seen.task.ended_at, 1764422886116880);
	assert_string_equal(seen.owner, "alice");
	n = 0;
	assert_int_equal(store_each_open_task(rig->store, count_task, &n), 0);
	assert_int_equal(n, 0);
	assert_int_equal(store_task_get(rig->store, &unknown, rig_see_task, &seen), 0);
	rig_flush(rig->store, 1);
	assert_int_equal(seen.result, STORE_NOT_FOUND);
}

static int keep_state(void *userdata, const struct store_task *task)
{
	*(enum job_state *)userdata = task->state;
	return 0;
}

static void test_store_task_with_a_terminal_frame_has_ended(void **state)
{
	struct rig *rig = *state;
	enum job_state seen = JOB_STATE_MAX_;
	struct answers answers = {0};

	rig_insert(rig);
	rig_add_frame(rig, FRAMES_STAGE_START, "start");
	assert_int_equal(store_frames_put(rig->store, rig->job, &(struct store_batch){1, 0, NULL},
					  rig_note, &answers),
			 0);
	rig_flush(rig->store, 1);
	assert_int_equal(store_each_open_task(rig->store, keep_state, &seen), 0);
	assert_int_equal(seen, JOB_STATE_QUEUED);
	rig_add_frame(rig, FRAMES_STAGE_DONE, "end");
	assert_int_equal(store_frames_put(rig->store, rig->job, &(struct store_batch){2, 0, NULL},
					  rig_note, &answers),
			 0);
	rig_flush(rig->store, 1); /* and the write of its state never came */
	rig_reopen(rig);
	assert_int_equal(store_each_open_task(rig->store, keep_state, &seen), 0);
	assert_int_equal(seen, JOB_STATE_DONE);
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
	rig_flush(rig->store, rig->now);
	assert_int_equal(use->result, STORE_NOT_FOUND);
}

/* Counted with each batch, over sessions' ends and restarts, until the frames are deleted. */
static void test_store_frames_use_is_what_is_kept(void **state)
{
	struct rig *rig = *state;
	const struct janitor_retention retention = {.frames_before = 51 * USEC_PER_SEC};
	struct answers answers = {0};
	struct frames_use use = {0};
	uint64_t expected;

	rig_insert(rig);
	get_frames_use(rig, &use);
	assert_int_equal(use.n, 0);
	for (uint32_t seq = 1; seq <= 3; seq++) {
		rig_add_frame(rig, seq == 3 ? FRAMES_STAGE_DONE : FRAMES_STAGE_LOG, "text");
		assert_int_equal(store_frames_put(rig->store, rig->job,
						  &(struct store_batch){seq, 0, NULL}, rig_note,
						  &answers),
				 0);
	}
	rig_flush(rig->store, 1);
	expected = rig->job->frames.total_bytes + (uint64_t)3 * FRAMES_ROW_BYTES;
	assert_int_equal(store_session_close(rig->store, &rig->session->id, "deleted",
					     50 * USEC_PER_SEC, rig_note, &answers),
			 0);
	rig_flush(rig->store, 1);
	rig_reopen(rig);
	get_frames_use(rig, &use);
	assert_int_equal(use.n, 1);
	assert_int_equal(use.bytes, expected);
	assert_int_equal(store_retain(rig->store, &retention, rig_note, &answers), 0);
	rig_flush(rig->store, 1);
	get_frames_use(rig, &use);
	assert_int_equal(use.n, 1);
}

static void test_store_retain_deletes_by_age(void **state)
{
	struct rig *rig = *state;
	struct janitor_retention retention = {.frames_before = 100 * USEC_PER_SEC};
	struct answers answers = {0};

	rig_insert(rig);
	rig_put(rig, "a.yaml", "x", 1, &answers);
	rig_add_frame(rig, FRAMES_STAGE_DONE, "end");
	assert_int_equal(store_frames_put(rig->store, rig->job, &(struct store_batch){1, 0, NULL},
					  rig_note, &answers),
			 0);
	/* An open session is never touched. */
	retention.bodies_before = retention.rows_before = retention.frames_before =
		USEC_PER_SEC * 4000000000;
	assert_int_equal(store_retain(rig->store, &retention, rig_note, &answers), 0);
	rig_flush(rig->store, 1);
	rig_assert_sql(rig, "SELECT count(*) FROM sandbox_frames", "1");
	rig_assert_sql(rig, "SELECT count(*) FROM sandbox_components", "1");
	assert_int_equal(store_session_close(rig->store, &rig->session->id, "deleted",
					     50 * USEC_PER_SEC, rig_note, &answers),
			 0);
	retention = (struct janitor_retention){.frames_before = 49 * USEC_PER_SEC};
	assert_int_equal(store_retain(rig->store, &retention, rig_note, &answers), 0);
	rig_flush(rig->store, 1);
	rig_assert_sql(rig, "SELECT count(*) FROM sandbox_frames", "1");
	retention = (struct janitor_retention){.frames_before = 51 * USEC_PER_SEC};
	assert_int_equal(store_retain(rig->store, &retention, rig_note, &answers), 0);
	rig_flush(rig->store, 1);
	rig_assert_sql(rig, "SELECT count(*) FROM sandbox_frames", "0");
	rig_assert_sql(rig, "SELECT count(*) FROM sandbox_tasks", "1");
	rig_assert_sql(rig, "SELECT count(*) FROM sandbox_components", "1");
	retention = (struct janitor_retention){.bodies_before = 51 * USEC_PER_SEC};
	assert_int_equal(store_retain(rig->store, &retention, rig_note, &answers), 0);
	rig_flush(rig->store, 1);
	rig_assert_sql(rig, "SELECT count(*) FROM sandbox_components", "0");
	retention = (struct janitor_retention){.rows_before = 51 * USEC_PER_SEC};
	assert_int_equal(store_retain(rig->store, &retention, rig_note, &answers), 0);
	rig_flush(rig->store, 1);
	rig_assert_sql(rig, "SELECT count(*) FROM sandbox_tasks", "0");
	rig_assert_sql(rig, "SELECT count(*) FROM dagster_sandbox_sessions", "0");
	assert_int_equal(answers.last, STORE_OK);
	/* Said, so that a caller goes on as long as there is something, and no longer. */
	assert_int_equal(store_retain(rig->store, &retention, rig_note, &answers), 0);
	rig_flush(rig->store, 1);
	assert_int_equal(answers.last, STORE_NOT_FOUND);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		STORE_TEST(test_store_task_progress_until_the_end),
		STORE_TEST(test_store_frames_and_number_commit_together),
		STORE_TEST(test_store_frames_get_pages_without_gap),
		STORE_TEST(test_store_task_states),
		STORE_TEST(test_store_task_with_a_terminal_frame_has_ended),
		STORE_TEST(test_store_frames_use_is_what_is_kept),
		STORE_TEST(test_store_retain_deletes_by_age),
	};

	int n_before = test_begin();

	return test_end(n_before, cmocka_run_group_tests(tests, NULL, NULL));
}
