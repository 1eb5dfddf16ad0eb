#include <string.h>

#include "base/str.h"

#include "sandboxd/api.h"
#include "supervisor/api/http/auth.h"
#include "supervisor/api/http/features.h"
#include "supervisor/api/http/handlers.h"
#include "supervisor/api/http/openapi.h"
#include "supervisor/api/http/routes.h"
#include "tests/lib/test.h"

/* The table names every handler; none runs here. */
#define HANDLER(name)                                                                              \
	void name(struct request *request)                                                         \
	{                                                                                          \
		(void)request;                                                                     \
	}
HANDLER(handle_session_create)
HANDLER(handle_session_list)
HANDLER(handle_session_get)
HANDLER(handle_session_delete)
HANDLER(handle_session_ttl)
HANDLER(handle_session_component)
HANDLER(handle_session_airbyte)
HANDLER(handle_airbyte_list)
HANDLER(handle_airbyte_put)
HANDLER(handle_airbyte_drop)
HANDLER(handle_session_load)
HANDLER(handle_session_execute)
HANDLER(handle_janitor)
HANDLER(handle_janitor_plan)
HANDLER(handle_session_tasks)
HANDLER(handle_session_denials)
HANDLER(handle_session_egress)
HANDLER(handle_session_egress_set)
HANDLER(handle_task_get)
HANDLER(handle_task_cancel)
HANDLER(handle_task_stream)
HANDLER(handle_sandbox_create)
HANDLER(handle_sandbox_get)
HANDLER(handle_sandbox_list)
HANDLER(handle_sandbox_events)
HANDLER(handle_sandbox_timeout)
HANDLER(handle_sandbox_delete)
HANDLER(handle_sandbox_command)
HANDLER(handle_command_list)
HANDLER(handle_command_get)
HANDLER(handle_command_wait)
HANDLER(handle_command_stream)
HANDLER(handle_command_attach)
HANDLER(handle_command_stdin)
HANDLER(handle_command_signal)
HANDLER(handle_command_resize)
HANDLER(handle_file_get)
HANDLER(handle_file_put)
HANDLER(handle_file_remove)
HANDLER(handle_file_list)
HANDLER(handle_file_stat)
HANDLER(handle_file_watch)
HANDLER(handle_file_mkdir)
HANDLER(handle_file_move)
HANDLER(handle_file_copy)
HANDLER(handle_file_chmod)
HANDLER(handle_git)
HANDLER(handle_sandbox_suspend)
HANDLER(handle_sandbox_resume)
HANDLER(handle_snapshot_create)
HANDLER(handle_snapshot_list)
HANDLER(handle_snapshot_delete)
HANDLER(handle_snapshot_restore)
HANDLER(handle_sandbox_proof)
HANDLER(handle_sandbox_trace)
HANDLER(handle_sandbox_stats)
HANDLER(handle_log_level_get)
HANDLER(handle_log_level_set)
HANDLER(handle_healthz)
HANDLER(handle_readyz)
HANDLER(handle_metrics)
HANDLER(handle_openapi)
HANDLER(handle_capabilities)
HANDLER(handle_config)
HANDLER(handle_quota)

static struct route_match match(const char *method, const char *path)
{
	struct route_match found;

	routes_match(method, path, &found);
	return found;
}

static void test_routes_match_finds_each_row(void **state)
{
	const struct route *route;
	char path[128];

	(void)state;
	for (size_t i = 0; (route = routes_at(i)); i++) {
		const char *id = strstr(route->pattern, "{id}");
		int length = id ? (int)(id - route->pattern) : 0;
		struct route_match found;

		if (id)
			assert_int_equal(str_format(path, sizeof(path), "%.*sabc%s", length,
						    route->pattern, id + 4),
					 0);
		else
			assert_int_equal(str_copy(path, sizeof(path), route->pattern), 0);
		found = match(routes_method_name(route->method), path);
		assert_ptr_equal(found.route, route);
		assert_string_equal(found.id, id ? "abc" : "");
	}
}

static void test_routes_match_refuses_near_misses(void **state)
{
	static const char *const paths[] = {
		"",
		"/",
		"/dagster/sandbox/sessions/",
		"/dagster/sandbox/sessions//load",
		"/dagster/sandbox/sessions/a/b",
		"/dagster/sandbox/sessions/a/loadx",
		"/dagster/sandbox/Sessions",
		"//dagster/sandbox/sessions",
		"/chat/stream/",
		"/v1/sandboxes/",
		"/v1/sandboxes/x/commands/",
		"/healthz/",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
		assert_null(match("GET", paths[i]).route);
		assert_false(match("GET", paths[i]).path_known);
	}
}

static void test_routes_match_says_allow(void **state)
{
	struct route_match found = match("PUT", API_PREFIX_DAGSTER "/sessions");

	(void)state;
	assert_null(found.route);
	assert_true(found.path_known);
	assert_string_equal(found.allow, "POST, GET");
	assert_string_equal(match("PATCH", "/healthz").allow, "GET");
}

static void test_routes_match_head_is_get(void **state)
{
	(void)state;
	assert_ptr_equal(match("HEAD", "/healthz").route, match("GET", "/healthz").route);
	assert_null(match("HEAD", API_PREFIX_DAGSTER "/sessions/x/load").route);
}

static void test_routes_match_long_id_is_no_id(void **state)
{
	char path[256];
	struct route_match found;

	(void)state;
	assert_int_equal(
		str_format(path, sizeof(path), "%s/sessions/%0200d", API_PREFIX_DAGSTER, 1), 0);
	found = match("GET", path);
	assert_non_null(found.route);
	assert_string_equal(found.id, "");
}

