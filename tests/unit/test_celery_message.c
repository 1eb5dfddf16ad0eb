#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/str.h"

#include "supervisor/api/celery/message.h"
#include "tests/lib/test.h"

#define TASK    "8f14e45f-ceea-467f-a0d6-9e8a1c1b2d3e"
#define SESSION "0f6a2c1e-5b7d-4c8a-9e3f-1a2b3c4d5e6f"

/* As Celery 5.2.6 writes it. */
static const char headers_real[] =
	"{\"lang\": \"py\", \"task\": \"execute_sandbox_session\", \"id\": \"" TASK
	"\", \"shadow\": null, \"eta\": null, \"expires\": null, \"group\": null, "
	"\"group_index\": null, \"retries\": 0, \"timelimit\": [null, null], \"root_id\": \"" TASK
	"\", \"parent_id\": null, \"argsrepr\": \"('x',)\", \"kwargsrepr\": \"{}\", \"origin\": "
	"\"gen1@h\", \"ignore_result\": false}";

static void make(struct buf *text, const char *headers, const char *body, const char *properties)
{
	char base64[512];

	buf_reset(text);
	(void)str_base64(base64, body, strlen(body));
	assert_int_equal(
		buf_printf(
			text,
			"{\"body\": \"%s\", \"content-encoding\": \"utf-8\", \"content-type\": "
			"\"application/json\", \"headers\": %s, \"properties\": {\"delivery_tag\": "
			"\"t1\", \"delivery_info\": {\"exchange\": \"\", \"routing_key\": "
			"\"sandbox\"}, \"body_encoding\": \"base64\"%s}}",
			base64, headers, properties),
		0);
}

#define BODY "[[\"" SESSION "\"], {}, {\"callbacks\": null}]"

static int parse(const struct buf *text, struct celery_message *message)
{
	return celery_message_parse((const char *)text->data, text->size, message);
}

static void test_celery_message_parse_what_a_client_sends(void **state)
{
	struct buf text = BUF_NULL(65536);
	struct celery_message message;
	char shown[ID_TEXT_BYTES];

	(void)state;
	make(&text, headers_real, BODY, ", \"priority\": 5");
	assert_int_equal(parse(&text, &message), 0);
	assert_string_equal(message.task, "execute_sandbox_session");
	assert_string_equal(message.tag, "t1");
	assert_int_equal(message.priority, 5);
	id_format(&message.id, shown);
	assert_string_equal(shown, TASK);
	id_format(&message.session, shown);
	assert_string_equal(shown, SESSION);
	assert_true(message.eta == 0 && message.expires == 0 && !message.ignore_result);
	celery_message_done(&message);

	make(&text, headers_real, "[[], {\"session_id\": \"" SESSION "\"}, {}]", "");
	assert_int_equal(parse(&text, &message), 0);
	id_format(&message.session, shown);
	assert_string_equal(shown, SESSION);
	celery_message_done(&message);

	/* No session has that id. */
	make(&text, headers_real, "[[\"nobody\"], {}, {}]", "");
	assert_int_equal(parse(&text, &message), 0);
	assert_true(id_is_null(&message.session));
	celery_message_done(&message);
	buf_done(&text);
}

/* Each member of the envelope and of its objects, away or of another type: never more than refused.
 */
static void test_celery_message_parse_without_each_member(void **state)
{
	struct buf text = BUF_NULL(65536);
	static const char *const objects[] = {NULL, "headers", "properties"};

	(void)state;
	make(&text, headers_real, BODY, ", \"priority\": 5");
	for (size_t i = 0; i < ARRAY_SIZE(objects); i++) {
		json_t *whole = json_loadb((const char *)text.data, text.size, 0, NULL);
		json_t *object = objects[i] ? json_object_get(whole, objects[i]) : whole;
		json_t *keys = json_copy(object);
		const char *name;
		json_t *value;

		assert_true(json_object_size(keys) > 0);
		json_object_foreach(keys, name, value)
		{
			json_t *const others[] = {NULL, json_null(), json_integer(7), json_array()};

			for (size_t k = 0; k < ARRAY_SIZE(others); k++) {
				struct celery_message message;
				char *changed;
				int r;

				if (others[k])
					assert_int_equal(
						json_object_set_new(object, name, others[k]), 0);
				else
					assert_int_equal(json_object_del(object, name), 0);
				changed = json_dumps(whole, 0);
				r = celery_message_parse(changed, strlen(changed), &message);
				assert_true(r == 0 || r == CELERY_E_BROKEN ||
					    r == CELERY_E_INVALID);
				celery_message_done(&message);
				free(changed);
			}
			assert_int_equal(json_object_set(object, name, value), 0);
		}
		json_decref(keys);
		json_decref(whole);
	}
	buf_done(&text);
}

