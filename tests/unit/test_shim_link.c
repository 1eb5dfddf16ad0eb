/*
 * The link over a socketpair: the test is the shim, an honest one and a hostile one.
 */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/frame.h"
#include "base/sockmsg.h"

#include "tests/lib/test.h"
#include "tests/unit/shim_link_rig.h"

static void test_shim_link_command_runs_and_is_credited(void **state)
{
	struct wire_exit status = {.code = 0};
	struct wire_header header = {0};
	struct wire_credit credit = {0};
	struct rig rig = {.shim_fd = -1};
	uint32_t job = 0;

	(void)state;
	rig_open(&rig, false, 0);
	start_running(&rig, &job);
	say(&rig, WIRE_STDOUT, job, 1, "hi", 2);
	say(&rig, WIRE_EXIT, job, 2, &status, sizeof(status));
	turn(&rig);
	assert_int_equal(rig.n_output, 1);
	assert_int_equal(rig.n_exited, 1);
	assert_int_equal(shim_link_jobs(rig.link), 0);
	assert_int_equal(hear(&rig, &header, NULL, 0), WIRE_HELLO);
	assert_int_equal(hear(&rig, &header, NULL, 0), WIRE_EXEC);
	shim_link_settle(rig.link, 2);
	assert_int_equal(shim_link_flush(rig.link), 0);
	assert_int_equal(hear(&rig, &header, NULL, 0), 0); /* 1 is not settled */
	shim_link_settle(rig.link, 1);
	assert_int_equal(shim_link_flush(rig.link), 0);
	assert_int_equal(shim_link_flush(rig.link), 0);
	assert_int_equal(hear(&rig, &header, (uint8_t *)&credit, sizeof(credit)), WIRE_CREDIT);
	assert_int_equal(credit.acked, 2);
	assert_int_equal(hear(&rig, &header, NULL, 0), 0);
	rig_close(&rig);
}

static void test_shim_link_put_sends_all_pieces(void **state)
{
	AUTO_FREE char *data = calloc(1, 200000);
	struct wire_header header = {0};
	size_t got = 0;
	struct rig rig = {.shim_fd = -1};
	uint32_t job = 0;
	uint16_t type;

	(void)state;
	rig_open(&rig, false, 0);
	say_hello(&rig, 0);
	assert_int_equal(shim_link_put(rig.link, "a.yaml", 0644, data, 200000, &job), 0);
	do {
		turn(&rig);
		type = hear(&rig, &header, NULL, 0);
		if (type == WIRE_PUT_DATA)
			got += header.length - sizeof(header);
	} while (type != 0 && type != WIRE_PUT_END);
	assert_int_equal(type, WIRE_PUT_END);
	assert_int_equal(got, 200000);
	say(&rig, WIRE_PUT_DONE, job, 1, NULL, 0);
	turn(&rig);
	assert_int_equal(rig.n_put_done, 1);
	rig_close(&rig);
}

static void test_shim_link_duplicates_are_dropped(void **state)
{
	struct rig rig = {.shim_fd = -1};
	uint32_t job = 0;

	(void)state;
	rig_open(&rig, false, 0);
	start_running(&rig, &job);
	say(&rig, WIRE_STDOUT, job, 1, "a", 1);
	say(&rig, WIRE_STDOUT, job, 1, "a", 1);
	say(&rig, WIRE_STDOUT, job, 2, "b", 1);
	turn(&rig);
	assert_int_equal(rig.n_output, 2);
	assert_int_equal(rig.n_lost, 0);
	rig_close(&rig);
}

