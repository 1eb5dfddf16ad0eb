#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/plan.h"

#include "supervisor/api/session/spec.h"
#include "tests/lib/test.h"

typedef int (*parse_function)(const char *text, size_t size, json_t **ret_errors);

static const struct spec_options strict = {.env_prefix = "ALPHASWARM_"};

static int parse_session(const char *text, size_t size, json_t **ret_errors)
{
	struct spec_create spec = SPEC_CREATE_NULL;
	int r = spec_parse_session(text, size, &strict, &spec, ret_errors);

	spec_create_done(&spec);
	return r;
}

static int parse_sandbox(const char *text, size_t size, json_t **ret_errors)
{
	struct spec_create spec = SPEC_CREATE_NULL;
	int r = spec_parse_sandbox(text, size, &strict, &spec, ret_errors);

	spec_create_done(&spec);
	return r;
}

static int parse_component(const char *text, size_t size, json_t **ret_errors)
{
	struct spec_component spec = SPEC_COMPONENT_NULL;
	int r = spec_parse_component(text, size, &strict, &spec, ret_errors);

	spec_component_done(&spec);
	return r;
}

static int parse_command(const char *text, size_t size, json_t **ret_errors)
{
	struct spec_command spec = SPEC_COMMAND_NULL;
	int r = spec_parse_command(text, size, &strict, &spec, ret_errors);

	spec_command_done(&spec);
	return r;
}

static int parse_empty(const char *text, size_t size, json_t **ret_errors)
{
	return spec_parse_empty(text, size, &strict, ret_errors);
}

/* The items of the refusal as text; "" where the body is taken. */
static void assert_answer(parse_function parse, const char *text, const char *wanted)
{
	json_t *errors = NULL;
	char *got = NULL;
	int r = parse(text, strlen(text), &errors);

	if (r == 0) {
		assert_null(errors);
		assert_string_equal("", wanted);
		return;
	}
	assert_int_equal(r, SPEC_E_INVALID);
	got = doc_format(errors, 1);
	assert_non_null(got);
	assert_string_equal(got, wanted);
	free(got);
	json_decref(errors);
}

