#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"

#include "supervisor/config/bundle_read.h"
#include "supervisor/config/config_parse.h"
#include "supervisor/config/option_table.h"
#include "supervisor/config/option_value.h"
#include "supervisor/config_check.h"
#include "tests/lib/test.h"

struct fixture {
	struct config_answer *answer;
	struct buf complaints;
};

static int parse(struct fixture *fixture, const char *text)
{
	const struct config_text file = {.text = text, .size = strlen(text)};

	return config_parse(&file, 1, fixture->answer, NULL, &fixture->complaints);
}

static int set_up(void **state)
{
	struct fixture *fixture = calloc(1, sizeof(*fixture));

	assert_non_null(fixture);
	fixture->answer = calloc(1, sizeof(*fixture->answer));
	assert_non_null(fixture->answer);
	fixture->complaints = BUF_NULL(3840);
	*state = fixture;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *fixture = *state;

	buf_done(&fixture->complaints);
	free(fixture->answer);
	free(fixture);
	return 0;
}

static void expect_complaint(struct fixture *fixture, const char *text, const char *said)
{
	buf_reset(&fixture->complaints);
	assert_int_equal(parse(fixture, text), -EINVAL);
	if (!strstr(buf_text(&fixture->complaints), said))
		fail_msg("`%s` is not in: %s", said, buf_text(&fixture->complaints));
}

static void test_config_parse_empty_file_gives_an_answer_that_passes(void **state)
{
	struct fixture *fixture = *state;
	struct err err = ERR_NULL;

	assert_int_equal(parse(fixture, ""), 0);
	assert_int_equal(config_check(fixture->answer, sizeof(*fixture->answer), &err), 0);
	assert_int_equal(fixture->answer->supervisor.control_gid, UINT32_MAX);
	assert_int_equal(fixture->answer->api.n_trusted_peers, 1);
	assert_int_equal(fixture->answer->api.trusted_peer[0], 0);
	assert_string_equal(fixture->answer->api.env_prefix, "ALPHASWARM_");
	assert_int_equal(fixture->answer->api.endpoint_default_set, 0);
	assert_int_equal(fixture->answer->api.max_sessions,
			 fixture->answer->supervisor.max_sessions);
}

static void test_config_parse_values_land_in_their_fields(void **state)
{
	struct fixture *fixture = *state;
	const struct config_answer *answer = fixture->answer;

	assert_int_equal(parse(fixture, "# comment\n"
					"[supervisor]\n"
					"strict = yes\n"
					"control_gid = 1234\n"
					"[identity]\n"
					"trusted_peers = 0 1000  1001 ; proxy\n"
					"header_user = X-User\n"
					"[endpoints]\r\n"
					"kafka_bootstrap = broker:9092\r\n"
					"iceberg_warehouse =\n"
					"[limits]\n"
					"memory = 64GiB\n"
					"sessions = 7\n"
					"[api]\n"
					"rows_keep = 1d\n"
					"websocket_origins = https://a.example:8443  http://b\n"
					"unknown_fields = ignore"),
			 0);
	assert_int_equal(answer->supervisor.strict, 1);
	assert_int_equal(answer->supervisor.control_gid, 1234);
	assert_int_equal(answer->api.n_trusted_peers, 3);
	assert_int_equal(answer->api.trusted_peer[2], 1001);
	assert_string_equal(answer->api.header_user, "X-User");
	assert_string_equal(answer->api.endpoint_default[5], "broker:9092");
	assert_string_equal(answer->api.endpoint_default[1], "");
	assert_int_equal(answer->api.endpoint_default_set, 1u << 5 | 1u << 1);
	assert_int_equal(answer->supervisor.max_memory_bytes, 64ull << 30);
	assert_int_equal(answer->api.max_sessions, 7);
	assert_int_equal(answer->api.rows_keep_s, 86400);
	assert_string_equal(answer->api.websocket_origins, "https://a.example:8443  http://b");
	assert_int_equal(answer->api.unknown_fields_ignore, 1);
	assert_int_equal(config_check(answer, sizeof(*answer), NULL), 0);
}

