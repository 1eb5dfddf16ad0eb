/*
 * The permit table and the sessions: what a worker asks, what it hears, and what is left when it or
 * a session dies.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "base/fd.h"
#include "base/sockmsg.h"

#include "supervisor/serve.h"
#include "tests/unit/serve_rig.h"

static void test_serve_hello_answers_the_facts(void **state)
{
	struct fixture *fixture = *state;
	struct launch_msg msg = rig_hello(fixture);
	struct launch_msg answer;

	rig_ask(fixture, &msg);
	assert_false(rig_hear(fixture, &answer));
	assert_string_equal(answer.u.hello.instance, "0123abcd");
	assert_int_equal(answer.u.hello.max_sessions, 40);
	assert_int_equal(answer.u.hello.n_profiles, 2);
	assert_int_equal(answer.u.hello.kernel_probes, PAPER_PROBES);
	assert_int_equal(fixture->n_hello, 1);
}

/* Each of these ends the connection, without an answer. */
static void test_serve_surprises_end_the_connection(void **state)
{
	struct fixture *fixture = *state;
	static const uint8_t short_message[10] = {1};

	for (int i = 0; i < 8; i++) {
		struct launch_msg msg = rig_hello(fixture);
		unsigned int n_lost = fixture->n_lost;
		size_t size = sizeof(msg);

		if (i > 2)
			rig_greet(fixture);
		if (i == 0 || i == 7)
			msg = rig_start_message(fixture, 1); /* 0: before HELLO */
		else if (i == 1)
			msg.u.hello.version++;
		else if (i == 2)
			msg.session[3] = 1; /* a session where none belongs */
		else if (i == 4)
			msg.type = 98; /* unknown */
		else if (i == 5)
			msg.type = LAUNCH_START + 1; /* an answer */
		else if (i == 6)
			size -= 1;
		if (i == 7)
			msg.u.plan.session[5] = 1; /* not the message's */
		/* i == 3: a second HELLO */
		assert_int_equal(sockmsg_send(fixture->worker_fd, &msg, size, NULL, 0), 0);
		rig_turns(fixture, 4);
		assert_int_equal(fixture->n_lost, n_lost + 1);
		assert_int_equal(sockmsg_recv(fixture->worker_fd, &msg, sizeof(msg), NULL, 0), 0);
		rig_close_worker(fixture);
		rig_open_worker(fixture, SERVE_WORKER_API);
	}
	assert_int_equal(
		sockmsg_send(fixture->worker_fd, short_message, sizeof(short_message), NULL, 0), 0);
	rig_turns(fixture, 4);
	assert_int_equal(fixture->n_lost, 9);
}

/* It cannot be sent, or, before Linux 6.16, ends the connection. */
static void test_serve_descriptor_from_a_worker_is_refused(void **state)
{
	struct fixture *fixture = *state;
	struct launch_msg msg = rig_hello(fixture);
	int n_before = fd_count();
	int fd = 2;
	int r;

	r = sockmsg_send(fixture->worker_fd, &msg, sizeof(msg), &fd, 1);
	rig_turns(fixture, 4);
	if (r == 0)
		assert_int_equal(fixture->n_lost, 1);
	else
		assert_int_equal(r, -EPERM);
	assert_int_equal(fixture->n_hello, 0);
	assert_int_equal(fd_count(), n_before);
}

static void test_serve_egress_worker_may_only_greet(void **state)
{
	struct fixture *fixture = *state;
	struct launch_msg msg;

	rig_close_worker(fixture);
	rig_open_worker(fixture, SERVE_WORKER_EGRESS);
	rig_greet(fixture);
	msg = rig_start_message(fixture, 1);
	rig_ask(fixture, &msg);
	assert_int_equal(fixture->n_lost, 1);
}

static void test_serve_start_and_kill_are_answered_when_done(void **state)
{
	struct fixture *fixture = *state;
	struct launch_msg msg;
	struct launch_msg again;
	struct launch_msg answer;

	rig_greet(fixture);
	rig_start(fixture, 1);
	msg = rig_request(fixture, LAUNCH_KILL, 1);
	rig_ask(fixture, &msg);
	again = rig_request(fixture, LAUNCH_KILL, 1);
	rig_ask(fixture, &again);
	rig_expect_silence(fixture);
	rig_end_session(1);
	(void)rig_hear(fixture, &answer);
	assert_int_equal(answer.serial, msg.serial);
	(void)rig_hear(fixture, &answer);
	assert_int_equal(answer.serial, again.serial);
	rig_expect_silence(fixture); /* no EVENT_GONE beside it */
	rig_expect_error(fixture, &msg, LAUNCH_E_NOT_FOUND);
	assert_int_equal(serve_session_count(fixture->serve), 0);
}

