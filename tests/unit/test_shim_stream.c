/*
 * The connection of a real shim: durable frames, credits, reconnects, bounds, malformed peers.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/frame.h"
#include "base/sockmsg.h"
#include "base/str.h"

#include "tests/lib/test.h"
#include "tests/unit/shim_rig.h"

static struct rig rig;

static int setup(void **state)
{
	(void)state;
	return rig_begin(&rig, -1);
}

static int teardown(void **state)
{
	(void)state;
	return rig_end(&rig);
}

static void expect_true(uint32_t job)
{
	struct rig_result result;

	rig_shell(&rig, job, "true");
	rig_wait(&rig, job, &result);
	assert_int_equal(result.last, WIRE_EXIT);
	assert_int_equal(result.exit.code, 0);
	rig_result_done(&result);
}

/* Byte i of the output of the counter below. */
#define COUNTER       "import sys\nb=bytes(range(251))*4096\nsys.stdout.buffer.write(b[:1000000]*3)\n"
#define COUNTER_BYTES 3000000u

static uint8_t counter_byte(size_t at)
{
	return (uint8_t)(at % 1000000 % 251);
}

static void start_counter(uint32_t job)
{
	const char *const argv[] = {"python3", "-c", COUNTER, NULL};

	rig_exec(&rig, job, &(struct rig_command){.argv = argv});
}

/* Read frames of the counter without acknowledging, until nothing comes for a while. */
static size_t drain_counter(size_t at, bool *ret_exited)
{
	struct wire_header header;
	const uint8_t *payload = NULL;
	int n;

	*ret_exited = false;
	while ((n = rig_next(&rig, 400, &header, &payload)) >= 0) {
		if (header.type == WIRE_EXIT)
			*ret_exited = true;
		if (header.type != WIRE_STDOUT)
			continue;
		for (int i = 0; i < n; i++)
			assert_int_equal(payload[i], counter_byte(at + (size_t)i));
		at += (size_t)n;
	}
	return at;
}

/* All that the ring holds. The program may take its time before it writes the first of it. */
static size_t drain_full_ring(bool *ret_exited)
{
	size_t at = 0;

	while (at <= 900000) {
		at = drain_counter(at, ret_exited);
		assert_false(*ret_exited);
	}
	return drain_counter(at, ret_exited);
}

static void test_ring_full_stops_reading_and_credit_resumes(void **state)
{
	bool exited = false;
	size_t at;

	(void)state;
	rig_require();
	rig.hold = true;
	start_counter(1);
	at = drain_full_ring(&exited);
	assert_false(exited);
	assert_true(at > 900000 && at <= SHIM_RING_BYTES);
	while (!exited) {
		rig_ack(&rig, rig.expect - 1);
		at = drain_counter(at, &exited);
	}
	assert_int_equal(at, COUNTER_BYTES);
	rig_ack(&rig, rig.expect - 1);
	rig.hold = false;
	expect_true(2);
}

static void test_reconnect_resends_what_is_not_acknowledged(void **state)
{
	bool exited = false;
	uint64_t half;
	size_t before;
	size_t at;

	(void)state;
	rig_require();
	rig.hold = true;
	start_counter(1);
	half = rig.acked + 3;
	before = drain_full_ring(&exited);
	rig_disconnect(&rig);
	/* Everything again, from the first byte. */
	(void)rig_connect(&rig);
	at = drain_full_ring(&exited);
	assert_int_equal(at, before);
	/* A part acknowledged by CREDIT, then only by HELLO. */
	rig_ack(&rig, half);
	at = drain_counter(at, &exited);
	rig_disconnect(&rig);
	rig.acked = rig.expect - 1;
	assert_true(rig_connect(&rig) >= rig.acked);
	while (!exited) {
		at = drain_counter(at, &exited);
		rig_ack(&rig, rig.expect - 1);
	}
	assert_int_equal(at, COUNTER_BYTES);
	rig.hold = false;
	expect_true(2);
}

static void test_job_ends_while_nobody_is_connected(void **state)
{
	struct rig_result result;

	(void)state;
	rig_require();
	rig_shell(&rig, 5, "sleep 0.3; echo late; exit 4");
	rig_disconnect(&rig);
	(void)usleep(600000);
	(void)rig_connect(&rig);
	rig_wait(&rig, 5, &result);
	assert_int_equal(result.exit.code, 4);
	assert_string_equal((const char *)result.out, "late\n");
	rig_result_done(&result);
}

static void test_output_max_is_dropped_and_counted(void **state)
{
	const char *const argv[] = {"head", "-c", "2000000", "/dev/zero", NULL};
	const char *const null_argv[] = {"sh", "-c", "yes | head -c 2000000", NULL};
	struct rig_result result;

	(void)state;
	(void)argv;
	rig_require();
	rig_exec(&rig, 6, &(struct rig_command){.argv = null_argv, .max = 100001});
	rig_wait(&rig, 6, &result);
	assert_int_equal(result.exit.code, 0);
	assert_int_equal(result.exit.flags, WIRE_EXIT_TRUNCATED);
	assert_int_equal(result.out_bytes, 100001);
	assert_int_equal(result.exit.dropped_bytes, 2000000 - 100001);
	rig_result_done(&result);
}

