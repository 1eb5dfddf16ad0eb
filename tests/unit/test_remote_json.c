/* Documents of a remote service. */
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/str.h"

#include "supervisor/provider/remote_json.h"
#include "tests/lib/test.h"

#define ONE "0f6a2c1e-5b7d-4c8a-9e3f-1a2b3c4d5e6f"

static int take_token(const char *text, char token[REMOTE_TOKEN_BYTES], uint32_t *ret_seconds)
{
	return remote_json_token(text, strlen(text), token, ret_seconds);
}

static void test_tokens(void **state)
{
	static const char *const bad[] = {
		"",
		"[]",
		"{}",
		"{\"token\": \"a\"}",
		"{\"token\": \"\", \"expires_in\": 60}",
		"{\"token\": \"a b\", \"expires_in\": 60}",
		"{\"token\": \"a\\r\\nX-Other: b\", \"expires_in\": 60}",
		"{\"token\": \"a\\u0000b\", \"expires_in\": 60}",
		"{\"token\": \"\\u00e9\", \"expires_in\": 60}",
		"{\"token\": \"a\", \"expires_in\": 0}",
		"{\"token\": \"a\", \"expires_in\": -5}",
		"{\"token\": \"a\", \"expires_in\": \"60\"}",
		"{\"token\": 7, \"expires_in\": 60}",
	};
	char token[REMOTE_TOKEN_BYTES];
	char text[REMOTE_TOKEN_BYTES + 64];
	uint32_t seconds = 7;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(take_token(bad[i], token, &seconds), -EBADMSG);
	assert_int_equal(seconds, 7);
	assert_int_equal(take_token("{\"token\": \"a.b-c\", \"expires_in\": 60}", token, &seconds),
			 0);
	assert_string_equal(token, "a.b-c");
	assert_int_equal(seconds, 60);
	assert_int_equal(
		take_token("{\"token\": \"a\", \"expires_in\": 9999999999}", token, &seconds), 0);
	assert_int_equal(seconds, 86400);
	/* The longest, and one byte more. */
	for (int more = 0; more < 2; more++) {
		memset(token, 'x', sizeof(token));
		assert_int_equal(str_format(text, sizeof(text),
					    "{\"expires_in\": 60, \"token\": \"%.*s\"}",
					    REMOTE_TOKEN_BYTES - 1 + more, token),
				 0);
		assert_int_equal(take_token(text, token, &seconds), more ? -EBADMSG : 0);
	}
}

static void test_states(void **state)
{
	static const struct {
		const char *text;
		int state;
	} rows[] = {
		{"{\"state\": \"starting\"}",          REMOTE_STARTING},
		{"{\"state\": \"running\", \"x\": 1}", REMOTE_RUNNING },
		{"{\"state\": \"paused\"}",            REMOTE_PAUSED  },
		{"{\"state\": \"failed\"}",            REMOTE_ENDED   },
		{"{\"state\": \"\"}",                  REMOTE_ENDED   },
		{"{\"state\": null}",                  -EBADMSG       },
		{"{}",				 -EBADMSG       },
		{"[]",				 -EBADMSG       },
		{"no",				 -EBADMSG       },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		assert_int_equal(remote_json_state(rows[i].text, strlen(rows[i].text)),
				 rows[i].state);
}

static char said[512];

static void note(void *userdata, const struct id *id, bool is_paused, bool lives)
{
	char text[ID_TEXT_BYTES];
	size_t used = strlen(said);

	(void)userdata;
	id_format(id, text);
	assert_int_equal(
		str_format(said + used, sizeof(said) - used, "%s:%d%d ", text, is_paused, lives),
		0);
}

static int take_list(const char *text, char next[REMOTE_PAGE_BYTES])
{
	said[0] = '\0';
	return remote_json_list(text, strlen(text), note, NULL, next);
}

static void test_lists(void **state)
{
	static const char *const bad[] = {
		"{}",
		"[]",
		"{\"sandboxes\": {}}",
		"{\"sandboxes\": [], \"next\": \"a&b\"}",
		"{\"sandboxes\": [], \"next\": \"a b\"}",
		"{\"sandboxes\": [], \"next\": \"../x\"}",
	};
	char next[REMOTE_PAGE_BYTES];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		assert_int_equal(take_list(bad[i], next), -EBADMSG);
		assert_string_equal(said, "");
	}
	assert_int_equal(take_list("{\"sandboxes\": []}", next), 0);
	assert_string_equal(next, "");
	/* What is not ours, or says no state, is none. */
	assert_int_equal(
		take_list("{\"sandboxes\": [{\"id\": \"" ONE "\", \"state\": \"paused\"}, "
			  "{\"id\": \"x\", \"state\": \"running\"}, {\"state\": \"running\"}, 7, "
			  "{\"id\": \"" ONE "\"}, {\"id\": \"" ONE "\", \"state\": \"running\"}, "
			  "{\"id\": \"" ONE "\", \"state\": \"gone\"}], \"next\": \"p.2\"}",
			  next),
		0);
	assert_string_equal(said, ONE ":11 " ONE ":01 " ONE ":00 ");
	assert_string_equal(next, "p.2");
}

