#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/launch.h"

#include "tests/lib/test.h"

static const uint8_t session[ID_BYTES] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};

static struct launch_msg message(unsigned int type, const uint8_t *id)
{
	struct launch_msg msg = launch_message(LAUNCH_HELLO, 7, id);

	msg.type = (uint16_t)type;
	if (type / 2 * 2 != LAUNCH_HELLO)
		memset(&msg.u, 0, sizeof(msg.u));
	if (type == LAUNCH_REDIS)
		msg.u.redis.action = REDIS_MAKE;
	if (type == LAUNCH_START)
		memcpy(msg.u.plan.session, session, ID_BYTES);
	return msg;
}

static bool names_session(unsigned int type)
{
	return type != LAUNCH_HELLO && type != LAUNCH_ADOPT && type != LAUNCH_LOG_LEVEL &&
	       type != LAUNCH_LOG_LEVEL + 1 && type != LAUNCH_LINK && type != LAUNCH_LINK + 1 &&
	       type != LAUNCH_SERVICE && type != LAUNCH_SERVICE + 1 && type != LAUNCH_LEASE &&
	       type != LAUNCH_LEASE + 1 && type != LAUNCH_S3 && type != LAUNCH_S3 + 1 &&
	       type != LAUNCH_EVENT_FACTS && type != LAUNCH_EVENT_CONFIG &&
	       type != LAUNCH_EVENT_LINK;
}

static void test_launch_check_every_type_and_side(void **state)
{
	(void)state;
	for (unsigned int type = 0; type < 128; type++) {
		struct launch_msg msg = message(type, names_session(type) ? session : NULL);
		bool is_request = type >= 2 && type <= LAUNCH_S3 && type % 2 == 0;
		bool is_answer = (type >= 3 && type <= LAUNCH_S3 + 1 && type % 2 == 1) ||
				 type == LAUNCH_EVENT_GONE || type == LAUNCH_EVENT_FACTS ||
				 type == LAUNCH_EVENT_CONFIG || type == LAUNCH_EVENT_LINK ||
				 type == LAUNCH_EVENT_NET || type == LAUNCH_EVENT_NET_GONE;

		assert_int_equal(launch_check(&msg, sizeof(msg), 0), is_request ? 0 : -EPROTO);
		assert_int_equal(launch_check(&msg, sizeof(msg), 1), is_answer ? 0 : -EPROTO);
		assert_int_equal(launch_check(&msg, sizeof(msg) - 1, 0), -EPROTO);
		assert_int_equal(launch_check(&msg, sizeof(msg) + 1, 1), -EPROTO);
		if (!is_request)
			continue;
		msg = message(type, names_session(type) ? NULL : session);
		assert_int_equal(launch_check(&msg, sizeof(msg), 0), -EPROTO);
	}
}

static void test_launch_check_texts_of_a_config_event_end(void **state)
{
	struct launch_msg msg = launch_message(LAUNCH_EVENT_CONFIG, 0, NULL);

	(void)state;
	assert_int_equal(launch_check(&msg, sizeof(msg), 1), 0);
	memset(msg.u.config.text, 'a', sizeof(msg.u.config.text));
	assert_int_equal(launch_check(&msg, sizeof(msg), 1), -EPROTO);
	msg.u.config.text[0] = '\0';
	memset(msg.u.config.waiting, 'a', sizeof(msg.u.config.waiting));
	assert_int_equal(launch_check(&msg, sizeof(msg), 1), -EPROTO);
	msg.u.config.waiting[0] = '\0';
	msg.u.config.refused = 2;
	assert_int_equal(launch_check(&msg, sizeof(msg), 1), -EPROTO);
}

static void test_launch_check_request_fields(void **state)
{
	(void)state;
	for (int i = 0; i < 5; i++) {
		struct launch_msg msg = message(LAUNCH_KILL, session);

		assert_int_equal(launch_check(&msg, sizeof(msg), 0), 0);
		msg.magic += i == 0;
		msg.version = (uint16_t)(msg.version + (i == 1));
		msg.error = i == 2;
		msg.more = i == 3;
		msg.zero = i == 4;
		assert_int_equal(launch_check(&msg, sizeof(msg), 0), -EPROTO);
	}
}

static void test_launch_check_start_with_two_sessions_is_refused(void **state)
{
	struct launch_msg msg = message(LAUNCH_START, session);

	(void)state;
	assert_int_equal(launch_check(&msg, sizeof(msg), 0), 0);
	msg.u.plan.session[3]++;
	assert_int_equal(launch_check(&msg, sizeof(msg), 0), -EPROTO);
}

static void test_launch_check_start_with_bad_secrets_is_refused(void **state)
{
	struct launch_msg msg = message(LAUNCH_START, session);

	(void)state;
	msg.u.start.secrets.n = 1;
	assert_int_equal(launch_check(&msg, sizeof(msg), 0), -EPROTO); /* no name */
	memcpy(msg.u.start.secrets.name[0], "db", 2);
	assert_int_equal(launch_check(&msg, sizeof(msg), 0), 0);
	msg.u.start.secrets.name[0][0] = '/';
	assert_int_equal(launch_check(&msg, sizeof(msg), 0), -EPROTO);
}

