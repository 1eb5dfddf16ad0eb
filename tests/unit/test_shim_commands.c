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
	return rig_begin(&rig, -1);
}

static int teardown(void **state)
{
	(void)state;
	return rig_end(&rig);
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

	(void)state;
	rig_require();
	for (uint32_t i = 1; i <= 20; i++) {
		rig_exec(&rig, i, &(struct rig_command){.argv = argv});
		rig_wait(&rig, i, &result);
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

/* What a command can see of itself: ids, capabilities, filter, descriptors, session. */
static void test_exec_command_is_confined(void **state)
{
	struct rig_result result;
	const char *text;

	(void)state;
	rig_require();
	run("cat /proc/self/status; ls /proc/self/fd; id; env; umask; ulimit -n; ulimit -c; ps -o "
	    "pid,sid -p $$ | tail -1; ls /proc | head -3",
	    &result);
	assert_int_equal(result.exit.code, 0);
	text = (const char *)result.out;
	assert_non_null(strstr(text, "CapInh:\t0000000000000000\nCapPrm:\t0000000000000000\n"
				     "CapEff:\t0000000000000000\nCapBnd:\t0000000000000000\n"
				     "CapAmb:\t0000000000000000\nNoNewPrivs:\t1\nSeccomp:\t2\n"
				     "Seccomp_filters:\t1\n"));
	assert_non_null(strstr(text, "Uid:\t1000\t1000\t1000\t1000\nGid:\t1000\t1000\t1000\t1000"));
	assert_non_null(strstr(text, "Groups:\t \n"));
	assert_non_null(strstr(text, "SigBlk:\t0000000000000000\n"));
	assert_non_null(strstr(text, "SigIgn:\t0000000000000000\n"));
	assert_non_null(strstr(text, "\n0\n1\n2\n3\nuid=1000 gid=1000 groups=1000\n"));
	assert_non_null(strstr(text, "\n0022\n1024\n0\n"));
	assert_null(strstr(text, "HOME="));
	rig_result_done(&result);
}

static void test_exec_cannot_reach_the_shim(void **state)
{
	struct rig_result result;

	(void)state;
	rig_require();
	run("for p in 1 2 3; do kill -9 $p; kill -19 $p; cat /proc/$p/environ; done; kill -9 -1 ; "
	    "true",
	    &result);
	rig_result_done(&result);
	run("true", &result);
	assert_int_equal(result.last, WIRE_EXIT);
	assert_int_equal(result.exit.code, 0);
	rig_result_done(&result);
}

static void test_exec_stdin_is_delivered(void **state)
{
	static uint8_t data[100000];
	const char *const argv[] = {"cat", NULL};
	struct rig_result result;

	(void)state;
	rig_require();
	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)(i * 7 + i / 251);
	rig_exec(&rig, 3, &(struct rig_command){.argv = argv, .flags = WIRE_EXEC_STDIN});
	rig_send(&rig, WIRE_STDIN, 3, data, 50000);
	rig_send(&rig, WIRE_STDIN, 3, data + 50000, 50000);
	rig_send(&rig, WIRE_STDIN_EOF, 3, NULL, 0);
	rig_wait(&rig, 3, &result);
	assert_int_equal(result.exit.code, 0);
	assert_int_equal(result.out_bytes, sizeof(data));
	assert_memory_equal(result.out, data, sizeof(data));
	rig_result_done(&result);
	run("cat; echo end", &result); /* /dev/null */
	assert_int_equal(result.out_bytes, 4);
	rig_result_done(&result);
}

/* As scripts do; reading an output back is refused. */
static void test_exec_opens_its_own_streams_by_name(void **state)
{
	const char *const argv[] = {"sh", "-c",
				    "cat /proc/self/fd/0 && echo o >/proc/self/fd/1 &&"
				    " echo e >/proc/self/fd/2 && ! cat </proc/self/fd/1",
				    NULL};
	struct rig_result result;

	(void)state;
	rig_require();
	rig_exec(&rig, 5, &(struct rig_command){.argv = argv, .flags = WIRE_EXEC_STDIN});
	rig_send(&rig, WIRE_STDIN, 5, "i\n", 2);
	rig_send(&rig, WIRE_STDIN_EOF, 5, NULL, 0);
	rig_wait(&rig, 5, &result);
	assert_int_equal(result.exit.code, 0);
	assert_true(result.out_bytes > 6);
	rig_result_done(&result);
}

static void test_exec_stdin_overflow_fails_the_job(void **state)
{
	static const uint8_t data[60000];
	const char *const argv[] = {"sleep", "30", NULL};
	struct rig_result result;

	(void)state;
	rig_require();
	rig_exec(&rig, 3, &(struct rig_command){.argv = argv, .flags = WIRE_EXEC_STDIN});
	for (int i = 0; i < 20; i++)
		rig_send(&rig, WIRE_STDIN, 3, data, sizeof(data));
	rig_wait(&rig, 3, &result);
	assert_int_equal(result.last, WIRE_FAILED);
	assert_int_equal(result.failed.step, WIRE_STEP_REQUEST);
	assert_int_equal(result.failed.error_number, ENOBUFS);
	rig_result_done(&result);
	/* A reader that leaves is no error. */
	rig_exec(&rig, 4,
		 &(struct rig_command){
			 .argv = (const char *const[]){"true", NULL},
                             .flags = WIRE_EXEC_STDIN
        });
	for (int i = 0; i < 3; i++)
		rig_send(&rig, WIRE_STDIN, 4, data, sizeof(data));
	rig_wait(&rig, 4, &result);
	assert_int_equal(result.last, WIRE_EXIT);
	rig_result_done(&result);
}

static void expect_failed(const struct rig_command *command, uint32_t step, int error_number)
{
	struct rig_result result;

	rig_exec(&rig, 9, command);
	rig_wait(&rig, 9, &result);
	assert_int_equal(result.last, WIRE_FAILED);
	assert_int_equal(result.failed.step, step);
	assert_int_equal(result.failed.error_number, error_number);
	assert_int_equal(result.pid, 0);
	rig_result_done(&result);
}

static void test_exec_failures_name_step_and_errno(void **state)
{
	static const char *const path[] = {"A=b", "PATH=/session/bin:/usr/bin:/bin", NULL};
	struct rig_result result;

	(void)state;
	rig_require();
	expect_failed(
		&(struct rig_command){
			.argv = (const char *const[]){"no-such-thing", NULL}
        },
		WIRE_STEP_EXEC, ENOENT);
	expect_failed(
		&(struct rig_command){
			.argv = (const char *const[]){"/no/such", NULL}
        },
		WIRE_STEP_EXEC, ENOENT);
	expect_failed(
		&(struct rig_command){
			.argv = (const char *const[]){"/usr/bin", NULL}
        },
		WIRE_STEP_EXEC, EACCES);
	expect_failed(
		&(struct rig_command){
			.argv = (const char *const[]){"", NULL}
        },
		WIRE_STEP_EXEC, ENOENT);
	expect_failed(
		&(struct rig_command){
			.argv = (const char *const[]){"true", NULL},
                            .cwd = "/session/none"
        },
		WIRE_STEP_CWD, ENOENT);
	expect_failed(
		&(struct rig_command){
			.argv = (const char *const[]){"true", NULL},
                            .cwd = "/proc/1/root"
        },
		WIRE_STEP_CWD, ENOENT);
	run("mkdir bin; echo 'echo hi' > bin/tool; chmod 644 bin/tool; echo x > bin/text; chmod 755 "
	    "bin/text",
	    &result);
	rig_result_done(&result);
	/* Found, but may not be run. */
	expect_failed(
		&(struct rig_command){
			.argv = (const char *const[]){"tool", NULL},
                            .env = path
        },
		WIRE_STEP_EXEC, EACCES);
	expect_failed(
		&(struct rig_command){
			.argv = (const char *const[]){"text", NULL},
                            .env = path
        },
		WIRE_STEP_EXEC, ENOEXEC);
}

static void test_timeout_ends_double_forked_tree(void **state)
{
	const char *const argv[] = {
		"sh", "-c",
		"trap '' TERM; (setsid sh -c 'trap \"\" TERM; (setsid sleep 77 &) ; sleep 78' &); "
		"sleep 79 & while :; do sleep 0.1; done",
		NULL};
	const char *const other[] = {"sleep", "2", NULL};
	struct rig_result result;
	struct rig second;

	(void)state;
	(void)second;
	rig_require();
	rig_exec(&rig, 11,
		 &(struct rig_command){.argv = argv, .timeout_ms = 3000, .grace_ms = 200});
	rig_wait(&rig, 11, &result);
	assert_int_equal(result.last, WIRE_EXIT);
	assert_int_equal(result.exit.signal, SIGKILL);
	assert_int_equal(result.exit.flags, WIRE_EXIT_TIMED_OUT);
	rig_result_done(&result);
	run("ps -e -o args | grep -c '[s]leep 7[789]'; true", &result);
	assert_string_equal((const char *)result.out, "0\n");
	rig_result_done(&result);
	(void)other;
}

/* One bomb of the usual kind, one that leaves its group at every fork; beside them a command that
 * must not notice. */
static void test_cancel_ends_fork_bomb_and_nothing_else(void **state)
{
	static const char *const bombs[] = {
		"b() { b | b & }; ulimit -u 300; b; sleep 60",
		"cat > bomb.py <<'EOF'\nimport os\nwhile True:\n try:\n  if os.fork() == 0: "
		"os.setsid()\n except OSError: pass\nEOF\nulimit -u 300; exec python3 bomb.py",
	};
	const char *const sleeper[] = {"sleep", "60", NULL};
	struct wire_header header;
	const uint8_t *payload = NULL;

	(void)state;
	rig_require();
	for (size_t i = 0; i < ARRAY_SIZE(bombs); i++) {
		const char *const argv[] = {"bash", "-c", bombs[i], NULL};
		struct wire_exit exit;
		struct rig_result result;
		usec_t begin;
		int n;

		rig_exec(&rig, 20, &(struct rig_command){.argv = sleeper});
		do
			n = rig_next(&rig, 60000, &header, &payload);
		while (n >= 0 && header.type != WIRE_STARTED);
		rig_exec(&rig, 21,
			 &(struct rig_command){.argv = argv, .grace_ms = 100, .max = 1000});
		do
			n = rig_next(&rig, 1000, &header, &payload);
		while (n >= 0);
		assert_int_equal(n, -1);
		begin = clock_boottime();
		rig_send(&rig, WIRE_CANCEL, 21, NULL, 0);
		do
			n = rig_next(&rig, 60000, &header, &payload);
		while (n >= 0 && header.type != WIRE_EXIT);
		assert_true(n >= 0);
		print_message("bomb %zu ended in %u ms\n", i,
			      (unsigned)((clock_boottime() - begin) / 1000));
		assert_int_equal(header.job, 21);
		memcpy(&exit, payload, sizeof(exit));
		assert_true(exit.flags & WIRE_EXIT_CANCELLED);
		run("ps -e -o args | grep -c '[s]leep 60$'; ps -e | wc -l", &result);
		print_message("%s", (const char *)result.out);
		assert_memory_equal(result.out, "1\n", 2);
		rig_result_done(&result);
		rig_send(&rig, WIRE_CANCEL, 20, NULL, 0);
		rig_wait(&rig, 20, &result);
		assert_int_equal(result.exit.flags, WIRE_EXIT_CANCELLED);
		rig_result_done(&result);
	}
}

static void test_background_child_lives_and_pipe_is_given_up(void **state)
{
	struct rig_result result;
	usec_t begin = clock_boottime();

	(void)state;
	rig_require();
	run("sleep 61 & echo started", &result);
	assert_int_equal(result.exit.code, 0);
	assert_string_equal((const char *)result.out, "started\n");
	assert_true(clock_boottime() - begin < 30 * USEC_PER_SEC);
	rig_result_done(&result);
	run("pgrep -c -f '[s]leep 61'; pkill -f '[s]leep 61'", &result);
	assert_string_equal((const char *)result.out, "1\n");
	rig_result_done(&result);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_exec_true_exits_zero),
		cmocka_unit_test(test_exec_echo_streams_output_and_status),
		cmocka_unit_test(test_exec_command_is_confined),
		cmocka_unit_test(test_exec_cannot_reach_the_shim),
		cmocka_unit_test(test_exec_stdin_is_delivered),
		cmocka_unit_test(test_exec_opens_its_own_streams_by_name),
		cmocka_unit_test(test_exec_stdin_overflow_fails_the_job),
		cmocka_unit_test(test_exec_failures_name_step_and_errno),
		cmocka_unit_test(test_timeout_ends_double_forked_tree),
		cmocka_unit_test(test_cancel_ends_fork_bomb_and_nothing_else),
		cmocka_unit_test(test_background_child_lives_and_pipe_is_given_up),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
