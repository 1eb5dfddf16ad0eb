/*
 * The lease: until when sessions may run, whatever becomes of the worker that said so.
 */
#include "base/clock.h"

#include "tests/unit/serve_rig.h"

static void tell(struct fixture *fixture, usec_t until)
{
	struct launch_msg msg = rig_request(fixture, LAUNCH_LEASE, 0);

	msg.u.lease.until = until;
	rig_expect_error(fixture, &msg, LAUNCH_E_NONE);
}

static void wait_until_held(struct fixture *fixture, uint8_t number)
{
	const usec_t last = clock_boottime() + 60 * USEC_PER_SEC;

	while (!rig_find(number)->is_held && clock_boottime() < last)
		rig_turns(fixture, 1);
	assert_true(rig_find(number)->is_held);
}

static void test_serve_lease_ends_by_itself(void **state)
{
	struct fixture *fixture = *state;

	rig_greet(fixture);
	rig_start(fixture, 1);
	rig_start(fixture, 2);
	tell(fixture, clock_boottime() + 100 * USEC_PER_SEC);
	rig_turns(fixture, 10);
	assert_false(rig_find(1)->is_held);
	tell(fixture, clock_boottime() + USEC_PER_SEC);
	assert_false(rig_find(1)->is_held);
	wait_until_held(fixture, 1);
	assert_true(rig_find(2)->is_held);
	tell(fixture, LAUNCH_LEASE_ENDLESS);
	assert_false(rig_find(1)->is_held);
	assert_false(rig_find(2)->is_held);
}

static void test_serve_lease_outlives_the_worker(void **state)
{
	struct fixture *fixture = *state;

	rig_greet(fixture);
	rig_start(fixture, 1);
	tell(fixture, clock_boottime() + 20 * USEC_PER_MS);
	rig_close_worker(fixture);
	wait_until_held(fixture, 1);
	rig_open_worker(fixture, SERVE_WORKER_API);
	rig_greet(fixture);
	assert_true(rig_find(1)->is_held);
	/* One that is over already frees nothing. */
	tell(fixture, 1);
	rig_turns(fixture, 3);
	assert_true(rig_find(1)->is_held);
	tell(fixture, clock_boottime() + 100 * USEC_PER_SEC);
	assert_false(rig_find(1)->is_held);
}

/* What has not stopped then runs beside what another host may have made of it. */
static void test_serve_lease_tries_again(void **state)
{
	struct fixture *fixture = *state;

	rig_greet(fixture);
	rig_start(fixture, 1);
	rig_start(fixture, 2);
	paper.n_holds_refused = 3;
	tell(fixture, 1);
	wait_until_held(fixture, 1);
	wait_until_held(fixture, 2);
	assert_int_equal(paper.n_holds_refused, 0);
}

static void test_serve_sessions_made_after_the_end_run(void **state)
{
	struct fixture *fixture = *state;

	rig_greet(fixture);
	rig_start(fixture, 1);
	tell(fixture, 1);
	wait_until_held(fixture, 1);
	rig_start(fixture, 2);
	rig_turns(fixture, 3);
	assert_false(rig_find(2)->is_held);
	assert_true(rig_find(1)->is_held);
}

static void test_serve_lease_names_no_session(void **state)
{
	struct fixture *fixture = *state;
	struct launch_msg msg;

	rig_greet(fixture);
	rig_start(fixture, 1);
	msg = rig_request(fixture, LAUNCH_LEASE, 1);
	rig_ask(fixture, &msg);
	assert_int_equal(fixture->n_lost, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		SERVE_TEST(test_serve_lease_ends_by_itself),
		SERVE_TEST(test_serve_lease_outlives_the_worker),
		SERVE_TEST(test_serve_lease_tries_again),
		SERVE_TEST(test_serve_sessions_made_after_the_end_run),
		SERVE_TEST(test_serve_lease_names_no_session),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
