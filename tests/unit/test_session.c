#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "supervisor/api/session/session.h"
#include "supervisor/api/session/transitions.h"
#include "tests/lib/test.h"

static struct session *make(void)
{
	struct spec_create spec = {.profile = "component", .ttl_minutes = 60};
	struct id id = {{1}};
	struct session *session = session_new(&id, &spec, 1000 * USEC_PER_SEC);

	assert_non_null(session);
	return session;
}

static void test_session_apply_life_of_a_session(void **state)
{
	struct session *session = make();
	uint32_t actions;

	(void)state;
	assert_int_equal(session->expires_at, 4600 * USEC_PER_SEC);
	assert_false(session_is_visible(session, 0));
	assert_int_equal(session_apply(session, SESSION_EVENT_LAUNCHED, 0, &actions), 0);
	assert_int_equal(actions, SESSION_ACTION_ANSWER);
	assert_true(session_is_visible(session, 0));
	assert_false(session_is_visible(session, session->expires_at));
	assert_int_equal(session_apply(session, SESSION_EVENT_JOB_STARTED, 0, &actions), 0);
	assert_string_equal(session_status_text(session->state), "running");
	assert_int_equal(session_apply(session, SESSION_EVENT_JOBS_IDLE, 0, &actions), 0);
	assert_string_equal(session_status_text(session->state), "open");
	assert_int_equal(
		session_apply(session, SESSION_EVENT_CLOSE, SESSION_REASON_EXPIRED, &actions), 0);
	assert_int_equal(actions, SESSION_ACTION_GO_ON | SESSION_ACTION_FAIL_JOBS |
					  SESSION_ACTION_KILL | SESSION_ACTION_CLOSE_ROW);
	assert_false(session_is_visible(session, 0));
	assert_int_equal(
		session_apply(session, SESSION_EVENT_CLOSE, SESSION_REASON_DELETED, &actions), 0);
	assert_int_equal(actions, 0);
	assert_int_equal(session_apply(session, SESSION_EVENT_GONE, SESSION_REASON_LOST, &actions),
			 0);
	assert_int_equal(actions, SESSION_ACTION_FORGET);
	/* The first reason stays. */
	assert_string_equal(session_reason_text(session->reason), "expired");
	assert_string_equal(session_reason_code(session->reason), "session_expired");
	assert_int_equal(session_apply(session, SESSION_EVENT_GONE, 0, &actions), -EPROTO);
	(void)session_free(session);
}

/*
 * Model: whatever the order of events, a create is answered exactly once, the row is closed and the
 * object forgotten exactly once and last. A tree is begun only where there is none, filled once,
 * and dropped before the next one; jobs of a tree that ended are failed before it is dropped, and
 * those who wait go on whenever it is decided.
 */
static void test_session_apply_random_walks_keep_the_promises(void **state)
{
	struct test_random random = TEST_RANDOM(7);

	(void)state;
	for (int walk = 0; walk < 5000; walk++) {
		struct session *session = make();
		bool is_row = false; /* it began as a row */
		bool has_tree = true;
		bool has_failed = false;
		int n_answers = 0;
		int n_row = 0;
		int n_forget = 0;

		for (int step = 0; step < 48; step++) {
			enum session_state before = session->state;
			enum session_event event = test_random_below(&random, SESSION_EVENT_MAX_);
			uint32_t actions = 0;
			int r = session_apply(session, event, SESSION_REASON_DELETED, &actions);

			if (r < 0) {
				assert_int_equal(session->state, before);
				continue;
			}
			assert_int_equal(n_forget, 0); /* nothing happens after the end */
			if (event == SESSION_EVENT_ADOPT_ROW || event == SESSION_EVENT_ADOPT_TREE) {
				is_row |= before == SESSION_STATE_CREATING;
				has_tree = event == SESSION_EVENT_ADOPT_TREE;
			}
			has_failed |= (actions & SESSION_ACTION_FAIL_JOBS) != 0;
			if (actions & SESSION_ACTION_DROP_TREE) {
				assert_true(has_tree);
				assert_true(has_failed || event == SESSION_EVENT_LAUNCH_FAILED);
				assert_int_equal(session->state, SESSION_STATE_DORMANT);
				has_tree = false;
			}
			if (actions & SESSION_ACTION_REBUILD) {
				assert_false(has_tree);
				has_tree = true;
				has_failed = false;
			}
			if (actions & SESSION_ACTION_RESTORE)
				assert_int_equal(session->state, SESSION_STATE_REBUILDING);
			if (session->state == SESSION_STATE_DORMANT)
				assert_false(has_tree);
			if (before == SESSION_STATE_REBUILDING && session->state != before &&
			    session->state != SESSION_STATE_FALLING)
				assert_true(actions & SESSION_ACTION_GO_ON);
			n_answers += (actions & SESSION_ACTION_ANSWER) != 0;
			n_answers += (actions & SESSION_ACTION_ANSWER_FAILED) != 0;
			n_row += (actions & SESSION_ACTION_CLOSE_ROW) != 0;
			n_forget += (actions & SESSION_ACTION_FORGET) != 0;
			if (before != SESSION_STATE_CREATING)
				assert_int_equal(n_answers, is_row ? 0 : 1);
			assert_int_equal(session->state == SESSION_STATE_CLOSED, n_forget == 1);
		}
		assert_true(n_answers <= 1);
		assert_true(n_forget <= n_row && n_row <= 1);
		assert_int_equal(n_row, session->state >= SESSION_STATE_CLOSING);
		(void)session_free(session);
	}
}