static void test_config_parse_unknown_names_are_explained(void **state)
{
	struct fixture *fixture = *state;

	expect_complaint(fixture, "[supervisor]\nstrikt = yes\n",
			 "line 2: [supervisor] has no option strikt; did you mean strict?");
	expect_complaint(fixture, "[api]\nqueue_jobs = 99\nqueue_jobs 3\n",
			 "line 3: neither [section] nor option = value");
	expect_complaint(fixture, "[api\nqueue_jobs = 3\n",
			 "line 1: neither [section] nor option = value");
	expect_complaint(fixture, "[endpoints]\niceberg_rest_uri = lake.example/x\n",
			 "[endpoints] iceberg_rest_uri: Value must begin with http");
	expect_complaint(fixture, "[endpoints]\nfoo = bar\n",
			 "line 2: [endpoints] has no option foo; there are: iceberg_rest_uri");
	expect_complaint(fixture, "[endpoind]\nfoo = bar\n",
			 "unknown section [endpoind]; there are: supervisor api");
	expect_complaint(fixture, "[endpoint]\ncompanions = a\n",
			 "line 2: a section is of one of the six endpoints");
	expect_complaint(fixture, "[endpoint:postgres_dsn]\ncompanions = a\n",
			 "line 2: a section is of one of the six endpoints");
	expect_complaint(fixture, "[endpoint:kafka_bootstrap]\ncompanion = a\n",
			 "[endpoint] has no option companion; did you mean companions?");
	expect_complaint(fixture, "strict = yes\n", "before the first [section]");
	expect_complaint(fixture, "[supervisor]\nstrict\n",
			 "line 2: neither [section] nor option = value");
}

static void test_config_parse_wrong_values_are_never_echoed(void **state)
{
	struct fixture *fixture = *state;
	static const char *const lines[] = {
		"[supervisor]\nstrict = s3cret\n",
		"[supervisor]\ncontrol_gid = s3cret\n",
		"[endpoints]\nkafka_bootstrap = s3cret two\n",
		"[limits]\nmemory = s3cret\n",
		"[limits]\nsessions = 0\n",
		"[limits]\nsession_memory = 1KiB\n",
		"[api]\nrows_keep = 1s\n",
		"[api]\nstream_url = s3cret\n",
		"[api]\nwebsocket_origins = s3cret\n",
		"[api]\nwebsocket_origins = https://\n",
		"[api]\nwebsocket_origins = ://s3cret\n",
		"[api]\nwebsocket_origins = https://s3cret/path\n",
		"[api]\nwebsocket_origins = * **\n",
		"[api]\nenv_prefix = s3cret\n",
		"[identity]\nheader_user = s3cret_x\n",
		"[identity]\ntrusted_peers = 1 s3cret\n",
		"[identity]\ntrusted_peers = 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17\n",
	};

	for (size_t i = 0; i < ARRAY_SIZE(lines); i++) {
		expect_complaint(fixture, lines[i], "line 2: [");
		assert_null(strstr(buf_text(&fixture->complaints), "s3cret"));
		assert_non_null(strstr(buf_text(&fixture->complaints), " wants "));
	}
}

static void test_config_parse_a_range_is_named(void **state)
{
	struct fixture *fixture = *state;

	expect_complaint(fixture, "[limits]\nsessions = 0\n", "wants a number from 1 to 20000\n");
	expect_complaint(
		fixture, "[limits]\nsession_memory = 1KiB\n",
		"wants a size such as 512MiB or 4GiB, from 16777216 to 4398046511104 bytes");
	expect_complaint(fixture, "[api]\njanitor_interval = 2d\n", "from 1 to 3600 seconds");
}

static void test_config_parse_repeated_option_is_refused(void **state)
{
	struct fixture *fixture = *state;

	expect_complaint(fixture, "[limits]\nsessions = 1\n[limits]\nsessions = 2\n",
			 "line 4: [limits] sessions is set twice");
	expect_complaint(fixture, "[limits]\nsessions = 1\n  2\n", "set twice");
}

static const char *value_of(const struct config_settings *settings, const char *section,
			    const char *key, unsigned int *ret_file, unsigned int *ret_line)
{
	for (size_t i = 0; i < settings->n; i++) {
		const struct config_setting *setting = &settings->setting[i];

		if (strcmp(setting->section, section) != 0 || strcmp(setting->key, key) != 0)
			continue;
		*ret_file = setting->file;
		*ret_line = setting->line;
		return setting->value;
	}
	return NULL;
}

