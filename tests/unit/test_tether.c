/*
 * Two ends and a byte stream between them that takes any part of what is offered and breaks at any
 * byte: what one side put the other one takes, once and in order. And far ends that lie.
 */
#include <errno.h>
#include <string.h>

#include "base/tether.h"

#include "tests/lib/test.h"

#define NAME       77
#define N_MESSAGES 3000
#define PIPE_BYTES ((size_t)256 * 1024)

/* One direction of a stream. */
struct pipe {
	uint8_t data[PIPE_BYTES];
	size_t at;
	size_t end;
};

struct end {
	struct tether tether;
	uint32_t put; /* messages so far */
	uint32_t taken;
	unsigned int n_begun;
	struct pipe out;
};

static struct end ends[2];

/* What the message with this number is. */
static size_t make_message(uint32_t number, uint8_t data[TETHER_MESSAGE_MAX_BYTES])
{
	size_t size = 4 + (number % 50 == 0 ? TETHER_MESSAGE_MAX_BYTES - 4 : number * 37 % 3000);

	memset(data, (int)(number % 251), size);
	memcpy(data, &number, sizeof(number));
	return size;
}

static void put_some(struct end *end, size_t n)
{
	static uint8_t data[TETHER_MESSAGE_MAX_BYTES];

	if (end->tether.name == 0)
		return;
	while (n-- > 0 && end->put < N_MESSAGES) {
		size_t size = make_message(end->put + 1, data);
		bool may = tether_may_put(&end->tether);
		int r = tether_put(&end->tether, data, size);

		if (may)
			assert_int_equal(r, 0);
		if (r == -EAGAIN)
			return;
		assert_int_equal(r, 0);
		end->put++;
	}
}

static void write_some(struct end *end, size_t most)
{
	struct pipe *pipe = &end->out;
	const void *data;
	size_t n = tether_pending(&end->tether, &data);

	memmove(pipe->data, pipe->data + pipe->at, pipe->end - pipe->at);
	pipe->end -= pipe->at;
	pipe->at = 0;
	n = n < most ? n : most;
	n = n < PIPE_BYTES - pipe->end ? n : PIPE_BYTES - pipe->end;
	memcpy(pipe->data + pipe->end, data, n);
	pipe->end += n;
	tether_wrote(&end->tether, n);
}

static void read_some(struct end *end, struct pipe *pipe, size_t most)
{
	void *space;
	size_t n = tether_space(&end->tether, &space);

	n = n < most ? n : most;
	n = n < pipe->end - pipe->at ? n : pipe->end - pipe->at;
	memcpy(space, pipe->data + pipe->at, n);
	pipe->at += n;
	tether_read(&end->tether, n);
}

static void take_some(struct end *end, size_t n)
{
	static uint8_t expected[TETHER_MESSAGE_MAX_BYTES];
	const void *data;
	size_t size;
	int found;

	while (n-- > 0 && (found = tether_next(&end->tether, &data, &size)) != TETHER_NOTHING) {
		if (found == TETHER_BEGUN) {
			end->n_begun++;
			continue;
		}
		assert_int_equal(found, TETHER_MESSAGE);
		assert_int_equal(size, make_message(end->taken + 1, expected));
		assert_memory_equal(data, expected, size);
		end->taken++;
		tether_took(&end->tether);
	}
}

static void break_stream(void)
{
	for (size_t i = 0; i < 2; i++) {
		ends[i].out.at = ends[i].out.end = 0;
		tether_stream(&ends[i].tether);
	}
}

static void begin(void)
{
	memset(ends, 0, sizeof(ends));
	assert_int_equal(tether_init(&ends[0].tether, NAME), 0);
	assert_int_equal(tether_init(&ends[1].tether, 0), 0);
	break_stream();
}

static void end_all(void)
{
	for (size_t i = 0; i < 2; i++)
		tether_done(&ends[i].tether);
}