static void test_usage(void **state)
{
	static const char text[] = "{\"memory_bytes\": 5, \"memory_peak_bytes\": 7, "
				   "\"cpu_us\": 11, \"processes\": -3}";
	struct launch_stat stat;

	(void)state;
	assert_int_equal(remote_json_stat(text, strlen(text), &stat), 0);
	assert_int_equal(stat.memory_bytes, 5);
	assert_int_equal(stat.memory_peak_bytes, 7);
	assert_int_equal(stat.cpu_us, 11);
	assert_int_equal(stat.n_pids, 0);
	assert_int_equal(remote_json_stat("x", 1, &stat), -EBADMSG);
}

static void test_a_sandbox_is_closed(void **state)
{
	static const struct plan plan = {
		.session = {0x0f, 0x6a, 0x2c, 0x1e, 0x5b, 0x7d, 0x4c, 0x8a, 0x9e, 0x3f, 0x1a, 0x2b,
			    0x3c, 0x4d, 0x5e, 0x6f},
		.tmpfs_bytes = 1 << 20,
		.memory_bytes = 1 << 28,
		.max_pids = 77,
		.max_files = 512,
		.cpu_pct = 150,
	};
	const struct engine_container container = {
		.instance = "1234abcd", .image = "t:1", .profile = "agent", .plan = &plan};
	char *text = remote_json_sandbox(&container);
	const char *reason;
	const json_t *limits;
	json_t *document;

	(void)state;
	assert_non_null(text);
	assert_int_equal(doc_parse(text, strlen(text), &document, &reason), 0);
	limits = json_object_get(document, "limits");
	assert_string_equal(json_string_value(json_object_get(document, "id")), ONE);
	assert_string_equal(json_string_value(json_object_get(document, "network")), "none");
	assert_true(json_is_true(json_object_get(document, "read_only")));
	assert_int_equal(json_integer_value(json_object_get(limits, "memory_bytes")), 1 << 28);
	assert_int_equal(json_integer_value(json_object_get(limits, "processes")), 77);
	assert_int_equal(json_integer_value(json_object_get(limits, "cpu_percent")), 150);
	assert_int_equal(json_integer_value(json_object_get(limits, "open_files")), 512);
	assert_int_equal(json_array_size(json_object_get(document, "capabilities")), 5);
	assert_int_equal(json_array_size(json_object_get(document, "command")), 5);
	json_decref(document);
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_tokens),
		cmocka_unit_test(test_states),
		cmocka_unit_test(test_lists),
		cmocka_unit_test(test_usage),
		cmocka_unit_test(test_a_sandbox_is_closed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