static void test_config_parse_a_later_file_goes_before_an_earlier_one(void **state)
{
	struct fixture *fixture = *state;
	static const char first[] = "[limits]\nsessions = 3\npids = 100\n";
	static const char second[] = "\n[limits]\n\nsessions = 9\n";
	const struct config_text files[] = {
		{.name = "sandboxd.conf",    .text = first,  .size = sizeof(first) - 1 },
		{.name = "conf.d/10-x.conf", .text = second, .size = sizeof(second) - 1},
	};
	struct config_settings settings = {0};
	unsigned int file = 9;
	unsigned int line = 9;

	assert_int_equal(config_parse(files, 2, fixture->answer, &settings, &fixture->complaints),
			 0);
	assert_int_equal(fixture->answer->supervisor.max_sessions, 9);
	assert_int_equal(fixture->answer->supervisor.max_pids, 100);
	assert_int_equal(settings.n, 2);
	assert_string_equal(value_of(&settings, "limits", "sessions", &file, &line), "9");
	assert_int_equal(file, 1);
	assert_int_equal(line, 4);
	assert_string_equal(value_of(&settings, "limits", "pids", &file, &line), "100");
	assert_int_equal(file, 0);
	assert_int_equal(line, 3);
	config_settings_done(&settings);
}

static void test_config_parse_a_complaint_names_its_file(void **state)
{
	struct fixture *fixture = *state;
	const struct config_text files[] = {
		{.name = "sandboxd.conf",    .text = "[limits]\n",             .size = 9 },
		{.name = "conf.d/10-x.conf", .text = "[limits]\nsessionz=1\n", .size = 20},
	};

	assert_int_equal(config_parse(files, 2, fixture->answer, NULL, &fixture->complaints),
			 -EINVAL);
	assert_non_null(strstr(buf_text(&fixture->complaints),
			       "conf.d/10-x.conf line 2: [limits] has no option sessionz; did you "
			       "mean sessions?"));
}

static const struct quota_limits *limits_of(const struct config_answer *answer,
					    enum quota_scope scope, const char *name)
{
	for (uint32_t i = 0; i < answer->api.quota.n_overrides; i++) {
		const struct quota_override *override = &answer->api.quota.override[i];

		if (override->scope == scope && strcmp(override->name, name) == 0)
			return &override->limits;
	}
	fail_msg("%s", name);
	return NULL;
}

/* What a tenant's section leaves out is the scope's, wherever that stands. */
static void test_config_parse_quota_of_one_tenant(void **state)
{
	struct fixture *fixture = *state;
	const struct config_answer *answer = fixture->answer;
	static const char first[] = "[owner:alice]\nsessions = 3\ncpu_per_day = 0s\n"
				    "[owner]\nmemory = 7GiB\nsessions = 9\n";
	static const char second[] = "[workspace:123e4567-e89b-12d3-a456-426614174000]\n"
				     "stored = 1MiB\n[owner:alice]\njobs = 0\nsessions = 4\n";
	const struct config_text files[] = {
		{.name = "a", .text = first,  .size = sizeof(first) - 1 },
		{.name = "b", .text = second, .size = sizeof(second) - 1},
	};
	const struct quota_limits *limits;

	assert_int_equal(config_parse(files, 2, fixture->answer, NULL, &fixture->complaints), 0);
	assert_int_equal(config_check(answer, sizeof(*answer), NULL), 0);
	assert_int_equal(answer->api.quota.n_overrides, 2);
	limits = limits_of(answer, QUOTA_SCOPE_OWNER, "alice");
	assert_int_equal(limits->sessions, 4);
	assert_int_equal(limits->jobs, 0);
	assert_int_equal(limits->cpu_s, 0);
	assert_int_equal(limits->memory_bytes, 7ull << 30);
	assert_int_equal(limits->stored_per_s, 32u << 20);
	limits = limits_of(answer, QUOTA_SCOPE_WORKSPACE, "123e4567-e89b-12d3-a456-426614174000");
	assert_int_equal(limits->sessions, 50);
	assert_int_equal(limits->stored_bytes, 1u << 20);
}