static bool all_there(void)
{
	return ends[0].taken == N_MESSAGES && ends[1].taken == N_MESSAGES;
}

static void test_tether_nothing_is_lost_or_repeated(void **state)
{
	struct test_random random;
	unsigned int n_breaks = 0;

	(void)state;
	for (uint64_t seed = 1; seed <= 4; seed++) {
		random = TEST_RANDOM(seed);
		begin();
		for (unsigned int step = 0; !all_there(); step++) {
			struct end *end = &ends[test_random_below(&random, 2)];
			struct end *other = end == &ends[0] ? &ends[1] : &ends[0];
			size_t most = test_random_below(&random, 3) == 0
					      ? test_random_below(&random, 40)
					      : test_random_below(&random, 200000);

			assert_true(step < 2000000);
			put_some(end, test_random_below(&random, 30));
			write_some(end, most);
			read_some(end, &other->out, most);
			take_some(end, test_random_below(&random, 60));
			if (test_random_below(&random, 30) == 0) {
				break_stream();
				n_breaks++;
			}
		}
		assert_int_equal(ends[1].n_begun, 1);
		assert_int_equal(ends[0].n_begun, 0);
		end_all();
	}
	assert_true(n_breaks > 20);
}

/* Both ends say what they have to say, over a stream that holds. */
static void settle(void)
{
	for (int i = 0; i < 100; i++) {
		for (size_t at = 0; at < 2; at++) {
			write_some(&ends[at], PIPE_BYTES);
			read_some(&ends[1 - at], &ends[at].out, PIPE_BYTES);
			take_some(&ends[1 - at], N_MESSAGES);
		}
	}
}

static void test_tether_keeps_so_much_and_no_more(void **state)
{
	(void)state;
	begin();
	put_some(&ends[0], N_MESSAGES);
	assert_true(ends[0].put < N_MESSAGES);
	assert_false(tether_may_put(&ends[0].tether));
	settle();
	assert_int_equal(ends[1].taken, ends[0].put);
	assert_true(tether_may_put(&ends[0].tether));
	assert_true(ends[0].tether.kept.used <= TETHER_KEPT_BYTES / 4 + TETHER_MESSAGE_MAX_BYTES);
	end_all();
}

static void test_tether_of_another_name_begins_anew(void **state)
{
	(void)state;
	begin();
	put_some(&ends[0], 20);
	put_some(&ends[1], 20);
	settle();
	put_some(&ends[1], 5); /* nobody takes them any more */
	tether_done(&ends[0].tether);
	assert_int_equal(tether_init(&ends[0].tether, NAME + 1), 0);
	break_stream();
	ends[0].put = ends[0].taken = ends[1].taken = 0;
	settle();
	assert_int_equal(ends[1].n_begun, 2);
	assert_int_equal(ends[0].taken, 0);
	ends[1].put = 0;
	put_some(&ends[0], 3);
	put_some(&ends[1], 3);
	settle();
	assert_int_equal(ends[0].taken, 3);
	assert_int_equal(ends[1].taken, 3);
	end_all();
}

/* A far end that has lost its state is no partner any more: what it had cannot be sent again. */
static void test_tether_far_end_that_forgot(void **state)
{
	const void *data;
	size_t size;

	(void)state;
	begin();
	put_some(&ends[0], 400); /* so much that it is told what is there */
	settle();
	assert_true(ends[0].tether.acked > 0);
	tether_done(&ends[1].tether);
	assert_int_equal(tether_init(&ends[1].tether, 0), 0);
	break_stream();
	write_some(&ends[0], PIPE_BYTES);
	read_some(&ends[1], &ends[0].out, PIPE_BYTES);
	assert_int_equal(tether_next(&ends[1].tether, &data, &size), TETHER_BEGUN);
	write_some(&ends[1], PIPE_BYTES);
	read_some(&ends[0], &ends[1].out, PIPE_BYTES);
	assert_int_equal(tether_next(&ends[0].tether, &data, &size), -ESTALE);
	end_all();
}

