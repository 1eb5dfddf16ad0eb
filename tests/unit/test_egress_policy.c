#include <string.h>
#include <sys/socket.h>

#include "base/egress_rule.h"
#include "base/host_service.h"
#include "base/str.h"

#include "supervisor/api/egress/admit.h"
#include "supervisor/api/egress/policy.h"
#include "supervisor/api/session/endpoint.h"
#include "tests/lib/test.h"

struct fixture {
	struct api_config config;
	struct policy_input input;
	struct net_policy policy;
};

static int set_up(void **state)
{
	struct fixture *fixture = calloc(1, sizeof(*fixture));

	assert_non_null(fixture);
	fixture->input.config = &fixture->config;
	fixture->input.profile_allow = "";
	for (size_t i = 0; i < ENDPOINTS_N; i++)
		fixture->input.value[i] = "";
	*state = fixture;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *fixture = *state;

	policy_done(&fixture->policy);
	free(fixture);
	return 0;
}

static void put(char list[CONFIG_LIST_BYTES], const char *text)
{
	assert_int_equal(str_copy(list, CONFIG_LIST_BYTES, text), 0);
}

static const struct net_policy *make(struct fixture *fixture)
{
	policy_done(&fixture->policy);
	assert_int_equal(policy_make(&fixture->input, &fixture->policy), 0);
	return &fixture->policy;
}

static void add_service(struct fixture *fixture, const char *name, uint32_t port)
{
	struct network_config *network = &fixture->config.network;
	struct config_host_service *service = &network->host_service[network->n_host_services++];

	assert_int_equal(str_copy(service->name, sizeof(service->name), name), 0);
	service->name_port = port;
	service->port = port + 1;
	service->address = (struct egress_address){
		.bytes = {127, 0, 0, 1},
                  .family = AF_INET, .prefix = 32
        };
}

static void test_policy_is_nothing_without_endpoints(void **state)
{
	struct fixture *fixture = *state;

	put(fixture->config.endpoint[0].companions, "token.example");
	assert_int_equal(make(fixture)->n_rules, 0);
	fixture->input.value[1] = "/session/iceberg";
	assert_int_equal(make(fixture)->n_rules, 0);
	/* Of an older release's row: what cannot be read allows nothing. */
	fixture->input.value[0] = "lake.example:8181";
	assert_int_equal(make(fixture)->n_rules, 0);
}

static void test_policy_has_every_source_in_order(void **state)
{
	char first[] = "a.example:1,2-3";
	char second[] = "not a rule!"; /* of another release's row */
	char *allow[] = {first, second};
	struct fixture *fixture = *state;
	const struct net_policy *policy;

	fixture->input.value[0] = "https://lake.example/catalog";
	fixture->input.value[5] = "b1.example:9092,[2001:db8::1]:9093";
	fixture->input.allow = allow;
	fixture->input.n_allow = 2;
	fixture->input.profile_allow = "pypi.example:443";
	put(fixture->config.endpoint[0].companions, "token.example:443 *.s3.example:9000");
	put(fixture->config.endpoint[4].production, "gms.prod.example");
	fixture->input.gateways = "LLM_URL=https://llm.example/v1 PATH=https://no.example X=y";
	policy = make(fixture);
	assert_int_equal(policy->n_rules, 9);
	assert_string_equal(policy->rule[8].label, "gateway:LLM_URL");
	assert_string_equal(policy->rule[8].name, "llm.example");
	assert_int_equal(policy->rule[8].port[0].first, 443);
	assert_string_equal(policy->rule[0].label, "endpoint:datahub_gms_url");
	assert_int_equal(policy->rule[0].flags, EGRESS_PRODUCTION);
	assert_int_equal(policy->rule[0].port[0].last, UINT16_MAX);
	assert_string_equal(policy->rule[1].label, "endpoint:iceberg_rest_uri");
	assert_int_equal(policy->rule[1].port[0].first, 443);
	assert_string_equal(policy->rule[2].label, "companion:iceberg_rest_uri");
	assert_int_equal(policy->rule[3].kind, EGRESS_RULE_SUFFIX);
	assert_int_equal(policy->rule[5].kind, EGRESS_RULE_NETWORK);
	assert_int_equal(policy->rule[5].network.family, AF_INET6);
	assert_string_equal(policy->rule[6].label, "allow");
	assert_string_equal(policy->rule[7].label, "profile");
	for (uint32_t i = 0; i < policy->n_rules; i++)
		assert_int_equal(policy->rule[i].index, i);
}

