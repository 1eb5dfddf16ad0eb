/*
 * The link over a socketpair: the test is the egress worker.
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/sockmsg.h"
#include "base/str.h"

#include "supervisor/api/link/egress_link.h"
#include "tests/lib/test.h"

struct rig {
	sd_event *event;
	struct egress_link *link;
	int fd;
	unsigned int n_ready;
	unsigned int n_drained;
	unsigned int n_acks;
	unsigned int n_denials;
	unsigned int n_counters;
	unsigned int n_closed;
	uint32_t generation;
	int error;
	bool more;
};

static const struct id some = {
	{1, 2, 3}
};

static void on_ready(void *userdata)
{
	((struct rig *)userdata)->n_ready++;
}

static void on_drained(void *userdata)
{
	((struct rig *)userdata)->n_drained++;
}

static void on_acked(void *userdata, const struct id *session, uint32_t generation, int error)
{
	struct rig *rig = userdata;

	assert_true(id_equal(session, &some));
	rig->n_acks++;
	rig->generation = generation;
	rig->error = error;
}

static void on_denied(void *userdata, const struct id *session, const struct egress_denial *denial)
{
	assert_true(id_equal(session, &some));
	assert_string_equal(denial->name, "a.example");
	((struct rig *)userdata)->n_denials++;
}

static void on_counted(void *userdata, uint32_t serial, const struct egress_counters *counters,
		       bool more, int error)
{
	struct rig *rig = userdata;

	(void)counters;
	assert_int_equal(serial, 7);
	rig->n_counters++;
	rig->more = more;
	rig->error = error;
}

static void on_closed(void *userdata, int error)
{
	struct rig *rig = userdata;

	rig->n_closed++;
	rig->error = error;
}

static const struct egress_link_events events = {
	.ready = on_ready,
	.drained = on_drained,
	.acked = on_acked,
	.denied = on_denied,
	.counted = on_counted,
	.closed = on_closed,
};

static struct egress_msg message(enum egress_type type)
{
	struct egress_msg msg = {
		.magic = EGRESS_MAGIC, .version = EGRESS_VERSION, .type = (uint16_t)type};

	if (type != EGRESS_HELLO)
		memcpy(msg.session, some.bytes, ID_BYTES);
	else
		msg.u.hello.message_bytes = sizeof(msg);
	return msg;
}

static void turn(struct rig *rig)
{
	while (sd_event_run(rig->event, 0) > 0)
		;
}

static void say(struct rig *rig, const struct egress_msg *msg)
{
	assert_int_equal(sockmsg_send(rig->fd, msg, sizeof(*msg), NULL, 0), 0);
	turn(rig);
}

/* The next message from the link, which has to be of that type. */
static struct egress_msg hear(struct rig *rig, enum egress_type type)
{
	struct egress_msg msg;

	turn(rig);
	assert_int_equal(sockmsg_recv(rig->fd, &msg, sizeof(msg), NULL, 0), sizeof(msg));
	assert_int_equal(msg.type, type);
	return msg;
}

static int set_up(void **state)
{
	struct rig *rig = calloc(1, sizeof(*rig));
	int fds[2];

	assert_non_null(rig);
	assert_int_equal(sd_event_new(&rig->event), 0);
	assert_int_equal(sockmsg_pair(fds, 1), 0);
	rig->fd = fds[1];
	assert_int_equal(egress_link_new(rig->event, fds[0], &events, rig, &rig->link), 0);
	*state = rig;
	return 0;
}

static int tear_down(void **state)
{
	struct rig *rig = *state;

	rig->link = egress_link_free(rig->link);
	rig->fd = fd_close(rig->fd);
	rig->event = sd_event_unref(rig->event);
	free(rig);
	return 0;
}

static void greet(struct rig *rig)
{
	const struct egress_msg hello = message(EGRESS_HELLO);

	assert_int_equal(hear(rig, EGRESS_HELLO).u.hello.message_bytes, sizeof(hello));
	say(rig, &hello);
	assert_int_equal(rig->n_ready, 1);
	assert_true(egress_link_ready(rig->link));
}