static void test_celery_message_parse_times(void **state)
{
	static const struct {
		const char *text;
		const char *naive;
	} cases[] = {
		{"2026-11-29T13:28:06.116877+00:00", "2026-11-29T13:28:06.116877"},
		{"2026-11-29T13:28:06+02:30",        "2026-11-29T10:58:06.000000"},
		{"2026-11-29T13:28:06-01:00",        "2026-11-29T14:28:06.000000"},
		{"2026-11-29T13:28:06Z",             "2026-11-29T13:28:06.000000"},
		{"2026-11-29T13:28:06",              "2026-11-29T13:28:06.000000"},
		{"2026-11-29T13:28:06+0200",         NULL                        },
		{"2026-11-29T13:28:06+02:00:00",     NULL                        },
		{"2026-11-29T13:28:06Zx",            NULL                        },
		{"tomorrow",                         NULL                        },
		{"",				 NULL                        },
	};
	struct buf text = BUF_NULL(65536);

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct celery_message message;
		char headers[256];
		usec_t wanted;

		IGNORE_RESULT(str_format(headers, sizeof(headers),
					 "{\"task\": \"t\", \"id\": \"" TASK "\", \"eta\": \"%s\"}",
					 cases[i].text));
		make(&text, headers, BODY, "");
		assert_int_equal(parse(&text, &message), cases[i].naive ? 0 : CELERY_E_INVALID);
		if (cases[i].naive) {
			assert_int_equal(clock_parse_iso(cases[i].naive, &wanted), 0);
			assert_int_equal(message.eta, wanted);
		}
		celery_message_done(&message);
	}
	buf_done(&text);
}

static void test_celery_message_parse_refuses(void **state)
{
	static const struct {
		const char *headers;
		const char *body;
		int result;
	} cases[] = {
		{"{}",						      BODY,                           CELERY_E_BROKEN },
		{"[]",						      BODY,                           CELERY_E_BROKEN },
		{"null",						    BODY,                           CELERY_E_BROKEN },
		{"{\"task\": \"t\", \"id\": 7}",                            BODY,                           CELERY_E_BROKEN },
		{"{\"task\": \"t\", \"id\": \"x\"}",                        BODY,                           CELERY_E_BROKEN },
		{"{\"task\": \"t\", \"id\": \"" TASK "\\u0000\"}",          BODY,                           CELERY_E_BROKEN },
		{"{\"id\": \"" TASK "\"}",                                  BODY,                           CELERY_E_INVALID},
		{"{\"task\": \"\", \"id\": \"" TASK "\"}",                  BODY,                           CELERY_E_INVALID},
		{"{\"task\": [], \"id\": \"" TASK "\"}",                    BODY,                           CELERY_E_INVALID},
		{"{\"task\": \"t\", \"id\": \"" TASK "\", \"expires\": 5}", BODY,                           CELERY_E_INVALID},
		{"{\"task\": \"t\", \"id\": \"" TASK "\"}",                 "[]",                           CELERY_E_INVALID},
		{"{\"task\": \"t\", \"id\": \"" TASK "\"}",                 "{}",                           CELERY_E_INVALID},
		{"{\"task\": \"t\", \"id\": \"" TASK "\"}",                 "not json",                     CELERY_E_INVALID},
		{"{\"task\": \"t\", \"id\": \"" TASK "\"}",                 "[[], {}, {}]",                 CELERY_E_INVALID},
		{"{\"task\": \"t\", \"id\": \"" TASK "\"}",                 "[[1], {}, {}]",                CELERY_E_INVALID},
		{"{\"task\": \"t\", \"id\": \"" TASK "\"}",                 "[[\"a\", \"b\"], {}, {}]",
		 CELERY_E_INVALID											   },
		{"{\"task\": \"t\", \"id\": \"" TASK "\"}",
		 "[[\"a\"], {\"session_id\": \"b\"}, {}]",                                                  CELERY_E_INVALID},
		{"{\"task\": \"t\", \"id\": \"" TASK "\"}",                 "[[], {\"other\": \"b\"}, {}]",
		 CELERY_E_INVALID											   },
	};
	struct buf text = BUF_NULL(65536);
	struct celery_message message;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		make(&text, cases[i].headers, cases[i].body, "");
		assert_int_equal(parse(&text, &message), cases[i].result);
		assert_true(cases[i].result == CELERY_E_BROKEN || message.fault);
		celery_message_done(&message);
	}
	buf_done(&text);
	assert_int_equal(celery_message_parse("{", 1, &message), CELERY_E_BROKEN);
	celery_message_done(&message);
}

