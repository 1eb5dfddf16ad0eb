/* What sandboxd.conf says of servers: their places and passwords. */
#include <stdio.h>
#include <string.h>

#include "supervisor/config_check.h"
#include "tests/unit/config_rig.h"

static void test_config_parse_redis_servers(void **state)
{
	static const char *const wrong[] = {
		"redis://127.0.0.1",
		"redis://s3cret",
		"redis://s3cret:0",
		"redis://s3cret_:1",
		"redis://x%2@127.0.0.1:1",
		"redis://%00@127.0.0.1:1",
		"redis://127.0.0.1:1/x",
		"redis://127.0.0.1:1/0?ssl_cert_reqs=required",
		"rediss://127.0.0.1:1/0?ssl_cert_reqs=none",
	};
	struct config_rig *rig = *state;
	const struct redis_server *server = &rig->answer->api.platform.redis;

	assert_int_equal(
		config_rig_parse(
			rig, "[platform]\nredis_url = redis://a%40b:p%3a%2Fw@127.0.0.1:6379/2\n"),
		0);
	assert_string_equal(server->user, "a@b");
	assert_string_equal(server->url_password, "p:/w");
	assert_string_equal(server->database, "2");
	assert_int_equal(server->place.port, 6379);
	assert_int_equal(config_check(rig->answer, sizeof(*rig->answer), NULL), 0);
	assert_int_equal(config_rig_parse(rig, "[platform]\nredis_password = s3cret\n"
					       "redis_url = redis://:@localhost:1/0\n"),
			 0);
	assert_string_equal(server->user, "");
	assert_string_equal(server->password, "s3cret");
	assert_string_equal(server->url_password, "");
	assert_string_equal(server->database, "");
	assert_string_equal(server->name, "localhost");
	assert_int_equal(server->tls, 0);
	assert_int_equal(config_rig_parse(rig,
					  "[platform]\nredis_url = rediss://:x@Redis.example:6380/1"
					  "?ssl_cert_reqs=required\n"),
			 0);
	assert_int_equal(server->tls, 1);
	assert_string_equal(server->name, "redis.example");
	assert_string_equal(server->database, "1");
	assert_int_equal(server->place.port, 6380);
	assert_int_equal(server->place.address.family, 0);
	assert_int_equal(config_check(rig->answer, sizeof(*rig->answer), NULL), 0);
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		char text[128];

		(void)snprintf(text, sizeof(text), "[platform]\nredis_url = %s\n", wrong[i]);
		config_rig_expect(rig, text, "line 2: [platform] redis_url wants ");
		assert_null(strstr(buf_text(&rig->complaints), "s3cret"));
	}
}

