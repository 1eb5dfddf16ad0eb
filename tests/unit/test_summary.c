#include <string.h>

#include "base/json.h"

#include "sandboxd/launch.h"
#include "supervisor/api/session/summary.h"
#include "tests/lib/test.h"

static struct session *make(void)
{
	struct spec_create spec = {.profile = "component", .ttl_minutes = 60};
	struct id id = {{1}};
	struct session *session;

	spec.endpoint[5] = strdup("s3cret:9092");
	session = session_new(&id, &spec, 1764422886116877);
	assert_non_null(session);
	(void)strcpy(session->owner, "alice");
	session->plan.memory_bytes = 1 << 30;
	session->limits_missing = PROOF_CPU;
	assert_int_equal(session_component_set(session, "b.yaml", 3), 0);
	assert_int_equal(session_component_set(session, "a.yml", 3), 0);
	return session;
}

static void test_summary_session_fields_in_order_and_no_value(void **state)
{
	static const char *const keys[] = {"id",          "owner",      "workspace_id",
					   "project_id",  "created_at", "expires_at",
					   "components",  "asset_keys", "last_run_id",
					   "log_summary", "status",     "sandbox"};
	static const char *const ours[] = {"persisted",        "degraded",         "tree",
					   "limits_effective", "endpoint_sources", "host",
					   "problems",         "problem_count",    "name"};
	const struct summary_context context = {.host = "h"};
	struct session *session = make();
	json_t *doc = summary_session(session, &context);
	const char *key;
	json_t *value;
	size_t i = 0;
	char *text;

	(void)state;
	assert_non_null(doc);
	json_object_foreach(doc, key, value) assert_string_equal(key, keys[i++]);
	assert_int_equal(i, ARRAY_SIZE(keys));
	i = 0;
	json_object_foreach(json_object_get(doc, "sandbox"), key, value)
		assert_string_equal(key, ours[i++]);
	assert_int_equal(i, ARRAY_SIZE(ours));
	assert_string_equal(json_string_value(json_object_get(doc, "created_at")),
			    "2025-11-29T13:28:06.116877");
	assert_string_equal(json_string_value(json_object_get(doc, "expires_at")),
			    "2025-11-29T14:28:06.116877");
	assert_true(json_is_null(json_object_get(doc, "workspace_id")));
	assert_string_equal(
		json_string_value(json_array_get(json_object_get(doc, "components"), 0)), "a.yml");
	text = doc_format(doc, 1);
	assert_null(strstr(text, "s3cret"));
	assert_non_null(strstr(text, "\"kafka_bootstrap\":\"caller\""));
	assert_non_null(strstr(text, "\"cpu_pct\":null"));
	free(text);
	json_decref(doc);
	(void)session_free(session);
}

/* Whoever lists sessions pays for what their loads found: bounded. */
static void test_summary_session_bounds_its_problems(void **state)
{
	const struct summary_context context = {.host = "h"};
	struct session *session = make();
	json_t *doc;
	json_t *ours;

	(void)state;
	session->load.n_problems = 3000;
	session->load.problem = calloc(3000, sizeof(*session->load.problem));
	assert_non_null(session->load.problem);
	doc = summary_session(session, &context);
	ours = json_object_get(doc, "sandbox");
	assert_int_equal(json_array_size(json_object_get(ours, "problems")), 100);
	assert_int_equal(json_integer_value(json_object_get(ours, "problem_count")), 3000);
	json_decref(doc);
	(void)session_free(session);
}

static void test_summary_sandbox_is_complete(void **state)
{
	const struct summary_context context = {.host = "h"};
	struct session *session = make();
	json_t *doc = summary_sandbox(session, &context);

	(void)state;
	assert_non_null(doc);
	assert_string_equal(json_string_value(json_object_get(doc, "sandbox_uuid")),
			    "01000000-0000-0000-0000-000000000000");
	assert_string_equal(json_string_value(json_object_get(doc, "profile")), "component");
	assert_int_equal(json_integer_value(json_object_get(doc, "generation")), 0);
	assert_true(json_is_false(json_object_get(doc, "durable")));
	json_decref(doc);
	(void)session_free(session);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_summary_session_fields_in_order_and_no_value),
		cmocka_unit_test(test_summary_session_bounds_its_problems),
		cmocka_unit_test(test_summary_sandbox_is_complete),
	};
	int n_before = test_begin();

	return test_end(n_before, cmocka_run_group_tests(tests, NULL, NULL));
}
