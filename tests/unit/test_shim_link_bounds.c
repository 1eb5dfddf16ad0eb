/*
 * What a shim that was taken over can make the link hold.
 */
#include <errno.h>
#include <string.h>

#include "base/frame.h"
#include "base/sockmsg.h"

#include "tests/lib/test.h"
#include "tests/unit/shim_link_rig.h"

/* A longest frame of output, and what the link makes of it. */
static void say_long(struct rig *rig, uint32_t job, uint64_t number, uint16_t flags)
{
	static uint8_t message[WIRE_FRAME_MAX_BYTES];
	struct wire_header header = frame_header(WIRE_STDOUT, job, number, WIRE_PAYLOAD_MAX_BYTES);

	header.flags = flags;
	memcpy(message, &header, sizeof(header));
	assert_int_equal(sockmsg_send(rig->shim_fd, message, sizeof(message), NULL, 0), 0);
	turn(rig);
}

static void test_shim_link_stops_reading_at_its_window(void **state)
{
	struct rig rig = {.shim_fd = -1};
	uint64_t number = 0;
	uint32_t job = 0;

	(void)state;
	rig_open(&rig, false, 0);
	start_running(&rig, &job);
	/* Nothing is settled: the link takes its window and no more, the socket fills. */
	for (int i = 0; i < 200; i++) {
		struct wire_header header = frame_header(WIRE_STDOUT, job, number + 1, 1);
		uint8_t message[sizeof(header) + 1] = {0};

		for (int k = 0; k < 200; k++) {
			header.number = number + 1;
			memcpy(message, &header, sizeof(header));
			if (sockmsg_send(rig.shim_fd, message, sizeof(message), NULL, 0) < 0)
				break;
			number++;
		}
		turn(&rig);
	}
	assert_int_equal(rig.n_lost, 0);
	assert_int_equal(rig.n_output, SHIM_LINK_WINDOW);
	assert_true(number > SHIM_LINK_WINDOW);
	for (uint64_t n = 1; n <= SHIM_LINK_WINDOW; n++)
		shim_link_settle(rig.link, n);
	turn(&rig);
	assert_int_equal(rig.n_output, number);
	rig_close(&rig);
}

static void test_shim_link_ends_with_more_than_the_rings_hold(void **state)
{
	struct rig rig = {.shim_fd = -1};
	uint64_t number = 0;
	uint32_t job = 0;

	(void)state;
	rig_open(&rig, false, 0);
	start_running(&rig, &job);
	while (rig.n_lost == 0 && number < SHIM_LINK_WINDOW)
		say_long(&rig, job, ++number, 0);
	assert_int_equal(rig.n_lost, 1);
	assert_int_equal(rig.lost_error, -EPROTO);
	assert_true(rig.n_output * WIRE_PAYLOAD_MAX_BYTES <= SHIM_LINK_OWED_MAX_BYTES);
	rig_close(&rig);
}

/* As much as its rings hold is never acknowledged; what is behind the first of it goes on. */
static void test_shim_link_goes_on_as_long_as_it_acknowledges(void **state)
{
	const uint64_t in_rings = SHIM_MAX_JOBS * SHIM_RING_BYTES / WIRE_FRAME_MAX_BYTES;
	struct wire_header header;
	struct rig rig = {.shim_fd = -1};
	uint32_t job = 0;

	(void)state;
	rig_open(&rig, false, 0);
	start_running(&rig, &job);
	for (uint64_t number = 1; number < 12 * in_rings; number++) {
		say_long(&rig, job, number, 0);
		if (number < in_rings)
			continue;
		shim_link_settle(rig.link, number - in_rings + 1);
		assert_int_equal(shim_link_flush(rig.link), 0);
		while (hear(&rig, &header, NULL, 0) != 0)
			continue;
	}
	assert_int_equal(rig.n_lost, 0);
	assert_int_equal(rig.n_output, 12 * in_rings - 1);
	rig_close(&rig);
}

static void test_shim_link_hears_a_ring_again_once(void **state)
{
	const struct wire_kept kept = {.pid = 7};
	struct rig rig = {.shim_fd = -1};

	(void)state;
	rig_open(&rig, true, 0);
	say_hello(&rig, 5000);
	say(&rig, WIRE_KEPT, 3, 0, &kept, sizeof(kept));
	turn(&rig);
	for (uint64_t number = 1; number <= SHIM_RING_BYTES / WIRE_FRAME_MAX_BYTES; number++)
		say_long(&rig, 3, number, WIRE_AGAIN);
	assert_int_equal(rig.n_lost, 0);
	assert_int_equal(rig.n_output, SHIM_RING_BYTES / WIRE_FRAME_MAX_BYTES);
	for (uint64_t number = 1; number <= 2 && rig.n_lost == 0; number++)
		say_long(&rig, 3, 100 + number, WIRE_AGAIN);
	assert_int_equal(rig.n_lost, 1);
	assert_int_equal(rig.lost_error, -EPROTO);
	rig_close(&rig);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_shim_link_stops_reading_at_its_window),
	cmocka_unit_test(test_shim_link_ends_with_more_than_the_rings_hold),
	cmocka_unit_test(test_shim_link_goes_on_as_long_as_it_acknowledges),
	cmocka_unit_test(test_shim_link_hears_a_ring_again_once),
};

TEST_MAIN(tests)
