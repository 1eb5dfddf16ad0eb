/* What the network and the endpoints of sandboxd.conf say. */
#include <string.h>

#include "base/str.h"

#include "supervisor/config_check.h"
#include "tests/unit/config_rig.h"

static void test_config_parse_endpoints_have_sections(void **state)
{
	struct config_rig *rig = *state;
	const struct api_config *api = &rig->answer->api;

	assert_int_equal(
		config_rig_parse(
			rig,
			"[endpoint:iceberg_rest_uri]\n"
			"production = polaris.prod.example 203.0.113.7:8181 [2001:db8::]/32\n"
			"companions = token.example:443 minio.b.example:9000\n"
			"companions = *.s3.example\n"
			"[endpoint:kafka_bootstrap]\n"
			"on_production = reroute\n"
			"companion_env = no\n"
			"[endpoint:iceberg_warehouse]\n"
			"production_buckets = lake lake2/tables\n"
			"[network]\n"
			"allow_private = 10.1.0.0/16 [fd12::]/16\n"
			"host_services = localhost:8181 10.0.0.5:9092 me.example:80=127.0.0.1:8080\n"
			"host_services = catalog.host:8181=unix:/run/catalog.sock\n"
			"agent_allow = pypi.org:443\n"
			"agent_gateways = ANTHROPIC_BASE_URL=https://llm.example/v1\n"
			"agent_gateways = BEDROCK_BASE_URL=https://br.example:8443\n"),
		0);
	assert_string_equal(api->agent_gateways, "ANTHROPIC_BASE_URL=https://llm.example/v1 "
						 "BEDROCK_BASE_URL=https://br.example:8443");
	assert_string_equal(api->endpoint[0].companions,
			    "token.example:443 minio.b.example:9000 *.s3.example");
	assert_string_equal(api->endpoint[1].production_buckets, "lake lake2/tables");
	assert_int_equal(api->endpoint[0].companion_env, 1);
	assert_int_equal(api->endpoint[5].companion_env, 0);
	assert_int_equal(api->endpoint[5].on_production_reroute, 1);
	assert_string_equal(api->agent_allow, "pypi.org:443");
	assert_int_equal(api->network.n_private, 2);
	assert_int_equal(api->network.n_production, 2);
	assert_int_equal(api->network.production[0].port.first, 8181);
	assert_int_equal(api->network.production[1].port.last, UINT16_MAX);
	assert_int_equal(api->network.n_host_services, 4);
	assert_string_equal(api->network.host_service[3].name, "catalog.host");
	assert_string_equal(api->network.host_service[3].path, "/run/catalog.sock");
	assert_int_equal(api->network.host_service[3].name_port, 8181);
	assert_int_equal(api->network.host_service[3].address.family, 0);
	assert_string_equal(api->network.host_service[0].name, "localhost");
	assert_int_equal(api->network.host_service[0].address.bytes[0], 127);
	assert_string_equal(api->network.host_service[1].name, "10.0.0.5");
	assert_int_equal(api->network.host_service[2].name_port, 80);
	assert_int_equal(api->network.host_service[2].port, 8080);
	assert_memory_equal(&api->network, &rig->answer->egress.network, sizeof(api->network));
	assert_int_equal(config_check(rig->answer, sizeof(*rig->answer), NULL), 0);
}

static void test_config_parse_lists_refuse_what_is_no_entry(void **state)
{
	static const struct {
		const char *text;
		const char *said;
	} cases[] = {
		{"[endpoint:kafka_bootstrap]\ncompanions = a b:\n",
		 "companions wants hosts such as"						    },
		{"[endpoint:kafka_bootstrap]\nproduction = 0x7f.1\n",
		 "production wants hosts such as"						    },
		{"[endpoint:kafka_bootstrap]\nproduction_buckets = a/..\n",
		 "production_buckets wants bucket"						   },
		{"[endpoint:kafka_bootstrap]\nshared_paths = a/%2e\n",
		 "shared_paths wants host/path"						      },
		{"[network]\nallow_private = 169.254.0.0/16\n",              "wants private networks"},
		{"[network]\nallow_private = 10.0.0.0/8:80\n",               "wants private networks"},
		{"[network]\nhost_services = localhost\n",                   "wants localhost:8181"  },
		{"[network]\nhost_services = a.example:80=unix:\n",          "wants localhost:8181"  },
		{"[network]\nhost_services = a.example:80=unix:run/a\n",     "wants localhost:8181"  },
		{"[network]\nhost_services = a.example:80=unix:/run/../a\n",
		 "wants localhost:8181"							      },
		{"[network]\nhost_services = a.example:80=unix:/run//a\n",   "wants localhost:8181"  },
		{"[network]\nhost_services = a.example=unix:/run/a\n",       "wants localhost:8181"  },
		{"[network]\nhost_services = me.example:80\n",               "wants localhost:8181"  },
		{"[network]\nhost_services = a.example:80=b.example:81\n",   "wants localhost:8181"  },
	};
	struct config_rig *rig = *state;

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		config_rig_expect(rig, cases[i].text, cases[i].said);
}