static void test_launch_check_request_id_is_words(void **state)
{
	struct launch_msg msg = message(LAUNCH_START, session);

	(void)state;
	memcpy(msg.u.start.request, "a-1.b_2", 7);
	assert_int_equal(launch_check(&msg, sizeof(msg), 0), 0);
	msg.u.start.request[1] = ' ';
	assert_int_equal(launch_check(&msg, sizeof(msg), 0), -EPROTO);
	memset(msg.u.start.request, 'a', sizeof(msg.u.start.request));
	assert_int_equal(launch_check(&msg, sizeof(msg), 0), -EPROTO);
}

static void test_launch_check_template_is_a_name_of_one(void **state)
{
	static const char *const bad[] = {"base", ".x", "-x", "A", "a/b", "..", "a b"};
	struct launch_msg msg = message(LAUNCH_START, session);

	(void)state;
	memcpy(msg.u.start.template, "data-app.1_2", 12);
	assert_int_equal(launch_check(&msg, sizeof(msg), 0), 0);
	msg.u.start.template[TEMPLATE_NAME_BYTES - 1] = 'x'; /* behind its end */
	assert_int_equal(launch_check(&msg, sizeof(msg), 0), -EPROTO);
	memset(msg.u.start.template, 'a', TEMPLATE_NAME_BYTES); /* without one */
	assert_int_equal(launch_check(&msg, sizeof(msg), 0), -EPROTO);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		msg = message(LAUNCH_START, session);
		memcpy(msg.u.start.template, bad[i], strlen(bad[i]));
		assert_int_equal(launch_check(&msg, sizeof(msg), 0), -EPROTO);
	}
}

static void test_launch_check_hello_fields(void **state)
{
	(void)state;
	for (int i = 0; i < 3; i++) {
		struct launch_msg msg = launch_message(LAUNCH_HELLO, 1, NULL);

		assert_int_equal(launch_check(&msg, sizeof(msg), 0), 0);
		msg.u.hello.magic += i == 0;
		msg.u.hello.version = (uint16_t)(msg.u.hello.version + (i == 1));
		msg.u.hello.message_bytes = (uint16_t)(msg.u.hello.message_bytes + (i == 2));
		assert_int_equal(launch_check(&msg, sizeof(msg), 0), -EPROTO);
	}
}

static void test_launch_check_answer_fields(void **state)
{
	struct launch_msg msg = message(LAUNCH_KILL + 1, session);

	(void)state;
	msg.error = LAUNCH_E_MAX_ - 1;
	assert_int_equal(launch_check(&msg, sizeof(msg), 1), 0);
	msg.error = LAUNCH_E_MAX_;
	assert_int_equal(launch_check(&msg, sizeof(msg), 1), -EPROTO);
	msg.error = 0;
	msg.more = 1;
	assert_int_equal(launch_check(&msg, sizeof(msg), 1), -EPROTO);
	msg = message(LAUNCH_ADOPT + 1, session);
	msg.more = 1;
	assert_int_equal(launch_check(&msg, sizeof(msg), 1), 0);
	msg.more = 2;
	assert_int_equal(launch_check(&msg, sizeof(msg), 1), -EPROTO);
	msg = message(LAUNCH_ADOPT + 1, NULL);
	assert_int_equal(launch_check(&msg, sizeof(msg), 1), 0);
	msg.more = 1; /* more follow, but this one names none */
	assert_int_equal(launch_check(&msg, sizeof(msg), 1), -EPROTO);
}

static void test_launch_message_start_is_golden(void **state)
{
	struct launch_msg msg = launch_message(LAUNCH_START, 0x01020304, session);
	size_t n_zero = 0;

	(void)state;
	/* The fixed front; behind it the union, all zero here. */
	test_golden("launch-start", &msg, offsetof(struct launch_msg, u));
	for (size_t i = offsetof(struct launch_msg, u); i < sizeof(msg); i++)
		n_zero += ((const uint8_t *)&msg)[i] == 0;
	assert_int_equal(n_zero, sizeof(msg) - offsetof(struct launch_msg, u));
}

static void test_launch_error_text_every_number(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < LAUNCH_E_MAX_ + 2; i++) {
		const char *text = launch_error_text(i);
		size_t length = strlen(text);

		assert_true(length > 0 && text[length - 1] != '.');
		assert_true(text[0] >= 'a' && text[0] <= 'z');
	}
	assert_string_equal(launch_error_text(UINT32_MAX), "unknown error");
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_launch_check_every_type_and_side),
	cmocka_unit_test(test_launch_check_texts_of_a_config_event_end),
	cmocka_unit_test(test_launch_check_request_fields),
	cmocka_unit_test(test_launch_check_start_with_two_sessions_is_refused),
	cmocka_unit_test(test_launch_check_start_with_bad_secrets_is_refused),
	cmocka_unit_test(test_launch_check_request_id_is_words),
	cmocka_unit_test(test_launch_check_template_is_a_name_of_one),
	cmocka_unit_test(test_launch_check_hello_fields),
	cmocka_unit_test(test_launch_check_answer_fields),
	cmocka_unit_test(test_launch_message_start_is_golden),
	cmocka_unit_test(test_launch_error_text_every_number),
};
TEST_MAIN(tests)
