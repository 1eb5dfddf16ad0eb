/*
 * Commands through a real shim.
 */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

#include "tests/lib/test.h"
#include "tests/unit/shim_rig.h"

static struct rig rig;

static int setup(void **state)
{
	(void)state;
	if (geteuid() != 0)
		return 0;
	rig_start(&rig);
	(void)rig_connect(&rig);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	if (geteuid() == 0)
		rig_stop(&rig);
	return 0;
}

static void run(const char *script, struct rig_result *result)
{
	rig_shell(&rig, 7, script);
	rig_wait(&rig, 7, result);
}

static void test_exec_true_exits_zero(void **state)
{
	const char *const argv[] = {"true", NULL};
	struct rig_result result;
	usec_t begin;

	(void)state;
	rig_require();
	for (uint32_t i = 1; i <= 20; i++) {
		begin = clock_boottime();
		rig_exec(&rig, i, &(struct rig_command){.argv = argv});
		rig_wait(&rig, i, &result);
		print_message("true: %u us\n", (unsigned)(clock_boottime() - begin));
		assert_int_equal(result.last, WIRE_EXIT);
		assert_int_equal(result.exit.code, 0);
		assert_true(result.pid > 1);
		assert_int_equal(result.out_bytes, 0);
		rig_result_done(&result);
	}
}

static void test_exec_echo_streams_output_and_status(void **state)
{
	struct rig_result result;

	(void)state;
	rig_require();
	run("echo out; echo err >&2; exit 3", &result);
	assert_int_equal(result.exit.code, 3);
	assert_int_equal(result.out_bytes, 8);
	rig_result_done(&result);
	run("kill -9 $$", &result);
	assert_int_equal(result.exit.code, -1);
	assert_int_equal(result.exit.signal, SIGKILL);
	rig_result_done(&result);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_exec_true_exits_zero),
		cmocka_unit_test(test_exec_echo_streams_output_and_status),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