static void test_serve_start_failures_have_their_numbers(void **state)
{
	struct fixture *fixture = *state;
	struct launch_msg msg;
	struct launch_msg answer;
	struct err err = ERR_NULL;

	rig_greet(fixture);
	msg = rig_start_message(fixture, 1);
	msg.u.plan.max_pids = 0;
	rig_expect_error(fixture, &msg, LAUNCH_E_PLAN);
	msg = rig_start_message(fixture, 1);
	msg.u.plan.profile_hash[0]++;
	rig_expect_error(fixture, &msg, LAUNCH_E_PLAN);
	msg = rig_start_message(fixture, 1);
	msg.u.plan.profile = 1; /* a worker's */
	rig_expect_error(fixture, &msg, LAUNCH_E_PLAN);
	msg.u.plan.profile = 2;
	rig_expect_error(fixture, &msg, LAUNCH_E_PLAN);
	msg = rig_start_message(fixture, 1);
	msg.u.plan.egress = 1;
	rig_expect_error(fixture, &msg, LAUNCH_E_PLAN);
	msg = rig_start_message(fixture, 1);
	msg.u.plan.cpu_pct = 401;
	rig_expect_error(fixture, &msg, LAUNCH_E_PLAN);
	msg = rig_start_message(fixture, 1);
	memcpy(msg.u.start.template, "web", 3); /* no root commands */
	rig_expect_error(fixture, &msg, LAUNCH_E_PLAN);
	msg = rig_start_message(fixture, 1);
	paper.refuse_start = LAUNCH_E_IDS;
	rig_expect_error(fixture, &msg, LAUNCH_E_IDS);
	paper.refuse_start = LAUNCH_E_NONE;
	rig_start(fixture, 1);
	rig_expect_error(fixture, &msg, LAUNCH_E_EXISTS);

	msg = rig_start_message(fixture, 2);
	rig_ask(fixture, &msg);
	(void)err_fail(&err, -EIO, "mounts", "told to fail");
	rig_find(2)->used = false;
	rig_find(1)->events->started(paper.sessions[1].userdata, &paper.sessions[1], LAUNCH_E_STEP,
				     &err);
	(void)rig_hear(fixture, &answer);
	assert_int_equal(answer.error, LAUNCH_E_STEP);
	assert_string_equal(answer.u.err.step, "mounts");
	assert_int_equal(serve_session_count(fixture->serve), 1);
}

static void test_serve_start_ceiling_is_given_back(void **state)
{
	struct fixture *fixture = *state;
	struct launch_msg msg;

	rig_greet(fixture);
	for (uint8_t i = 1; i <= 40; i++)
		rig_start(fixture, i);
	msg = rig_start_message(fixture, 41);
	rig_expect_error(fixture, &msg, LAUNCH_E_SESSIONS);
	rig_end_session(7);
	(void)rig_hear(fixture, &msg); /* EVENT_GONE */
	rig_start(fixture, 41);
}

static void test_serve_own_end_is_told(void **state)
{
	struct fixture *fixture = *state;
	struct launch_msg event;

	rig_greet(fixture);
	rig_start(fixture, 5);
	rig_end_session(5);
	(void)rig_hear(fixture, &event);
	assert_int_equal(event.type, LAUNCH_EVENT_GONE);
	assert_int_equal(event.session[0], 5);
	assert_int_equal(event.u.gone.reason, LAUNCH_GONE_SHIM_EXITED);
	assert_int_equal(event.u.gone.wait_status, 9);
	assert_int_equal(event.u.gone.oom_kills, 2);
	assert_int_equal(event.u.gone.forks_refused, 3);
}

static void test_serve_session_requests_need_their_state(void **state)
{
	struct fixture *fixture = *state;
	struct launch_msg msg;
	struct launch_msg answer;

	rig_greet(fixture);
	msg = rig_request(fixture, LAUNCH_STAT, 1);
	rig_expect_error(fixture, &msg, LAUNCH_E_NOT_FOUND);
	msg = rig_start_message(fixture, 1);
	rig_ask(fixture, &msg);
	msg = rig_request(fixture, LAUNCH_STAT, 1);
	rig_expect_error(fixture, &msg, LAUNCH_E_STATE); /* STARTING */
	rig_become_live(1);
	(void)rig_hear(fixture, &answer);
	rig_expect_error(fixture, &msg, LAUNCH_E_NONE);
	msg = rig_request(fixture, LAUNCH_THAW, 1);
	rig_expect_error(fixture, &msg, LAUNCH_E_STATE);
	msg = rig_request(fixture, LAUNCH_FREEZE, 1);
	rig_expect_error(fixture, &msg, LAUNCH_E_NONE);
	rig_expect_error(fixture, &msg, LAUNCH_E_STATE);
	msg = rig_request(fixture, LAUNCH_THAW, 1);
	rig_expect_error(fixture, &msg, LAUNCH_E_NONE);
	msg = rig_request(fixture, LAUNCH_PROOF, 1);
	rig_ask(fixture, &msg);
	(void)rig_hear(fixture, &answer);
	assert_int_equal(answer.u.proof.shim_pid, 77);
	msg = rig_request(fixture, LAUNCH_TRACE, 1);
	rig_ask(fixture, &msg);
	(void)rig_hear(fixture, &answer);
	assert_int_equal(answer.u.trace.n, 3);
}