/* Each is a first frame after which the link must be lost, once. */
static void test_shim_link_lies_end_the_link(void **state)
{
	struct wire_exit status = {.code = 0};
	struct wire_started started = {.pid = 1};

	(void)state;
	for (int lie = 0; lie < 8; lie++) {
		struct rig rig = {.shim_fd = -1};
		uint32_t job = 0;

		rig_open(&rig, false, 0);
		start_running(&rig, &job);
		switch (lie) {
		case 0: /* a job that nobody started */
			say(&rig, WIRE_STDOUT, job + 1, 1, "a", 1);
			break;
		case 1: /* a skipped number */
			say(&rig, WIRE_STDOUT, job, 2, "a", 1);
			break;
		case 2: /* started twice */
			say(&rig, WIRE_STARTED, job, 0, &started, sizeof(started));
			break;
		case 3: /* the end of a file from a command */
			say(&rig, WIRE_PUT_DONE, job, 1, NULL, 0);
			break;
		case 4: /* after its end */
			say(&rig, WIRE_EXIT, job, 1, &status, sizeof(status));
			say(&rig, WIRE_STDOUT, job, 2, "a", 1);
			break;
		case 5: /* a frame of our direction */
			say(&rig, WIRE_CREDIT, 0, 0, &(struct wire_credit){9}, 8);
			break;
		case 6: /* no number */
			say(&rig, WIRE_STDOUT, job, 0, "a", 1);
			break;
		default: /* no frame at all */
			assert_int_equal(send(rig.shim_fd, "x", 1, MSG_NOSIGNAL), 1);
			break;
		}
		turn(&rig);
		assert_int_equal(rig.n_lost, 1);
		assert_int_equal(shim_link_exec(rig.link,
						&(struct shim_link_command){
							.cwd = "/",
							.argv = (const char *const[]){"x", NULL},
							.env = (const char *const[]){NULL  }
                },
						&job),
				 -EPIPE);
		rig_close(&rig);
	}
}

static void test_shim_link_first_frame_must_be_hello(void **state)
{
	struct wire_hello hello;
	struct rig rig = {.shim_fd = -1};

	(void)state;
	rig_open(&rig, false, 0);
	say(&rig, WIRE_STDOUT, 1, 1, "a", 1);
	turn(&rig);
	assert_int_equal(rig.n_lost, 1);
	rig_close(&rig);

	rig_open(&rig, false, 0); /* of another session */
	hello = frame_hello(rig.session.bytes, 0);
	hello.session[0] ^= 1;
	say(&rig, WIRE_HELLO, 0, 0, &hello, sizeof(hello));
	turn(&rig);
	assert_int_equal(rig.n_lost, 1);
	rig_close(&rig);

	rig_open(&rig, true, 10); /* says it sent less than was committed */
	say_hello(&rig, 3);
	assert_int_equal(rig.n_lost, 1);
	rig_close(&rig);
}

static void test_shim_link_end_of_file_is_lost(void **state)
{
	struct rig rig = {.shim_fd = -1};

	(void)state;
	rig_open(&rig, false, 0);
	say_hello(&rig, 0);
	rig.shim_fd = fd_close(rig.shim_fd);
	turn(&rig);
	assert_int_equal(rig.n_lost, 1);
	rig_close(&rig);
}

static void test_shim_link_adopted_jobs_are_dropped_and_cancelled(void **state)
{
	struct wire_exit status = {.code = 0};
	struct wire_header header = {0};
	struct wire_credit credit = {0};
	struct rig rig = {.shim_fd = -1};

	(void)state;
	rig_open(&rig, true, 10);
	say_hello(&rig, 14);
	assert_int_equal(hear(&rig, &header, NULL, 0), WIRE_HELLO);
	assert_int_equal(hear(&rig, &header, NULL, 0), WIRE_PING);
	say_stats(&rig, 2);
	/* 11 and 12 were handed out by the earlier worker and credited: they do not come again. */
	say(&rig, WIRE_STDOUT, 77, 13, "a", 1);
	turn(&rig);
	assert_int_equal(rig.n_known, 0);
	say(&rig, WIRE_EXIT, 77, 14, &status, sizeof(status));
	turn(&rig);
	assert_int_equal(rig.n_lost, 0);
	assert_int_equal(rig.n_output, 0);
	assert_int_equal(rig.n_known, 1);
	assert_int_equal(hear(&rig, &header, NULL, 0), WIRE_CANCEL);
	assert_int_equal(header.job, 77);
	assert_int_equal(shim_link_flush(rig.link), 0);
	assert_int_equal(hear(&rig, &header, (uint8_t *)&credit, sizeof(credit)), WIRE_CREDIT);
	assert_int_equal(credit.acked, 14);
	rig_close(&rig);
}

static void test_shim_link_resumed_job_goes_on(void **state)
{
	const struct wire_started started = {.pid = 9};
	const struct wire_exit status = {.code = 0};
	struct wire_header header = {0};
	struct rig rig = {.shim_fd = -1};

	(void)state;
	rig_open(&rig, true, 10);
	assert_int_equal(shim_link_resume(rig.link, 5), 0);
	say_hello(&rig, 12);
	assert_int_equal(hear(&rig, &header, NULL, 0), WIRE_HELLO);
	assert_int_equal(hear(&rig, &header, NULL, 0), WIRE_PING);
	say(&rig, WIRE_STARTED, 5, 0, &started, sizeof(started));
	say_stats(&rig, 1);
	assert_int_equal(rig.n_known, 0);
	say(&rig, WIRE_STDOUT, 5, 11, "a", 1);
	turn(&rig);
	assert_int_equal(rig.n_known, 1);
	assert_int_equal(rig.n_output, 1);
	assert_int_equal(rig.last_number, 11);
	assert_int_equal(shim_link_jobs(rig.link), 1);
	say(&rig, WIRE_EXIT, 5, 12, &status, sizeof(status));
	turn(&rig);
	assert_int_equal(rig.n_exited, 1);
	assert_int_equal(rig.n_lost, 0);
	assert_int_equal(shim_link_jobs(rig.link), 0);
	rig_close(&rig);
}

