#include <errno.h>
#include <string.h>

#include "base/frame.h"

#include "tests/lib/test.h"

#define MAX WIRE_PAYLOAD_MAX_BYTES

/* What wire.h says, written a second time on purpose: a change of the table must be meant. */
static const struct expected {
	uint16_t type;
	const char *name;
	bool to_shim;
	bool from_shim;
	bool is_durable;
	bool has_job;
	size_t min;
	size_t max;
} expected[] = {
	{WIRE_HELLO,       "hello",       true,  true,  false, false, 32, 32       },
	{WIRE_EXEC,        "exec",        true,  false, false, true,  49, MAX      },
	{WIRE_STDIN,       "stdin",       true,  false, false, true,  1,  MAX      },
	{WIRE_STDIN_EOF,   "stdin_eof",   true,  false, false, true,  0,  0        },
	{WIRE_CANCEL,      "cancel",      true,  false, false, true,  0,  0        },
	{WIRE_CREDIT,      "credit",      true,  false, false, false, 8,  8        },
	{WIRE_PUT,         "put",         true,  false, false, true,  18, 16 + 4096},
	{WIRE_PUT_DATA,    "put_data",    true,  false, false, true,  1,  MAX      },
	{WIRE_PUT_END,     "put_end",     true,  false, false, true,  0,  0        },
	{WIRE_PING,        "ping",        true,  false, false, false, 0,  0        },
	{WIRE_SIGNAL,      "signal",      true,  false, false, true,  8,  8        },
	{WIRE_RESIZE,      "resize",      true,  false, false, true,  4,  4        },
	{WIRE_FORGET,      "forget",      true,  false, false, true,  0,  0        },
	{WIRE_PAUSE,       "pause",       true,  false, false, false, 8,  8        },
	{WIRE_FILE,        "file",        true,  false, false, true,  34, 32 + 8192},
	{WIRE_FILE_CREDIT, "file_credit", true,  false, false, true,  8,  8        },
	{WIRE_STARTED,     "started",     false, true,  false, true,  4,  4        },
	{WIRE_STDOUT,      "stdout",      false, true,  true,  true,  1,  MAX      },
	{WIRE_STDERR,      "stderr",      false, true,  true,  true,  1,  MAX      },
	{WIRE_EXIT,        "exit",        false, true,  true,  true,  48, 48       },
	{WIRE_FAILED,      "failed",      false, true,  true,  true,  8,  8        },
	{WIRE_PUT_DONE,    "put_done",    false, true,  true,  true,  0,  0        },
	{WIRE_STATS,       "stats",       false, true,  false, false, 24, 24       },
	{WIRE_DENIED,      "denied",      false, true,  false, false, 16, 16       },
	{WIRE_TAKEN,       "taken",       false, true,  false, true,  16, 16       },
	{WIRE_KEPT,        "kept",        false, true,  false, true,  32, 32 + 512 },
	{WIRE_FILE_DATA,   "file_data",   false, true,  false, true,  1,  MAX      },
};

/* NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables): too large for a stack */
static uint8_t message[WIRE_FRAME_MAX_BYTES + 1];

static int check(const struct wire_header *header, size_t size, enum frame_direction direction)
{
	struct wire_header got;
	const uint8_t *payload = NULL;
	size_t payload_bytes = 0;
	int r;

	memcpy(message, header, sizeof(*header));
	r = frame_check(message, size, direction, &got, &payload, &payload_bytes);
	if (r == 0) {
		assert_memory_equal(&got, header, sizeof(got));
		assert_ptr_equal(payload, message + sizeof(got));
		assert_int_equal(payload_bytes, size - sizeof(got));
	}
	return r;
}

static struct wire_header good_header(const struct expected *e, size_t payload_bytes)
{
	return frame_header(e->type, e->has_job ? 5 : 0, e->is_durable ? 9 : 0, payload_bytes);
}

static void test_frame_check_every_type_good(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(expected); i++) {
		const struct expected *e = &expected[i];

		for (int end = 0; end < 2; end++) {
			size_t payload_bytes = end ? e->max : e->min;
			struct wire_header header = good_header(e, payload_bytes);
			size_t size = sizeof(header) + payload_bytes;

			assert_int_equal(check(&header, size, FRAME_TO_SHIM),
					 e->to_shim ? 0 : -EBADMSG);
			assert_int_equal(check(&header, size, FRAME_FROM_SHIM),
					 e->from_shim ? 0 : -EBADMSG);
		}
		assert_string_equal(frame_type_name(e->type), e->name);
		assert_int_equal(frame_is_durable(e->type), e->is_durable);
	}
}

