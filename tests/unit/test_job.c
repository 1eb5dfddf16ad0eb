#include <errno.h>
#include <string.h>

#include "supervisor/api/jobs/job.h"
#include "supervisor/api/session/session.h"
#include "tests/lib/test.h"

static struct session *make_session(void)
{
	struct spec_create spec = {.ttl_minutes = 1};
	struct id id = {{1}};
	struct session *session = session_new(&id, &spec, 0);

	assert_non_null(session);
	(void)strcpy(session->owner, "alice");
	(void)strcpy(session->workspace, "w");
	return session;
}

static struct job *make(struct session *session, uint8_t number)
{
	struct id id = {
		{number, number, number, number, 2}
        };
	struct job *job = job_new(&id, session, number);

	assert_non_null(job);
	return job;
}

static void end(struct job *job, struct session *session, enum frames_stage stage)
{
	assert_int_equal(frames_add(&job->frames, stage, "end", NULL, 9, NULL), 0);
	job_end(job, session, stage == FRAMES_STAGE_DONE ? JOB_STATE_DONE : JOB_STATE_ERROR, 9);
}

static void test_job_queue_one_runs_in_order(void **state)
{
	struct session *session = make_session();
	struct job *a = make(session, 1);
	struct job *b = make(session, 2);

	(void)state;
	assert_null(job_next(session));
	job_enqueue(a, session);
	job_enqueue(b, session);
	assert_ptr_equal(job_next(session), a);
	assert_int_equal(job_waiting(session), 2);
	job_start(a, 5, 3);
	assert_null(job_next(session)); /* one at a time */
	assert_ptr_equal(job_running(session), a);
	assert_int_equal(job_waiting(session), 1);
	end(a, session, FRAMES_STAGE_DONE);
	assert_null(job_running(session));
	assert_ptr_equal(job_next(session), b);
	end(b, session, FRAMES_STAGE_ERROR); /* ended while it waited */
	assert_int_equal(session->n_jobs, 0);
	assert_int_equal(b->state, JOB_STATE_ERROR);
	(void)job_free(a);
	(void)job_free(b);
	(void)session_free(session);
}

static void test_job_table_shrink_keeps_what_is_nowhere_else(void **state)
{
	struct session *session = make_session();
	struct job_table table;
	struct job *jobs[4];
	struct id last;

	(void)state;
	job_table_init(&table, 0);
	for (uint8_t i = 0; i < ARRAY_SIZE(jobs); i++) {
		jobs[i] = make(session, (uint8_t)(i + 1));
		assert_int_equal(job_table_add(&table, jobs[i]), 0);
		assert_int_equal(job_table_add(&table, jobs[i]), -EEXIST);
		job_enqueue(jobs[i], session);
	}
	last = jobs[3]->id;
	for (size_t i = 0; i < 4; i++) {
		end(jobs[i], session, FRAMES_STAGE_DONE);
		job_table_note_ended(&table, jobs[i]);
		/* Shown to readers, which does not mean durable. */
		frames_settle(&jobs[i]->frames, 99);
		jobs[i]->n_owed = i < 3;
	}
	job_table_shrink(&table);
	assert_null(job_table_find(&table, &last));
	assert_ptr_equal(job_table_find(&table, &jobs[0]->id), jobs[0]);
	assert_ptr_equal(job_table_find(&table, &jobs[1]->id), jobs[1]);
	assert_ptr_equal(job_table_find(&table, &jobs[2]->id), jobs[2]);
	last = jobs[1]->id;
	jobs[1]->n_owed = 0;
	job_table_shrink(&table);
	assert_null(job_table_find(&table, &last));
	job_table_done(&table);
	(void)session_free(session);
}

static void test_job_describe_fields(void **state)
{
	struct session *session = make_session();
	struct job *job = make(session, 1);
	json_t *doc = job_describe(job, "/chat/stream/");

	(void)state;
	assert_non_null(doc);
	assert_string_equal(json_string_value(json_object_get(doc, "status")), "queued");
	assert_true(json_is_null(json_object_get(doc, "started_at")));
	assert_true(json_is_null(json_object_get(doc, "code")));
	assert_string_equal(json_string_value(json_object_get(doc, "stream_url")),
			    "/chat/stream/01010101-0200-0000-0000-000000000000");
	json_decref(doc);
	(void)job_free(job);
	(void)session_free(session);
}

static void test_job_new_of_the_operator_has_no_owner(void **state)
{
	static const struct id id = {{1}};
	struct session *session = make_session();
	struct job *job;

	(void)state;
	session->operator_owned = true;
	job = job_new(&id, session, 0);
	assert_non_null(job);
	assert_string_equal(job->owner, "");
	(void)job_free(job);
	(void)session_free(session);
}

static void test_job_restore_is_not_visible_to_a_broken_owner(void **state)
{
	static const struct id id = {{1}};
	static const char long_owner[] = "0123456789012345678901234567890123456789";
	struct job *job = job_restore(&id, &id, long_owner, "w", JOB_STATE_RUNNING, 7);

	(void)state;
	assert_non_null(job);
	assert_string_equal(job->owner, "");
	assert_string_equal(job->workspace, "");
	assert_int_equal(job->frames.next_seq, 8);
	assert_false(job->frames.terminal);
	(void)job_free(job);
}

static void test_job_state_texts_round_trip(void **state)
{
	(void)state;
	for (enum job_state s = 0; s < JOB_STATE_MAX_; s++)
		assert_int_equal(job_state_from_text(job_state_text(s)), s);
	assert_int_equal(job_state_from_text("open"), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_job_queue_one_runs_in_order),
		cmocka_unit_test(test_job_table_shrink_keeps_what_is_nowhere_else),
		cmocka_unit_test(test_job_describe_fields),
		cmocka_unit_test(test_job_new_of_the_operator_has_no_owner),
		cmocka_unit_test(test_job_restore_is_not_visible_to_a_broken_owner),
		cmocka_unit_test(test_job_state_texts_round_trip),
	};
	int n_before = test_begin();

	return test_end(n_before, cmocka_run_group_tests(tests, NULL, NULL));
}