static void test_spec_parse_session_answers(void **state)
{
	static const struct {
		const char *text;
		const char *errors;
	} cases[] = {
		{"",								   ""        },
		{"{}",								 ""        },
		{"null",							       ""        },
		{"{\"ttl_minutes\": 1}",					       ""        },
		{"{\"ttl_minutes\": 720, \"env_overrides\": null}",                    ""        },
		{"{\"env_overrides\": {\"kafka_bootstrap\": \"a:9092\"}}",             ""        },
		{"{",
		 "[{\"type\":\"json_invalid\",\"loc\":[\"body\"],\"msg\":\"JSON decode error\"}]"},
		{"{\"ttl_minutes\":1,\"ttl_minutes\":2}",
		 "[{\"type\":\"json_invalid\",\"loc\":[\"body\"],\"msg\":\"JSON decode error\"}]"},
		{"[]",
		 "[{\"type\":\"model_attributes_type\",\"loc\":[\"body\"],\"msg\":\"Input should be "
		 "a valid dictionary or object to extract fields from\"}]"                       },
		{"{\"ttl_minutes\": 0}",
		 "[{\"type\":\"greater_than_equal\",\"loc\":[\"body\",\"ttl_minutes\"],\"msg\":\"Input "
		 "should be greater than or equal to 1\"}]"                                      },
		{"{\"ttl_minutes\": 721}",
		 "[{\"type\":\"less_than_equal\",\"loc\":[\"body\",\"ttl_minutes\"],\"msg\":\"Input should "
		 "be less than or equal to 720\"}]"                                              },
		{"{\"ttl_minutes\": -9223372036854775808}",
		 "[{\"type\":\"greater_than_equal\",\"loc\":[\"body\",\"ttl_minutes\"],\"msg\":\"Input "
		 "should be greater than or equal to 1\"}]"                                      },
		{"{\"ttl_minutes\": \"soon\"}",
		 "[{\"type\":\"int_parsing\",\"loc\":[\"body\",\"ttl_minutes\"],\"msg\":\"Input should be a "
		 "valid integer, unable to parse string as an integer\"}]"                       },
		{"{\"ttl_minutes\": null}",
		 "[{\"type\":\"int_type\",\"loc\":[\"body\",\"ttl_minutes\"],\"msg\":\"Input should be a "
		 "valid integer\"}]"							     },
		{"{\"ttl_minutes\": 1.5}",
		 "[{\"type\":\"int_from_float\",\"loc\":[\"body\",\"ttl_minutes\"],\"msg\":\"Input should be "
		 "a valid integer, got a number with a fractional part\"}]"                      },
		{"{\"surprise\": 1}",
		 "[{\"type\":\"extra_forbidden\",\"loc\":[\"body\",\"surprise\"],\"msg\":\"Extra inputs are "
		 "not permitted\"}]"							     },
		{"{\"env_overrides\": {\"postgres_dsn\": \"s3cret\"}}",
		 "[{\"type\":\"extra_forbidden\",\"loc\":[\"body\",\"env_overrides\",\"postgres_dsn\"],"
		 "\"msg\":\"Extra inputs are not permitted\"}]"                                  },
		{"{\"env_overrides\": {\"kafka_bootstrap\": 1}}",
		 "[{\"type\":\"string_type\",\"loc\":[\"body\",\"env_overrides\",\"kafka_bootstrap\"],"
		 "\"msg\":\"Input should be a valid string\"}]"                                  },
		{"{\"env_overrides\": {\"polaris_base_url\": \"http://u:s3cret@h\"}}",
		 "[{\"type\":\"value_error\",\"loc\":[\"body\",\"env_overrides\",\"polaris_base_url\"],"
		 "\"msg\":\"Value error, Value must not contain user information\"}]"            },
		{"{\"env_overrides\": {\"polaris_base_url\": \"a\\u0000b\"}}",
		 "[{\"type\":\"value_error\",\"loc\":[\"body\",\"env_overrides\",\"polaris_base_url\"],"
		 "\"msg\":\"Value error, Value must not contain control characters\"}]"          },
		{"{\"env_overrides\": []}",
		 "[{\"type\":\"dict_type\",\"loc\":[\"body\",\"env_overrides\"],\"msg\":\"Input should be a "
		 "valid dictionary\"}]"							  },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		assert_answer(parse_session, cases[i].text, cases[i].errors);
}

static void test_spec_parse_session_values(void **state)
{
	static const char text[] = "{\"ttl_minutes\": 5, \"env_overrides\": "
				   "{\"kafka_bootstrap\": \"a:9092\", \"iceberg_rest_uri\": \"\"}}";
	struct spec_create spec;
	json_t *errors = NULL;

	(void)state;
	assert_int_equal(spec_parse_session(text, strlen(text), NULL, &spec, &errors), 0);
	assert_int_equal(spec.ttl_minutes, 5);
	assert_string_equal(spec.profile, "component");
	assert_string_equal(spec.endpoint[5], "a:9092");
	assert_string_equal(spec.endpoint[0], "");
	assert_null(spec.endpoint[1]);
	spec_create_done(&spec);
	assert_int_equal(spec_parse_session("", 0, NULL, &spec, &errors), 0);
	assert_int_equal(spec.ttl_minutes, TTL_DEFAULT_MINUTES);
	spec_create_done(&spec);
}

static void test_spec_parse_session_unknown_fields_ignored_on_request(void **state)
{
	const struct spec_options ignore = {.ignore_unknown_fields = true};
	static const char text[] = "{\"x\": [1], \"ttl_minutes\": 3}";
	static const char names[] = "{\"env_overrides\": {\"x\": \"\"}}";
	struct spec_create spec;
	json_t *errors = NULL;

	(void)state;
	assert_int_equal(spec_parse_session(text, strlen(text), &ignore, &spec, &errors), 0);
	assert_int_equal(spec.ttl_minutes, 3);
	spec_create_done(&spec);
	/* A seventh endpoint is refused all the same. */
	assert_int_equal(spec_parse_session(names, strlen(names), &ignore, &spec, &errors),
			 SPEC_E_INVALID);
	json_decref(errors);
}

static void test_spec_parse_sandbox_answers(void **state)
{
	static const struct {
		const char *text;
		const char *errors;
	} cases[] = {
		{"{}",								      ""},
		{"{\"profile\": \"component\", \"ttl\": 43200}",                            ""},
		{"{\"profile\": \"agent\", \"ttl\": 604800, \"envs\": {\"FOO\": \"bar\"}}", ""},
		{"{\"ttl\": 43201, \"profile\": \"component\"}",
		 "[{\"type\":\"less_than_equal\",\"loc\":[\"body\",\"ttl\"],\"msg\":\"Input should be less "
		 "than or equal to 43200\"}]"						 },
		{"{\"ttl\": 59}",
		 "[{\"type\":\"greater_than_equal\",\"loc\":[\"body\",\"ttl\"],\"msg\":"
		 "\"Input should be greater than or equal to 60\"}]"                          },
		{"{\"profile\": \"root\"}",
		 "[{\"type\":\"literal_error\",\"loc\":[\"body\",\"profile\"],\"msg\":\"Input should be "
		 "'agent' or 'component'\"}]"						 },
		{"{\"template\": \"base\"}",						""},
		{"{\"template\": null}",						    ""},
		{"{\"template\": \"../x\"}",
		 "[{\"type\":\"value_error\",\"loc\":[\"body\",\"template\"],\"msg\":\"Value error, a "
		 "template's name has 1 to 63 of a-z0-9._-\"}]"                               },
		{"{\"template\": 7}",
		 "[{\"type\":\"string_type\",\"loc\":[\"body\",\"template\"],\"msg\":\"Input should be "
		 "a valid string\"}]"							 },
		{"{\"envs\": {\"LD_PRELOAD\": \"x\"}}",
		 "[{\"type\":\"value_error\",\"loc\":[\"body\",\"envs\",\"LD_PRELOAD\"],\"msg\":\"Value "
		 "error, name is not allowed (upper case letters, digits and _)\"}]"          },
		{"{\"envs\": {\"FOO\": \"a\\u0000\"}}",
		 "[{\"type\":\"value_error\",\"loc\":[\"body\",\"envs\",\"FOO\"],\"msg\":\"Value error, must "
		 "not contain NUL\"}]"							},
	};
	static const char text[] = "{\"envs\": {\"FOO\": \"bar\"}, \"ttl\": 61}";
	struct spec_create spec;
	json_t *errors = NULL;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		assert_answer(parse_sandbox, cases[i].text, cases[i].errors);
	assert_int_equal(spec_parse_sandbox(text, strlen(text), NULL, &spec, &errors), 0);
	assert_int_equal(spec.ttl_minutes, 2);
	assert_int_equal(spec.n_env, 1);
	assert_string_equal(spec.env[0], "FOO=bar");
	assert_null(spec.env[1]);
	assert_string_equal(spec.profile, "agent");
	spec_create_done(&spec);
}

static void test_spec_runtime_survives_the_row(void **state)
{
	static const char text[] =
		"{\"metadata\": {\"a\": \"1\"}, \"workspace\": {\"include\": [\"/session/x\"]},"
		" \"idempotency_key\": \"k\", \"project_uuid\": \"p\", \"template\": \"web\"}";
	struct spec_runtime read = SPEC_RUNTIME_NULL;
	struct spec_create spec;
	json_t *errors = NULL;
	char *row;

	(void)state;
	assert_int_equal(spec_parse_sandbox(text, strlen(text), NULL, &spec, &errors), 0);
	assert_string_equal(spec.runtime.project, "p");
	memset(spec.runtime.idempotency_digest, 'f', SPEC_DIGEST_BYTES - 1);
	row = spec_runtime_format(&spec.runtime);
	assert_non_null(row);
	spec_runtime_restore(&read, row);
	assert_true(json_equal(read.metadata, spec.runtime.metadata));
	assert_true(json_equal(read.workspace, spec.runtime.workspace));
	assert_string_equal(read.idempotency_key, "k");
	assert_string_equal(read.template, "web");
	assert_string_equal(read.idempotency_digest, spec.runtime.idempotency_digest);
	spec_runtime_done(&read);
	spec_create_done(&spec);
	free(row);
	/* A row of another program, or of another release. */
	spec_runtime_restore(&read, "[7, {\"metadata\": 1}]");
	spec_runtime_restore(&read, "{\"idempotency\": {\"key\": 7}}");
	spec_runtime_restore(&read, "{");
	spec_runtime_restore(&read, NULL);
	assert_null(read.metadata);
	assert_string_equal(read.idempotency_key, "");
	spec_runtime_done(&read);
}

static void test_spec_parse_component_answers(void **state)
{
	static const struct {
		const char *text;
		const char *errors;
	} cases[] = {
		{"{\"name\": \"a\", \"body\": \"\"}",           ""								      },
		{"{\"name\": \"../a\\u0000\", \"body\": \"\"}", ""								      }, /* judged later, as 400 */
		{"",					    "[{\"type\":\"missing\",\"loc\":[\"body\"],\"msg\":\"Field required\"}]"},
		{"{}",
		 "[{\"type\":\"missing\",\"loc\":[\"body\",\"name\"],\"msg\":\"Field required\"},"
		 "{\"type\":\"missing\",\"loc\":[\"body\",\"body\"],\"msg\":\"Field required\"}]"                                       },
		{"{\"name\": 1, \"body\": []}",
		 "[{\"type\":\"string_type\",\"loc\":[\"body\",\"name\"],\"msg\":\"Input should be a valid "
		 "string\"},{\"type\":\"string_type\",\"loc\":[\"body\",\"body\"],\"msg\":\"Input should be "
		 "a valid string\"}]"												   },
		{"{\"name\": \"a\", \"body\": \"x\\u0000\"}",
		 "[{\"type\":\"value_error\",\"loc\":[\"body\",\"body\"],\"msg\":\"Value error, must not "
		 "contain NUL\"}]"												      },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		assert_answer(parse_component, cases[i].text, cases[i].errors);
}

static void test_spec_parse_component_body_limit(void **state)
{
	size_t size = COMPONENT_BODY_MAX_BYTES;
	char *text = malloc(size + 64);
	size_t at;

	(void)state;
	assert_non_null(text);
	at = (size_t)sprintf(text, "{\"name\":\"a\",\"body\":\"");
	memset(text + at, 'x', size);
	(void)strcpy(text + at + size, "\"}");
	assert_answer(parse_component, text, "");
	(void)strcpy(text + at + size, "x\"}");
	assert_answer(
		parse_component, text,
		"[{\"type\":\"string_too_long\",\"loc\":[\"body\",\"body\"],\"msg\":\"String should "
		"have at most 1048576 bytes\"}]");
	free(text);
}

static void test_spec_parse_command_answers(void **state)
{
	static const struct {
		const char *text;
		const char *errors;
	} cases[] = {
		{"{\"argv\": [\"true\"]}",							    ""},
		{"{\"argv\": [\"a\", \"\"], \"cwd\": \"/tmp\", \"timeout_ms\": 5, \"stdin\": \"x\"}",
		 ""										     },
		{"{\"argv\": []}",
		 "[{\"type\":\"too_short\",\"loc\":[\"body\",\"argv\"],\"msg\":\"List "
		 "should have at least 1 item\"}]"						      },
		{"{\"argv\": \"true\"}",
		 "[{\"type\":\"list_type\",\"loc\":[\"body\",\"argv\"],\"msg\":"
		 "\"Input should be a valid list\"}]"                                                   },
		{"{\"argv\": [\"\"]}",
		 "[{\"type\":\"string_too_short\",\"loc\":[\"body\",\"argv\",\"0\"],\"msg\":\"String should "
		 "have at least 1 character\"}]"							},
		{"{\"argv\": [\"a\", 1]}",
		 "[{\"type\":\"string_type\",\"loc\":[\"body\",\"argv\",\"1\"],"
		 "\"msg\":\"Input should be a valid string\"}]"                                         },
		{"{\"argv\": [\"a\\u0000b\"]}",
		 "[{\"type\":\"value_error\",\"loc\":[\"body\",\"argv\",\"0\"],\"msg\":\"Value error, must "
		 "not contain NUL\"}]"								  },
		{"{\"argv\": [\"a\"], \"cwd\": \"x\"}",
		 "[{\"type\":\"value_error\",\"loc\":[\"body\",\"cwd\"],\"msg\":\"Value error, must be an "
		 "absolute path\"}]"								    },
		{"{\"cmd\": \"a\", \"argv\": [\"b\", \"c\", \"d\", \"e\"]}",
		 "[{\"type\":\"value_error\",\"loc\":[\"body\",\"argv\"],\"msg\":\"Value error, argv "
		 "and cmd exclude each other\"}]"						       },
		{"{\"argv\": [\"b\"], \"cmd\": \"a\"}",
		 "[{\"type\":\"value_error\",\"loc\":[\"body\",\"cmd\"],\"msg\":\"Value error, argv "
		 "and cmd exclude each other\"}]"						       },
		{"{\"argv\": [\"a\"], \"timeout_ms\": 0}",
		 "[{\"type\":\"greater_than_equal\",\"loc\":[\"body\",\"timeout_ms\"],\"msg\":\"Input should "
		 "be greater than or equal to 1\"}]"						    },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		assert_answer(parse_command, cases[i].text, cases[i].errors);
}

static void test_spec_parse_empty_answers(void **state)
{
	(void)state;
	assert_answer(parse_empty, "", "");
	assert_answer(parse_empty, "{}", "");
	assert_answer(parse_empty, "null", "");
	assert_answer(
		parse_empty, "{\"a\":1}",
		"[{\"type\":\"extra_forbidden\",\"loc\":[\"body\",\"a\"],\"msg\":\"Extra inputs are "
		"not permitted\"}]");
}

static void test_spec_errors_are_bounded(void **state)
{
	static char text[64 * 1024];
	json_t *errors = NULL;
	size_t at = 0;

	(void)state;
	memset(text, '0', 4096);
	memcpy(text, "{\"", 2);
	at = 4096;
	at += (size_t)sprintf(text + at, "\":1");
	for (int i = 0; i < 1000; i++)
		at += (size_t)sprintf(text + at, ",\"k%d\":1", i);
	(void)sprintf(text + at, "}");
	assert_int_equal(parse_session(text, strlen(text), &errors), SPEC_E_INVALID);
	assert_int_equal(json_array_size(errors), 20);
	assert_int_equal(strlen(json_string_value(json_array_get(
				 json_object_get(json_array_get(errors, 0), "loc"), 1))),
			 64);
	json_decref(errors);
}

static void test_spec_every_truncation_is_refused_or_taken(void **state)
{
	static const char text[] = "{\"argv\":[\"a\",\"b\"],\"cwd\":\"/x\",\"envs\":{\"A\":\"b\"},"
				   "\"timeout_ms\":1,\"stdin\":\"\\u00e9\"}";

	(void)state;
	for (size_t size = 0; size < strlen(text); size++) {
		json_t *errors = NULL;

		assert_int_equal(parse_command(text, size, &errors), SPEC_E_INVALID);
		json_decref(errors);
	}
}

static void test_spec_plan_passes_the_check(void **state)
{
	struct policy_image_header *image = calloc(1, sizeof(*image));
	struct err err = ERR_NULL;
	struct id id = {{1}};
	struct plan plan;

	(void)state;
	assert_non_null(image);
	image->n_profiles = 2;
	image->profile[0] =
		(struct policy_profile){.name = "worker-api", .kind = POLICY_KIND_WORKER};
	image->profile[1] = (struct policy_profile){
		.name = "component",
		.kind = POLICY_KIND_SESSION,
		.hash = {7             },
		.limits = { .tmpfs_bytes = 256u << 20,
                         .tmpfs_inodes = 65536,
                         .memory_bytes = 1u << 30,
                         .max_pids = 256,
                         .max_files = 4096,
                         .cpu_pct = 100,
                         .cpu_weight = 100,
                         .max_ptys = 16},
	};
	assert_int_equal(spec_find_profile(image, "component"), 1);
	assert_int_equal(spec_find_profile(image, "worker-api"), -1);
	plan = spec_plan(&id, 1, &image->profile[1]);
	assert_int_equal(plan_check(&plan, &err), 0);
	assert_int_equal(plan.profile_hash[0], 7);
	free(image);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_spec_parse_session_answers),
		cmocka_unit_test(test_spec_parse_session_values),
		cmocka_unit_test(test_spec_parse_session_unknown_fields_ignored_on_request),
		cmocka_unit_test(test_spec_parse_sandbox_answers),
		cmocka_unit_test(test_spec_runtime_survives_the_row),
		cmocka_unit_test(test_spec_parse_component_answers),
		cmocka_unit_test(test_spec_parse_component_body_limit),
		cmocka_unit_test(test_spec_parse_command_answers),
		cmocka_unit_test(test_spec_parse_empty_answers),
		cmocka_unit_test(test_spec_errors_are_bounded),
		cmocka_unit_test(test_spec_every_truncation_is_refused_or_taken),
		cmocka_unit_test(test_spec_plan_passes_the_check),
	};
	int n_before = test_begin();

	return test_end(n_before, cmocka_run_group_tests(tests, NULL, NULL));
}
