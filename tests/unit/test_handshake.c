#include <string.h>

#include "base/websocket_key.h"

#include "supervisor/api/http/handshake.h"
#include "tests/lib/test.h"

#define KEY "dGhlIHNhbXBsZSBub25jZQ=="

static struct handshake offer(void)
{
	struct handshake handshake = {0};

	handshake_add(&handshake, "host", "data.example:8443");
	handshake_add(&handshake, "UPGRADE", "h2c, WebSocket");
	handshake_add(&handshake, "Connection", "keep-alive");
	handshake_add(&handshake, "Connection", "Upgrade");
	handshake_add(&handshake, "Sec-WebSocket-Key", KEY);
	handshake_add(&handshake, "Sec-WebSocket-Version", "13");
	return handshake;
}

static void test_websocket_key_answer_is_the_rfcs_example(void **state)
{
	char accept[WEBSOCKET_ACCEPT_BYTES];

	(void)state;
	websocket_key_answer(KEY, accept);
	assert_string_equal(accept, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
}

static void test_handshake_judge_without_upgrade_is_an_ordinary_request(void **state)
{
	struct handshake handshake = {0};

	(void)state;
	handshake_add(&handshake, "Upgrade", "websockets");
	handshake_add(&handshake, "Upgrade", NULL);
	handshake_add(&handshake, "Connection", "upgrade");
	assert_int_equal(handshake_judge(&handshake, ""), HANDSHAKE_NONE);
}

static void test_handshake_judge_takes_version_13_only(void **state)
{
	struct handshake handshake = offer();

	(void)state;
	assert_int_equal(handshake_judge(&handshake, ""), HANDSHAKE_OK);
	handshake_add(&handshake, "Sec-WebSocket-Version", "13");
	assert_int_equal(handshake_judge(&handshake, ""), HANDSHAKE_BAD_REQUEST);
	handshake = offer();
	handshake.version_13 = false;
	assert_int_equal(handshake_judge(&handshake, ""), HANDSHAKE_BAD_VERSION);
}

static void test_handshake_judge_wants_one_key_of_sixteen_bytes(void **state)
{
	static const char *const bad[] = {"", "AAAA", "dGhlIHNhbXBsZSBub25jZQ=!",
					  "AAAAAAAAAAAAAAAAAAAAAAAA", "dGhlIHNhbXBsZSBub25jZQ==="};
	struct handshake handshake = offer();

	(void)state;
	handshake_add(&handshake, "Sec-WebSocket-Key", KEY);
	assert_int_equal(handshake_judge(&handshake, ""), HANDSHAKE_BAD_REQUEST);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		handshake = offer();
		handshake.key = bad[i];
		assert_int_equal(handshake_judge(&handshake, ""), HANDSHAKE_BAD_REQUEST);
	}
}

static void test_handshake_judge_origin(void **state)
{
	static const struct {
		const char *origin;
		const char *origins;
		enum handshake_result result;
	} rows[] = {
		{"https://data.example:8443",  "",                                         HANDSHAKE_OK        },
		{"https://DATA.example:8443",  "",                                         HANDSHAKE_OK        },
		{"https://data.example",       "",                                         HANDSHAKE_BAD_ORIGIN},
		{"https://other.example",      "",                                         HANDSHAKE_BAD_ORIGIN},
		{"https://other.example",      "https://other.example",                    HANDSHAKE_OK        },
		{"https://other.example",      "https://a.example  https://other.example", HANDSHAKE_OK        },
		{"http://other.example",       "https://other.example",                    HANDSHAKE_BAD_ORIGIN},
		{"https://other.example.evil", "https://other.example",                    HANDSHAKE_BAD_ORIGIN},
		{"https://other",              "https://other.example",                    HANDSHAKE_BAD_ORIGIN},
		{"null",                       "",					 HANDSHAKE_BAD_ORIGIN},
		{"null",                       "*",					HANDSHAKE_OK        },
		{"",			   "*",					HANDSHAKE_BAD_ORIGIN},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct handshake handshake = offer();

		handshake_add(&handshake, "Origin", rows[i].origin);
		assert_int_equal(handshake_judge(&handshake, rows[i].origins), rows[i].result);
	}
}

static void test_handshake_judge_refuses_two_origins(void **state)
{
	struct handshake handshake = offer();

	(void)state;
	handshake_add(&handshake, "Origin", "https://data.example:8443");
	handshake_add(&handshake, "Origin", "https://data.example:8443");
	assert_int_equal(handshake_judge(&handshake, "*"), HANDSHAKE_BAD_REQUEST);
}

static void test_handshake_judge_origin_without_a_host_is_refused(void **state)
{
	struct handshake handshake = offer();

	(void)state;
	handshake.n_host = 0;
	handshake_add(&handshake, "Origin", "https://data.example:8443");
	assert_int_equal(handshake_judge(&handshake, ""), HANDSHAKE_BAD_ORIGIN);
	handshake = offer();
	handshake.host = "";
	handshake_add(&handshake, "Origin", "https://");
	assert_int_equal(handshake_judge(&handshake, ""), HANDSHAKE_BAD_ORIGIN);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_websocket_key_answer_is_the_rfcs_example),
	cmocka_unit_test(test_handshake_judge_without_upgrade_is_an_ordinary_request),
	cmocka_unit_test(test_handshake_judge_takes_version_13_only),
	cmocka_unit_test(test_handshake_judge_wants_one_key_of_sixteen_bytes),
	cmocka_unit_test(test_handshake_judge_origin),
	cmocka_unit_test(test_handshake_judge_refuses_two_origins),
	cmocka_unit_test(test_handshake_judge_origin_without_a_host_is_refused),
};

TEST_MAIN(tests)