static void test_celery_message_parse_is_bounded(void **state)
{
	size_t size = CELERY_MESSAGE_MAX_BYTES + 1;
	char *big = malloc(size);
	struct celery_message message;

	(void)state;
	assert_non_null(big);
	memset(big, '[', size);
	assert_int_equal(celery_message_parse(big, size, &message), CELERY_E_BROKEN);
	assert_int_equal(celery_message_parse(big, 5000, &message), CELERY_E_BROKEN);
	free(big);
}

static void test_celery_labels_are_few_and_short(void **state)
{
	static const struct {
		const char *labels;
		const char *taken; /* NULL: none */
	} cases[] = {
		{"{\"owner\": \"a\", \"n\": 7, \"o\": {}, \"z\": \"\\u0000\"}",
		 "{\"owner\": \"a\"}"								       },
		{"{\"a\":\"1\",\"b\":\"2\",\"c\":\"3\",\"d\":\"4\",\"e\":\"5\",\"f\":\"6\",\"g\":\"7\","
		 "\"h\":\"8\",\"i\":\"9\"}",					   "{\"a\":\"1\",\"b\":\"2\",\"c\":\"3\",\"d\":\"4\",\"e\":\"5\",\"f\":\"6\",\"g\":\"7\","
		 "\"h\":\"8\"}"                },
		{"{\"a\": \"aaaaaaaaaabbbbbbbbbbccccccccccddddddddddeeeeeeeeeeffffffffffgggggggggg\"}",
		 NULL										       },
		{"{}",										  NULL},
		{"[\"x\"]",									     NULL},
		{"7",										   NULL},
	};
	struct buf text = BUF_NULL(65536);

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct celery_message message;
		struct buf headers = BUF_NULL(4096);
		json_t *labels;
		json_t *wanted = cases[i].taken ? json_loads(cases[i].taken, 0, NULL) : NULL;

		assert_int_equal(buf_printf(&headers,
					    "{\"id\": \"" TASK
					    "\", \"task\": \"t\", \"x-aqp-finops\": %s}",
					    cases[i].labels),
				 0);
		make(&text, buf_text(&headers), BODY, "");
		assert_int_equal(parse(&text, &message), 0);
		labels = celery_message_labels(&message);
		assert_int_equal(labels != NULL, wanted != NULL);
		assert_true(!wanted || json_equal(labels, wanted));
		json_decref(labels);
		json_decref(wanted);
		celery_message_done(&message);
		buf_done(&headers);
	}
	buf_done(&text);
}

static void test_celery_unacked_of_our_queue_only(void **state)
{
	struct buf text = BUF_NULL(65536);
	struct celery_message message;
	struct celery_message back;
	char *entry;
	char *again;
	int fault;

	(void)state;
	make(&text, headers_real, BODY, ", \"priority\": 7");
	assert_int_equal(parse(&text, &message), 0);
	entry = celery_unacked_format(message.envelope, "sandbox");
	assert_int_equal(celery_unacked_parse(entry, strlen(entry), "other", &back, &fault),
			 CELERY_E_BROKEN);
	assert_int_equal(celery_unacked_parse(entry, strlen(entry), "sandbox", &back, &fault), 0);
	assert_int_equal(fault, 0);
	assert_true(id_equal(&message.id, &back.id));
	again = celery_message_redelivered(&back);
	assert_non_null(strstr(again, "\"redelivered\":true"));
	celery_message_done(&back);
	celery_message_done(&message);
	assert_int_equal(celery_message_parse(again, strlen(again), &message), 0);
	assert_int_equal(message.priority, 7);
	celery_message_done(&message);
	free(again);
	free(entry);
	buf_done(&text);
}

