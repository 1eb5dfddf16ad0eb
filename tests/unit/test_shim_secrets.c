/*
 * A real shim with secrets: in the environment of commands, in no byte that leaves the session.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/fd.h"
#include "base/io.h"
#include "base/secret.h"
#include "base/str.h"

#include "tests/lib/test.h"
#include "tests/unit/shim_rig.h"

#define PASSWORD "correct-horse-battery"

static struct rig rig;

static void add_record(struct buf *stream, const char *name, const char *variable,
		       const char *value, uint32_t flags)
{
	const struct secret_record record = {
		.name_bytes = (uint16_t)strlen(name),
		.variable_bytes = (uint16_t)strlen(variable),
		.value_bytes = (uint32_t)strlen(value),
		.flags = flags,
	};

	assert_int_equal(buf_append(stream, &record, sizeof(record)), 0);
	assert_int_equal(buf_append(stream, name, strlen(name)), 0);
	assert_int_equal(buf_append(stream, variable, strlen(variable)), 0);
	assert_int_equal(buf_append(stream, value, strlen(value)), 0);
}

/* A pipe that holds them. */
static int records(void)
{
	struct buf stream = BUF_NULL(65536);
	struct secret_stream head = {.magic = SECRET_MAGIC, .version = SECRET_VERSION, .n = 4};
	int fds[2];

	add_record(&stream, "db", "DB_PASSWORD", PASSWORD, SECRET_RECORD_ENCODINGS);
	add_record(&stream, "path", "PATHS", "/not/a/path", 0);
	add_record(&stream, "key", "KEY", "-----BEGIN-----\nMIIEvQIBADAN\n+x\r\nlast-line-of-it\n",
		   0);
	add_record(&stream, "given", "GIVEN", "from-the-store", 0);
	head.bytes = (uint32_t)stream.size;
	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	assert_int_equal(io_write_all(fds[1], &head, sizeof(head)), 0);
	assert_int_equal(io_write_all(fds[1], stream.data, stream.size), 0);
	buf_done(&stream);
	(void)fd_close(fds[1]);
	return fds[0];
}

static int setup(void **state)
{
	AUTO_CLOSE int fd = records();

	(void)state;
	return rig_begin(&rig, fd);
}

static int teardown(void **state)
{
	(void)state;
	return rig_end(&rig);
}

static void expect_output(uint32_t job, const char *script, const char *want)
{
	static const char *const env[] = {"PATH=/usr/bin:/bin", "GIVEN=by-the-caller", NULL};
	const char *const argv[] = {"sh", "-c", script, NULL};
	struct rig_result result;

	rig_exec(&rig, job, &(struct rig_command){.argv = argv, .env = env});
	rig_wait(&rig, job, &result);
	assert_int_equal(result.last, WIRE_EXIT);
	assert_string_equal((const char *)result.out, want);
	rig_result_done(&result);
}

static void test_secret_is_in_the_environment_and_masked(void **state)
{
	(void)state;
	rig_require();
	expect_output(1, "test \"$DB_PASSWORD\" = " PASSWORD " && echo \"it is $DB_PASSWORD.\"",
		      "it is ***db***.\n");
	expect_output(2, "echo $PATHS >&2", "***path***\n");
}

static void test_secret_in_two_writes_is_masked(void **state)
{
	(void)state;
	rig_require();
	expect_output(3, "printf 'correct-horse'; sleep 0.2; echo '-battery staple'",
		      "***db*** staple\n");
	expect_output(4, "printf 'correct-horse'; sleep 0.2; echo '-bat'", "correct-horse-bat\n");
}

static void test_what_is_held_back_comes_at_the_end(void **state)
{
	(void)state;
	rig_require();
	expect_output(5, "printf correct-horse", "correct-horse");
	/* A descendant holds the pipe: given up a moment after the leader's end. */
	expect_output(6, "sleep 5 & printf correct-horse", "correct-horse");
}

static void test_encoded_secret_is_masked_where_asked(void **state)
{
	(void)state;
	rig_require();
	expect_output(7, "printf %s $DB_PASSWORD | base64", "***db***\n");
	expect_output(8, "printf %s $DB_PASSWORD | od -An -v -tx1 | tr -d ' \\n'", "***db***");
	expect_output(9, "printf %s $PATHS | base64", "L25vdC9hL3BhdGg=\n");
}

