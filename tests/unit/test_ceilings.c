#include "supervisor/ceilings.h"
#include "tests/lib/test.h"

#define MIB (1024ull * 1024)
#define GIB (1024 * MIB)

static struct supervisor_config good_config(void)
{
	return (struct supervisor_config){
		.max_sessions = 4,
		.max_launches_per_s = 10,
		.max_memory_bytes = 4 * GIB,
		.max_pids = 1000,
		.session = {.memory_bytes = 3 * GIB,
			    .tmpfs_bytes = GIB,
			    .tmpfs_inodes = 1000,
			    .max_pids = 500,
			    .max_files = 1024,
			    .cpu_pct = 200,
			    .max_ptys = 8},
	};
}

static struct plan small_plan(void)
{
	return (struct plan){
		.tmpfs_bytes = 16 * MIB,
		.tmpfs_inodes = 100,
		.memory_bytes = 64 * MIB,
		.max_pids = 10,
		.max_files = 64,
		.cpu_pct = 100,
	};
}

static struct ceilings good_ceilings(void)
{
	struct supervisor_config config = good_config();
	struct ceilings ceilings;

	ceilings_init(&ceilings, &config, 100 * GIB, 20000);
	return ceilings;
}

static void test_ceilings_take_up_to_sessions_then_refuses(void **state)
{
	struct ceilings ceilings = good_ceilings();
	struct plan plan = small_plan();

	(void)state;
	for (int i = 0; i < 4; i++)
		assert_int_equal(ceilings_take(&ceilings, &plan, 1), LAUNCH_E_NONE);
	assert_int_equal(ceilings_take(&ceilings, &plan, 1), LAUNCH_E_SESSIONS);
	ceilings_give(&ceilings, &plan);
	assert_int_equal(ceilings_take(&ceilings, &plan, 1), LAUNCH_E_NONE);
}

/* The configuration may have become smaller than what lives. */
static void test_ceilings_count_beyond_the_maxima_takes_nothing_more(void **state)
{
	struct ceilings ceilings = good_ceilings();
	struct plan large = small_plan();
	struct plan plan = small_plan();

	(void)state;
	large.memory_bytes = 5 * GIB;
	large.max_pids = 2000;
	ceilings_count(&ceilings, &large);
	assert_int_equal(ceilings_take(&ceilings, &plan, 1), LAUNCH_E_MEMORY);
	large.memory_bytes = 0;
	ceilings_count(&ceilings, &large);
	ceilings.memory_bytes = 0;
	assert_int_equal(ceilings_take(&ceilings, &plan, 1), LAUNCH_E_PIDS);
	ceilings_give(&ceilings, &large);
	ceilings.n_pids -= large.max_pids;
	assert_int_equal(ceilings_take(&ceilings, &plan, 1), LAUNCH_E_NONE);
}

static void test_ceilings_take_few_descriptors_is_their_error(void **state)
{
	struct supervisor_config config = good_config();
	struct plan plan = small_plan();
	struct ceilings ceilings;

	(void)state;
	ceilings_init(&ceilings, &config, GIB, FILES_OF_SUPERVISOR + FILES_OF_SESSION);
	assert_int_equal(ceilings_sessions(&ceilings), 1);
	assert_int_equal(ceilings_take(&ceilings, &plan, 1), LAUNCH_E_NONE);
	assert_int_equal(ceilings_take(&ceilings, &plan, 1), LAUNCH_E_DESCRIPTORS);
	ceilings_init(&ceilings, &config, GIB, 10);
	assert_int_equal(ceilings_sessions(&ceilings), 0);
	assert_int_equal(ceilings_take(&ceilings, &plan, 1), LAUNCH_E_DESCRIPTORS);
}

static void test_ceilings_take_memory_sum_is_bounded(void **state)
{
	struct ceilings ceilings = good_ceilings();
	struct plan big = small_plan();
	struct plan rest = small_plan();

	(void)state;
	big.memory_bytes = 3 * GIB;
	rest.memory_bytes = GIB;
	assert_int_equal(ceilings_take(&ceilings, &big, 1), LAUNCH_E_NONE);
	assert_int_equal(ceilings_take(&ceilings, &big, 1), LAUNCH_E_MEMORY);
	assert_int_equal(ceilings_take(&ceilings, &rest, 1), LAUNCH_E_NONE);
	rest.memory_bytes = 1;
	assert_int_equal(ceilings_take(&ceilings, &rest, 1), LAUNCH_E_MEMORY);
}

static void test_ceilings_take_pids_sum_is_bounded(void **state)
{
	struct ceilings ceilings = good_ceilings();
	struct plan plan = small_plan();

	(void)state;
	plan.max_pids = 500;
	assert_int_equal(ceilings_take(&ceilings, &plan, 1), LAUNCH_E_NONE);
	assert_int_equal(ceilings_take(&ceilings, &plan, 1), LAUNCH_E_NONE);
	plan.max_pids = 8;
	assert_int_equal(ceilings_take(&ceilings, &plan, 1), LAUNCH_E_PIDS);
}