static void test_policy_reroutes_production_where_asked(void **state)
{
	struct fixture *fixture = *state;
	const struct net_policy *policy;

	put(fixture->config.endpoint[4].production, "gms.prod.example:8080");
	fixture->config.endpoint[4].on_production_reroute = 1;
	assert_string_equal(make(fixture)->rule[0].reroute_name, "");
	fixture->input.value[4] = "http://gms.sandbox.example:8081";
	policy = make(fixture);
	assert_string_equal(policy->rule[0].reroute_name, "gms.sandbox.example");
	assert_int_equal(policy->rule[0].reroute_port, 8081);
	fixture->input.value[4] = "http://198.51.100.7:8081";
	policy = make(fixture);
	assert_string_equal(policy->rule[0].reroute_name, "");
	assert_int_equal(policy->rule[0].reroute.bytes[0], 198);
}

static void test_policy_binds_a_shared_host(void **state)
{
	struct fixture *fixture = *state;
	struct endpoint_config *lake = &fixture->config.endpoint[1];
	const struct net_policy *policy;

	put(lake->production, "minio.example other.example");
	put(lake->companions, "minio.example:9000");
	put(lake->shared_paths, "minio.example/sandbox sandbox.minio.example/");
	lake->shared_host = CONFIG_SHARED_PATH;
	fixture->input.value[1] = "s3://sandbox/x";
	policy = make(fixture);
	/* The host that is not shared stays refused. */
	assert_int_equal(policy->n_rules, 2);
	assert_string_equal(policy->rule[0].name, "other.example");
	assert_int_equal(policy->rule[0].flags, EGRESS_PRODUCTION);
	assert_true(policy->rule[1].flags & EGRESS_PATHS);
	assert_int_equal(policy->rule[1].n_paths, 2);
	assert_int_equal(policy->n_paths, 2);
	assert_int_equal(policy->path[1].rule, 1);
	assert_string_equal(policy->path[0].prefix, "/sandbox");
	assert_string_equal(policy->path[1].host, "sandbox.minio.example");
	assert_int_equal(policy->by_credentials, 0);
	lake->shared_host = CONFIG_SHARED_TRUST_CREDENTIALS;
	policy = make(fixture);
	assert_false(policy->rule[1].flags & EGRESS_PATHS);
	assert_int_equal(policy->by_credentials, 1u << 1);
}

static void test_policy_gives_services_of_this_host_another_name(void **state)
{
	struct fixture *fixture = *state;
	const struct net_policy *policy;
	char *injected;

	add_service(fixture, "localhost", 8181);
	add_service(fixture, "127.0.0.1", 9092);
	fixture->input.value[0] = "http://localhost:8181/catalog";
	fixture->input.value[5] = "a.example:1,127.0.0.1:9092,b.example:2";
	policy = make(fixture);
	assert_string_equal(policy->rule[0].name, EGRESS_HOST_NAME);
	assert_true(policy->rule[0].flags & EGRESS_HOST_SERVICE);
	assert_int_equal(policy->rule[0].reroute_port, 8182);
	assert_int_equal(policy->rule[0].reroute.bytes[0], 127);
	assert_int_equal(
		policy_injected(&fixture->config.network, 0, fixture->input.value[0], &injected),
		0);
	assert_string_equal(injected, "http://" EGRESS_HOST_NAME ":8181/catalog");
	free(injected);
	assert_int_equal(
		policy_injected(&fixture->config.network, 5, fixture->input.value[5], &injected),
		0);
	assert_string_equal(injected, "a.example:1," EGRESS_HOST_NAME ":9092,b.example:2");
	free(injected);
	assert_int_equal(
		policy_injected(&fixture->config.network, 0, "http://a.example/", &injected), 0);
	assert_null(injected);
}