static void test_output_rate_is_held(void **state)
{
	const char *const argv[] = {"sh", "-c", "yes | head -c 600000", NULL};
	struct rig_result result;
	usec_t begin = clock_boottime();
	usec_t span;

	(void)state;
	rig_require();
	/* The burst of one second is free, the rest takes two. */
	rig_exec(&rig, 6, &(struct rig_command){.argv = argv, .rate = 200000});
	rig_wait(&rig, 6, &result);
	span = clock_boottime() - begin;
	assert_int_equal(result.exit.code, 0);
	assert_int_equal(result.out_bytes, 600000);
	assert_true(span > 1500 * USEC_PER_MS && span < 60 * USEC_PER_SEC);
	rig_result_done(&result);
}

/* Two commands alone could take all of the session's rate, which is that of two. */
static void test_output_rate_of_a_session_is_shared(void **state)
{
	const char *const argv[] = {"yes", NULL};
	const uint32_t n_jobs = 4;
	const size_t enough = 50000;
	usec_t end = clock_add(clock_boottime(), 60 * USEC_PER_SEC);
	size_t bytes[4] = {0};
	struct wire_header header;
	const uint8_t *payload = NULL;
	uint32_t n_enough = 0;
	uint32_t n_exit = 0;

	(void)state;
	rig_require();
	for (uint32_t i = 0; i < n_jobs; i++)
		rig_exec(&rig, 50 + i,
			 &(struct rig_command){.argv = argv, .rate = 100000, .timeout_ms = 90000});
	while (n_enough < n_jobs && clock_boottime() < end) {
		int n = rig_next(&rig, 60000, &header, &payload);
		size_t *had = &bytes[header.job - 50];

		assert_true(n >= 0);
		if (header.type != WIRE_STDOUT)
			continue;
		n_enough += *had < enough && *had + (size_t)n >= enough;
		*had += (size_t)n;
	}
	assert_int_equal(n_enough, n_jobs);
	for (uint32_t i = 0; i < n_jobs; i++)
		rig_send(&rig, WIRE_CANCEL, 50 + i, NULL, 0);
	while (n_exit < n_jobs) {
		assert_true(rig_next(&rig, 60000, &header, &payload) >= 0);
		n_exit += header.type == WIRE_EXIT;
	}
	expect_true(2);
}

static void test_jobs_beyond_the_limit_are_busy(void **state)
{
	struct wire_header header;
	const uint8_t *payload = NULL;
	uint32_t n_exit = 0;
	uint32_t n_busy = 0;

	(void)state;
	rig_require();
	for (uint32_t i = 0; i < SHIM_MAX_JOBS + 3; i++)
		rig_shell(&rig, 100 + i, "exec sleep 600");
	while (n_busy < 3) {
		assert_true(rig_next(&rig, 60000, &header, &payload) >= 0);
		assert_int_not_equal(header.type, WIRE_EXIT);
		if (header.type != WIRE_FAILED)
			continue;
		assert_int_equal(((const struct wire_failed *)(const void *)payload)->step,
				 WIRE_STEP_BUSY);
		n_busy++;
	}
	for (uint32_t i = 0; i < SHIM_MAX_JOBS; i++)
		rig_send(&rig, WIRE_CANCEL, 100 + i, NULL, 0);
	while (n_exit < SHIM_MAX_JOBS) {
		assert_true(rig_next(&rig, 60000, &header, &payload) >= 0);
		assert_int_not_equal(header.type, WIRE_FAILED);
		n_exit += header.type == WIRE_EXIT;
	}
	expect_true(2);
}

/* Who comes after a worker that died hears what still runs. */
static void test_commands_that_run_are_announced_again(void **state)
{
	struct rig_result result;
	struct wire_header header;
	const uint8_t *payload = NULL;
	int32_t pid;

	(void)state;
	rig_require();
	rig_shell(&rig, 7, "exec sleep 60");
	assert_true(rig_next(&rig, 60000, &header, &payload) >= 0);
	assert_int_equal(header.type, WIRE_STARTED);
	pid = ((const struct wire_started *)(const void *)payload)->pid;
	rig_disconnect(&rig);
	(void)rig_connect(&rig);
	assert_true(rig_next(&rig, 60000, &header, &payload) >= 0);
	assert_int_equal(header.type, WIRE_STARTED);
	assert_int_equal(header.job, 7);
	assert_int_equal(((const struct wire_started *)(const void *)payload)->pid, pid);
	rig_send(&rig, WIRE_CANCEL, 7, NULL, 0);
	rig_wait(&rig, 7, &result);
	assert_int_equal(result.exit.flags, WIRE_EXIT_CANCELLED);
	rig_result_done(&result);
}

