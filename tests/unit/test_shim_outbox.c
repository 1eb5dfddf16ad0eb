/*
 * The unacknowledged frames of one job, against a list of what went in.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/frame.h"
#include "base/sockmsg.h"

#include "shim/outbox.h"
#include "tests/lib/test.h"

#define RING_BYTES (128ul * 1024)
#define MAX_FRAMES 1024

struct model {
	struct outbox outbox;
	int pipe_fd[2];
	int socket_fd[2];
	uint64_t last; /* number given */
	uint64_t acked;
	uint64_t sent; /* number that the peer has seen on this connection */
	uint32_t size[MAX_FRAMES];
	bool has_last;
};

static void model_init(struct model *model)
{
	memset(model, 0, sizeof(*model));
	assert_int_equal(pipe2(model->pipe_fd, O_CLOEXEC | O_NONBLOCK), 0);
	assert_int_equal(sockmsg_pair(model->socket_fd, 1), 0);
}

static void model_done(struct model *model)
{
	outbox_done(&model->outbox);
	for (int i = 0; i < 2; i++) {
		(void)fd_close(model->pipe_fd[i]);
		(void)fd_close(model->socket_fd[i]);
	}
}

static void model_fill(uint8_t *data, size_t size, uint64_t number)
{
	for (size_t i = 0; i < size; i++)
		data[i] = (uint8_t)(number * 31 + i);
}

/* A frame of `size` bytes, if there is room. */
static void model_put(struct model *model, size_t size)
{
	static uint8_t data[WIRE_PAYLOAD_MAX_BYTES];
	struct wire_header header = frame_header(WIRE_STDOUT, 5, model->last + 1, size);
	size_t room = outbox_room(&model->outbox, RING_BYTES);

	if (size > room || model->has_last || model->last + 1 == MAX_FRAMES)
		return;
	model_fill(data, size, model->last + 1);
	if (outbox_is_open(&model->outbox)) {
		assert_int_equal(write(model->pipe_fd[1], data, size), size);
		assert_int_equal(outbox_read(&model->outbox, model->pipe_fd[0], header, room),
				 size);
	} else {
		assert_int_equal(outbox_first(&model->outbox, header, data, RING_BYTES), 0);
	}
	model->size[++model->last] = (uint32_t)size;
}

static void model_set_last(struct model *model)
{
	const struct wire_exit exit = {.code = 3};

	if (model->has_last || model->last + 1 == MAX_FRAMES)
		return;
	outbox_set_last(&model->outbox, frame_header(WIRE_EXIT, 5, ++model->last, sizeof(exit)),
			&exit);
	model->size[model->last] = sizeof(exit);
	model->has_last = true;
}

/* Send one frame; the peer checks number and bytes. */
static void model_send(struct model *model)
{
	static uint8_t message[WIRE_FRAME_MAX_BYTES];
	static uint8_t data[WIRE_PAYLOAD_MAX_BYTES];
	uint64_t next = outbox_next(&model->outbox);
	struct wire_header header;
	const uint8_t *payload = NULL;
	size_t size;
	ssize_t n;

	assert_int_equal(next, model->sent < model->last ? model->sent + 1 : 0);
	if (next == 0)
		return;
	assert_int_equal(outbox_send(&model->outbox, model->socket_fd[0]), 0);
	n = sockmsg_recv(model->socket_fd[1], message, sizeof(message), NULL, 0);
	assert_true(n > 0);
	assert_int_equal(frame_check(message, (size_t)n, FRAME_FROM_SHIM, &header, &payload, &size),
			 0);
	assert_int_equal(header.number, next);
	assert_int_equal(size, model->size[next]);
	if (header.type == WIRE_STDOUT) {
		model_fill(data, size, next);
		assert_memory_equal(payload, data, size);
	}
	model->sent = next;
}

static void model_ack(struct model *model, uint64_t acked)
{
	outbox_ack(&model->outbox, acked);
	if (acked > model->acked)
		model->acked = acked;
	if (model->sent < model->acked)
		model->sent = model->acked;
	assert_int_equal(outbox_frames(&model->outbox), model->last - model->acked);
	assert_int_equal(outbox_empty(&model->outbox), model->last == model->acked);
}

static void test_outbox_random_walk_equals_model(void **state)
{
	struct test_random random = {.state = 7};

	(void)state;
	for (int round = 0; round < 20; round++) {
		struct model model;

		model_init(&model);
		for (int i = 0; i < 600; i++) {
			switch (test_random_below(&random, 8)) {
			case 0:
			case 1:
			case 2:
				model_put(&model, 1 + test_random_below(&random, 20000));
				break;
			case 3:
			case 4:
			case 5:
				model_send(&model);
				break;
			case 6:
				/* Also numbers that were acknowledged before, or never sent. */
				model_ack(&model,
					  test_random_below(&random, (uint32_t)model.last + 1));
				break;
			default:
				outbox_rewind(&model.outbox);
				model.sent = model.acked;
				if (i > 500)
					model_set_last(&model);
			}
		}
		model_ack(&model, model.last);
		assert_true(outbox_empty(&model.outbox));
		assert_int_equal(outbox_next(&model.outbox), 0);
		model_done(&model);
	}
}