static int fed(struct tether *tether, uint32_t length, uint32_t kind, uint64_t number,
	       uint64_t payload)
{
	const void *data;
	void *space;
	size_t size;

	assert_true(tether_space(tether, &space) >= 24);
	memcpy(space, &length, sizeof(length));
	memcpy((uint8_t *)space + 4, &kind, sizeof(kind));
	memcpy((uint8_t *)space + 8, &number, sizeof(number));
	memcpy((uint8_t *)space + 16, &payload, sizeof(payload));
	tether_read(tether, length == 0 ? 16 : 24);
	return tether_next(tether, &data, &size);
}

static void test_tether_far_end_that_lies(void **state)
{
	enum {
		HELLO = 1,
		DATA,
		ACK
	};
	static const struct {
		bool greeted; /* a good hello came before */
		uint32_t length;
		uint32_t kind;
		uint64_t number;
		uint64_t payload;
		int found;
	} rows[] = {
		{false, 8,			    HELLO, 0, NAME,     TETHER_NOTHING},
		{false, 8,			    HELLO, 0, NAME + 1, -EPROTO       },
		{false, 8,			    HELLO, 0, 0,        -EPROTO       },
		{false, 8,			    HELLO, 3, NAME,     -EPROTO       }, /* two were put */
		{false, 8,			    HELLO, 2, NAME,     TETHER_NOTHING},
		{false, 0,			    HELLO, 0, 0,        -EPROTO       },
		{false, 4,			    DATA,  1, 0,        -EPROTO       },
		{false, 0,			    ACK,   0, 0,        -EPROTO       },
		{false, 0,			    0,     0, 0,        -EPROTO       },
		{true,  8,			    HELLO, 0, NAME,     -EPROTO       },
		{true,  8,			    DATA,  1, 0,        TETHER_MESSAGE},
		{true,  8,			    DATA,  0, 0,        -EPROTO       },
		{true,  8,			    DATA,  2, 0,        -EPROTO       },
		{true,  0,			    DATA,  1, 0,        -EPROTO       },
		{true,  TETHER_MESSAGE_MAX_BYTES + 1, DATA,  1, 0,        -EPROTO       },
		{true,  TETHER_MESSAGE_MAX_BYTES,     DATA,  1, 0,        TETHER_NOTHING},
		{true,  UINT32_MAX,                   DATA,  1, 0,        -EPROTO       },
		{true,  0,			    ACK,   0, 0,        TETHER_NOTHING},
		{true,  0,			    ACK,   1, 0,        -EPROTO       }, /* put, and not sent on this stream */
		{true,  0,			    ACK,   3, 0,        -EPROTO       },
		{true,  8,			    ACK,   0, 0,        -EPROTO       },
		{true,  8,			    4,     1, 0,        -EPROTO       },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct tether tether;

		assert_int_equal(tether_init(&tether, NAME), 0);
		assert_int_equal(tether_put(&tether, "one", 3), 0);
		assert_int_equal(tether_put(&tether, "two", 3), 0);
		tether_stream(&tether);
		if (rows[i].greeted)
			assert_int_equal(fed(&tether, 8, HELLO, 0, NAME), TETHER_NOTHING);
		if (fed(&tether, rows[i].length, rows[i].kind, rows[i].number, rows[i].payload) !=
		    rows[i].found)
			fail_msg("row %zu", i);
		tether_done(&tether);
	}
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_tether_nothing_is_lost_or_repeated),
	cmocka_unit_test(test_tether_keeps_so_much_and_no_more),
	cmocka_unit_test(test_tether_of_another_name_begins_anew),
	cmocka_unit_test(test_tether_far_end_that_forgot),
	cmocka_unit_test(test_tether_far_end_that_lies),
};

TEST_MAIN(tests)