static void test_serve_dead_worker_leaves_sessions_for_the_next(void **state)
{
	struct fixture *fixture = *state;
	struct launch_msg msg;
	struct launch_msg answer;
	bool seen[4] = {false};

	rig_greet(fixture);
	rig_start(fixture, 1);
	rig_start(fixture, 2);
	rig_start(fixture, 3);
	msg = rig_start_message(fixture, 4); /* never answered */
	rig_ask(fixture, &msg);
	msg = rig_request(fixture, LAUNCH_KILL, 3); /* in its end */
	rig_ask(fixture, &msg);
	rig_close_worker(fixture);
	assert_true(rig_find(4)->killed);
	assert_false(rig_find(1)->killed);

	rig_open_worker(fixture, SERVE_WORKER_API);
	rig_greet(fixture);
	msg = rig_request(fixture, LAUNCH_ADOPT, 0);
	rig_ask(fixture, &msg);
	for (int i = 0; i < 2; i++) {
		assert_true(rig_hear(fixture, &answer));
		assert_int_equal(answer.more, 1);
		assert_int_equal(answer.serial, msg.serial);
		assert_true(answer.session[0] < 4);
		seen[answer.session[0]] = true;
	}
	assert_true(seen[1] && seen[2]);
	assert_false(rig_hear(fixture, &answer));
	assert_int_equal(answer.more, 0);
	assert_int_equal(answer.session[0], 0);
	rig_end_session(3);
	rig_end_session(4);
	rig_expect_silence(fixture); /* nobody of this worker knew them */
	rig_end_session(1);
	(void)rig_hear(fixture, &answer);
	assert_int_equal(answer.type, LAUNCH_EVENT_GONE);
}

static void find_on_host(size_t place, uint8_t number, enum session_state state)
{
	paper.sessions[place] = (struct session){
		.used = true,
		.plan = {.session = {number}, .memory_bytes = 64u << 20, .max_pids = 64},
		.state = state,
	};
}

/* What a former supervisor left is told to the first worker as to any later one, and what it could
 * not leave is told once. */
static void test_serve_sessions_of_a_former_supervisor(void **state)
{
	struct fixture *fixture = *state;
	struct launch_msg msg;
	struct launch_msg answer;
	bool seen[8] = {false};

	find_on_host(0, 1, SESSION_STATE_LIVE);
	find_on_host(1, 2, SESSION_STATE_FROZEN);
	paper.incompatible[0] = (struct id){{6}};
	paper.incompatible[1] = (struct id){{7}};
	paper.n_incompatible = 2;
	assert_int_equal(serve_take_adopted(fixture->serve), 0);
	assert_int_equal(serve_session_count(fixture->serve), 2);
	for (int round = 0; round < 2; round++) {
		rig_greet(fixture);
		msg = rig_request(fixture, LAUNCH_ADOPT, 0);
		rig_ask(fixture, &msg);
		for (int i = 0; i < (round == 0 ? 4 : 2); i++) {
			bool with_socket = rig_hear(fixture, &answer);

			assert_int_equal(answer.more, 1);
			assert_int_equal(with_socket, answer.session[0] <= 2);
			assert_int_equal(answer.error,
					 with_socket ? LAUNCH_E_NONE : LAUNCH_E_INCOMPATIBLE);
			seen[answer.session[0]] = true;
		}
		assert_false(rig_hear(fixture, &answer));
		assert_int_equal(answer.more, 0);
		rig_close_worker(fixture);
		rig_open_worker(fixture, SERVE_WORKER_API);
	}
	assert_true(seen[1] && seen[2] && seen[6] && seen[7]);
	rig_greet(fixture);
	msg = rig_start_message(fixture, 1);
	rig_expect_error(fixture, &msg, LAUNCH_E_EXISTS);
	msg = rig_request(fixture, LAUNCH_THAW, 2);
	rig_expect_error(fixture, &msg, LAUNCH_E_NONE);
	rig_end_session(1);
	assert_int_equal(serve_session_count(fixture->serve), 1);
}