static void test_ceilings_take_rate_is_a_burst_of_one_second(void **state)
{
	struct ceilings ceilings = good_ceilings();
	struct plan plan = small_plan();
	usec_t now = 50 * USEC_PER_SEC;

	(void)state;
	for (int i = 0; i < 10; i++) {
		assert_int_equal(ceilings_take(&ceilings, &plan, now), LAUNCH_E_NONE);
		ceilings_give(&ceilings, &plan);
	}
	assert_int_equal(ceilings_take(&ceilings, &plan, now), LAUNCH_E_RATE);
	/* A tenth of a second later there is room for exactly one. */
	now += USEC_PER_SEC / 10;
	assert_int_equal(ceilings_take(&ceilings, &plan, now), LAUNCH_E_NONE);
	ceilings_give(&ceilings, &plan);
	assert_int_equal(ceilings_take(&ceilings, &plan, now), LAUNCH_E_RATE);
	now += 100 * USEC_PER_SEC;
	for (int i = 0; i < 10; i++) {
		assert_int_equal(ceilings_take(&ceilings, &plan, now), LAUNCH_E_NONE);
		ceilings_give(&ceilings, &plan);
	}
	assert_int_equal(ceilings_take(&ceilings, &plan, now), LAUNCH_E_RATE);
}

static void test_ceilings_take_refused_takes_nothing(void **state)
{
	struct ceilings ceilings = good_ceilings();
	struct ceilings before = ceilings;
	struct plan plan = small_plan();

	(void)state;
	plan.memory_bytes = 3 * GIB + 1;
	assert_int_equal(ceilings_take(&ceilings, &plan, 1), LAUNCH_E_PLAN);
	assert_memory_equal(&ceilings, &before, sizeof(before));
}

static void test_ceilings_take_each_knob_has_a_ceiling(void **state)
{
	struct plan plans[7];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(plans); i++)
		plans[i] = small_plan();
	plans[0].memory_bytes = 3 * GIB + 1;
	plans[1].tmpfs_bytes = GIB + 1;
	plans[2].tmpfs_inodes = 1001;
	plans[3].max_pids = 501;
	plans[4].max_files = 1025;
	plans[5].cpu_pct = 201;
	plans[6].max_ptys = 9;
	for (size_t i = 0; i < ARRAY_SIZE(plans); i++) {
		struct ceilings ceilings = good_ceilings();

		assert_int_equal(ceilings_take(&ceilings, &plans[i], 1), LAUNCH_E_PLAN);
	}
}

static void test_ceilings_init_memory_0_is_four_fifths_of_the_host(void **state)
{
	struct supervisor_config config = good_config();
	struct ceilings ceilings;

	(void)state;
	config.max_memory_bytes = 0;
	ceilings_init(&ceilings, &config, 10 * GIB, 20000);
	assert_int_equal(ceilings.max_memory_bytes, 8 * GIB);
}

/* What is in use stays; nothing is taken until it is below the new maxima again. */
static void test_ceilings_configure_may_go_below_what_is_in_use(void **state)
{
	struct supervisor_config config = good_config();
	struct ceilings ceilings = good_ceilings();
	struct plan plan = small_plan();

	(void)state;
	for (int i = 0; i < 3; i++)
		assert_int_equal(ceilings_take(&ceilings, &plan, 1), LAUNCH_E_NONE);
	config.max_memory_bytes = 128 * MIB;
	ceilings_configure(&ceilings, &config);
	assert_int_equal(ceilings_take(&ceilings, &plan, 1), LAUNCH_E_MEMORY);
	config.max_memory_bytes = 4 * GIB;
	config.max_pids = 20;
	ceilings_configure(&ceilings, &config);
	assert_int_equal(ceilings_take(&ceilings, &plan, 1), LAUNCH_E_PIDS);
	config.max_sessions = 2;
	ceilings_configure(&ceilings, &config);
	assert_int_equal(ceilings_take(&ceilings, &plan, 1), LAUNCH_E_SESSIONS);
	config.max_memory_bytes = 4 * GIB;
	config.max_pids = 1000;
	config.max_sessions = 4;
	ceilings_configure(&ceilings, &config);
	assert_int_equal(ceilings_take(&ceilings, &plan, 1), LAUNCH_E_NONE);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_ceilings_configure_may_go_below_what_is_in_use),
	cmocka_unit_test(test_ceilings_take_up_to_sessions_then_refuses),
	cmocka_unit_test(test_ceilings_take_few_descriptors_is_their_error),
	cmocka_unit_test(test_ceilings_take_memory_sum_is_bounded),
	cmocka_unit_test(test_ceilings_take_pids_sum_is_bounded),
	cmocka_unit_test(test_ceilings_take_rate_is_a_burst_of_one_second),
	cmocka_unit_test(test_ceilings_count_beyond_the_maxima_takes_nothing_more),
	cmocka_unit_test(test_ceilings_take_refused_takes_nothing),
	cmocka_unit_test(test_ceilings_take_each_knob_has_a_ceiling),
	cmocka_unit_test(test_ceilings_init_memory_0_is_four_fifths_of_the_host),
};

TEST_MAIN(tests)
