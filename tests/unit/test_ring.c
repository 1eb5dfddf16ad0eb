/*
 * The model is a long line of bytes with a read and a write position. Random steps of every kind,
 * with partial amounts, must leave ring and model the same.
 */
#include <string.h>

#include "base/ring.h"

#include "tests/lib/test.h"

#define N_STEPS     20000
#define MODEL_BYTES ((size_t)N_STEPS * 128)

struct model {
	uint8_t *bytes;
	size_t read_at;
	size_t write_at;
};

static size_t model_used(const struct model *model)
{
	return model->write_at - model->read_at;
}

static void check_same(const struct ring *ring, const struct model *model)
{
	struct iovec iov[2] = {0};
	uint8_t seen[256];
	size_t total = 0;
	int n;

	assert_int_equal(ring->used, model_used(model));
	assert_int_equal(ring_free_bytes(ring) + ring->used, ring->size);
	assert_int_equal(ring_peek(ring, 0, seen, sizeof(seen)), ring->used);
	assert_memory_equal(seen, model->bytes + model->read_at, ring->used);
	n = ring_used_iov(ring, iov);
	for (int i = 0; i < n; i++) {
		assert_true(iov[i].iov_len > 0);
		assert_memory_equal(iov[i].iov_base, model->bytes + model->read_at + total,
				    iov[i].iov_len);
		total += iov[i].iov_len;
	}
	assert_int_equal(total, ring->used);
}

static void step_put(struct ring *ring, struct model *model, struct test_random *random)
{
	uint8_t data[128];
	size_t wanted = test_random_below(random, sizeof(data));
	size_t free_bytes = ring_free_bytes(ring);
	size_t n;

	test_random_fill(random, data, wanted);
	n = ring_put(ring, data, wanted);
	assert_int_equal(n, wanted < free_bytes ? wanted : free_bytes);
	memcpy(model->bytes + model->write_at, data, n);
	model->write_at += n;
}

/* As readv that stops in the middle of a piece. */
static void step_fill(struct ring *ring, struct model *model, struct test_random *random)
{
	struct iovec iov[2] = {0};
	size_t limit = test_random_below(random, 100);
	size_t filled = 0;
	int n = ring_space_iov(ring, iov);

	for (int i = 0; i < n && filled < limit; i++) {
		size_t part = iov[i].iov_len < limit - filled ? iov[i].iov_len : limit - filled;

		test_random_fill(random, iov[i].iov_base, part);
		memcpy(model->bytes + model->write_at, iov[i].iov_base, part);
		model->write_at += part;
		filled += part;
	}
	ring_commit(ring, filled);
}

static void step_drop(struct ring *ring, struct model *model, struct test_random *random)
{
	size_t n = test_random_below(random, (uint32_t)ring->used + 1);

	ring_drop(ring, n);
	model->read_at += n;
}

static void step_peek(const struct ring *ring, const struct model *model,
		      struct test_random *random)
{
	uint8_t data[64];
	size_t offset = test_random_below(random, 110);
	size_t wanted = test_random_below(random, sizeof(data));
	size_t n = ring_peek(ring, offset, data, wanted);

	if (offset >= ring->used) {
		assert_int_equal(n, 0);
		return;
	}
	assert_int_equal(n, wanted < ring->used - offset ? wanted : ring->used - offset);
	assert_memory_equal(data, model->bytes + model->read_at + offset, n);
}

static void walk(size_t size, uint64_t seed)
{
	struct test_random random = TEST_RANDOM(seed);
	struct model model = {0};
	struct ring ring;

	model.bytes = malloc(MODEL_BYTES);
	assert_non_null(model.bytes);
	assert_int_equal(ring_init(&ring, size), 0);
	for (int i = 0; i < N_STEPS; i++) {
		switch (test_random_below(&random, 4)) {
		case 0:
			step_put(&ring, &model, &random);
			break;
		case 1:
			step_fill(&ring, &model, &random);
			break;
		case 2:
			step_drop(&ring, &model, &random);
			break;
		default:
			step_peek(&ring, &model, &random);
			break;
		}
		check_same(&ring, &model);
	}
	ring_done(&ring);
	free(model.bytes);
}

static void test_ring_random_walk_equals_model(void **state)
{
	(void)state;
	walk(1, 11);
	walk(2, 12);
	walk(97, 13);
	walk(128, 14);
}

static void test_ring_full_uses_every_byte(void **state)
{
	struct ring ring;
	struct iovec iov[2];

	(void)state;
	assert_int_equal(ring_init(&ring, 4), 0);
	assert_int_equal(ring_put(&ring, "abcdef", 6), 4);
	assert_int_equal(ring_free_bytes(&ring), 0);
	assert_int_equal(ring_space_iov(&ring, iov), 0);
	ring_drop(&ring, 3);
	assert_int_equal(ring_put(&ring, "xyz", 3), 3);
	assert_int_equal(ring_used_iov(&ring, iov), 2);
	assert_int_equal(iov[0].iov_len, 1);
	assert_int_equal(iov[1].iov_len, 3);
	ring_drop(&ring, 4);
	assert_int_equal(ring_used_iov(&ring, iov), 0);
	assert_int_equal(ring_space_iov(&ring, iov), 1); /* empty again: one piece */
	ring_done(&ring);
}

static void drop_too_much(void *userdata)
{
	ring_drop(userdata, 1);
}

static void test_ring_drop_more_than_used_aborts(void **state)
{
	struct ring ring;

	(void)state;
	assert_int_equal(ring_init(&ring, 4), 0);
	assert_true(test_aborts(drop_too_much, &ring));
	ring_done(&ring);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_ring_random_walk_equals_model),
	cmocka_unit_test(test_ring_full_uses_every_byte),
	cmocka_unit_test(test_ring_drop_more_than_used_aborts),
};
TEST_MAIN(tests)