/* What the worker would refuse at its start is refused here, and nothing of it is repeated. */
static void test_config_parse_dsn(void **state)
{
	static const char *const right[] = {
		"postgresql://me:p%40ss@127.0.0.1:6543/db?sslmode=require",
		"postgres://me@[::1]:5432/db",
		"postgresql+psycopg2://me@localhost/db?options=-c%20a%3Db",
		"postgresql://me@10.0.0.1:1,db.example:2/db",
		"postgresql://me@db.example/x?hostaddr=10.0.0.1&sslmode=verify-full",
		"postgresql:///db?host=db.example",
		"postgresql://me@db.example?sslrootcert=%2Fetc%2Fssl%2Fcerts%2Fours.pem",
		"postgresql://me@db.example/x?ssl=true&target_session_attrs=read-write",
		"postgresql://me@a:,b:5432/x?connect_timeout=3&ssl_min_protocol_version=TLSv1.3",
		"postgresql://me@a,b/x?port=1,2&channel_binding=require",
		"postgresql://me@a/x?password=%C3%A4%20b",
		"postgresql://me:p?x:y@a/x?user=b",
		"postgresql://me@db.example/x?hostaddr=10.0.0.1,::1",
	};
	static const char *const wrong[] = {
		"s3cret",
		"mysql://me:s3cret@127.0.0.1/db",
		"postgresql:me:s3cret@127.0.0.1/db",
		"postgresql://me:s3cret@db_s3cret/x",
		"postgresql://me:s3cret@a,,b/x",
		"postgresql://me:s3cret@[::1/x",
		"postgresql://me:s3cret@1,2,3,4,5,6,7,8,9/x",
		"postgresql://a,b,c,d,e,f,g,h,i/s3cret",
		"postgresql://me:s3cret@%2Frun%2Fpostgresql/x",
		"postgresql:///s3cret",
		"postgresql:///x?host=%2Frun%2Fs3cret",
		"postgresql://me@127.0.0.1/x?service=s3cret",
		"postgresql://me@127.0.0.1/x?%73slkey=%2Fs3cret",
		"postgresql://me@127.0.0.1/x?sslrootcert=%2Fs3cret",
		"postgresql://me@127.0.0.1/x?s3cret",
		"postgresql://me@127.0.0.1/x?sslmode=s3cret",
		"postgresql://me@127.0.0.1/x?sslmode=verify",
		"postgresql://me@127.0.0.1/x?sslmode=",
		"postgresql://me@127.0.0.1/x?ssl=1",
		"postgresql://me@127.0.0.1/x?s3cret=1",
		"postgresql://me@127.0.0.1:543210/x",
		"postgresql://me@127.0.0.1:0/x",
		"postgresql://me@127.0.0.1:s3cret/x",
		"postgresql://me@127.0.0.1/x?port=543210",
		"postgresql://me@127.0.0.1/x?port=1,s3cret",
		"postgresql://me@127.0.0.1/x?connect_timeout=3s3cret",
		"postgresql://me@127.0.0.1/x?target_session_attrs=primary%20standby",
		"postgresql://me@127.0.0.1/x?sslmode=require=s3cret",
		"postgresql://me:s3cret%zz@127.0.0.1/x",
		"postgresql://me:s3cret%00@127.0.0.1/x",
		"postgresql://me:s3cret%2@127.0.0.1",
		"postgresql://me:x@s3cret@127.0.0.1/x",
		"postgresql://127.0.0.1?user=s3cret@s3cret_x",
		"postgresql://me@a/x?hostaddr=s3cret",
		"postgresql://me@a/x?hostaddr=10.0.0.1,",
	};
	struct config_rig *rig = *state;
	char text[256];

	for (size_t i = 0; i < ARRAY_SIZE(right); i++) {
		(void)snprintf(text, sizeof(text), "[store]\ndsn = %s\n", right[i]);
		assert_int_equal(config_rig_parse(rig, text), 0);
		assert_string_equal(rig->answer->api.store_dsn, right[i]);
	}
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		(void)snprintf(text, sizeof(text), "[store]\ndsn = %s\n", wrong[i]);
		config_rig_expect(rig, text, "line 2: [store] dsn wants ");
		assert_null(strstr(buf_text(&rig->complaints), "s3cret"));
	}
}

/* The part that is wrong is named. */
static void test_config_parse_dsn_says_what_is_wanted(void **state)
{
	static const struct {
		const char *dsn;
		const char *wants;
	} rows[] = {
		{"mysql://me@a/x",                         "postgresql://user:password@host:port/database"},
		{"postgresql://me@\xc3\xa4/x",             "postgresql://user:password@host:port/database"},
		{"postgresql://me:10%@a/x",                "two hexadecimal digits"                       },
		{"postgresql://me:a@b@c_d/x",              "as hosts up to 8 names"                       },
		{"postgresql://me:a/b@c/x",                "as hosts up to 8 names"                       },
		{"postgresql://me@a:65536/x",              "as hosts up to 8 names"                       },
		{"postgresql:///x",                        "a host's name or address"                     },
		{"postgresql:///x?host=%2Frun/postgresql", "a host's name or address"                     },
		{"postgresql://me@a/x?sslmode=verify",     "behind '?' option=value"                      },
		{"postgresql://me@a/x?hostaddr=b",         "behind '?' option=value"                      },
		{"postgresql://me@a/x?sslkey=/k",          "no file but authorities in /etc/ssl/certs/"   },
		{"postgresql://me@a/x?sslrootcert=/k",
		 "no file but authorities in /etc/ssl/certs/"                                             },
	};
	struct config_rig *rig = *state;
	char text[256];
	char wants[128];

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		(void)snprintf(text, sizeof(text), "[store]\ndsn = %s\n", rows[i].dsn);
		(void)snprintf(wants, sizeof(wants), "line 2: [store] dsn wants %s", rows[i].wants);
		config_rig_expect(rig, text, wants);
	}
}