static void test_lines_of_a_secret_are_masked(void **state)
{
	(void)state;
	rig_require();
	expect_output(14, "printf %s \"$KEY\" | sed 's/^/> /'",
		      "> ***key***\n> ***key***\n> +x\r\n> ***key***\n");
	expect_output(15, "printf %s \"$KEY\"", "***key***");
	expect_output(16, "echo '  MIIEvQIBADAN,'", "  ***key***,\n");
}

static void test_variable_of_the_command_wins(void **state)
{
	(void)state;
	rig_require();
	expect_output(10, "echo $GIVEN", "by-the-caller\n");
}

static void test_large_output_arrives_whole(void **state)
{
	struct rig_result result;
	size_t n = 0;

	(void)state;
	rig_require();
	rig_shell(&rig, 11, "yes \"a $DB_PASSWORD b\" | head -n 200000");
	rig_wait(&rig, 11, &result);
	assert_int_equal(result.out_bytes, 200000 * strlen("a ***db*** b\n"));
	for (size_t at = 0; at < result.out_bytes; at += strlen("a ***db*** b\n"), n++)
		assert_memory_equal(result.out + at, "a ***db*** b\n", strlen("a ***db*** b\n"));
	rig_result_done(&result);
}

/* Masked bytes that wait for room come when there is room, and the end waits for them. */
static void test_ring_full_loses_nothing(void **state)
{
	static const char line[] = "a ***db*** b\n";
	const size_t want = 200000 * strlen(line);
	struct wire_header header;
	const uint8_t *payload = NULL;
	size_t total = 0;
	int n;

	(void)state;
	rig_require();
	rig.hold = true;
	rig_shell(&rig, 13, "yes \"a $DB_PASSWORD b\" | head -n 200000");
	do {
		/* Only what the ring holds comes without an acknowledgement. */
		for (n = rig_next(&rig, 300, &header, &payload); n >= 0 && header.type != WIRE_EXIT;
		     n = rig_next(&rig, 300, &header, &payload)) {
			if (header.type != WIRE_STDOUT)
				continue;
			for (int i = 0; i < n; i++)
				assert_int_equal(payload[i],
						 line[(total + (size_t)i) % strlen(line)]);
			total += (size_t)n;
		}
		rig_ack(&rig, rig.expect - 1);
	} while (n < 0);
	assert_int_equal(total, want);
	rig.hold = false;
}

static void test_cut_output_shows_no_beginning(void **state)
{
	const char *const argv[] = {"sh", "-c", "echo aa$DB_PASSWORD; echo more", NULL};
	struct rig_result result;

	(void)state;
	rig_require();
	rig_exec(&rig, 12, &(struct rig_command){.argv = argv, .max = 12});
	rig_wait(&rig, 12, &result);
	assert_string_equal((const char *)result.out, "aa***db***");
	assert_int_equal(result.exit.flags & WIRE_EXIT_TRUNCATED, WIRE_EXIT_TRUNCATED);
	rig_result_done(&result);
}

/* A command that is killed may have come as far as the middle of a value. */
static void test_killed_command_shows_no_beginning(void **state)
{
	const char *const argv[] = {"sh", "-c", "printf 'aa correct-hors'; sleep 20", NULL};
	struct rig_result result;

	(void)state;
	rig_require();
	expect_output(17, "printf 'aa correct-hors'; kill -9 $$", "aa ***db***");
	expect_output(18, "printf 'aa correct-hors' >&2; exec >&- 2>&-; sleep 0.2; kill -9 $$",
		      "aa ***db***");
	expect_output(19,
		      "exec 2>/dev/null; sh -c 'printf \"aa correct-hors\"; kill -9 $$'; exit $?",
		      "aa ***db***");
	rig_exec(&rig, 20, &(struct rig_command){.argv = argv, .timeout_ms = 3000});
	rig_wait(&rig, 20, &result);
	assert_string_equal((const char *)result.out, "aa ***db***");
	rig_result_done(&result);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_secret_is_in_the_environment_and_masked),
		cmocka_unit_test(test_secret_in_two_writes_is_masked),
		cmocka_unit_test(test_what_is_held_back_comes_at_the_end),
		cmocka_unit_test(test_encoded_secret_is_masked_where_asked),
		cmocka_unit_test(test_lines_of_a_secret_are_masked),
		cmocka_unit_test(test_variable_of_the_command_wins),
		cmocka_unit_test(test_large_output_arrives_whole),
		cmocka_unit_test(test_ring_full_loses_nothing),
		cmocka_unit_test(test_cut_output_shows_no_beginning),
		cmocka_unit_test(test_killed_command_shows_no_beginning),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
