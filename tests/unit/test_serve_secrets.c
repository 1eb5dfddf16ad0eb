/*
 * Launches that wait for their secrets: the helper comes first, and whoever gives up is answered.
 */
#include <errno.h>
#include <string.h>

#include "supervisor/serve.h"
#include "supervisor/unseal.h"
#include "tests/unit/serve_rig.h"

static struct launch_msg sealed_message(struct fixture *fixture, uint8_t number)
{
	struct launch_msg msg = rig_start_message(fixture, number);

	msg.u.start.secrets.n = 2;
	memcpy(msg.u.start.secrets.name[0], "first", 6);
	memcpy(msg.u.start.secrets.name[1], "second", 7);
	return msg;
}

static void report_unsealed(enum secret_status status, uint32_t index)
{
	const struct secret_report report = {
		.magic = SECRET_MAGIC,
		.version = SECRET_VERSION,
		.status = (uint16_t)status,
		.index = index,
	};
	unseal_done done = paper.unseal.done;

	assert_non_null(done);
	paper.unseal.done = NULL;
	done(paper.unseal.userdata, &report, -1);
}

static void test_serve_secrets_come_before_the_session(void **state)
{
	struct fixture *fixture = *state;
	struct launch_msg msg;
	struct launch_msg answer;

	rig_greet(fixture);
	msg = sealed_message(fixture, 1);
	rig_ask(fixture, &msg);
	rig_expect_silence(fixture);
	assert_int_equal(serve_session_count(fixture->serve), 0);
	msg.serial++; /* the id is in use, though no session is there */
	rig_expect_error(fixture, &msg, LAUNCH_E_EXISTS);
	report_unsealed(SECRET_OK, 0);
	assert_int_equal(serve_session_count(fixture->serve), 1);
	rig_become_live(1);
	assert_true(rig_hear(fixture, &answer));
	assert_int_equal(answer.error, LAUNCH_E_NONE);
}

static void test_serve_secret_that_is_missing_is_named(void **state)
{
	static const struct {
		enum secret_status status;
		int error_number;
	} rows[] = {
		{SECRET_E_UNKNOWN, ENOENT },
		{SECRET_E_CORRUPT, EBADMSG},
		{SECRET_E_TOO_BIG, E2BIG  },
		{SECRET_E_STORE,   EIO    },
	};
	struct fixture *fixture = *state;
	struct launch_msg answer;

	rig_greet(fixture);
	/* More often than there is room for sessions: the ceilings are given back. */
	for (size_t i = 0; i < 44; i++) {
		struct launch_msg msg = sealed_message(fixture, 1);

		rig_ask(fixture, &msg);
		report_unsealed(rows[i % 4].status, 1);
		assert_false(rig_hear(fixture, &answer));
		assert_int_equal(answer.error, LAUNCH_E_SECRET);
		assert_int_equal(answer.u.err.error_number, rows[i % 4].error_number);
		assert_string_equal(answer.u.err.text, "second");
	}
	paper.refuse_unseal = UNSEAL_E_NONE; /* this host has no store */
	{
		struct launch_msg msg = sealed_message(fixture, 1);

		rig_ask(fixture, &msg);
		assert_false(rig_hear(fixture, &answer));
		assert_int_equal(answer.error, LAUNCH_E_SECRET);
		assert_string_equal(answer.u.err.text, "first");
	}
}

static void test_serve_helpers_are_bounded_and_the_rest_waits(void **state)
{
	struct fixture *fixture = *state;
	struct launch_msg answer;

	rig_greet(fixture);
	for (uint8_t i = 1; i <= 34; i++) {
		struct launch_msg msg = sealed_message(fixture, i);

		rig_ask(fixture, &msg);
	}
	assert_int_equal(paper.n_unseals, 32);
	rig_expect_silence(fixture);
	report_unsealed(SECRET_E_UNKNOWN, 0);
	(void)rig_hear(fixture, &answer);
	assert_int_equal(answer.error, LAUNCH_E_SECRET);
	assert_int_equal(paper.n_unseals, 33);
	/* One that waits is killed: it never gets a helper. */
	answer = rig_request(fixture, LAUNCH_KILL, 34);
	rig_ask(fixture, &answer);
	report_unsealed(SECRET_E_UNKNOWN, 0);
	assert_int_equal(paper.n_unseals, 33);
}

static void test_serve_waiting_for_secrets_ends_with_its_asker(void **state)
{
	struct fixture *fixture = *state;
	struct launch_msg msg;
	struct launch_msg answer;
	struct launch_msg kill;

	rig_greet(fixture);
	msg = sealed_message(fixture, 1);
	rig_ask(fixture, &msg);
	kill = rig_request(fixture, LAUNCH_KILL, 1);
	rig_ask(fixture, &kill);
	assert_true(paper.unseal.cancelled);
	assert_false(rig_hear(fixture, &answer));
	assert_int_equal(answer.serial, msg.serial);
	assert_int_equal(answer.error, LAUNCH_E_STEP);
	assert_false(rig_hear(fixture, &answer));
	assert_int_equal(answer.error, LAUNCH_E_NOT_FOUND);

	msg = sealed_message(fixture, 2);
	rig_ask(fixture, &msg);
	assert_false(paper.unseal.cancelled);
	rig_close_worker(fixture);
	assert_true(paper.unseal.cancelled);
	rig_open_worker(fixture, SERVE_WORKER_API);
	assert_int_equal(serve_session_count(fixture->serve), 0);
}

static const struct CMUnitTest tests[] = {
	SERVE_TEST(test_serve_secrets_come_before_the_session),
	SERVE_TEST(test_serve_secret_that_is_missing_is_named),
	SERVE_TEST(test_serve_helpers_are_bounded_and_the_rest_waits),
	SERVE_TEST(test_serve_waiting_for_secrets_ends_with_its_asker),
};

TEST_MAIN(tests)