static void test_config_parse_servers_without_their_options(void **state)
{
	struct config_rig *rig = *state;

	config_rig_expect(rig, "[store]\npassword = x\n", "[store] password needs dsn");
	config_rig_expect(rig, "[redis]\npassword = x\n", "[redis] password needs url");
	config_rig_expect(rig, "[platform]\nredis_password = x\n",
			  "[platform] redis_password needs redis_url");
	config_rig_expect(rig, "[celery]\nresult_url = redis://127.0.0.1:1\n",
			  "[celery] result_url needs broker_url");
	config_rig_expect(rig, "[celery]\nexecution = celery\n",
			  "[celery] execution = celery needs broker_url");
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
	struct config_rig *rig = *state;
	const struct api_config *api = &rig->answer->api;
	const struct redis_server *servers[] = {&api->platform.redis, &api->celery.broker,
						&api->celery.results};

	assert_int_equal(
		config_parse(files, ARRAY_SIZE(files), rig->answer, NULL, &rig->complaints), 0);
	for (size_t i = 0; i < ARRAY_SIZE(servers); i++) {
		assert_int_equal(servers[i]->place.port, 2);
		assert_string_equal(servers[i]->user, "");
		assert_string_equal(servers[i]->url_password, "");
		assert_string_equal(servers[i]->password, "");
	}
}

static void test_config_parse_object_store(void **state)
{
	static const char *const wrong[] = {
		"s3_endpoint = s3.example",
		"s3_endpoint = http://s3.example",
		"s3_endpoint = http://127.0.0.1.example:9000",
		"s3_endpoint = https://s3.example:0",
		"s3_endpoint = https://s3.example/bucket",
		"s3_endpoint = https://user@s3.example",
		"s3_endpoint = https://",
		"s3_endpoint = https://[::1",
		"s3_prefix = /a/",
		"s3_prefix = a",
		"s3_prefix = a/../b/",
		"s3_prefix = a//",
		"s3_bucket = a/b",
		"s3_credentials = AK",
		"s3_credentials = :secret",
		"s3_credentials = AK:",
	};
	struct config_rig *rig = *state;
	const struct s3_config *s3 = &rig->answer->s3;

	assert_int_equal(
		config_rig_parse(rig,
				 "[snapshots]\nstore = s3\ns3_endpoint = https://s3.example:9000/\n"
				 "s3_bucket = b\ns3_credentials = AK:secret\n"),
		0);
	assert_string_equal(s3->host, "s3.example:9000");
	assert_int_equal(s3->is_plain, 0);
	assert_int_equal(s3->path_style, 1);
	assert_string_equal(s3->prefix, "sandboxes/");
	assert_string_equal(s3->region, "us-east-1");
	assert_string_equal(s3->credentials, "AK:secret");
	assert_int_equal(rig->answer->api.snapshot_store, CONFIG_SNAPSHOTS_S3);
	assert_int_equal(config_check(rig->answer, sizeof(*rig->answer), NULL), 0);
	assert_int_equal(
		config_rig_parse(rig,
				 "[snapshots]\ns3_endpoint = http://[::1]:9000\ns3_bucket = b\n"
				 "s3_credentials = AK:secret\n"),
		0);
	assert_string_equal(s3->host, "[::1]:9000");
	assert_int_equal(s3->is_plain, 1);
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		char text[128];

		(void)snprintf(text, sizeof(text), "[snapshots]\n%s\n", wrong[i]);
		config_rig_expect(rig, text, "line 2: [snapshots] s3_");
		assert_null(strstr(buf_text(&rig->complaints), "secret"));
	}
	config_rig_expect(rig, "[snapshots]\nstore = s3\n", "store = s3 needs s3_endpoint");
	config_rig_expect(rig, "[snapshots]\ns3_endpoint = https://a.example\n",
			  "s3_endpoint needs s3_bucket");
	config_rig_expect(rig, "[snapshots]\ns3_endpoint = https://a.example\ns3_bucket = b\n",
			  "s3_endpoint needs s3_credentials");
}

static const struct CMUnitTest tests[] = {
	CONFIG_TEST(test_config_parse_redis_servers),
	CONFIG_TEST(test_config_parse_object_store),
	CONFIG_TEST(test_config_parse_dsn),
	CONFIG_TEST(test_config_parse_dsn_says_what_is_wanted),
	CONFIG_TEST(test_config_parse_servers_without_their_options),
	CONFIG_TEST(test_config_parse_redis_url_of_a_later_file),
};

TEST_MAIN(tests)