static void test_a_policy_is_said_in_order(void **state)
{
	struct egress_rule rules[2] = {
		{.index = 0, .n_paths = 2},
                {.index = 1         }
        };
	struct egress_path paths[2] = {{.prefix = "/a"}, {.prefix = "/b"}};
	const struct net_policy policy = {.rule = rules, .path = paths, .n_rules = 2, .n_paths = 2};
	struct rig *rig = *state;
	struct egress_msg msg;

	assert_false(egress_link_ready(rig->link));
	greet(rig);
	assert_int_equal(egress_link_policy(rig->link, &some, 9, &policy), 0);
	msg = hear(rig, EGRESS_POLICY);
	assert_int_equal(msg.generation, 9);
	assert_int_equal(msg.u.policy.n_rules, 2);
	assert_memory_equal(msg.session, some.bytes, ID_BYTES);
	assert_int_equal(hear(rig, EGRESS_RULE).u.rule.index, 0);
	assert_string_equal(hear(rig, EGRESS_PATH).u.path.prefix, "/a");
	assert_string_equal(hear(rig, EGRESS_PATH).u.path.prefix, "/b");
	assert_int_equal(hear(rig, EGRESS_RULE).u.rule.index, 1);
	assert_int_equal(hear(rig, EGRESS_END).generation, 9);
	msg = message(EGRESS_ACK);
	msg.generation = 9;
	say(rig, &msg);
	assert_int_equal(rig->n_acks, 1);
	assert_int_equal(rig->generation, 9);
	assert_int_equal(rig->error, 0);
}

/* A worker that does not read for a while loses nothing, and nothing changes its order. */
static void test_what_the_socket_does_not_take_waits(void **state)
{
	static struct egress_rule rules[EGRESS_RULES_MAX];
	const struct net_policy policy = {.rule = rules, .n_rules = EGRESS_RULES_MAX};
	struct rig *rig = *state;

	for (uint32_t i = 0; i < EGRESS_RULES_MAX; i++)
		rules[i].index = i;
	greet(rig);
	for (uint32_t k = 1; k <= 20; k++)
		assert_int_equal(egress_link_policy(rig->link, &some, k, &policy), 0);
	for (uint32_t k = 1; k <= 20; k++) {
		assert_int_equal(hear(rig, EGRESS_POLICY).generation, k);
		for (uint32_t i = 0; i < EGRESS_RULES_MAX; i++)
			assert_int_equal(hear(rig, EGRESS_RULE).u.rule.index, i);
		assert_int_equal(hear(rig, EGRESS_END).generation, k);
	}
	assert_int_equal(rig->n_closed, 0);
}

static void test_a_worker_that_does_not_read_is_busy_until_it_has(void **state)
{
	struct rig *rig = *state;
	uint32_t n = 0;
	uint32_t n_heard = 0;
	struct egress_msg msg;

	greet(rig);
	while (!egress_link_is_busy(rig->link)) {
		assert_int_equal(egress_link_count(rig->link, &some, ++n), 0);
		assert_true(n < 65536);
	}
	assert_true(n >= 4096);
	assert_int_equal(rig->n_drained, 0);
	for (;;) {
		turn(rig);
		if (sockmsg_recv(rig->fd, &msg, sizeof(msg), NULL, 0) != sizeof(msg))
			break;
		assert_int_equal(msg.serial, ++n_heard);
	}
	assert_int_equal(n_heard, n);
	assert_int_equal(rig->n_drained, 1);
	assert_false(egress_link_is_busy(rig->link));
}

static void test_a_word_to_forget_is_never_lost(void **state)
{
	struct rig *rig = *state;
	unsigned int n = 0;

	greet(rig);
	/* Nobody reads: at some point no more can wait. */
	while (rig->n_closed == 0 && n++ < 200000)
		egress_link_forget(rig->link, &some);
	assert_int_equal(rig->n_closed, 1);
	assert_int_equal(rig->error, -ENOBUFS);
	assert_false(egress_link_ready(rig->link));
	egress_link_forget(rig->link, &some);
	assert_int_equal(rig->n_closed, 1);
}

