/*
 * One user among many, and what is left to the others.
 */
#include <stdint.h>

#include "supervisor/api/http/shares.h"
#include "tests/lib/test.h"

#define MAX ((size_t)64)

static size_t take_all(struct share *share, size_t *total)
{
	size_t n = 0;

	while (share_take(share, SHARE_STREAMS, total, MAX, 1))
		n++;
	return n;
}

static void test_one_user_takes_half(void **state)
{
	struct shares shares;
	struct share *first;
	struct share *second;
	size_t total = 0;

	(void)state;
	shares_init(&shares);
	first = shares_get(&shares, "first");
	second = shares_get(&shares, "second");
	assert_int_equal(take_all(first, &total), MAX / 2);
	assert_int_equal(take_all(second, &total), MAX / 8);
	assert_int_equal(take_all(second, &total), 0);
	/* The operator is bounded by what there is alone. */
	assert_int_equal(take_all(NULL, &total), MAX - MAX / 2 - MAX / 8);
	assert_int_equal(total, MAX);
	/* Room again is nobody's who has more than the rest may have. */
	share_give(second, SHARE_STREAMS, &total, 1);
	assert_false(share_allows(first, SHARE_STREAMS, total, MAX, 1));
	assert_true(share_allows(second, SHARE_STREAMS, total, MAX, 1));
	assert_false(share_allows(second, SHARE_STREAMS, total, MAX, 2));
	share_give(first, SHARE_STREAMS, &total, MAX / 2);
	assert_true(share_allows(first, SHARE_STREAMS, total, MAX, 1));
	share_give(second, SHARE_STREAMS, &total, MAX / 8 - 1);
	first = share_put(first);
	second = share_put(second);
}

/* Of what is kept, who has much gives back before it hurts those who have little. */
static void test_what_is_kept_is_given_back(void **state)
{
	(void)state;
	assert_false(share_exceeds(MAX / 2, MAX / 2, MAX));
	assert_true(share_exceeds(MAX / 2, MAX / 2 + 1, MAX));
	assert_false(share_exceeds(MAX / 8, MAX / 2 + 1, MAX));
	assert_true(share_exceeds(MAX / 8 + 1, MAX, MAX));
	assert_false(share_exceeds(0, MAX, MAX));
	assert_true(share_exceeds(0, MAX + 1, MAX));
}

static void test_sums_do_not_wrap(void **state)
{
	struct shares shares;
	struct share *share;
	size_t total = 1;

	(void)state;
	shares_init(&shares);
	share = shares_get(&shares, "one");
	assert_false(share_take(share, SHARE_BYTES, &total, MAX, SIZE_MAX));
	assert_false(share_take(NULL, SHARE_BYTES, &total, MAX, SIZE_MAX));
	assert_false(share_take(share, SHARE_BYTES, &total, MAX, MAX));
	assert_int_equal(total, 1);
	total = MAX + 1; /* a bound that was lowered */
	assert_false(share_take(share, SHARE_BYTES, &total, MAX, 0));
	share = share_put(share);
}

static void test_a_share_is_one_for_all_holders(void **state)
{
	struct shares shares;
	struct share *share;
	struct share *again;
	struct share *other;

	(void)state;
	shares_init(&shares);
	assert_null(shares_get(&shares, ""));
	assert_null(share_ref(NULL));
	assert_null(share_put(NULL));
	share = shares_get(&shares, "one");
	again = shares_get(&shares, "one");
	other = shares_get(&shares, "other");
	assert_ptr_equal(share, again);
	assert_ptr_not_equal(share, other);
	again = share_put(again);
	again = shares_get(&shares, "one");
	assert_ptr_equal(share, again);
	again = share_put(again);
	share = share_put(share);
	other = share_put(other);
	for (size_t i = 0; i < SHARES_N_BUCKETS; i++)
		assert_true(list_empty(&shares.bucket[i]));
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_one_user_takes_half),
	cmocka_unit_test(test_what_is_kept_is_given_back),
	cmocka_unit_test(test_sums_do_not_wrap),
	cmocka_unit_test(test_a_share_is_one_for_all_holders),
};

TEST_MAIN(tests)