static void test_session_apply_close_while_creating(void **state)
{
	struct session *session = make();
	uint32_t actions;

	(void)state;
	assert_int_equal(
		session_apply(session, SESSION_EVENT_CLOSE, SESSION_REASON_HOST_STOPPED, &actions),
		0);
	assert_int_equal(actions, SESSION_ACTION_ANSWER_FAILED | SESSION_ACTION_KILL |
					  SESSION_ACTION_CLOSE_ROW);
	assert_int_equal(session_apply(session, SESSION_EVENT_LAUNCHED, 0, &actions), 0);
	assert_int_equal(session->state, SESSION_STATE_CLOSING);
	assert_int_equal(session_apply(session, SESSION_EVENT_GONE, 0, &actions), 0);
	(void)session_free(session);
}

static void test_session_apply_tree_ends_by_itself_and_the_row_stays(void **state)
{
	struct session *session = make();
	uint32_t actions;

	(void)state;
	assert_int_equal(session_apply(session, SESSION_EVENT_LAUNCHED, 0, &actions), 0);
	assert_int_equal(session_apply(session, SESSION_EVENT_LOST, SESSION_REASON_LOST, &actions),
			 0);
	assert_int_equal(actions, SESSION_ACTION_KILL);
	assert_true(session_is_visible(session, 0));
	assert_string_equal(session_tree_text(session), "dormant");
	/* The supervisor knows better why. */
	assert_int_equal(
		session_apply(session, SESSION_EVENT_GONE, SESSION_REASON_MEMORY, &actions), 0);
	assert_true(actions & SESSION_ACTION_FAIL_JOBS);
	assert_string_equal(session_reason_code(session->reason), "memory");
	assert_int_equal(session->state, SESSION_STATE_DORMANT);
	session->reason = SESSION_REASON_NONE;
	assert_int_equal(session_apply(session, SESSION_EVENT_USE, 0, &actions), 0);
	assert_int_equal(actions, SESSION_ACTION_REBUILD);
	assert_int_equal(session_apply(session, SESSION_EVENT_USE, 0, &actions), 0);
	assert_int_equal(actions, 0); /* one tree for all */
	assert_int_equal(session_apply(session, SESSION_EVENT_LAUNCHED, 0, &actions), 0);
	assert_int_equal(actions, SESSION_ACTION_RESTORE);
	assert_string_equal(session_tree_text(session), "rebuilding");
	assert_int_equal(session_apply(session, SESSION_EVENT_RESTORED, 0, &actions), 0);
	assert_true(session_has_tree(session));
	(void)session_free(session);
}