static void test_policy_tells_no_host_of_an_endpoint(void **state)
{
	char shown[] = "shown.example:443";
	char *allow[] = {shown};
	struct fixture *fixture = *state;
	const struct egress_address none = {0};
	const struct net_policy *policy;
	json_t *described;
	char *text;

	fixture->input.value[0] = "https://zq1secret.example/catalog";
	put(fixture->config.endpoint[0].companions, "*.zq2secret.example");
	put(fixture->config.endpoint[0].production, "zq3secret.example");
	fixture->input.allow = allow;
	fixture->input.n_allow = 1;
	policy = make(fixture);
	described = policy_describe(policy, NULL);
	text = json_dumps(described, 0);
	json_decref(described);
	assert_null(strstr(text, "secret"));
	assert_non_null(strstr(text, "shown.example"));
	assert_non_null(strstr(text, "endpoint:iceberg_rest_uri"));
	free(text);
	assert_string_equal(policy_label_of(policy, "zq1secret.example", &none),
			    "endpoint:iceberg_rest_uri");
	assert_string_equal(policy_label_of(policy, "x.zq2secret.example", &none),
			    "companion:iceberg_rest_uri");
	assert_null(policy_label_of(policy, "shown.example", &none));
	assert_null(policy_label_of(policy, "other.example", &none));
}

static const char *admit(struct fixture *fixture, size_t endpoint, const char *value)
{
	struct endpoint_value read;

	assert_null(endpoint_read(endpoint, value, &read));
	return admit_endpoint(&fixture->config, value, &read);
}

static void test_admit_refuses_production(void **state)
{
	struct fixture *fixture = *state;

	put(fixture->config.endpoint[4].production, "gms.prod.example 203.0.113.0/24:8080");
	put(fixture->config.endpoint[1].production_buckets, "lake/prod");
	assert_string_equal(admit(fixture, 0, "https://GMS.prod.example./x"),
			    "Value names a production host");
	assert_string_equal(admit(fixture, 5, "a.example:1,gms.prod.example:9092"),
			    "Value names a production host");
	assert_string_equal(admit(fixture, 0, "http://203.0.113.9:8080"),
			    "Value names a production host");
	assert_null(admit(fixture, 0, "https://gms.sandbox.example/x"));
	assert_string_equal(admit(fixture, 1, "s3://lake/prod/tables"),
			    "Value names production's bucket");
	assert_string_equal(admit(fixture, 1, "s3://lake"), "Value names production's bucket");
	assert_null(admit(fixture, 1, "s3://lake/production"));
	assert_null(admit(fixture, 1, "s3://lake/sandbox"));
}

static void test_admit_refuses_addresses_by_class(void **state)
{
	struct fixture *fixture = *state;

	assert_non_null(strstr(admit(fixture, 0, "http://127.0.0.1:8181"), "host_services"));
	assert_non_null(strstr(admit(fixture, 0, "http://localhost:8181"), "host_services"));
	assert_non_null(strstr(admit(fixture, 0, "http://a.localhost:8181"), "host_services"));
	assert_non_null(strstr(admit(fixture, 0, "http://[::1]:8181"), "host_services"));
	assert_non_null(strstr(admit(fixture, 0, "http://10.1.2.3"), "allow_private"));
	assert_non_null(strstr(admit(fixture, 0, "http://169.254.169.254/"), "no session"));
	assert_non_null(strstr(admit(fixture, 0, "http://[::ffff:10.0.0.1]/"), "no session"));
	add_service(fixture, "localhost", 8181);
	assert_null(admit(fixture, 0, "http://localhost:8181"));
	assert_non_null(admit(fixture, 0, "http://localhost:8182"));
	fixture->config.network.n_private = 1;
	fixture->config.network.private_network[0] = (struct egress_address){
		.bytes = {10, 1},
                  .family = AF_INET, .prefix = 16
        };
	assert_null(admit(fixture, 0, "http://10.1.2.3"));
	assert_non_null(admit(fixture, 0, "http://10.2.2.3"));
}

