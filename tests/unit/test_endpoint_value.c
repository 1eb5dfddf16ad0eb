#include <string.h>

#include "base/endpoint_value.h"

#include "sandboxd/limits.h"
#include "tests/lib/test.h"

static const char *read_it(enum endpoint_form form, const char *text, struct endpoint_value *value)
{
	return endpoint_value_read(form, text, strlen(text), value);
}

static void test_url_gives_host_and_port(void **state)
{
	static const struct {
		const char *text;
		const char *host;
		uint16_t port;
		bool tls;
		enum endpoint_host_kind kind;
	} cases[] = {
		{"http://polaris:8181/api/catalog",         "polaris",               8181, false, ENDPOINT_HOST_NAME},
		{"https://www.alphavantage.co/query?a=b@c", "www.alphavantage.co",   443,  true,
		 ENDPOINT_HOST_NAME										 },
		{"HTTP://Lake.Example./",                   "lake.example",          80,   false, ENDPOINT_HOST_NAME},
		{"https://lake.example/%2e%2e/x",           "lake.example",          443,  true,  ENDPOINT_HOST_NAME},
		{"http://10.0.0.5:8080/gms",                "10.0.0.5",              8080, false, ENDPOINT_HOST_IPV4},
		{"http://[2001:db8::1]:8080/gms",           "2001:db8::1",           8080, false, ENDPOINT_HOST_IPV6},
		{"http://xn--bcher-kva.example",            "xn--bcher-kva.example", 80,   false,
		 ENDPOINT_HOST_NAME										 },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct endpoint_value value;

		assert_null(read_it(ENDPOINT_FORM_URL, cases[i].text, &value));
		assert_int_equal(value.n_targets, 1);
		assert_string_equal(value.target[0].host, cases[i].host);
		assert_int_equal(value.target[0].port, cases[i].port);
		assert_int_equal(value.target[0].kind, cases[i].kind);
		assert_int_equal(value.tls, cases[i].tls);
	}
}

/* Each is read in two ways by clients that exist, or hides something. */
static void test_url_refuses_what_clients_read_differently(void **state)
{
	static const char *const cases[] = {
		"polaris:8181",
		"//polaris:8181",
		"ftp://polaris/",
		"http+unix://%2Frun%2Fx.sock/",
		"http:/polaris",
		"http:///polaris",
		"http://",
		"http://:80/",
		"http://a:/",
		"http://a:0/",
		"http://a:00080/",
		"http://a:65536/",
		"http://a:80:80/",
		"http://user@a/",
		"http://user:word@a/",
		"http://a@b@c/",
		"http://a\\@b/",
		"http://a#@b/",
		"http://a/#f",
		"http://a b/",
		"http://a%2eexample/",
		"http://a%00.example/",
		"http://a..example/",
		"http://.example/",
		"http://-a.example/",
		"http://a.example..",
		"http://\xc3\xbc.example/",
		"http://127.1/",
		"http://2130706433/",
		"http://0x7f000001/",
		"http://0x7F.1/",
		"http://0177.0.0.1/",
		"http://1.2.3.4.5/",
		"http://[::1%25lo]/",
		"http://[::1",
		"http://[2001:DB8:0::1]:8080/",
		"http://a_b/",
		"http://1.2.3.4./",
		"http://[v1.x]/",
		"http://a\t/",
		"http://a\xc2\x85/",
		"http://a,b/",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct endpoint_value value;

		if (!read_it(ENDPOINT_FORM_URL, cases[i], &value))
			fail_msg("taken: %s", cases[i]);
	}
}

static void test_url_bounds_the_host(void **state)
{
	char label[ENDPOINT_VALUE_MAX_BYTES + 1];
	struct endpoint_value value;

	(void)state;
	memset(label, 'a', sizeof(label));
	/* NOLINTNEXTLINE(bugprone-not-null-terminated-result): lengths are given */
	memcpy(label, "http://", 7);
	assert_null(endpoint_value_read(ENDPOINT_FORM_URL, label, 7 + 63, &value));
	assert_non_null(endpoint_value_read(ENDPOINT_FORM_URL, label, 7 + 64, &value));
	for (size_t i = 7 + 63; i < 7 + 255; i += 64)
		label[i] = '.';
	assert_null(endpoint_value_read(ENDPOINT_FORM_URL, label, 7 + 253, &value));
	assert_non_null(endpoint_value_read(ENDPOINT_FORM_URL, label, 7 + 254, &value));
	assert_non_null(
		endpoint_value_read(ENDPOINT_FORM_URL, label, ENDPOINT_VALUE_MAX_BYTES, &value));
	assert_non_null(endpoint_value_read(ENDPOINT_FORM_URL, "http://a\0b", 10, &value));
}