static void test_session_apply_close_of_a_falling_one_names_the_close(void **state)
{
	struct session *session = make();
	uint32_t actions;

	(void)state;
	assert_int_equal(session_apply(session, SESSION_EVENT_LAUNCHED, 0, &actions), 0);
	assert_int_equal(session_apply(session, SESSION_EVENT_LOST, SESSION_REASON_LOST, &actions),
			 0);
	assert_int_equal(
		session_apply(session, SESSION_EVENT_CLOSE, SESSION_REASON_DELETED, &actions), 0);
	assert_int_equal(
		session_apply(session, SESSION_EVENT_GONE, SESSION_REASON_MEMORY, &actions), 0);
	assert_string_equal(session_reason_text(session->reason), "deleted");
	(void)session_free(session);
}

static void test_session_component_set_sorted_and_counted(void **state)
{
	struct session *session = make();
	char file[32];

	(void)state;
	for (int i = 49; i >= 0; i--) {
		(void)snprintf(file, sizeof(file), "c%02d.yaml", i);
		assert_int_equal(session_component_set(session, file, 10), 0);
	}
	assert_int_equal(session->n_components, 50);
	assert_int_equal(session->components_bytes, 500);
	for (size_t i = 1; i < session->n_components; i++)
		assert_true(strcmp(session->component[i - 1].name, session->component[i].name) < 0);
	assert_int_equal(session_component_set(session, "c07.yaml", 3), 0);
	assert_int_equal(session->n_components, 50);
	assert_int_equal(session->components_bytes, 493);
	assert_int_equal(session_component_find(session, "c07.yaml")->body_bytes, 3);
	assert_null(session_component_find(session, "c07.yml"));
	assert_null(session_component_find(session, "zz"));
	session_component_remove(session, "zz");
	session_component_remove(session, "c07.yaml");
	session_component_remove(session, "c49.yaml");
	assert_int_equal(session->n_components, 48);
	assert_int_equal(session->components_bytes, 480);
	assert_null(session_component_find(session, "c07.yaml"));
	assert_non_null(session_component_find(session, "c08.yaml"));
	(void)session_free(session);
}

static void test_session_log_append_keeps_the_last_fifty(void **state)
{
	struct session *session = make();

	(void)state;
	for (int i = 0; i < 120; i++) {
		json_t *entry = json_integer(i);

		assert_int_equal(session_log_append(session, entry), 0);
		json_decref(entry);
	}
	assert_int_equal(json_array_size(session->log_summary), 50);
	assert_int_equal(json_integer_value(json_array_get(session->log_summary, 0)), 70);
	(void)session_free(session);
}

static void test_session_persisted_needs_the_row_and_nothing_owed(void **state)
{
	struct session *session = make();

	(void)state;
	assert_false(session_persisted(session));
	session->row_exists = true;
	assert_true(session_persisted(session));
	session->n_degraded = 1;
	assert_false(session_persisted(session));
	session->n_degraded = 0;
	session->row_incomplete = true;
	assert_false(session_persisted(session));
	(void)session_free(session);
}

static void test_session_texts_are_complete(void **state)
{
	(void)state;
	for (enum session_state s = 0; s < SESSION_STATE_MAX_; s++)
		assert_true(session_state_text(s)[0] != '\0' && session_status_text(s)[0] != '\0');
	for (enum session_reason r = 0; r < SESSION_REASON_MAX_; r++)
		assert_true(session_reason_code(r)[0] != '\0');
	assert_string_equal(session_reason_text(SESSION_REASON_RESTART), "restart");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_session_apply_life_of_a_session),
		cmocka_unit_test(test_session_apply_random_walks_keep_the_promises),
		cmocka_unit_test(test_session_apply_close_while_creating),
		cmocka_unit_test(test_session_apply_tree_ends_by_itself_and_the_row_stays),
		cmocka_unit_test(test_session_apply_close_of_a_falling_one_names_the_close),
		cmocka_unit_test(test_session_component_set_sorted_and_counted),
		cmocka_unit_test(test_session_log_append_keeps_the_last_fifty),
		cmocka_unit_test(test_session_persisted_needs_the_row_and_nothing_owed),
		cmocka_unit_test(test_session_texts_are_complete),
	};
	int n_before = test_begin();

	return test_end(n_before, cmocka_run_group_tests(tests, NULL, NULL));
}
