#include <errno.h>

#include "base/slots.h"

#include "tests/lib/test.h"

static void test_slots_get_stale_id_is_null(void **state)
{
	struct slots slots;
	uint64_t first = 0;
	uint64_t second = 0;
	int a, b;

	(void)state;
	assert_int_equal(slots_init(&slots, 4), 0);
	assert_int_equal(slots_add(&slots, &a, &first), 0);
	assert_ptr_equal(slots_get(&slots, first), &a);
	slots_remove(&slots, first);
	assert_null(slots_get(&slots, first));
	assert_int_equal(slots_add(&slots, &b, &second), 0);
	assert_int_equal((uint32_t)first, (uint32_t)second); /* the same slot */
	assert_true(first != second);
	assert_null(slots_get(&slots, first));
	assert_ptr_equal(slots_get(&slots, second), &b);
	slots_remove(&slots, second);
	slots_done(&slots);
}

static void test_slots_get_wild_ids_are_null(void **state)
{
	struct slots slots;
	uint64_t id = 0;
	int a;

	(void)state;
	assert_int_equal(slots_init(&slots, 4), 0);
	assert_null(slots_get(&slots, 0));
	assert_int_equal(slots_add(&slots, &a, &id), 0);
	assert_true(id >> 32 != 0);
	assert_null(slots_get(&slots, 0));
	assert_null(slots_get(&slots, UINT64_MAX));
	assert_null(slots_get(&slots, id + 1));
	assert_null(slots_get(&slots, id + (1ull << 32)));
	slots_remove(&slots, id);
	slots_done(&slots);
}

static void test_slots_add_beyond_max_is_enospc(void **state)
{
	struct slots slots;
	uint64_t id[20];
	uint64_t none = 77;
	int a;

	(void)state;
	assert_int_equal(slots_init(&slots, 20), 0);
	for (int i = 0; i < 20; i++)
		assert_int_equal(slots_add(&slots, &a, &id[i]), 0);
	assert_int_equal(slots_add(&slots, &a, &none), -ENOSPC);
	assert_true(none == 77);
	slots_remove(&slots, id[3]);
	assert_int_equal(slots_add(&slots, &a, &id[3]), 0);
	for (int i = 0; i < 20; i++)
		slots_remove(&slots, id[i]);
	slots_done(&slots);
}

static void test_slots_remove_last_generation_retires(void **state)
{
	struct slots slots;
	uint64_t id = 0;
	uint64_t next = 0;
	int a;

	(void)state;
	assert_int_equal(slots_init(&slots, 4), 0);
	assert_int_equal(slots_add(&slots, &a, &id), 0);
	slots.slot[(uint32_t)id].generation = UINT32_MAX;
	id |= 0xffffffff00000000ull;
	assert_ptr_equal(slots_get(&slots, id), &a);
	slots_remove(&slots, id);
	assert_int_equal(slots_add(&slots, &a, &next), 0);
	assert_true((uint32_t)next != (uint32_t)id);
	slots_remove(&slots, next);
	slots_done(&slots);
}

/* Random adds and removals against a plain array of live ids and a bag of dead ones. */
static void test_slots_random_walk_equals_model(void **state)
{
	enum {
		MAX = 64
	};
	struct test_random random = TEST_RANDOM(5);
	struct slots slots;
	uint64_t live[MAX], dead[256] = {0};
	int *objects[MAX];
	int storage[MAX];
	uint32_t n_live = 0;

	(void)state;
	assert_int_equal(slots_init(&slots, MAX), 0);
	for (int step = 0; step < 20000; step++) {
		uint32_t at = 0;
		uint32_t n_seen = 0;

		if (n_live < MAX && (n_live == 0 || test_random_below(&random, 2))) {
			objects[n_live] = &storage[test_random_below(&random, MAX)];
			assert_int_equal(slots_add(&slots, objects[n_live], &live[n_live]), 0);
			n_live++;
		} else {
			uint32_t victim = test_random_below(&random, n_live);

			slots_remove(&slots, live[victim]);
			dead[step % 256] = live[victim];
			n_live--;
			live[victim] = live[n_live];
			objects[victim] = objects[n_live];
		}
		for (uint32_t i = 0; i < n_live; i++)
			assert_ptr_equal(slots_get(&slots, live[i]), objects[i]);
		assert_null(slots_get(&slots, dead[test_random_below(&random, 256)]));
		while (slots_next(&slots, &at))
			n_seen++;
		assert_int_equal(n_seen, n_live);
	}
	while (n_live > 0)
		slots_remove(&slots, live[--n_live]);
	slots_done(&slots);
}

static void done_with_entry(void *userdata)
{
	slots_done(userdata);
}

static void test_slots_done_not_empty_aborts(void **state)
{
	struct slots slots;
	uint64_t id = 0;
	int a;

	(void)state;
	assert_int_equal(slots_init(&slots, 4), 0);
	assert_int_equal(slots_add(&slots, &a, &id), 0);
	assert_true(test_aborts(done_with_entry, &slots));
	slots_remove(&slots, id);
	slots_done(&slots);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_slots_get_stale_id_is_null),
	cmocka_unit_test(test_slots_get_wild_ids_are_null),
	cmocka_unit_test(test_slots_add_beyond_max_is_enospc),
	cmocka_unit_test(test_slots_remove_last_generation_retires),
	cmocka_unit_test(test_slots_random_walk_equals_model),
	cmocka_unit_test(test_slots_done_not_empty_aborts),
};
TEST_MAIN(tests)