static void test_celery_names(void **state)
{
	char name[CELERY_NAME_BYTES];
	char *member;

	(void)state;
	assert_int_equal(celery_priority_step(0), 0);
	assert_int_equal(celery_priority_step(5), 3);
	assert_int_equal(celery_priority_step(9), 9);
	assert_int_equal(celery_list_name("q", 0, name), 0);
	assert_string_equal(name, "q");
	assert_int_equal(celery_list_name("q", 6, name), 0);
	assert_string_equal(name, "q\x06\x16"
				  "6");
	member = celery_binding("k", "q.pidbox");
	assert_string_equal(member, "k\x06\x16\x06\x16q.pidbox");
	assert_string_equal(celery_binding_queue(member, strlen(member), "k"), "q.pidbox");
	assert_null(celery_binding_queue(member, strlen(member), "j"));
	assert_null(celery_binding_queue(member, strlen(member), ""));
	assert_null(celery_binding_queue("k", 1, "k"));
	assert_null(celery_binding_queue("k\x06\x16", 3, "k"));
	free(member);
}

static json_t *result_of(const char *frame, bool is_revoked, json_t **ret_frame)
{
	struct celery_result result;
	const char *reason;
	json_t *doc = NULL;
	struct id id;
	char *text;

	assert_int_equal(id_parse(TASK, &id), 0);
	assert_int_equal(
		celery_result_of_frame(frame, strlen(frame), is_revoked, ret_frame, &result), 0);
	text = celery_result_format(&id, &result, 0);
	assert_int_equal(doc_parse(text, strlen(text), &doc, &reason), 0);
	free(text);
	assert_string_equal(json_string_value(json_object_get(doc, "task_id")), TASK);
	assert_string_equal(json_string_value(json_object_get(doc, "date_done")),
			    "1970-01-01T00:00:00.000000+00:00");
	return doc;
}

static const char *word(const json_t *doc, const char *key)
{
	return json_string_value(json_object_get(doc, key));
}

static void test_celery_result_of_each_end(void **state)
{
	json_t *frame;
	json_t *doc;
	const json_t *value;

	(void)state;
	doc = result_of("{\"stage\": \"done\", \"message\": \"m\", \"result\": {\"ok\": true}}",
			true, &frame);
	assert_string_equal(word(doc, "status"), "SUCCESS");
	assert_true(json_is_true(json_object_get(json_object_get(doc, "result"), "ok")));
	json_decref(frame);
	json_decref(doc);

	doc = result_of("{\"stage\": \"error\", \"message\": \"it broke\"}", false, &frame);
	value = json_object_get(doc, "result");
	assert_string_equal(word(doc, "status"), "FAILURE");
	assert_string_equal(word(value, "exc_type"), "SandboxTaskError");
	assert_string_equal(
		json_string_value(json_array_get(json_object_get(value, "exc_message"), 0)),
		"it broke");
	assert_string_equal(word(value, "exc_module"), "sandboxd");
	json_decref(frame);
	json_decref(doc);

	doc = result_of("{\"stage\": \"error\", \"message\": \"cancelled\"}", true, &frame);
	assert_string_equal(word(doc, "status"), "REVOKED");
	assert_string_equal(word(json_object_get(doc, "result"), "exc_type"), "TaskRevokedError");
	json_decref(frame);
	json_decref(doc);
	assert_int_equal(celery_result_of_frame("{}", 2, false, &frame, &(struct celery_result){0}),
			 -EBADMSG);
}

static void test_celery_call_is_read_back(void **state)
{
	struct celery_message message;
	struct id id;
	struct id session;
	struct celery_call call = {.id = &id,
				   .tag = &session,
				   .reply_to = &id,
				   .session = &session,
				   .task = "a.b",
				   .queue = "sandbox"};
	char *text;

	(void)state;
	assert_int_equal(id_parse(TASK, &id), 0);
	assert_int_equal(id_parse(SESSION, &session), 0);
	text = celery_call_format(&call);
	assert_non_null(text);
	assert_non_null(strstr(text, "\"exchange\":\"\""));
	assert_int_equal(celery_message_parse(text, strlen(text), &message), 0);
	assert_true(id_equal(&message.id, &id) && id_equal(&message.session, &session));
	assert_string_equal(message.task, "a.b");
	assert_string_equal(message.tag, SESSION);
	celery_message_done(&message);
	free(text);
}