/* The earlier worker died between the row that says running and the request. */
static void test_shim_link_resumed_job_that_is_not_there_fails(void **state)
{
	const struct wire_started started = {.pid = 9};
	struct rig rig = {.shim_fd = -1};

	(void)state;
	rig_open(&rig, true, 10);
	assert_int_equal(shim_link_resume(rig.link, 5), 0);
	assert_int_equal(shim_link_resume(rig.link, 6), 0);
	say_hello(&rig, 10);
	say(&rig, WIRE_STARTED, 6, 0, &started, sizeof(started));
	say_stats_of(&rig, 1, 0);
	turn(&rig);
	assert_int_equal(rig.n_failed, 1);
	assert_int_equal(rig.n_known, 1);
	assert_int_equal(rig.n_lost, 0);
	assert_int_equal(shim_link_jobs(rig.link), 1);
	rig_close(&rig);
}

/* What an earlier worker sent to a command goes on: the command has not ended by that. */
static void test_shim_link_input_of_an_earlier_worker_is_no_end(void **state)
{
	const struct wire_started started = {.pid = 9};
	const struct wire_taken taken = {.taken = 4096};
	struct wire_header header = {0};
	struct rig rig = {.shim_fd = -1};

	(void)state;
	rig_open(&rig, true, 10);
	assert_int_equal(shim_link_resume(rig.link, 5), 0);
	say_hello(&rig, 10);
	say(&rig, WIRE_TAKEN, 77, 0, &taken, sizeof(taken));
	say(&rig, WIRE_STARTED, 77, 0, &started, sizeof(started));
	say(&rig, WIRE_TAKEN, 77, 0, &taken, sizeof(taken));
	say_stats_of(&rig, 1, 0);
	turn(&rig);
	assert_int_equal(rig.n_lost, 0);
	assert_int_equal(rig.n_known, 1);
	assert_int_equal(rig.n_failed, 1); /* 5, which the shim does not have */
	assert_int_equal(hear(&rig, &header, NULL, 0), WIRE_HELLO);
	assert_int_equal(hear(&rig, &header, NULL, 0), WIRE_PING);
	assert_int_equal(hear(&rig, &header, NULL, 0), WIRE_CANCEL);
	assert_int_equal(header.job, 77);
	rig_close(&rig);
}

/* One that is being forked is not announced, and counted. */
static void test_shim_link_resumed_job_that_begins_is_waited_for(void **state)
{
	const struct wire_started started = {.pid = 9};
	struct rig rig = {.shim_fd = -1};

	(void)state;
	rig_open(&rig, true, 10);
	assert_int_equal(shim_link_resume(rig.link, 5), 0);
	say_hello(&rig, 10);
	say_stats_of(&rig, 1, 0);
	turn(&rig);
	assert_int_equal(rig.n_failed, 0);
	assert_int_equal(rig.n_known, 1);
	say(&rig, WIRE_STARTED, 5, 0, &started, sizeof(started));
	turn(&rig);
	assert_int_equal(rig.n_lost, 0);
	assert_int_equal(shim_link_jobs(rig.link), 1);
	rig_close(&rig);
}

/* What an earlier worker left takes slots of the shim: together with ours they never pass what it
 * has, or it would end the connection, and with that the session. */