static void test_frame_check_every_type_wrong_field(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(expected); i++) {
		const struct expected *e = &expected[i];
		enum frame_direction direction = e->to_shim ? FRAME_TO_SHIM : FRAME_FROM_SHIM;
		struct wire_header good = good_header(e, e->min);
		size_t size = sizeof(good) + e->min;
		struct wire_header header;

		header = good;
		header.job = e->has_job ? 0 : 5;
		assert_int_equal(check(&header, size, direction), -EBADMSG);
		header = good;
		header.number = e->is_durable ? 0 : 9;
		assert_int_equal(check(&header, size, direction), -EBADMSG);
		header = good;
		header.flags = WIRE_AGAIN; /* of what has a number */
		assert_int_equal(check(&header, size, direction), e->is_durable ? 0 : -EBADMSG);
		header.flags = 2;
		assert_int_equal(check(&header, size, direction), -EBADMSG);
		header = good;
		header.zero = 1;
		assert_int_equal(check(&header, size, direction), -EBADMSG);
		header = good;
		header.length++;
		assert_int_equal(check(&header, size, direction), -EBADMSG);
		assert_int_equal(check(&good, size + 1, direction), -EBADMSG);
		if (e->min > 0) {
			header = good;
			header.length--;
			assert_int_equal(check(&header, size - 1, direction), -EBADMSG);
		}
		if (e->max < MAX) {
			header = good_header(e, e->max + 1);
			assert_int_equal(check(&header, sizeof(header) + e->max + 1, direction),
					 -EBADMSG);
		}
	}
}

static void test_frame_check_unknown_types_are_refused(void **state)
{
	size_t n_known = 0;

	(void)state;
	for (unsigned int type = 0; type <= UINT16_MAX; type++) {
		struct wire_header header = frame_header((uint16_t)type, 0, 0, 0);

		if (frame_type_name((uint16_t)type)[0] != '?') {
			n_known++;
			continue;
		}
		assert_int_equal(check(&header, sizeof(header), FRAME_TO_SHIM), -EBADMSG);
		assert_int_equal(check(&header, sizeof(header), FRAME_FROM_SHIM), -EBADMSG);
		assert_false(frame_is_durable((uint16_t)type));
	}
	assert_int_equal(n_known, ARRAY_SIZE(expected));
}

static void test_frame_check_size_bounds(void **state)
{
	struct wire_header header = frame_header(WIRE_STDIN, 1, 0, MAX);

	(void)state;
	for (size_t size = 0; size < sizeof(header); size++)
		assert_int_equal(check(&header, size, FRAME_TO_SHIM), -EBADMSG);
	header.length = WIRE_FRAME_MAX_BYTES + 1;
	assert_int_equal(check(&header, WIRE_FRAME_MAX_BYTES + 1, FRAME_TO_SHIM), -EBADMSG);
}

static void test_frame_hello_check_each_field(void **state)
{
	static const uint8_t session[ID_BYTES] = {1, 2, 3};
	static const uint8_t other[ID_BYTES] = {1, 2, 4};
	struct wire_hello hello = frame_hello(session, 42);

	(void)state;
	assert_int_equal(frame_hello_check(&hello, session), 0);
	assert_true(hello.acked == 42);
	assert_int_equal(frame_hello_check(&hello, other), -EPROTO);
	hello.version++;
	assert_int_equal(frame_hello_check(&hello, session), -EPROTONOSUPPORT);
	hello.magic++;
	assert_int_equal(frame_hello_check(&hello, session), -EPROTO);
	hello = frame_hello(session, 42);
	hello.header_bytes++;
	assert_int_equal(frame_hello_check(&hello, session), -EPROTO);
}

static void test_frame_step_name_every_step(void **state)
{
	(void)state;
	assert_string_equal(frame_step_name(0), "?");
	for (uint32_t i = 1; i < WIRE_STEP_MAX_; i++)
		assert_true(frame_step_name(i)[0] != '?');
	assert_string_equal(frame_step_name(WIRE_STEP_EXEC), "exec");
	assert_string_equal(frame_step_name(WIRE_STEP_MAX_), "?");
	assert_string_equal(frame_step_name(UINT32_MAX), "?");
}

