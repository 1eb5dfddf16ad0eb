/*
 * Requests about Redis: their order, and how many helpers run at once.
 */
#include "supervisor/serve.h"
#include "tests/unit/serve_rig.h"

static struct launch_msg redis_message(uint8_t number, enum redis_action action, uint32_t serial)
{
	struct launch_msg msg = launch_message(LAUNCH_REDIS, serial, (uint8_t[ID_BYTES]){number});

	msg.u.redis.action = action;
	return msg;
}

static void end_redis_helper(struct fixture *fixture, unsigned int i, uint32_t n_keys)
{
	const struct redis_report report = {.status = REDIS_DONE, .n_keys = n_keys};
	struct launch_msg answer;

	paper.redis_helpers[i].done(paper.redis_helpers[i].userdata, &report);
	assert_false(rig_hear(fixture, &answer));
	assert_int_equal(answer.error, LAUNCH_E_NONE);
	assert_int_equal(answer.u.redis_report.n_keys, n_keys);
}

/* A user that is dropped is not made again by what was asked before. */
static void test_serve_redis_of_one_session_is_in_order(void **state)
{
	struct fixture *fixture = *state;
	struct launch_msg msg;

	rig_greet(fixture);
	msg = redis_message(1, REDIS_MAKE, 11);
	rig_ask(fixture, &msg);
	msg = redis_message(1, REDIS_DROP, 12);
	rig_ask(fixture, &msg);
	msg = redis_message(2, REDIS_MAKE, 13);
	rig_ask(fixture, &msg);
	rig_expect_silence(fixture);
	assert_int_equal(paper.n_redis_helpers, 2);
	assert_int_equal(paper.redis_helpers[0].request.action, REDIS_MAKE);
	assert_int_equal(paper.redis_helpers[1].request.session[0], 2);
	assert_string_equal(paper.redis_helpers[0].request.password, "credential");
	end_redis_helper(fixture, 0, 0);
	assert_int_equal(paper.n_redis_helpers, 3);
	assert_int_equal(paper.redis_helpers[2].request.action, REDIS_DROP);
	end_redis_helper(fixture, 2, 7);
	end_redis_helper(fixture, 1, 0);
}

/* Who asks again and again while a server is slow has one that waits. */
static void test_serve_redis_asked_for_again_waits_once(void **state)
{
	struct fixture *fixture = *state;
	struct launch_msg msg = redis_message(1, REDIS_DROP, 11);
	struct launch_msg answer;

	rig_greet(fixture);
	rig_ask(fixture, &msg);
	for (uint32_t serial = 12; serial < 20; serial++) {
		msg = redis_message(1, REDIS_DROP, serial);
		rig_ask(fixture, &msg);
		if (serial == 12)
			continue;
		assert_false(rig_hear(fixture, &answer));
		assert_int_equal(answer.serial, serial - 1);
		assert_int_equal(answer.u.redis_report.status, REDIS_E_SERVER);
	}
	end_redis_helper(fixture, 0, 1);
	assert_int_equal(paper.n_redis_helpers, 2);
	end_redis_helper(fixture, 1, 2);
	rig_expect_silence(fixture);
	assert_int_equal(paper.n_redis_helpers, 2);
}

/* Sessions that end do not keep others from beginning. */
static void test_serve_redis_leaves_room_beside_drops(void **state)
{
	struct fixture *fixture = *state;
	struct launch_msg msg;

	rig_greet(fixture);
	for (uint8_t number = 1; number <= 8; number++) {
		msg = redis_message(number, REDIS_DROP, number);
		rig_ask(fixture, &msg);
	}
	assert_int_equal(paper.n_redis_helpers, 4);
	msg = redis_message(9, REDIS_MAKE, 9);
	rig_ask(fixture, &msg);
	assert_int_equal(paper.n_redis_helpers, 5);
	assert_int_equal(paper.redis_helpers[4].request.action, REDIS_MAKE);
	end_redis_helper(fixture, 4, 0);
	assert_int_equal(paper.n_redis_helpers, 5);
	for (unsigned int i = 0; i < 4; i++)
		end_redis_helper(fixture, i, 0);
	for (unsigned int i = 5; i < 9; i++)
		end_redis_helper(fixture, i, 0);
}

static void test_serve_redis_that_is_not_configured_has_no_helper(void **state)
{
	struct fixture *fixture = *state;
	struct launch_msg msg = redis_message(1, REDIS_MAKE, 11);

	rig_greet(fixture);
	paper.config.api.redis.port = 0;
	rig_expect_error(fixture, &msg, LAUNCH_E_STATE);
	assert_int_equal(paper.n_redis_helpers, 0);
}

static const struct CMUnitTest tests[] = {
	SERVE_TEST(test_serve_redis_of_one_session_is_in_order),
	SERVE_TEST(test_serve_redis_asked_for_again_waits_once),
	SERVE_TEST(test_serve_redis_leaves_room_beside_drops),
	SERVE_TEST(test_serve_redis_that_is_not_configured_has_no_helper),
};

TEST_MAIN(tests)