static void test_config_parse_quota_mistakes_are_named(void **state)
{
	struct fixture *fixture = *state;
	char text[QUOTA_OVERRIDES_MAX * 40];
	size_t used = 0;

	expect_complaint(fixture, "[owner:a]\nsessions = 1\nsessions = 2\n",
			 "line 3: [owner:a] sessions is set twice");
	expect_complaint(fixture, "[owner:a b]\nsessions = 1\n", "the name in the section");
	expect_complaint(fixture, "[owner:]\nsessions = 1\n", "the name in the section");
	expect_complaint(fixture, "[workspace:1234567890123456789012345678901234567]\njobs = 1\n",
			 "the name in the section");
	expect_complaint(fixture, "[workspace:a]\nlaunches_per_second = 1\n",
			 "[workspace] has no option launches_per_second");
	expect_complaint(fixture, "[host:a]\njobs = 1\n", "unknown section [host:a]");
	for (int i = 0; i <= QUOTA_OVERRIDES_MAX; i++)
		used += (size_t)snprintf(text + used, sizeof(text) - used, "[owner:u%d]\njobs=1\n",
					 i);
	expect_complaint(fixture, text, "at most 256 owners and workspaces");
}

static void test_config_parse_redis_servers(void **state)
{
	static const char *const wrong[] = {
		"rediss://127.0.0.1:1",    "redis://127.0.0.1",       "redis://s3cret:1",
		"redis://x%2@127.0.0.1:1", "redis://%00@127.0.0.1:1", "redis://127.0.0.1:1/x",
	};
	struct fixture *fixture = *state;
	const struct redis_server *server = &fixture->answer->api.platform.redis;

	assert_int_equal(
		parse(fixture, "[platform]\nredis_url = redis://a%40b:p%3a%2Fw@127.0.0.1:6379/2\n"),
		0);
	assert_string_equal(server->user, "a@b");
	assert_string_equal(server->url_password, "p:/w");
	assert_string_equal(server->database, "2");
	assert_int_equal(server->place.port, 6379);
	assert_int_equal(config_check(fixture->answer, sizeof(*fixture->answer), NULL), 0);
	assert_int_equal(parse(fixture, "[platform]\nredis_password = s3cret\n"
					"redis_url = redis://:@localhost:1/0\n"),
			 0);
	assert_string_equal(server->user, "");
	assert_string_equal(server->password, "s3cret");
	assert_string_equal(server->url_password, "");
	assert_string_equal(server->database, "");
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		char text[128];

		(void)snprintf(text, sizeof(text), "[platform]\nredis_url = %s\n", wrong[i]);
		expect_complaint(fixture, text, "line 2: [platform] redis_url wants ");
		assert_null(strstr(buf_text(&fixture->complaints), "s3cret"));
	}
}

/* What a later file says of a place takes no password of an earlier file's place along. */
static void test_config_parse_redis_url_of_a_later_file(void **state)
{
	static const char earlier[] = "[platform]\nredis_url = redis://u:s3cret@127.0.0.1:1\n"
				      "[celery]\nbroker_url = redis://:s3cret@127.0.0.1:1\n"
				      "result_url = redis://:s3cret@127.0.0.1:1\n";
	static const char later[] = "[platform]\nredis_url = redis://127.0.0.1:2\n"
				    "[celery]\nbroker_url = redis://127.0.0.1:2\n"
				    "result_url = redis://127.0.0.1:2\n";
	const struct config_text files[] = {
		{.text = earlier, .size = strlen(earlier)},
		{.text = later,   .size = strlen(later)  },
	};
	struct fixture *fixture = *state;
	const struct api_config *api = &fixture->answer->api;
	const struct redis_server *servers[] = {&api->platform.redis, &api->celery.broker,
						&api->celery.results};

	assert_int_equal(
		config_parse(files, ARRAY_SIZE(files), fixture->answer, NULL, &fixture->complaints),
		0);
	for (size_t i = 0; i < ARRAY_SIZE(servers); i++) {
		assert_int_equal(servers[i]->place.port, 2);
		assert_string_equal(servers[i]->user, "");
		assert_string_equal(servers[i]->url_password, "");
		assert_string_equal(servers[i]->password, "");
	}
}