static const char *const argv[] = {"sh", "-c", "echo hi", NULL};
static const char *const env[] = {"PATH=/usr/bin:/bin", "EMPTY=", NULL};

static size_t build(uint8_t *dest, size_t dest_bytes)
{
	struct wire_exec head = {
		.flags = WIRE_EXEC_STDIN,
		.program = WIRE_PROGRAM_ARGV,
		.timeout_ms = 1000,
		.grace_ms = 200,
		.output_rate_bytes = 10 << 20,
		.output_max_bytes = 64 << 20,
	};
	size_t size = 0;

	assert_int_equal(
		frame_exec_build(dest, dest_bytes, &head, "/session", argv, env, NULL, &size), 0);
	return size;
}

static void test_frame_exec_round_trip(void **state)
{
	static struct frame_exec exec;
	uint8_t payload[256];
	size_t size = build(payload, sizeof(payload));

	(void)state;
	assert_int_equal(frame_exec_parse(payload, size, &exec), 0);
	assert_int_equal(exec.head.timeout_ms, 1000);
	assert_int_equal(exec.head.n_argv, 3);
	assert_string_equal(exec.cwd, "/session");
	assert_string_equal(exec.argv[2], "echo hi");
	assert_null(exec.argv[3]);
	assert_string_equal(exec.env[1], "EMPTY=");
	assert_null(exec.env[2]);
}

static void test_frame_bytes_are_golden(void **state)
{
	static const uint8_t session[ID_BYTES] = {0xa0, 0xa1, 0xa2, 0xa3, 0xa4, 0xa5, 0x46, 0xa7,
						  0x88, 0xa9, 0xaa, 0xab, 0xac, 0xad, 0xae, 0xaf};
	struct wire_header header = frame_header(WIRE_STDOUT, 7, 0x0102030405060708ull, 5);
	struct wire_hello hello = frame_hello(session, 0x1122334455667788ull);
	struct wire_exit end = {.code = -1,
				.signal = 9,
				.flags = WIRE_EXIT_TIMED_OUT | WIRE_EXIT_TRUNCATED,
				.user_us = 1,
				.system_us = 2,
				.max_rss_kib = 3,
				.dropped_bytes = 4};
	uint8_t payload[256];
	size_t size = build(payload, sizeof(payload));

	(void)state;
	test_golden("frame-header", &header, sizeof(header));
	test_golden("frame-hello", &hello, sizeof(hello));
	test_golden("frame-exit", &end, sizeof(end));
	test_golden("frame-exec", payload, size);
}

/* Every cut of a good payload, and every single byte turned over, is refused or stays in bounds. */
static void test_frame_exec_parse_damaged_stays_in_bounds(void **state)
{
	static struct frame_exec exec;
	uint8_t payload[256];
	size_t size = build(payload, sizeof(payload));

	(void)state;
	for (size_t n = 0; n < size; n++) {
		uint8_t *exact = malloc(n ? n : 1); /* so that a sanitizer sees an over-read */

		memcpy(exact, payload, n);
		assert_int_equal(frame_exec_parse(exact, n, &exec), -EBADMSG);
		free(exact);
	}
	for (size_t i = 0; i < size * 8; i++) {
		payload[i / 8] ^= (uint8_t)(1u << (i % 8));
		if (frame_exec_parse(payload, size, &exec) == 0)
			assert_int_equal(exec.head.strings_bytes, size - sizeof(exec.head));
		payload[i / 8] ^= (uint8_t)(1u << (i % 8));
	}
}

static void expect_bad_exec(const struct wire_exec *head, const char *strings, size_t n)
{
	static struct frame_exec exec;
	uint8_t payload[256];

	memcpy(payload, head, sizeof(*head));
	memcpy(payload + sizeof(*head), strings, n);
	assert_int_equal(frame_exec_parse(payload, sizeof(*head) + n, &exec), -EBADMSG);
}