/* An egress worker that comes and goes changes nothing for the api worker. */
static void test_serve_dead_egress_worker_changes_nothing(void **state)
{
	struct fixture *fixture = *state;
	struct fixture egress = {.loop = fixture->loop, .serve = fixture->serve};
	struct launch_msg answer;

	rig_greet(fixture);
	rig_start(fixture, 1);
	rig_open_worker(&egress, SERVE_WORKER_EGRESS);
	rig_greet(&egress);
	rig_close_worker(&egress);
	rig_end_session(1);
	(void)rig_hear(fixture, &answer);
	assert_int_equal(answer.type, LAUNCH_EVENT_GONE);
}

/* Its owner closes it like any other; tear_down then finds the count of clients right. */
static void test_serve_client_that_cannot_be_watched(void **state)
{
	struct fixture *fixture = *state;
	struct serve_client client = {.peer = {.fd = -1}};
	int fd = open("/dev/null", O_RDWR | O_CLOEXEC);

	assert_true(serve_client_open(&client, fixture->serve, SERVE_WORKER_API, fd, "test") < 0);
	serve_client_done(&client);
	(void)fd_close(fd);
}

static void test_serve_adopt_comes_once(void **state)
{
	struct fixture *fixture = *state;
	struct launch_msg msg;
	struct launch_msg answer;

	rig_greet(fixture);
	msg = rig_request(fixture, LAUNCH_ADOPT, 0);
	rig_ask(fixture, &msg);
	(void)rig_hear(fixture, &answer);
	rig_ask(fixture, &msg);
	assert_int_equal(fixture->n_lost, 1);
}

/* The worker reads nothing: answers queue up, requests wait, and all arrive in order later. */
static void test_serve_slow_worker_loses_nothing(void **state)
{
	struct fixture *fixture = *state;
	struct launch_msg msg;
	struct launch_msg answer;
	uint32_t first;
	unsigned int n = 0;

	rig_greet(fixture);
	rig_start(fixture, 1);
	first = fixture->serial + 1;
	for (;;) {
		msg = rig_request(fixture, LAUNCH_STAT, 1);
		if (sockmsg_send(fixture->worker_fd, &msg, sizeof(msg), NULL, 0) < 0)
			break;
		n++;
		rig_turns(fixture, 1);
	}
	assert_true(n > 10);
	for (unsigned int i = 0; i < n; i++) {
		(void)rig_hear(fixture, &answer);
		assert_int_equal(answer.serial, first + i);
		rig_turns(fixture, 3);
	}
	assert_int_equal(fixture->n_lost, 0);
}

static void test_serve_stopping_refuses_and_empties(void **state)
{
	struct fixture *fixture = *state;
	struct launch_msg msg;

	rig_greet(fixture);
	rig_start(fixture, 1);
	rig_start(fixture, 2);
	serve_refuse_launches(fixture->serve);
	msg = rig_start_message(fixture, 3);
	rig_expect_error(fixture, &msg, LAUNCH_E_STOPPING);
	serve_kill_all(fixture->serve);
	assert_true(rig_find(1)->killed && rig_find(2)->killed);
	rig_end_session(1);
	assert_int_equal(fixture->n_emptied, 0);
	rig_end_session(2);
	assert_int_equal(fixture->n_emptied, 1);
	serve_kill_all(fixture->serve);
	assert_int_equal(fixture->n_emptied, 2);
}

static const struct CMUnitTest tests[] = {
	SERVE_TEST(test_serve_hello_answers_the_facts),
	SERVE_TEST(test_serve_surprises_end_the_connection),
	SERVE_TEST(test_serve_descriptor_from_a_worker_is_refused),
	SERVE_TEST(test_serve_egress_worker_may_only_greet),
	SERVE_TEST(test_serve_start_and_kill_are_answered_when_done),
	SERVE_TEST(test_serve_start_failures_have_their_numbers),
	SERVE_TEST(test_serve_start_ceiling_is_given_back),
	SERVE_TEST(test_serve_own_end_is_told),
	SERVE_TEST(test_serve_session_requests_need_their_state),
	SERVE_TEST(test_serve_dead_worker_leaves_sessions_for_the_next),
	SERVE_TEST(test_serve_sessions_of_a_former_supervisor),
	SERVE_TEST(test_serve_dead_egress_worker_changes_nothing),
	SERVE_TEST(test_serve_client_that_cannot_be_watched),
	SERVE_TEST(test_serve_adopt_comes_once),
	SERVE_TEST(test_serve_slow_worker_loses_nothing),
	SERVE_TEST(test_serve_stopping_refuses_and_empties),
};

TEST_MAIN(tests)