static void test_second_connection_is_refused(void **state)
{
	struct rig second = rig;
	struct pollfd poll_fd = {.events = POLLIN};
	union {
		struct sockaddr any;
		struct sockaddr_un un;
	} address = {.un.sun_family = AF_UNIX};
	char byte;

	(void)state;
	rig_require();
	assert_int_equal(
		str_copy(address.un.sun_path, sizeof(address.un.sun_path), second.socket_path), 0);
	poll_fd.fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	assert_int_equal(connect(poll_fd.fd, &address.any, sizeof(address)), 0);
	assert_int_equal(poll(&poll_fd, 1, 60000), 1);
	assert_int_equal(recv(poll_fd.fd, &byte, 1, 0), 0);
	(void)fd_close(poll_fd.fd);
	expect_true(2);
}

/* The command that runs is announced on each connection. */
static void meet_again(void)
{
	struct wire_header header;
	const uint8_t *payload = NULL;

	rig_disconnect(&rig);
	(void)rig_connect(&rig);
	assert_int_equal(rig_next(&rig, 60000, &header, &payload), sizeof(struct wire_started));
	assert_int_equal(header.type, WIRE_STARTED);
}

/* Each of these drops the connection, and only that: the sleeping job goes on. */
static void test_malformed_frames_drop_the_connection(void **state)
{
	struct wire_header wrong[] = {
		frame_header(WIRE_STDOUT, 1, 0, 0),  /* a type of the other direction */
		frame_header(77, 1, 0, 0),           /* none at all */
		frame_header(WIRE_CANCEL, 0, 0, 0),  /* no job */
		frame_header(WIRE_CANCEL, 1, 9, 0),  /* a number */
		frame_header(WIRE_CANCEL, 1, 0, 55), /* a length */
		frame_header(WIRE_HELLO, 0, 0, 0),   /* a second HELLO, short */
		frame_header(WIRE_EXEC, 3, 0, 0),    /* no struct */
		frame_header(WIRE_PUT, 3, 0, 0),
	};
	const struct wire_credit credit = {.acked = UINT64_MAX};
	struct rig_result result;
	struct wire_header header;
	const uint8_t *payload = NULL;

	(void)state;
	rig_require();
	rig_shell(&rig, 40, "sleep 3; echo survived");
	assert_int_equal(rig_next(&rig, 60000, &header, &payload), sizeof(struct wire_started));
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		assert_int_equal(sockmsg_send(rig.api_fd, &wrong[i], sizeof(wrong[i]), NULL, 0), 0);
		assert_int_equal(rig_next(&rig, 60000, &header, &payload), -2);
		meet_again();
	}
	assert_int_equal(sockmsg_send(rig.api_fd, "x", 1, NULL, 0), 0);
	assert_int_equal(rig_next(&rig, 60000, &header, &payload), -2);
	meet_again();
	/* Acknowledged what was never sent; a job id that is in use; input of the wrong kind. */
	rig_send(&rig, WIRE_CREDIT, 0, &credit, sizeof(credit));
	assert_int_equal(rig_next(&rig, 60000, &header, &payload), -2);
	meet_again();
	rig_shell(&rig, 40, "true");
	assert_int_equal(rig_next(&rig, 60000, &header, &payload), -2);
	meet_again();
	rig_send(&rig, WIRE_PUT_DATA, 40, "x", 1);
	assert_int_equal(rig_next(&rig, 60000, &header, &payload), -2);
	meet_again();
	/* Input for a job that nobody knows was sent too late, and is no error. */
	rig_send(&rig, WIRE_STDIN, 4242, "x", 1);
	rig_send(&rig, WIRE_CANCEL, 4242, NULL, 0);
	rig_wait(&rig, 40, &result);
	assert_string_equal((const char *)result.out, "survived\n");
	rig_result_done(&result);
}

static void test_ping_tells_what_is_held(void **state)
{
	struct wire_header header;
	struct wire_stats stats;
	const uint8_t *payload = NULL;

	(void)state;
	rig_require();
	expect_true(2);
	rig_send(&rig, WIRE_PING, 0, NULL, 0);
	assert_int_equal(rig_next(&rig, 60000, &header, &payload), sizeof(stats));
	assert_int_equal(header.type, WIRE_STATS);
	memcpy(&stats, payload, sizeof(stats));
	assert_int_equal(stats.n_jobs, 0);
	assert_int_equal(stats.frames_held, 0);
	assert_int_equal(stats.bytes_held, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ring_full_stops_reading_and_credit_resumes),
		cmocka_unit_test(test_reconnect_resends_what_is_not_acknowledged),
		cmocka_unit_test(test_job_ends_while_nobody_is_connected),
		cmocka_unit_test(test_output_max_is_dropped_and_counted),
		cmocka_unit_test(test_output_rate_is_held),
		cmocka_unit_test(test_output_rate_of_a_session_is_shared),
		cmocka_unit_test(test_jobs_beyond_the_limit_are_busy),
		cmocka_unit_test(test_commands_that_run_are_announced_again),
		cmocka_unit_test(test_second_connection_is_refused),
		cmocka_unit_test(test_malformed_frames_drop_the_connection),
		cmocka_unit_test(test_ping_tells_what_is_held),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