static void test_frame_exec_parse_bad_heads_are_refused(void **state)
{
	static const char strings[] = "/\0a\0X=1"; /* and the literal's own NUL */
	const size_t n = sizeof(strings);
	const struct wire_exec good = {.n_argv = 1, .n_env = 1, .strings_bytes = (uint32_t)n};
	static struct frame_exec exec;
	uint8_t payload[256];
	struct wire_exec head;

	(void)state;
	memcpy(payload, &good, sizeof(good));
	memcpy(payload + sizeof(good), strings, n);
	assert_int_equal(frame_exec_parse(payload, sizeof(good) + n, &exec), 0);
	head = good;
	head.flags = WIRE_EXEC_ROOT | WIRE_EXEC_STDIN;
	memcpy(payload, &head, sizeof(head));
	assert_int_equal(frame_exec_parse(payload, sizeof(head) + n, &exec), 0);
	head = good;
	head.flags = WIRE_EXEC_PTY; /* of no size */
	expect_bad_exec(&head, strings, n);
	head = good;
	head.size = (struct wire_size){24, 80}; /* without a terminal */
	expect_bad_exec(&head, strings, n);
	head = good;
	head.note_bytes = 1; /* more than there is */
	expect_bad_exec(&head, strings, n);
	head = good;
	head.flags = 16;
	expect_bad_exec(&head, strings, n);
	head = good;
	head.flags = WIRE_EXEC_ROOT;
	head.program = WIRE_PROGRAM_LOADER;
	expect_bad_exec(&head, strings, n);
	head = good;
	head.zero = 1;
	expect_bad_exec(&head, strings, n);
	head = good;
	head.program = WIRE_PROGRAM_MAX_;
	expect_bad_exec(&head, strings, n);
	head = good;
	head.n_argv = 0;
	expect_bad_exec(&head, strings, n);
	head = good;
	head.n_argv = 2; /* one string short, and the env entry is argv */
	expect_bad_exec(&head, strings, n);
	head = good;
	head.n_env = 0; /* one string too many */
	expect_bad_exec(&head, strings, n);
	head = good;
	head.n_argv = EXEC_MAX_ARGV + 1;
	expect_bad_exec(&head, strings, n);
	head = good;
	head.n_env = EXEC_MAX_ENV + 1;
	expect_bad_exec(&head, strings, n);
	head = good;
	head.strings_bytes++;
	expect_bad_exec(&head, strings, n);
	expect_bad_exec(&good, "/\0a\0X11", n);  /* no = */
	expect_bad_exec(&good, "/\0a\0=11", n);  /* no name */
	expect_bad_exec(&good, "\0/a\0X=1", n);  /* empty cwd */
	expect_bad_exec(&good, "/\0a\0X=1x", n); /* last one without NUL */
}

static void test_frame_exec_build_too_large_is_e2big(void **state)
{
	static const char *many[EXEC_MAX_ARGV + 2];
	static uint8_t dest[WIRE_PAYLOAD_MAX_BYTES];
	static char cwd[EXEC_CWD_BYTES + 1];
	static char large[WIRE_PAYLOAD_MAX_BYTES];
	const char *one[] = {large, NULL};
	struct wire_exec head = {0};
	size_t size = 7;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(many) - 1; i++)
		many[i] = "a";
	memset(cwd, 'c', sizeof(cwd) - 1);
	memset(large, 'l', sizeof(large) - 1);
	assert_int_equal(frame_exec_build(dest, sizeof(dest), &head, "/", many, env, NULL, &size),
			 -E2BIG);
	assert_int_equal(frame_exec_build(dest, sizeof(dest), &head, cwd, argv, env, NULL, &size),
			 -E2BIG);
	assert_int_equal(frame_exec_build(dest, sizeof(dest), &head, "/", one, env, NULL, &size),
			 -E2BIG);
	assert_int_equal(frame_exec_build(dest, 10, &head, "/", argv, env, NULL, &size), -E2BIG);
	assert_int_equal(frame_exec_build(dest, 60, &head, "/", argv, env, NULL, &size), -E2BIG);
	assert_int_equal(size, 7);
	many[EXEC_MAX_ARGV] = NULL;
	assert_int_equal(frame_exec_build(dest, sizeof(dest), &head, "/", many, NULL, NULL, &size),
			 0);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_frame_check_every_type_good),
	cmocka_unit_test(test_frame_check_every_type_wrong_field),
	cmocka_unit_test(test_frame_check_unknown_types_are_refused),
	cmocka_unit_test(test_frame_check_size_bounds),
	cmocka_unit_test(test_frame_hello_check_each_field),
	cmocka_unit_test(test_frame_step_name_every_step),
	cmocka_unit_test(test_frame_exec_round_trip),
	cmocka_unit_test(test_frame_bytes_are_golden),
	cmocka_unit_test(test_frame_exec_parse_damaged_stays_in_bounds),
	cmocka_unit_test(test_frame_exec_parse_bad_heads_are_refused),
	cmocka_unit_test(test_frame_exec_build_too_large_is_e2big),
};
TEST_MAIN(tests)