static void test_shim_link_jobs_of_an_earlier_worker_count(void **state)
{
	static const char *const argv[] = {"true", NULL};
	static const char *const env[] = {NULL};
	struct shim_link_command command = {.cwd = "/session", .argv = argv, .env = env};
	const struct wire_started started = {.pid = 9};
	const struct wire_exit status = {.code = 0};
	struct rig rig = {.shim_fd = -1};
	uint32_t job = 0;

	(void)state;
	rig_open(&rig, true, 0);
	say_hello(&rig, 2);
	assert_int_equal(shim_link_exec(rig.link, &command, &job), -EBUSY); /* not known yet */
	for (uint32_t i = 0; i < SHIM_MAX_JOBS; i++)
		say(&rig, WIRE_STARTED, 100 + i, 0, &started, sizeof(started));
	say_stats(&rig, 2);
	/* Two more had ended, and are not acknowledged. */
	say(&rig, WIRE_EXIT, 90, 1, &status, sizeof(status));
	say(&rig, WIRE_EXIT, 91, 2, &status, sizeof(status));
	turn(&rig);
	assert_int_equal(rig.n_known, 1);
	assert_int_equal(shim_link_exec(rig.link, &command, &job), -EBUSY);
	for (uint32_t i = 0; i < 3; i++)
		say(&rig, WIRE_EXIT, 100 + i, 3 + i, &status, sizeof(status));
	turn(&rig);
	assert_int_equal(shim_link_exec(rig.link, &command, &job), -EBUSY);
	assert_int_equal(shim_link_flush(rig.link), 0);
	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(shim_link_exec(rig.link, &command, &job), 0);
	assert_int_equal(shim_link_exec(rig.link, &command, &job), -EBUSY);
	assert_int_equal(rig.n_lost, 0);
	rig_close(&rig);
}

static void test_shim_link_jobs_are_bounded(void **state)
{
	static const char *const argv[] = {"true", NULL};
	static const char *const env[] = {NULL};
	struct shim_link_command command = {.cwd = "/session", .argv = argv, .env = env};
	struct rig rig = {.shim_fd = -1};
	uint32_t job = 0;

	(void)state;
	rig_open(&rig, false, 0);
	say_hello(&rig, 0);
	for (int i = 0; i < SHIM_MAX_JOBS; i++)
		assert_int_equal(shim_link_exec(rig.link, &command, &job), 0);
	assert_int_equal(shim_link_exec(rig.link, &command, &job), -EBUSY);
	rig_close(&rig);
}

/* The shim keeps the slot of a job until its last frame is acknowledged. */
static void test_shim_link_ended_jobs_count_until_acknowledged(void **state)
{
	static const char *const argv[] = {"true", NULL};
	static const char *const env[] = {NULL};
	struct shim_link_command command = {.cwd = "/session", .argv = argv, .env = env};
	const struct wire_exit status = {0};
	struct rig rig = {.shim_fd = -1};
	uint32_t job = 0;

	(void)state;
	rig_open(&rig, false, 0);
	say_hello(&rig, 0);
	for (uint64_t i = 1; i <= SHIM_MAX_JOBS; i++) {
		assert_int_equal(shim_link_exec(rig.link, &command, &job), 0);
		say(&rig, WIRE_EXIT, job, i, &status, sizeof(status));
		turn(&rig);
	}
	assert_int_equal(shim_link_jobs(rig.link), 0);
	assert_int_equal(shim_link_exec(rig.link, &command, &job), -EBUSY);
	shim_link_settle(rig.link, 1);
	assert_int_equal(shim_link_exec(rig.link, &command, &job), -EBUSY);
	assert_int_equal(shim_link_flush(rig.link), 0);
	assert_int_equal(shim_link_exec(rig.link, &command, &job), 0);
	assert_int_equal(shim_link_exec(rig.link, &command, &job), -EBUSY);
	rig_close(&rig);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_shim_link_command_runs_and_is_credited),
	cmocka_unit_test(test_shim_link_put_sends_all_pieces),
	cmocka_unit_test(test_shim_link_duplicates_are_dropped),
	cmocka_unit_test(test_shim_link_lies_end_the_link),
	cmocka_unit_test(test_shim_link_first_frame_must_be_hello),
	cmocka_unit_test(test_shim_link_end_of_file_is_lost),
	cmocka_unit_test(test_shim_link_adopted_jobs_are_dropped_and_cancelled),
	cmocka_unit_test(test_shim_link_resumed_job_goes_on),
	cmocka_unit_test(test_shim_link_resumed_job_that_is_not_there_fails),
	cmocka_unit_test(test_shim_link_input_of_an_earlier_worker_is_no_end),
	cmocka_unit_test(test_shim_link_resumed_job_that_begins_is_waited_for),
	cmocka_unit_test(test_shim_link_jobs_of_an_earlier_worker_count),
	cmocka_unit_test(test_shim_link_jobs_are_bounded),
	cmocka_unit_test(test_shim_link_ended_jobs_count_until_acknowledged),
};

TEST_MAIN(tests)
