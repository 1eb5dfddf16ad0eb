/*
 * The client over a socketpair: the test is the supervisor.
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/launch.h"
#include "base/sockmsg.h"

#include "supervisor/api/link/supervisor_client.h"
#include "tests/lib/test.h"

struct rig {
	sd_event *event;
	struct supervisor_client *client;
	int fd;
	unsigned int n_answers;
	unsigned int n_nothing; /* timeout or closed */
	unsigned int n_fds;
	unsigned int n_gone;
	unsigned int n_closed;
	uint32_t last_error;
};

static void on_answer(void *userdata, const struct launch_msg *answer, int fd)
{
	struct rig *rig = userdata;

	if (fd >= 0) {
		rig->n_fds++;
		(void)fd_close(fd);
	}
	if (answer) {
		rig->n_answers++;
		rig->last_error = answer->error;
	} else {
		rig->n_nothing++;
	}
}

static void on_gone(void *userdata, const struct id *session, const struct launch_gone *gone)
{
	struct rig *rig = userdata;

	(void)session;
	(void)gone;
	rig->n_gone++;
}

static void on_closed(void *userdata, int error)
{
	struct rig *rig = userdata;

	(void)error;
	rig->n_closed++;
}

static const struct supervisor_client_events events = {.gone = on_gone, .closed = on_closed};
static const struct id some = {
	{1, 2, 3}
};

static void rig_open(struct rig *rig)
{
	int fds[2];

	*rig = (struct rig){.fd = -1};
	assert_int_equal(sd_event_new(&rig->event), 0);
	assert_int_equal(sockmsg_pair(fds, 1), 0);
	rig->fd = fds[1];
	assert_int_equal(supervisor_client_new(rig->event, fds[0], &events, rig, &rig->client), 0);
}

static void rig_close(struct rig *rig)
{
	rig->client = supervisor_client_free(rig->client);
	rig->fd = fd_close(rig->fd);
	rig->event = sd_event_unref(rig->event);
}

static void turn(struct rig *rig, uint64_t wait_us)
{
	while (sd_event_run(rig->event, wait_us) > 0)
		wait_us = 0;
}

static void ask(struct rig *rig, enum launch_type type, usec_t timeout)
{
	assert_int_equal(
		supervisor_client_request(
			rig->client,
			&(struct supervisor_request){.type = type,
						     .session = type == LAUNCH_ADOPT ? NULL : &some,
						     .timeout = timeout},
			on_answer, rig),
		0);
}

static struct launch_msg take_request(struct rig *rig)
{
	struct launch_msg msg;

	assert_int_equal(sockmsg_recv(rig->fd, &msg, sizeof(msg), NULL, 0), sizeof(msg));
	assert_int_equal(launch_check(&msg, sizeof(msg), 0), 0);
	return msg;
}

static void answer(struct rig *rig, const struct launch_msg *request, uint16_t type, uint32_t more,
		   int fd)
{
	struct launch_msg msg = *request;

	msg.type = type;
	msg.more = more;
	if (more)
		memcpy(msg.session, some.bytes, ID_BYTES);
	assert_int_equal(
		sockmsg_send(rig->fd, &msg, sizeof(msg), fd >= 0 ? &fd : NULL, fd >= 0 ? 1 : 0), 0);
}

static void test_supervisor_client_answers_come_in_any_order(void **state)
{
	struct launch_msg first;
	struct launch_msg second;
	struct rig rig;

	(void)state;
	rig_open(&rig);
	ask(&rig, LAUNCH_KILL, USEC_PER_SEC);
	ask(&rig, LAUNCH_STAT, USEC_PER_SEC);
	first = take_request(&rig);
	second = take_request(&rig);
	assert_int_not_equal(first.serial, second.serial);
	assert_memory_equal(first.session, some.bytes, ID_BYTES);
	answer(&rig, &second, LAUNCH_STAT + 1, 0, -1);
	answer(&rig, &first, LAUNCH_KILL + 1, 0, -1);
	turn(&rig, 0);
	assert_int_equal(rig.n_answers, 2);
	assert_int_equal(rig.n_closed, 0);
	rig_close(&rig);
}