static void test_denials_and_counters_are_passed_on(void **state)
{
	struct rig *rig = *state;
	struct egress_msg msg = message(EGRESS_DENIAL);

	greet(rig);
	msg.u.denial = (struct egress_denial){.channel = EGRESS_CHANNEL_TCP,
					      .reason = EGRESS_REASON_RULE,
					      .port = 443,
					      .count = 1,
					      .name = "a.example"};
	say(rig, &msg);
	assert_int_equal(rig->n_denials, 1);
	msg = message(EGRESS_COUNTERS);
	msg.serial = 7;
	msg.more = 1;
	say(rig, &msg);
	assert_true(rig->more);
	msg.more = 0;
	say(rig, &msg);
	assert_int_equal(rig->n_counters, 2);
	assert_false(rig->more);
	assert_int_equal(rig->n_closed, 0);
}

enum lie {
	LIE_MAGIC,
	LIE_TYPE,
	LIE_REASON,
	LIE_CHANNEL,
	LIE_PORT,
	LIE_NAME,
	LIE_LABEL,
	LIE_HELLO_TWICE,
	LIE_SHORT,
	LIE_MAX_,
};

static struct egress_msg lie_about(enum lie lie)
{
	struct egress_msg msg = message(EGRESS_DENIAL);

	msg.u.denial =
		(struct egress_denial){.channel = EGRESS_CHANNEL_TCP, .reason = EGRESS_REASON_RULE};
	if (lie == LIE_MAGIC)
		msg.magic++;
	else if (lie == LIE_TYPE)
		msg.type = EGRESS_TYPE_MAX_;
	else if (lie == LIE_REASON)
		msg.u.denial.reason = EGRESS_REASON_MAX_;
	else if (lie == LIE_CHANNEL)
		msg.u.denial.channel = 0;
	else if (lie == LIE_PORT)
		msg.u.denial.port = 65536;
	else if (lie == LIE_NAME)
		memset(msg.u.denial.name, 'a', sizeof(msg.u.denial.name));
	else if (lie == LIE_LABEL)
		memset(msg.u.denial.label, 'a', sizeof(msg.u.denial.label));
	else if (lie == LIE_HELLO_TWICE)
		msg = message(EGRESS_HELLO);
	return msg;
}

static void test_nonsense_ends_the_link(void **state)
{
	for (enum lie lie = 0; lie < LIE_MAX_; lie++) {
		struct egress_msg msg = lie_about(lie);
		struct rig *rig;

		assert_int_equal(set_up(state), 0);
		rig = *state;
		greet(rig);
		assert_int_equal(sockmsg_send(rig->fd, &msg,
					      lie == LIE_SHORT ? sizeof(msg) - 1 : sizeof(msg),
					      NULL, 0),
				 0);
		turn(rig);
		assert_int_equal(rig->n_closed, 1);
		assert_int_equal(rig->error, -EPROTO);
		assert_int_equal(rig->n_denials, 0);
		assert_false(egress_link_ready(rig->link));
		egress_link_forget(rig->link, &some); /* not told twice */
		assert_int_equal(tear_down(state), 0);
	}
}

static void test_the_first_word_is_a_greeting(void **state)
{
	struct rig *rig = *state;
	struct egress_msg msg = message(EGRESS_ACK);

	say(rig, &msg);
	assert_int_equal(rig->n_acks, 0);
	assert_int_equal(rig->n_closed, 1);
}

static void test_a_worker_that_leaves_is_told_once(void **state)
{
	struct rig *rig = *state;

	greet(rig);
	rig->fd = fd_close(rig->fd);
	turn(rig);
	assert_int_equal(rig->n_closed, 1);
	assert_false(egress_link_ready(rig->link));
	assert_false(egress_link_ready(NULL));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		TEST(test_a_policy_is_said_in_order),
		TEST(test_what_the_socket_does_not_take_waits),
		TEST(test_a_worker_that_does_not_read_is_busy_until_it_has),
		TEST(test_a_word_to_forget_is_never_lost),
		TEST(test_denials_and_counters_are_passed_on),
		cmocka_unit_test(test_nonsense_ends_the_link),
		TEST(test_the_first_word_is_a_greeting),
		TEST(test_a_worker_that_leaves_is_told_once),
	};
	int n_before = test_begin();

	return test_end(n_before, cmocka_run_group_tests(tests, NULL, NULL));
}
