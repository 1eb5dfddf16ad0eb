#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "supervisor/api/denials/ring.h"
#include "tests/lib/test.h"

static struct denial_report report(enum denial_kind kind, const char *what, const char *comm)
{
	return (struct denial_report){
		.kind = kind,
		.count = 1,
		.pid = comm ? 7 : 0,
		.comm = comm,
		.what = what,
		.rule = "rule",
		.source = "test",
		.advice = "none",
	};
}

static void add(struct denials *denials, enum denial_kind kind, const char *what, const char *comm)
{
	const struct denial_report one = report(kind, what, comm);

	assert_non_null(denials_add(denials, &one, USEC_PER_SEC));
}

static void test_denials_same_refusal_is_one_record(void **state)
{
	struct denials denials = DENIALS_NULL;

	(void)state;
	add(&denials, DENIAL_SYSCALL, "ptrace", "sh");
	add(&denials, DENIAL_SYSCALL, "mount", "sh");
	add(&denials, DENIAL_SYSCALL, "ptrace", "sh");
	add(&denials, DENIAL_SYSCALL, "ptrace", "gdb");
	assert_int_equal(denials.n, 3);
	assert_string_equal(denials.record[0].what, "mount");
	assert_int_equal(denials.record[1].count, 2);
	assert_string_equal(denials.record[2].comm, "gdb");
	assert_non_null(denials_add(&denials,
				    &(struct denial_report){.kind = DENIAL_SYSCALL,
							    .count = 1,
							    .pid = 7,
							    .what = "ptrace",
							    .rule = "rule"},
				    USEC_PER_SEC));
	assert_int_equal(denials.n, 3);
	assert_true(denials.record[2].comm[0] != '\0');
	assert_int_equal(denials.n_of[DENIAL_SYSCALL], 5);
	denials_done(&denials);
}

static void test_denials_count_zero_is_none_and_never_wraps(void **state)
{
	struct denials denials = DENIALS_NULL;
	struct denial_report many = report(DENIAL_PIDS, "fork", NULL);

	(void)state;
	many.count = 0;
	assert_null(denials_add(&denials, &many, 1));
	assert_int_equal(denials.n, 0);
	many.count = UINT32_MAX;
	assert_int_equal(denials_add(&denials, &many, 1)->count, UINT32_MAX);
	assert_int_equal(denials_add(&denials, &many, 2)->count, UINT32_MAX);
	assert_true(denials.n_of[DENIAL_PIDS] == 2ull * UINT32_MAX);
	denials_done(&denials);
}

static void test_denials_flood_of_a_kind_keeps_the_others(void **state)
{
	struct denials denials = DENIALS_NULL;
	char comm[16];

	(void)state;
	add(&denials, DENIAL_MEMORY, "memory", NULL);
	for (unsigned int i = 0; i < 1000; i++) {
		(void)snprintf(comm, sizeof(comm), "c%u", i);
		add(&denials, DENIAL_SYSCALL, "ptrace", comm);
	}
	assert_int_equal(denials.n, DENIALS_MAX);
	assert_int_equal(denials.n_dropped, 1001 - DENIALS_MAX);
	assert_int_equal(denials.record[0].kind, DENIAL_MEMORY);
	assert_string_equal(denials.record[DENIALS_MAX - 1].comm, "c999");
	assert_int_equal(denials.n_of[DENIAL_SYSCALL], 1000);
	denials_done(&denials);
}

static void test_denials_words_of_a_session_are_escaped_and_cut(void **state)
{
	struct denials denials = DENIALS_NULL;
	const char *comm;

	(void)state;
	add(&denials, DENIAL_SYSCALL, "ptrace",
	    "\x1b[2J\r\n\xff\x9b"
	    "0123456789");
	comm = denials.record[0].comm;
	for (size_t i = 0; comm[i]; i++)
		assert_true(comm[i] >= 0x20 && comm[i] < 0x7f);
	assert_non_null(strstr(comm, "\\x1b"));
	denials_done(&denials);
}

static void test_denials_job_is_told_once_whoever_asked(void **state)
{
	struct denials denials = DENIALS_NULL;
	struct denial_report one = report(DENIAL_SYSCALL, "ptrace", "a");

	(void)state;
	assert_true(denials_first_of_job(&denials, denials_add(&denials, &one, 1), 5));
	assert_false(denials_first_of_job(&denials, denials_add(&denials, &one, 1), 5));
	one.comm = "b";
	assert_false(denials_first_of_job(&denials, denials_add(&denials, &one, 1), 5));
	assert_true(denials_first_of_job(&denials, denials_add(&denials, &one, 1), 6));
	denials_done(&denials);
}

static void test_denials_describe_has_every_member(void **state)
{
	struct denials denials = DENIALS_NULL;
	json_t *all;
	json_t *first;
	static const char *const names[] = {"time", "kind",   "what",   "program",
					    "rule", "source", "advice", "count"};

	(void)state;
	add(&denials, DENIAL_PIDS, "fork", NULL);
	add(&denials, DENIAL_SYSCALL, "ptrace", "sh");
	all = denials_describe(&denials, "id");
	first = json_array_get(json_object_get(all, "denials"), 0);
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		assert_non_null(json_object_get(first, names[i]));
	assert_true(json_is_null(json_object_get(first, "program")));
	assert_int_equal(
		json_integer_value(json_object_get(json_object_get(all, "counts"), "pids")), 1);
	assert_null(json_object_get(json_object_get(all, "counts"), "disk"));
	json_decref(all);
	denials_done(&denials);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_denials_same_refusal_is_one_record),
	cmocka_unit_test(test_denials_count_zero_is_none_and_never_wraps),
	cmocka_unit_test(test_denials_flood_of_a_kind_keeps_the_others),
	cmocka_unit_test(test_denials_words_of_a_session_are_escaped_and_cut),
	cmocka_unit_test(test_denials_job_is_told_once_whoever_asked),
	cmocka_unit_test(test_denials_describe_has_every_member),
};

TEST_MAIN(tests)
