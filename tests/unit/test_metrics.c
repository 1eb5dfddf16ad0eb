#include <stdio.h>
#include <string.h>

#include "supervisor/api/metrics/metrics.h"
#include "supervisor/api/metrics/readiness.h"
#include "tests/lib/test.h"

static void test_bucket_is_inclusive(void **state)
{
	struct histogram histogram = {0};

	(void)state;
	histogram_add(&histogram, 50);
	histogram_add(&histogram, 51);
	histogram_add(&histogram, 60 * USEC_PER_SEC);
	assert_int_equal(histogram.n[0], 1);
	assert_int_equal(histogram.n[1], 1);
	assert_int_equal(histogram.n[HISTOGRAM_BUCKETS], 1);
	assert_int_equal(histogram_count(&histogram), 3);
	assert_int_equal(histogram.sum_us, 101 + 60 * USEC_PER_SEC);
}

static void add_step(struct launch_trace *trace, const char *name, uint32_t side, uint32_t us)
{
	struct launch_trace_step *step = &trace->step[trace->n++];

	(void)snprintf(step->name, sizeof(step->name), "%s", name);
	step->side = side;
	step->us = us;
}

/* A step counts from the one before it on its own side; the child from the clone. */
static void test_launch_steps(void **state)
{
	static struct metrics metrics;
	struct launch_trace trace = {0};

	(void)state;
	add_step(&trace, "group", 0, 100);
	add_step(&trace, "clone", 0, 300);
	add_step(&trace, "watch", 0, 350);
	add_step(&trace, "mounts", 1, 900);
	add_step(&trace, "exec", 1, 1000);
	add_step(&trace, "ready", 2, 1700);
	metrics_add_launch(&metrics, &trace);
	assert_int_equal(metrics.launch[0].took.sum_us, 100);
	assert_int_equal(metrics.launch[1].took.sum_us, 200);
	assert_int_equal(metrics.launch[2].took.sum_us, 50);
	assert_int_equal(metrics.launch[3].took.sum_us, 600);
	assert_int_equal(metrics.launch[4].took.sum_us, 100);
	assert_int_equal(metrics.launch[5].took.sum_us, 700);
	metrics_add_launch(&metrics, &trace);
	assert_int_equal(histogram_count(&metrics.launch[5].took), 2);
	assert_string_equal(metrics.launch[6].name, "");
}

/* A name becomes a label: what would end it, or a count beyond the table, is not taken. */
static void test_hostile_trace(void **state)
{
	static struct metrics metrics;
	struct launch_trace trace = {0};

	(void)state;
	add_step(&trace, "a\"} 1", 0, 1);
	add_step(&trace, "b", 3, 1);
	add_step(&trace, "", 0, 1);
	metrics_add_launch(&metrics, &trace);
	trace.n = LAUNCH_TRACE_MAX + 1;
	metrics_add_launch(&metrics, &trace);
	assert_string_equal(metrics.launch[0].name, "");
	for (unsigned int i = 0; i < 3 * LAUNCH_TRACE_MAX; i++) {
		char name[LAUNCH_TRACE_NAME];

		trace = (struct launch_trace){0};
		(void)snprintf(name, sizeof(name), "step-%u", i);
		add_step(&trace, name, 0, i);
		metrics_add_launch(&metrics, &trace);
	}
	assert_string_equal(metrics.launch[LAUNCH_TRACE_MAX - 1].name, "step-47");
}

static void test_text(void **state)
{
	static struct metrics metrics;
	struct buf text = BUF_NULL(262144);

	(void)state;
	histogram_add(&metrics.create, 1500);
	metrics.n_denials[METRICS_DENIAL_PIDS] = 7;
	assert_int_equal(metrics_append_all(&text, &metrics), 0);
	assert_non_null(strstr(buf_text(&text), "# TYPE sandboxd_create_seconds histogram\n"));
	assert_non_null(
		strstr(buf_text(&text), "sandboxd_create_seconds_bucket{le=\"0.001\"} 0\n"));
	assert_non_null(
		strstr(buf_text(&text), "sandboxd_create_seconds_bucket{le=\"0.0025\"} 1\n"));
	assert_non_null(strstr(buf_text(&text), "sandboxd_create_seconds_sum 0.001500\n"));
	assert_non_null(strstr(buf_text(&text), "sandboxd_create_seconds_count 1\n"));
	assert_non_null(strstr(buf_text(&text), "sandboxd_denials_total{kind=\"pids\"} 7\n"));
	buf_done(&text);
}

static void test_readiness(void **state)
{
	struct readiness readiness = {0};

	(void)state;
	assert_int_equal(readiness_first(&readiness), READINESS_MAX_);
	readiness_set(&readiness, READINESS_AUDIT, false, "disk\nfull");
	readiness_set(&readiness, READINESS_STORE, false, NULL);
	assert_int_equal(readiness_first(&readiness), READINESS_STORE);
	readiness_set(&readiness, READINESS_STORE, true, "ignored");
	assert_int_equal(readiness_first(&readiness), READINESS_AUDIT);
	assert_string_equal(readiness.part[READINESS_AUDIT].text, "disk\\nfull");
	readiness_set(&readiness, READINESS_AUDIT, true, NULL);
	assert_int_equal(readiness_first(&readiness), READINESS_MAX_);
	assert_string_equal(readiness_name(READINESS_EGRESS), "egress");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bucket_is_inclusive), cmocka_unit_test(test_launch_steps),
		cmocka_unit_test(test_hostile_trace),       cmocka_unit_test(test_text),
		cmocka_unit_test(test_readiness),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
