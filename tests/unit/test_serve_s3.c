/*
 * Requests for a helper of the object store: who gets its socket, and how many there may be.
 */
#include <string.h>
#include <sys/socket.h>

#include "base/fd.h"

#include "supervisor/serve.h"
#include "tests/unit/serve_rig.h"

static void configure(void)
{
	memcpy(paper.config.s3.host, "s3.example", sizeof("s3.example"));
	memcpy(paper.config.s3.credentials, "AK:secret", sizeof("AK:secret"));
}

static void test_serve_s3_answers_with_a_socket_to_the_helper(void **state)
{
	struct fixture *fixture = *state;
	struct launch_msg msg = launch_message(LAUNCH_S3, 11, NULL);
	struct launch_msg answer;

	rig_greet(fixture);
	configure();
	rig_ask(fixture, &msg);
	assert_true(rig_hear(fixture, &answer));
	assert_int_equal(answer.type, LAUNCH_S3 + 1);
	assert_int_equal(answer.error, LAUNCH_E_NONE);
	assert_string_equal(paper.s3_request.config.credentials, "AK:secret");
	assert_true(paper.s3_request.instance[0] != '\0');
	/* The asker's end was closed, and there is no other. */
	assert_int_equal(recv(paper.s3_job_fd, &answer, sizeof(answer), 0), 0);
	paper.s3_job_fd = fd_close(paper.s3_job_fd);
	paper.s3_ended(paper.s3_userdata);
}

static void test_serve_s3_has_no_more_than_some_helpers(void **state)
{
	struct fixture *fixture = *state;
	struct launch_msg msg = launch_message(LAUNCH_S3, 11, NULL);
	struct launch_msg answer;
	void *last;

	rig_greet(fixture);
	configure();
	for (uint32_t i = 0; i < 2 * S3_AT_ONCE; i++) {
		rig_ask(fixture, &msg);
		assert_true(rig_hear(fixture, &answer));
		paper.s3_job_fd = fd_close(paper.s3_job_fd);
	}
	rig_expect_error(fixture, &msg, LAUNCH_E_RATE);
	last = paper.s3_userdata;
	paper.s3_ended(last);
	rig_ask(fixture, &msg);
	assert_true(rig_hear(fixture, &answer));
	paper.s3_job_fd = fd_close(paper.s3_job_fd);
}

static void test_serve_s3_that_is_not_configured_has_no_helper(void **state)
{
	struct fixture *fixture = *state;
	struct launch_msg msg = launch_message(LAUNCH_S3, 11, NULL);

	rig_greet(fixture);
	rig_expect_error(fixture, &msg, LAUNCH_E_STATE);
	assert_int_equal(paper.n_s3, 0);
}

static const struct CMUnitTest tests[] = {
	SERVE_TEST(test_serve_s3_answers_with_a_socket_to_the_helper),
	SERVE_TEST(test_serve_s3_has_no_more_than_some_helpers),
	SERVE_TEST(test_serve_s3_that_is_not_configured_has_no_helper),
};

TEST_MAIN(tests)