#define PRODUCTION "[endpoint:iceberg_warehouse]\nproduction = minio.b.example\n"

static void test_config_parse_shared_host_needs_an_answer(void **state)
{
	static const char companions[] =
		PRODUCTION "[endpoint:iceberg_rest_uri]\ncompanions = minio.b.example:9000\n";
	static const char wild[] =
		PRODUCTION "[endpoint:iceberg_rest_uri]\ncompanions = *.b.example:9000\n";
	static const char by_default[] =
		PRODUCTION "[endpoints]\niceberg_rest_uri = http://MinIO.b.example:9000/x\n";
	static const char answered[] =
		PRODUCTION "shared_host = path\nshared_paths = minio.b.example/sandbox\n"
			   "[endpoint:iceberg_rest_uri]\ncompanions = minio.b.example:9000\n";
	struct config_rig *rig = *state;

	config_rig_expect(rig, companions, "[endpoint:iceberg_warehouse] a production host is");
	config_rig_expect(rig, wild, "[endpoint:iceberg_warehouse] a production host is");
	config_rig_expect(rig, by_default, "[endpoint:iceberg_warehouse] a production host is");
	config_rig_expect(rig, PRODUCTION "shared_host = path\n", "needs shared_paths");
	config_rig_expect(rig, PRODUCTION "shared_paths = a/b\n", "needs shared_host = path");
	config_rig_expect(rig,
			  "[endpoint:iceberg_warehouse]\nproduction_buckets = lake/prod\n"
			  "[endpoints]\niceberg_warehouse = s3://lake\n",
			  "is production's bucket");
	config_rig_expect(rig, "[endpoints]\nkafka_bootstrap = broker\n",
			  "[endpoints] kafka_bootstrap: Value must be host:port");
	buf_reset(&rig->complaints);
	assert_int_equal(config_rig_parse(rig, answered), 0);
}

static void fill(char *text, size_t size, const char *head, const char *before, int n)
{
	assert_int_equal(str_copy(text, size, head), 0);
	for (int i = 0; i < n; i++) {
		size_t used = strlen(text);

		assert_int_equal(str_format(text + used, size - used, "%s%d", before, i), 0);
	}
}

/* Each alone is short enough: the rules of one session are their sum. */
static void test_config_parse_rules_of_one_session_fit(void **state)
{
	struct config_rig *rig = *state;
	char text[4096];

	fill(text, sizeof(text), "[network]", "\nagent_allow = b.a", 171);
	buf_reset(&rig->complaints);
	assert_int_equal(config_rig_parse(rig, text), 0);
	fill(text, sizeof(text), "[redis]\nurl = redis://127.0.0.1:6379\n[network]",
	     "\nagent_allow = b.a", 171);
	config_rig_expect(rig, text,
			  "[network] production, companions and the longer allow have 1 ");
	fill(text, sizeof(text), "[network]", "\nagent_allow = b.a", 172);
	config_rig_expect(rig, text,
			  "[network] production, companions and the longer allow have 1 ");
	fill(text, sizeof(text), PRODUCTION "shared_host = path", "\nshared_paths = h/", 34);
	config_rig_expect(rig, text, "[network] shared_paths have 2 entries too many");
}

static const struct CMUnitTest tests[] = {
	CONFIG_TEST(test_config_parse_endpoints_have_sections),
	CONFIG_TEST(test_config_parse_lists_refuse_what_is_no_entry),
	CONFIG_TEST(test_config_parse_shared_host_needs_an_answer),
	CONFIG_TEST(test_config_parse_rules_of_one_session_fit),
};

TEST_MAIN(tests)