static void test_supervisor_client_adopt_has_many_answers(void **state)
{
	struct launch_msg request;
	struct rig rig;

	(void)state;
	rig_open(&rig);
	ask(&rig, LAUNCH_ADOPT, USEC_PER_SEC);
	request = take_request(&rig);
	answer(&rig, &request, LAUNCH_ADOPT + 1, 1, rig.fd);
	answer(&rig, &request, LAUNCH_ADOPT + 1, 1, rig.fd);
	answer(&rig, &request, LAUNCH_ADOPT + 1, 0, -1);
	turn(&rig, 0);
	assert_int_equal(rig.n_answers, 3);
	assert_int_equal(rig.n_fds, 2);
	rig_close(&rig);
}

static void test_supervisor_client_deadline_passes(void **state)
{
	struct launch_msg request;
	struct rig rig;

	(void)state;
	rig_open(&rig);
	ask(&rig, LAUNCH_KILL, 20 * USEC_PER_MS);
	turn(&rig, 200 * USEC_PER_MS);
	assert_int_equal(rig.n_nothing, 1);
	/* What comes too late is for nobody, and its descriptor is closed. */
	request = take_request(&rig);
	answer(&rig, &request, LAUNCH_KILL + 1, 0, rig.fd);
	turn(&rig, 0);
	assert_int_equal(rig.n_answers, 0);
	assert_int_equal(rig.n_fds, 0);
	assert_int_equal(rig.n_closed, 0);
	rig_close(&rig);
}

static void test_supervisor_client_nonsense_closes(void **state)
{
	struct launch_msg request;
	struct rig rig;

	(void)state;
	rig_open(&rig);
	ask(&rig, LAUNCH_KILL, USEC_PER_SEC);
	request = take_request(&rig);
	answer(&rig, &request, LAUNCH_STAT + 1, 0, -1); /* the answer to something else */
	turn(&rig, 0);
	assert_int_equal(rig.n_closed, 1);
	assert_int_equal(rig.n_nothing, 1);
	assert_int_equal(supervisor_client_request(rig.client,
						   &(struct supervisor_request){.type = LAUNCH_KILL,
										.session = &some,
										.timeout = 1},
						   on_answer, &rig),
			 -EPIPE);
	rig_close(&rig);
}

static void test_supervisor_client_end_answers_all(void **state)
{
	struct rig rig;

	(void)state;
	rig_open(&rig);
	ask(&rig, LAUNCH_KILL, USEC_PER_SEC);
	ask(&rig, LAUNCH_STAT, USEC_PER_SEC);
	rig.fd = fd_close(rig.fd);
	turn(&rig, 0);
	assert_int_equal(rig.n_nothing, 2);
	assert_int_equal(rig.n_closed, 1);
	rig_close(&rig);
}

static void test_supervisor_client_event_is_heard(void **state)
{
	struct launch_msg msg = launch_message(LAUNCH_EVENT_GONE, 0, some.bytes);
	struct rig rig;

	(void)state;
	rig_open(&rig);
	msg.u.gone.reason = LAUNCH_GONE_OOM;
	assert_int_equal(sockmsg_send(rig.fd, &msg, sizeof(msg), NULL, 0), 0);
	turn(&rig, 0);
	assert_int_equal(rig.n_gone, 1);
	rig_close(&rig);
}

static void test_supervisor_client_full_socket_waits_in_order(void **state)
{
	uint32_t expected = 0;
	struct rig rig;

	(void)state;
	rig_open(&rig);
	for (int i = 0; i < 1000; i++)
		ask(&rig, LAUNCH_STAT, 60 * USEC_PER_SEC);
	for (int i = 0; i < 1000; i++) {
		struct launch_msg request;
		ssize_t n;

		while ((n = sockmsg_recv(rig.fd, &request, sizeof(request), NULL, 0)) == -EAGAIN)
			turn(&rig, USEC_PER_MS);
		assert_int_equal(n, sizeof(request));
		assert_int_equal(request.serial, ++expected);
	}
	rig_close(&rig);
	assert_int_equal(rig.n_nothing, 1000);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_supervisor_client_answers_come_in_any_order),
	cmocka_unit_test(test_supervisor_client_adopt_has_many_answers),
	cmocka_unit_test(test_supervisor_client_deadline_passes),
	cmocka_unit_test(test_supervisor_client_nonsense_closes),
	cmocka_unit_test(test_supervisor_client_end_answers_all),
	cmocka_unit_test(test_supervisor_client_event_is_heard),
	cmocka_unit_test(test_supervisor_client_full_socket_waits_in_order),
};

TEST_MAIN(tests)