static void test_a_unix_socket_of_the_host_has_a_rule_of_its_own(void **state)
{
	struct fixture *fixture = *state;
	struct config_host_service *service = &fixture->config.network.host_service[0];
	const struct net_policy *policy;

	fixture->input.value[0] = "http://catalog.host:8181/c";
	assert_int_equal(make(fixture)->rule[0].reroute_service, 0);
	add_service(fixture, "catalog.host", 8181);
	service->address = (struct egress_address){0};
	service->port = 8181;
	assert_int_equal(str_copy(service->path, sizeof(service->path), "/run/catalog.sock"), 0);
	assert_null(admit(fixture, 0, "http://catalog.host:8181/c"));
	policy = make(fixture);
	assert_int_equal(policy->n_rules, 1);
	assert_true(policy->rule[0].flags & EGRESS_HOST_SERVICE);
	assert_true(policy->rule[0].reroute_service == host_service_id(service));
	assert_int_equal(policy->rule[0].reroute.family, 0);
	assert_true(egress_rule_valid(&policy->rule[0]));
	/* Another line of the configuration is another number. */
	service->name_port = 8182;
	assert_true(policy->rule[0].reroute_service != host_service_id(service));
	assert_non_null(admit(fixture, 0, "http://host.sandbox.internal:9/"));
	assert_non_null(admit_rule(&fixture->config, "localhost:80", strlen("localhost:80")));
}

static void test_admit_rule_takes_rules_beside_production(void **state)
{
	struct fixture *fixture = *state;

	put(fixture->config.endpoint[4].production, "gms.prod.example");
	put(fixture->config.endpoint[1].production, "minio.shared.example");
	fixture->config.endpoint[1].shared_host = CONFIG_SHARED_PATH;
	assert_null(admit_rule(&fixture->config, "a.example:443", 13));
	assert_null(admit_rule(&fixture->config, "*.prod.example", 14));
	assert_non_null(admit_rule(&fixture->config, "gms.prod.example", 16));
	assert_non_null(admit_rule(&fixture->config, "*.shared.example", 16));
	assert_non_null(admit_rule(&fixture->config, "", 0));
	assert_non_null(admit_rule(&fixture->config, "a.example:443\0", 14));
	assert_non_null(admit_rule(&fixture->config, "http://a.example", 16));
	put(fixture->config.endpoint[3].production, "9.9.9.9");
	assert_string_equal(admit_rule(&fixture->config, "9.9.9.9:443", 11),
			    "names a production host");
	assert_null(admit_rule(&fixture->config, "9.9.9.0/24:443", 14));
}

static void test_admit_rule_takes_no_address_that_cannot_be_reached(void **state)
{
	static const struct {
		const char *rule;
		const char *problem;
	} rows[] = {
		{"127.0.0.1:80",    "names this host, whose services only endpoints reach"},
		{"[::1]:80",        "names this host, whose services only endpoints reach"},
		{"169.254.169.254", "is an address that no session may reach"             },
		{"169.254.1.1/32",  "is an address that no session may reach"             },
		{"224.0.0.1",       "is an address that no session may reach"             },
		{"10.99.0.1:5432",  "is a private address outside allow_private"          },
		{"8.8.8.8:53",      NULL						  },
		{"10.0.0.0/8",      NULL						  },
	};
	struct fixture *fixture = *state;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		const char *problem =
			admit_rule(&fixture->config, rows[i].rule, strlen(rows[i].rule));

		if (rows[i].problem)
			assert_string_equal(problem, rows[i].problem);
		else
			assert_null(problem);
	}
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		TEST(test_policy_is_nothing_without_endpoints),
		TEST(test_policy_has_every_source_in_order),
		TEST(test_policy_reroutes_production_where_asked),
		TEST(test_policy_binds_a_shared_host),
		TEST(test_policy_gives_services_of_this_host_another_name),
		TEST(test_policy_tells_no_host_of_an_endpoint),
		TEST(test_admit_refuses_production),
		TEST(test_admit_refuses_addresses_by_class),
		TEST(test_a_unix_socket_of_the_host_has_a_rule_of_its_own),
		TEST(test_admit_rule_takes_rules_beside_production),
		TEST(test_admit_rule_takes_no_address_that_cannot_be_reached),
	};
	int n_before = test_begin();

	return test_end(n_before, cmocka_run_group_tests(tests, NULL, NULL));
}