/* The supervisor keeps what only a restart changes by a table of its own. */
static void test_option_table_and_the_supervisor_agree_on_restarts(void **state)
{
	size_t n;
	const struct option_row *rows = option_table_rows(&n);
	char name[128];

	(void)state;
	for (size_t i = 0; i < n; i++) {
		(void)snprintf(name, sizeof(name), "%s.%s", rows[i].section, rows[i].key);
		if (config_is_kept(name) != (rows[i].effect == OPTION_RESTART))
			fail_msg("%s", name);
	}
}

static void test_bundle_read_takes_whole_bundles_only(void **state)
{
	struct {
		struct config_bundle head;
		char text[8];
	} bundle = {
		.head = {.magic = CONFIG_BUNDLE_MAGIC, .n_files = 2},
                  .text = "abcdefg"
        };
	struct config_text texts[CONFIG_FILES_MAX];
	const char *data = (const char *)&bundle;

	(void)state;
	(void)snprintf(bundle.head.file[0].name, sizeof(bundle.head.file[0].name), "one");
	bundle.head.file[0].bytes = 3;
	bundle.head.file[1].bytes = 5;
	assert_int_equal(bundle_read(data, sizeof(bundle), texts), 2);
	assert_string_equal(texts[0].name, "one");
	assert_memory_equal(texts[1].text, "defg", 5);
	assert_int_equal(bundle_read(data, sizeof(bundle) - 1, texts), -EBADMSG);
	bundle.head.file[0].bytes = UINT32_MAX;
	assert_int_equal(bundle_read(data, sizeof(bundle), texts), -EBADMSG);
	bundle.head.n_files = CONFIG_FILES_MAX + 1;
	assert_int_equal(bundle_read(data, sizeof(bundle), texts), -EBADMSG);
	assert_int_equal(bundle_read("[a]\n", 4, texts), 1);
	assert_int_equal(texts[0].size, 4);
}

static void test_config_parse_every_mistake_is_named_in_one_run(void **state)
{
	struct fixture *fixture = *state;

	expect_complaint(fixture, "[limits]\nsessions = x\nbad = 1\n[nope]\na = 1\n", "line 2:");
	assert_non_null(strstr(buf_text(&fixture->complaints), "line 3:"));
	assert_non_null(strstr(buf_text(&fixture->complaints), "line 5:"));
}

static void test_config_parse_hostile_text_is_refused(void **state)
{
	struct fixture *fixture = *state;
	static const char nul[] = "[limits]\0sessions = 1\n";
	const struct config_text file = {.text = nul, .size = sizeof(nul) - 1};
	char text[1024];

	assert_int_equal(config_parse(&file, 1, fixture->answer, NULL, &fixture->complaints),
			 -EINVAL);
	expect_complaint(fixture, "[limits]\n\xff\xfe = 1\n", "no UTF-8");
	(void)snprintf(text, sizeof(text), "[endpoints]\nkafka_bootstrap = %0300d\n", 0);
	expect_complaint(fixture, text, "line 2: a line holds at most");
	for (int i = 0; i < 40; i++)
		(void)snprintf(text + (size_t)i * 6, 7, "a = 1\n");
	expect_complaint(fixture, text, "line 16:");
	assert_null(strstr(buf_text(&fixture->complaints), "line 17:"));
}

static void test_option_table_every_default_is_valid_and_names_are_unique(void **state)
{
	struct fixture *fixture = *state;
	size_t n;
	const struct option_row *rows = option_table_rows(&n);
	const char *wanted;

	for (size_t i = 0; i < n; i++) {
		assert_ptr_equal(option_table_find(rows[i].section, rows[i].key), &rows[i]);
		assert_string_equal(option_table_nearest(rows[i].section, rows[i].key),
				    rows[i].key);
		if (rows[i].by_default)
			assert_int_equal(option_value_set(&rows[i], rows[i].by_default,
							  fixture->answer, &wanted),
					 0);
	}
}

