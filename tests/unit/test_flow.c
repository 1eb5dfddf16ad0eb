#include <errno.h>
#include <string.h>

#include "supervisor/api/jobs/flow.h"
#include "tests/lib/test.h"

static void test_flow_receive_only_the_next_number(void **state)
{
	struct flow flow;

	(void)state;
	flow_init(&flow, 10);
	assert_int_equal(flow_receive(&flow, 12), -EPROTO);
	assert_int_equal(flow_receive(&flow, 10), FLOW_E_DUPLICATE);
	assert_int_equal(flow_receive(&flow, 11), 0);
	assert_int_equal(flow_receive(&flow, 11), FLOW_E_DUPLICATE);
	assert_int_equal(flow_receive(&flow, 0), FLOW_E_DUPLICATE);
	assert_int_equal(flow_settle(&flow, 12), -ERANGE);
	flow_done(&flow);
}

static void test_flow_credit_waits_for_the_gap(void **state)
{
	struct flow flow;
	uint64_t acked = 0;

	(void)state;
	flow_init(&flow, 0);
	for (uint64_t i = 1; i <= 5; i++)
		assert_int_equal(flow_receive(&flow, i), 0);
	assert_int_equal(flow_settle(&flow, 2), 0);
	assert_int_equal(flow_settle(&flow, 3), 0);
	assert_false(flow_credit(&flow, &acked));
	assert_int_equal(flow_settle(&flow, 1), 0);
	assert_true(flow_credit(&flow, &acked));
	assert_int_equal(acked, 3);
	/* Until it was sent it stays due. */
	assert_true(flow_credit(&flow, &acked));
	flow_credited(&flow, acked);
	assert_false(flow_credit(&flow, &acked));
	assert_int_equal(flow_settle(&flow, 3), 0); /* twice is allowed */
	assert_int_equal(flow_settle(&flow, 5), 0);
	assert_int_equal(flow_settle(&flow, 4), 0);
	assert_true(flow_credit(&flow, &acked));
	assert_int_equal(acked, 5);
	flow_done(&flow);
}

static void test_flow_receive_bounded(void **state)
{
	struct flow flow;

	(void)state;
	flow_init(&flow, 0);
	for (uint64_t i = 1; i <= FLOW_MAX_OUTSTANDING; i++)
		assert_int_equal(flow_receive(&flow, i), 0);
	assert_int_equal(flow_receive(&flow, FLOW_MAX_OUTSTANDING + 1), -ENOBUFS);
	assert_int_equal(flow_settle(&flow, 1), 0);
	assert_int_equal(flow_receive(&flow, FLOW_MAX_OUTSTANDING + 1), 0);
	flow_done(&flow);
}

#define MODEL 4000
/* Frames come in order, are settled in any order, and the connection is made anew now and then. */
static void test_flow_random_model(void **state)
{
	struct test_random random = TEST_RANDOM(5);

	(void)state;
	for (int round = 0; round < 20; round++) {
		static bool settled[MODEL + 2];
		struct flow flow;
		uint64_t acked = 0;
		uint64_t received = 0;

		memset(settled, 0, sizeof(settled));
		flow_init(&flow, 0);
		for (int step = 0; step < 20000; step++) {
			uint32_t what = test_random_below(&random, 100);
			uint64_t got;

			if (what < 45 && received < MODEL) {
				assert_int_equal(flow_receive(&flow, ++received), 0);
			} else if (what < 99 && received > acked) {
				uint64_t span = received - acked > 200 ? 200 : received - acked;
				uint64_t number =
					acked + 1 + test_random_below(&random, (uint32_t)span);

				assert_int_equal(flow_settle(&flow, number), 0);
				settled[number] = true;
			} else if (what == 99 && test_random_below(&random, 20) == 0) {
				/* What was not acknowledged comes again. */
				flow_done(&flow);
				flow_init(&flow, acked);
				received = acked;
				for (uint64_t i = acked + 1; i <= MODEL; i++)
					settled[i] = false;
			}
			while (acked < received && settled[acked + 1])
				acked++;
			assert_int_equal(flow.settled, acked);
			if (flow_credit(&flow, &got)) {
				assert_int_equal(got, acked);
				flow_credited(&flow, got);
			}
		}
		flow_done(&flow);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_flow_receive_only_the_next_number),
		cmocka_unit_test(test_flow_credit_waits_for_the_gap),
		cmocka_unit_test(test_flow_receive_bounded),
		cmocka_unit_test(test_flow_random_model),
	};
	int n_before = test_begin();

	return test_end(n_before, cmocka_run_group_tests(tests, NULL, NULL));
}