static int control(const char *body, const char *headers, struct celery_control *ret)
{
	struct buf text = BUF_NULL(65536);
	int r;

	make(&text, headers, body, "");
	r = celery_control_parse((const char *)text.data, text.size, "sandboxd@h",
				 10 * USEC_PER_SEC, ret);
	buf_done(&text);
	return r;
}

static void test_celery_control_for_whom(void **state)
{
	static const struct {
		const char *body;
		const char *headers;
		int result;
	} cases[] = {
		{"{\"method\": \"ping\"}",						     "{}",               0               },
		{"{\"method\": \"ping\", \"destination\": null}",                              "{\"expires\": 0}", 0               },
		{"{\"method\": \"ping\", \"destination\": [\"a\", \"sandboxd@h\"]}",
		 "{\"expires\": 11.5}",									    0               },
		{"{\"method\": \"ping\", \"destination\": [\"a\"]}",                           "{}",               CELERY_E_INVALID},
		{"{\"method\": \"ping\"}",						     "{\"expires\": 9}", CELERY_E_INVALID},
		{"{\"method\": \"ping\", \"pattern\": \"sandboxd@*\", \"matcher\": \"glob\"}", "{}",
		 0														 },
		{"{\"method\": \"ping\", \"pattern\": \"celery@*\", \"matcher\": \"glob\"}",   "{}",
		 CELERY_E_INVALID												  },
		{"{\"method\": \"ping\", \"pattern\": \".*\", \"matcher\": \"pcre\"}",         "{}",
		 CELERY_E_INVALID												  },
		{"{\"method\": 5}",							    "{}",               CELERY_E_BROKEN },
		{"[]",									 "{}",               CELERY_E_BROKEN },
		{"nothing",								    "{}",               CELERY_E_BROKEN },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct celery_control got;

		assert_int_equal(control(cases[i].body, cases[i].headers, &got), cases[i].result);
		celery_control_done(&got);
	}
}

static void test_celery_control_reply_and_ids(void **state)
{
	struct celery_control got;
	struct id ids[CELERY_REVOKE_MAX];
	const struct id tag = {{1}};
	char *text;

	(void)state;
	assert_int_equal(control("{\"method\": \"revoke\", \"arguments\": {\"task_id\": [\"" TASK
				 "\", 5, \"x\"]}, \"ticket\": \"t\", \"reply_to\": {\"exchange\": "
				 "\"e\", \"routing_key\": \"k\"}}",
				 "{}", &got),
			 0);
	assert_string_equal(got.reply_key, "k");
	assert_int_equal(celery_control_ids(&got, ids), 1);
	text = celery_reply_format(&got, "sandboxd@h", json_string("pong"), &tag);
	assert_non_null(text);
	assert_non_null(strstr(text, "\"ticket\":\"t\""));
	free(text);
	celery_control_done(&got);
	assert_int_equal(control("{\"method\": \"revoke\", \"arguments\": {\"task_id\": \"" TASK
				 "\"}}",
				 "{}", &got),
			 0);
	assert_int_equal(celery_control_ids(&got, ids), 1);
	celery_control_done(&got);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_celery_message_parse_what_a_client_sends),
		cmocka_unit_test(test_celery_message_parse_without_each_member),
		cmocka_unit_test(test_celery_message_parse_times),
		cmocka_unit_test(test_celery_message_parse_refuses),
		cmocka_unit_test(test_celery_message_parse_is_bounded),
		cmocka_unit_test(test_celery_labels_are_few_and_short),
		cmocka_unit_test(test_celery_unacked_of_our_queue_only),
		cmocka_unit_test(test_celery_names),
		cmocka_unit_test(test_celery_result_of_each_end),
		cmocka_unit_test(test_celery_call_is_read_back),
		cmocka_unit_test(test_celery_control_for_whom),
		cmocka_unit_test(test_celery_control_reply_and_ids),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
