#include <string.h>

#include "supervisor/api/session/endpoint.h"
#include "tests/lib/test.h"

static const char *problem(const char *name, const char *value)
{
	int index = endpoint_index(name, strlen(name));

	assert_true(index >= 0);
	return endpoint_value_problem((size_t)index, value, strlen(value));
}

static void test_endpoint_index_knows_exactly_six(void **state)
{
	(void)state;
	for (size_t i = 0; i < ENDPOINTS_N; i++)
		assert_int_equal(endpoint_index(endpoint_name(i), strlen(endpoint_name(i))), i);
	assert_int_equal(endpoint_index("postgres_dsn", 12), -1);
	assert_int_equal(endpoint_index("kafka_bootstra", 14), -1);
	assert_int_equal(endpoint_index("kafka_bootstrap\0", 16), -1);
}

static void test_endpoint_value_problem_takes_what_clients_use(void **state)
{
	(void)state;
	assert_null(problem("iceberg_rest_uri", "http://polaris:8181/api/catalog"));
	assert_null(problem("iceberg_rest_uri", ""));
	assert_null(problem("iceberg_warehouse", "/data/my warehouse@home"));
	assert_null(problem("iceberg_warehouse", "s3://bucket/path@2x"));
	assert_null(problem("kafka_bootstrap", "a:9092,b:9092"));
	assert_null(problem("alpha_vantage_base_url", "https://x.example/q?mail=a@b"));
}

static void test_endpoint_value_problem_refuses_without_quoting(void **state)
{
	static const struct {
		const char *name;
		const char *value;
	} cases[] = {
		{"iceberg_rest_uri",  "http://user:s3cret@host/"},
		{"iceberg_rest_uri",  "user@host"               },
		{"iceberg_warehouse", "s3://key:s3cret@bucket/x"},
		{"kafka_bootstrap",   "a:9092,s3cret@b:9092"    },
		{"datahub_gms_url",   "http://s3cret\n"         },
		{"datahub_gms_url",   "http://s3cret\xc2\x85"   },
		{"datahub_gms_url",   "http://s3cret\xff"       },
		{"polaris_base_url",  "http://s3cret x"         },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		const char *text = problem(cases[i].name, cases[i].value);

		assert_non_null(text);
		assert_null(strstr(text, "s3cret"));
	}
	assert_non_null(endpoint_value_problem(0, "a\0b", 3));
}

static void test_endpoint_value_problem_refuses_a_long_value(void **state)
{
	char value[ENDPOINT_VALUE_MAX_BYTES + 1];

	(void)state;
	memset(value, 'a', sizeof(value));
	memcpy(value, "http://a/", 9);
	assert_null(endpoint_value_problem(0, value, ENDPOINT_VALUE_MAX_BYTES - 1));
	assert_non_null(endpoint_value_problem(0, value, ENDPOINT_VALUE_MAX_BYTES));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_endpoint_index_knows_exactly_six),
		cmocka_unit_test(test_endpoint_value_problem_takes_what_clients_use),
		cmocka_unit_test(test_endpoint_value_problem_refuses_without_quoting),
		cmocka_unit_test(test_endpoint_value_problem_refuses_a_long_value),
	};
	int n_before = test_begin();

	return test_end(n_before, cmocka_run_group_tests(tests, NULL, NULL));
}