static void test_warehouse_is_a_path_or_a_bucket(void **state)
{
	struct endpoint_value value;

	(void)state;
	assert_null(read_it(ENDPOINT_FORM_WAREHOUSE, "./data/iceberg", &value));
	assert_null(read_it(ENDPOINT_FORM_WAREHOUSE, "/data/my warehouse@home:x", &value));
	assert_null(read_it(ENDPOINT_FORM_WAREHOUSE, "file:///session/iceberg", &value));
	assert_int_equal(value.n_targets, 0);
	assert_string_equal(value.bucket, "");
	assert_null(read_it(ENDPOINT_FORM_WAREHOUSE, "s3://bucket", &value));
	assert_string_equal(value.bucket, "bucket");
	assert_string_equal(&"s3://bucket"[value.prefix_at], "");
	assert_null(read_it(ENDPOINT_FORM_WAREHOUSE, "s3://my.bucket/path@2x/b", &value));
	assert_string_equal(value.bucket, "my.bucket");
	assert_string_equal(&"s3://my.bucket/path@2x/b"[value.prefix_at], "path@2x/b");
}

static void test_warehouse_refuses_other_schemes_and_paths_with_two_readings(void **state)
{
	static const char *const cases[] = {
		"http://bucket/x",
		"s3:bucket",
		"s3:///bucket",
		"s3://",
		"s3://key:word@b/x",
		"s3://b:80/x",
		"s3://b/x?y",
		"s3://b/../prod",
		"s3://b/./x",
		"s3://b/%2e%2e/x",
		"s3://B/x",
		"s3://b/x y",
		"file://host/x",
		"file:relative",
		"gs://bucket/x",
		"jdbc:x",
		"/a\nb",
		"/a\xff",
		"s3://b\\x/y",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct endpoint_value value;

		if (!read_it(ENDPOINT_FORM_WAREHOUSE, cases[i], &value))
			fail_msg("taken: %s", cases[i]);
	}
}

static void test_brokers_are_hosts_with_ports(void **state)
{
	static const char *const refused[] = {
		"a",        "a:",          "a:0",      ":9092",           "a:9092,",
		",a:9092",  "a:9092,,b:1", "a:9092 ",  "a:9092, b:9092",  "SSL://a:9093",
		"a@b:9092", "::1:9092",    "[a]:9092", "[10.0.0.1]:9092", "127.1:9092",
		"a:9092/x",
	};
	char many[ENDPOINT_TARGETS_MAX * 8 + 16] = "";
	struct endpoint_value value;

	(void)state;
	assert_null(
		read_it(ENDPOINT_FORM_BROKERS, "A.example:9092,10.1.2.3:1,[::2]:65535", &value));
	assert_int_equal(value.n_targets, 3);
	assert_string_equal(value.target[0].host, "a.example");
	assert_int_equal(value.target[2].port, 65535);
	assert_int_equal(value.target[2].kind, ENDPOINT_HOST_IPV6);
	for (size_t i = 0; i < ARRAY_SIZE(refused); i++)
		if (!read_it(ENDPOINT_FORM_BROKERS, refused[i], &value))
			fail_msg("taken: %s", refused[i]);
	for (size_t i = 0; i < ENDPOINT_TARGETS_MAX; i++)
		strcat(many, i == 0 ? "a:9092" : ",a:9092"); /* NOLINT: it fits */
	assert_null(read_it(ENDPOINT_FORM_BROKERS, many, &value));
	strcat(many, ",a:9092"); /* NOLINT: it fits */
	assert_non_null(read_it(ENDPOINT_FORM_BROKERS, many, &value));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_url_gives_host_and_port),
		cmocka_unit_test(test_url_refuses_what_clients_read_differently),
		cmocka_unit_test(test_url_bounds_the_host),
		cmocka_unit_test(test_warehouse_is_a_path_or_a_bucket),
		cmocka_unit_test(test_warehouse_refuses_other_schemes_and_paths_with_two_readings),
		cmocka_unit_test(test_brokers_are_hosts_with_ports),
	};
	int n_before = test_begin();

	return test_end(n_before, cmocka_run_group_tests(tests, NULL, NULL));
}