static void test_config_parse_endpoints_have_sections(void **state)
{
	struct fixture *fixture = *state;
	const struct api_config *api = &fixture->answer->api;

	assert_int_equal(
		parse(fixture,
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
		      "agent_allow = pypi.org:443\n"),
		0);
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
	assert_memory_equal(&api->network, &fixture->answer->egress.network, sizeof(api->network));
	assert_int_equal(config_check(fixture->answer, sizeof(*fixture->answer), NULL), 0);
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
	struct fixture *fixture = *state;

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		expect_complaint(fixture, cases[i].text, cases[i].said);
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
	struct fixture *fixture = *state;

	expect_complaint(fixture, companions, "[endpoint:iceberg_warehouse] a production host is");
	expect_complaint(fixture, wild, "[endpoint:iceberg_warehouse] a production host is");
	expect_complaint(fixture, by_default, "[endpoint:iceberg_warehouse] a production host is");
	expect_complaint(fixture, PRODUCTION "shared_host = path\n", "needs shared_paths");
	expect_complaint(fixture, PRODUCTION "shared_paths = a/b\n", "needs shared_host = path");
	expect_complaint(fixture,
			 "[endpoint:iceberg_warehouse]\nproduction_buckets = lake/prod\n"
			 "[endpoints]\niceberg_warehouse = s3://lake\n",
			 "is production's bucket");
	expect_complaint(fixture, "[endpoints]\nkafka_bootstrap = broker\n",
			 "[endpoints] kafka_bootstrap: Value must be host:port");
	buf_reset(&fixture->complaints);
	assert_int_equal(parse(fixture, answered), 0);
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
	struct fixture *fixture = *state;
	char text[4096];

	fill(text, sizeof(text), "[network]", "\nagent_allow = b.a", 171);
	buf_reset(&fixture->complaints);
	assert_int_equal(parse(fixture, text), 0);
	fill(text, sizeof(text), "[network]", "\nagent_allow = b.a", 172);
	expect_complaint(fixture, text,
			 "[network] production, companions and the longer allow have 1 ");
	fill(text, sizeof(text), PRODUCTION "shared_host = path", "\nshared_paths = h/", 34);
	expect_complaint(fixture, text, "[network] shared_paths have 2 entries too many");
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test_setup_teardown(test_config_parse_rules_of_one_session_fit, set_up,
					tear_down),
	cmocka_unit_test_setup_teardown(test_config_parse_empty_file_gives_an_answer_that_passes,
					set_up, tear_down),
	cmocka_unit_test_setup_teardown(test_config_parse_values_land_in_their_fields, set_up,
					tear_down),
	cmocka_unit_test_setup_teardown(test_config_parse_endpoints_have_sections, set_up,
					tear_down),
	cmocka_unit_test_setup_teardown(test_config_parse_lists_refuse_what_is_no_entry, set_up,
					tear_down),
	cmocka_unit_test_setup_teardown(test_config_parse_shared_host_needs_an_answer, set_up,
					tear_down),
	cmocka_unit_test_setup_teardown(test_config_parse_unknown_names_are_explained, set_up,
					tear_down),
	cmocka_unit_test_setup_teardown(test_config_parse_wrong_values_are_never_echoed, set_up,
					tear_down),
	cmocka_unit_test_setup_teardown(test_config_parse_a_range_is_named, set_up, tear_down),
	cmocka_unit_test_setup_teardown(test_config_parse_repeated_option_is_refused, set_up,
					tear_down),
	cmocka_unit_test_setup_teardown(test_config_parse_a_later_file_goes_before_an_earlier_one,
					set_up, tear_down),
	cmocka_unit_test_setup_teardown(test_config_parse_a_complaint_names_its_file, set_up,
					tear_down),
	cmocka_unit_test_setup_teardown(test_config_parse_quota_of_one_tenant, set_up, tear_down),
	cmocka_unit_test_setup_teardown(test_config_parse_quota_mistakes_are_named, set_up,
					tear_down),
	cmocka_unit_test_setup_teardown(test_config_parse_redis_servers, set_up, tear_down),
	cmocka_unit_test_setup_teardown(test_config_parse_redis_url_of_a_later_file, set_up,
					tear_down),
	cmocka_unit_test(test_option_table_and_the_supervisor_agree_on_restarts),
	cmocka_unit_test(test_bundle_read_takes_whole_bundles_only),
	cmocka_unit_test_setup_teardown(test_config_parse_every_mistake_is_named_in_one_run, set_up,
					tear_down),
	cmocka_unit_test_setup_teardown(test_config_parse_hostile_text_is_refused, set_up,
					tear_down),
	cmocka_unit_test_setup_teardown(
		test_option_table_every_default_is_valid_and_names_are_unique, set_up, tear_down),
};

TEST_MAIN(tests)