static void test_routes_mutators_need_both_scopes(void **state)
{
	const struct route *route;

	(void)state;
	for (size_t i = 0; (route = routes_at(i)); i++) {
		if (!(route->flags & ROUTE_PEER_ONLY))
			assert_int_not_equal(route->scopes, 0);
		if (str_has_prefix(route->pattern, API_PREFIX_DAGSTER "/sessions/") &&
		    route->method != ROUTE_GET)
			assert_int_equal(route->scopes, AUTH_DATA_READ | AUTH_DATA_WRITE);
		if (str_has_prefix(route->pattern, API_PREFIX_RUNTIME))
			assert_true(route->flags & ROUTE_V1);
		if (str_has_prefix(route->pattern, API_PREFIX_RUNTIME) && route->audit)
			assert_int_equal(route->scopes, AUTH_SANDBOX_WRITE);
		assert_true(route->method == ROUTE_GET || route->audit != NULL);
		/* Only what is handed on as it comes has no bound here. */
		assert_true(route->body_max_bytes > 0 &&
			    (route->body == ROUTE_BODY_STREAM ||
			     route->body_max_bytes <= (size_t)HTTP_BODY_MAX_BYTES));
	}
}

static void test_openapi_describes_each_route(void **state)
{
	static const struct api_config config = {.header_user = "X-Sandbox-User"};
	json_t *document = openapi_document(&config);
	static const char *const keys[ROUTE_METHOD_MAX_] = {
		[ROUTE_GET] = "get",     [ROUTE_POST] = "post", [ROUTE_DELETE] = "delete",
		[ROUTE_PATCH] = "patch", [ROUTE_PUT] = "put",
	};
	json_t *schemas;
	const struct route *route;

	(void)state;
	assert_non_null(document);
	schemas = json_object_get(json_object_get(document, "components"), "schemas");
	for (size_t i = 0; (route = routes_at(i)); i++) {
		json_t *path = json_object_get(json_object_get(document, "paths"), route->pattern);
		const json_t *operation = json_object_get(path, keys[route->method]);

		/* Its own, not that of another method under the same path. */
		assert_string_equal(json_string_value(json_object_get(operation, "summary")),
				    route->summary);
		if (route->request)
			assert_non_null(json_object_get(schemas, route->request));
		if (route->response)
			assert_non_null(json_object_get(schemas, route->response));
	}
	/* A PUT says all; a create may leave it out. */
	assert_int_equal(json_array_size(json_object_get(json_object_get(schemas, "EgressRules"),
							 "required")),
			 1);
	json_decref(document);
}

/* A client reads the list to know what it need not try. */
static void test_features_know_each_route(void **state)
{
	static const char *const wanted[] = {"dagster", "commands", "streams", "pty",
					     "files",   "watch",    "git",     "snapshots",
					     "suspend", "events"};
	json_t *list = features_list();
	size_t n_found = 0;
	const struct route *route;
	const char *name;
	size_t at;
	json_t *one;

	(void)state;
	for (size_t i = 0; (route = routes_at(i)); i++)
		if (!feature_of_route(route, &name))
			fail_msg("%s is of no feature: features.c", route->pattern);
	json_array_foreach(list, at, one)
	{
		for (size_t i = 0; i < ARRAY_SIZE(wanted); i++)
			n_found += str_equal(json_string_value(one), wanted[i]);
	}
	assert_int_equal(n_found, ARRAY_SIZE(wanted));
	json_decref(list);
}

static void test_features_do_not_take_a_route_that_is_new(void **state)
{
	static const char *const patterns[] = {
		"/v1/templates",
		API_PREFIX_RUNTIME "/{id}/teleport",
		API_PREFIX_RUNTIME "/{id}/commandsx",
		API_PREFIX_RUNTIME "x",
	};
	const char *name;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(patterns); i++)
		assert_false(feature_of_route(&(struct route){.pattern = patterns[i]}, &name));
	assert_true(feature_of_route(&(struct route){.pattern = API_PREFIX_RUNTIME "/{id}/files/x"},
				     &name));
	assert_string_equal(name, "files");
	assert_true(feature_of_route(
		&(struct route){.pattern = API_PREFIX_RUNTIME "/{id}/files/watch"}, &name));
	assert_string_equal(name, "watch");
}

static void test_openapi_names_what_stands_in_a_path(void **state)
{
	static const struct api_config config = {.header_user = "X-Sandbox-User"};
	json_t *document = openapi_document(&config);
	json_t *path = json_object_get(json_object_get(document, "paths"),
				       API_PREFIX_RUNTIME "/{id}/snapshots/{snapshot_id}");
	json_t *parameters = json_object_get(json_object_get(path, "delete"), "parameters");
	struct route_match found = match("DELETE", API_PREFIX_RUNTIME "/a/snapshots/b");

	(void)state;
	assert_int_equal(json_array_size(parameters), 2);
	assert_string_equal(
		json_string_value(json_object_get(json_array_get(parameters, 1), "name")),
		"snapshot_id");
	assert_string_equal(found.id, "a");
	assert_string_equal(found.cid, "b");
	json_decref(document);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_features_know_each_route),
	cmocka_unit_test(test_features_do_not_take_a_route_that_is_new),
	cmocka_unit_test(test_openapi_names_what_stands_in_a_path),
	cmocka_unit_test(test_routes_match_finds_each_row),
	cmocka_unit_test(test_routes_match_refuses_near_misses),
	cmocka_unit_test(test_routes_match_says_allow),
	cmocka_unit_test(test_routes_match_head_is_get),
	cmocka_unit_test(test_routes_match_long_id_is_no_id),
	cmocka_unit_test(test_routes_mutators_need_both_scopes),
	cmocka_unit_test(test_openapi_describes_each_route),
};

TEST_MAIN(tests)