static void test_outbox_read_of_empty_and_ended_pipe_makes_no_frame(void **state)
{
	struct model model;

	(void)state;
	model_init(&model);
	model_put(&model, 10);
	assert_int_equal(outbox_read(&model.outbox, model.pipe_fd[0],
				     frame_header(WIRE_STDOUT, 5, 2, 0), 100),
			 -EAGAIN);
	model.pipe_fd[1] = fd_close(model.pipe_fd[1]);
	assert_int_equal(outbox_read(&model.outbox, model.pipe_fd[0],
				     frame_header(WIRE_STDOUT, 5, 2, 0), 100),
			 0);
	assert_int_equal(outbox_frames(&model.outbox), 1);
	model_done(&model);
}

static void test_outbox_room_ends_before_the_ring_does(void **state)
{
	struct model model;

	(void)state;
	model_init(&model);
	assert_int_equal(outbox_room(&model.outbox, RING_BYTES), WIRE_PAYLOAD_MAX_BYTES);
	model_put(&model, 60000);
	model_put(&model, 60000);
	assert_true(outbox_room(&model.outbox, RING_BYTES) < 12000);
	model_put(&model, 8000);
	assert_int_equal(outbox_room(&model.outbox, RING_BYTES), 0);
	model_ack(&model, 1);
	assert_true(outbox_room(&model.outbox, RING_BYTES) >= 60000);
	model_done(&model);
}

/* A kept one gives its frames up for room only, the oldest first, and only those that this
 * connection has and the worker acknowledged. */
static void test_outbox_keeps_what_was_acknowledged(void **state)
{
	struct model model;

	(void)state;
	model_init(&model);
	model.outbox.keeps = true;
	model_put(&model, 60000);
	model_put(&model, 60000);
	model_send(&model);
	model_send(&model);
	outbox_ack(&model.outbox, 2);
	assert_int_equal(outbox_frames(&model.outbox), 2);
	assert_int_equal(model.outbox.dropped, 0);
	/* A next connection gets them again, marked. */
	outbox_rewind(&model.outbox);
	model.sent = 0;
	assert_int_equal(outbox_next(&model.outbox), 1);
	/* Not even sent on this one: they stay, and there is no room. */
	assert_true(outbox_room(&model.outbox, RING_BYTES) < 12000);
	assert_int_equal(model.outbox.dropped, 0);
	model_send(&model);
	assert_true(outbox_room(&model.outbox, RING_BYTES) > 60000);
	assert_int_equal(model.outbox.dropped, 1);
	assert_int_equal(outbox_frames(&model.outbox), 1);
	model_done(&model);
}

static void test_outbox_kept_rests_after_its_end(void **state)
{
	static uint8_t message[WIRE_FRAME_MAX_BYTES];
	const struct wire_exit exit = {.code = 3};
	const struct wire_header *header = (const struct wire_header *)(void *)message;
	struct model model;

	(void)state;
	model_init(&model);
	model.outbox.keeps = true;
	model_put(&model, 10);
	outbox_set_last(&model.outbox, frame_header(WIRE_EXIT, 5, 2, sizeof(exit)), &exit);
	outbox_ack(&model.outbox, 1);
	assert_false(outbox_rests(&model.outbox));
	outbox_ack(&model.outbox, 2);
	assert_true(outbox_rests(&model.outbox));
	assert_false(outbox_empty(&model.outbox));
	/* An older number takes nothing back. */
	outbox_ack(&model.outbox, 1);
	assert_true(outbox_rests(&model.outbox));
	for (uint64_t number = 1; number <= 2; number++) {
		assert_int_equal(outbox_next(&model.outbox), number);
		assert_int_equal(outbox_send(&model.outbox, model.socket_fd[0]), 0);
		assert_true(sockmsg_recv(model.socket_fd[1], message, sizeof(message), NULL, 0) >
			    0);
		assert_int_equal(header->number, number);
		assert_int_equal(header->flags, WIRE_AGAIN);
	}
	assert_int_equal(outbox_next(&model.outbox), 0);
	model_done(&model);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_outbox_keeps_what_was_acknowledged),
	cmocka_unit_test(test_outbox_kept_rests_after_its_end),
	cmocka_unit_test(test_outbox_random_walk_equals_model),
	cmocka_unit_test(test_outbox_read_of_empty_and_ended_pipe_makes_no_frame),
	cmocka_unit_test(test_outbox_room_ends_before_the_ring_does),
};
TEST_MAIN(tests)
