#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "supervisor/config/bundle_read.h"
#include "supervisor/config_check.h"
#include "tests/unit/config_rig.h"

static void test_config_parse_empty_file_gives_an_answer_that_passes(void **state)
{
	struct config_rig *rig = *state;
	struct err err = ERR_NULL;

	assert_int_equal(config_rig_parse(rig, ""), 0);
	assert_int_equal(config_check(rig->answer, sizeof(*rig->answer), &err), 0);
	assert_int_equal(rig->answer->supervisor.control_gid, UINT32_MAX);
	assert_int_equal(rig->answer->api.n_trusted_peers, 1);
	assert_int_equal(rig->answer->api.trusted_peer[0], 0);
	assert_string_equal(rig->answer->api.env_prefix, "ALPHASWARM_");
	assert_int_equal(rig->answer->api.endpoint_default_set, 0);
	assert_int_equal(rig->answer->api.max_sessions, rig->answer->supervisor.max_sessions);
}

static void test_config_parse_values_land_in_their_fields(void **state)
{
	struct config_rig *rig = *state;
	const struct config_answer *answer = rig->answer;

	assert_int_equal(config_rig_parse(rig,
					  "# comment\n"
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
	struct config_rig *rig = *state;

	config_rig_expect(rig, "[supervisor]\nstrikt = yes\n",
			  "line 2: [supervisor] has no option strikt; did you mean strict?");
	config_rig_expect(rig, "[api]\nqueue_jobs = 99\nqueue_jobs 3\n",
			  "line 3: neither [section] nor option = value");
	config_rig_expect(rig, "[api\nqueue_jobs = 3\n",
			  "line 1: neither [section] nor option = value");
	config_rig_expect(rig, "[endpoints]\niceberg_rest_uri = lake.example/x\n",
			  "[endpoints] iceberg_rest_uri: Value must begin with http");
	config_rig_expect(rig, "[endpoints]\nfoo = bar\n",
			  "line 2: [endpoints] has no option foo; there are: iceberg_rest_uri");
	config_rig_expect(rig, "[endpoind]\nfoo = bar\n",
			  "unknown section [endpoind]; there are: supervisor api");
	config_rig_expect(rig, "[endpoint]\ncompanions = a\n",
			  "line 2: a section is of one of the six endpoints");
	config_rig_expect(rig, "[endpoint:postgres_dsn]\ncompanions = a\n",
			  "line 2: a section is of one of the six endpoints");
	config_rig_expect(rig, "[endpoint:kafka_bootstrap]\ncompanion = a\n",
			  "[endpoint] has no option companion; did you mean companions?");
	config_rig_expect(rig, "strict = yes\n", "before the first [section]");
	config_rig_expect(rig, "[supervisor]\nstrict\n",
			  "line 2: neither [section] nor option = value");
	config_rig_expect(rig, "[api\nx\nqueue_jobs = 3\ny\n",
			  "line 4: neither [section] nor option = value");
	assert_non_null(strstr(buf_text(&rig->complaints), "line 1: neither"));
	assert_non_null(strstr(buf_text(&rig->complaints), "line 2: neither"));
}

static void test_config_parse_wrong_values_are_never_echoed(void **state)
{
	struct config_rig *rig = *state;
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
		config_rig_expect(rig, lines[i], "line 2: [");
		assert_null(strstr(buf_text(&rig->complaints), "s3cret"));
		assert_non_null(strstr(buf_text(&rig->complaints), " wants "));
	}
}

static void test_config_parse_a_range_is_named(void **state)
{
	struct config_rig *rig = *state;

	config_rig_expect(rig, "[limits]\nsessions = 0\n", "wants a number from 1 to 20000\n");
	config_rig_expect(
		rig, "[limits]\nsession_memory = 1KiB\n",
		"wants a size such as 512MiB or 4GiB, from 16777216 to 4398046511104 bytes");
	config_rig_expect(rig, "[api]\njanitor_interval = 2d\n", "from 1 to 3600 seconds");
}

static void test_config_parse_repeated_option_is_refused(void **state)
{
	struct config_rig *rig = *state;

	config_rig_expect(rig, "[limits]\nsessions = 1\n[limits]\nsessions = 2\n",
			  "line 4: [limits] sessions is set twice");
	config_rig_expect(rig, "[limits]\nsessions = 1\n  2\n", "set twice");
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
	struct config_rig *rig = *state;
	static const char first[] = "[limits]\nsessions = 3\npids = 100\n";
	static const char second[] = "\n[limits]\n\nsessions = 9\n";
	const struct config_text files[] = {
		{.name = "sandboxd.conf",    .text = first,  .size = sizeof(first) - 1 },
		{.name = "conf.d/10-x.conf", .text = second, .size = sizeof(second) - 1},
	};
	struct config_settings settings = {0};
	unsigned int file = 9;
	unsigned int line = 9;

	assert_int_equal(config_parse(files, 2, rig->answer, &settings, &rig->complaints), 0);
	assert_int_equal(rig->answer->supervisor.max_sessions, 9);
	assert_int_equal(rig->answer->supervisor.max_pids, 100);
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
	struct config_rig *rig = *state;
	const struct config_text files[] = {
		{.name = "sandboxd.conf",    .text = "[limits]\n",             .size = 9 },
		{.name = "conf.d/10-x.conf", .text = "[limits]\nsessionz=1\n", .size = 20},
	};

	assert_int_equal(config_parse(files, 2, rig->answer, NULL, &rig->complaints), -EINVAL);
	assert_non_null(strstr(buf_text(&rig->complaints),
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
	struct config_rig *rig = *state;
	const struct config_answer *answer = rig->answer;
	static const char first[] = "[owner:alice]\nsessions = 3\ncpu_per_day = 0s\n"
				    "[owner]\nmemory = 7GiB\nsessions = 9\n";
	static const char second[] = "[workspace:123e4567-e89b-12d3-a456-426614174000]\n"
				     "stored = 1MiB\n[owner:alice]\njobs = 0\nsessions = 4\n";
	const struct config_text files[] = {
		{.name = "a", .text = first,  .size = sizeof(first) - 1 },
		{.name = "b", .text = second, .size = sizeof(second) - 1},
	};
	const struct quota_limits *limits;

	assert_int_equal(config_parse(files, 2, rig->answer, NULL, &rig->complaints), 0);
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

#define KEY "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

static void test_config_parse_keys_of_snapshots(void **state)
{
	struct config_rig *rig = *state;
	const struct snapshot_key_list *keys = &rig->answer->api.snapshot_keys;
	static const char first[] = "[snapshots]\nkeys = *=a:" KEY "\n";
	static const char second[] = "[snapshots]\nencryption = required\nkeys = owner:x=b:" KEY
				     "\nkeys = workspace:y=c:" KEY " *=d:" KEY "\n";
	struct config_text files[] = {
		{.name = "a", .text = first,  .size = sizeof(first) - 1 },
		{.name = "b", .text = second, .size = sizeof(second) - 1},
	};

	assert_int_equal(config_parse(files, 2, rig->answer, NULL, &rig->complaints), 0);
	assert_int_equal(config_check(rig->answer, sizeof(*rig->answer), NULL), 0);
	assert_int_equal(rig->answer->api.snapshot_encryption, CONFIG_ENCRYPTION_REQUIRED);
	assert_int_equal(keys->n, 3);
	assert_string_equal(keys->key[0].id, "b");
	assert_string_equal(keys->key[2].id, "d");
	files[0].is_readable = true;
	assert_int_equal(config_parse(files, 2, rig->answer, NULL, &rig->complaints), -EINVAL);
	assert_non_null(memmem(rig->complaints.data, rig->complaints.size, "a line 2: ", 10));
	assert_null(memmem(rig->complaints.data, rig->complaints.size, "0011", 4));
}

static void test_config_parse_quota_mistakes_are_named(void **state)
{
	struct config_rig *rig = *state;
	char text[QUOTA_OVERRIDES_MAX * 40];
	size_t used = 0;

	config_rig_expect(rig, "[owner:a]\nsessions = 1\nsessions = 2\n",
			  "line 3: [owner:a] sessions is set twice");
	config_rig_expect(rig, "[owner:a b]\nsessions = 1\n", "the name in the section");
	config_rig_expect(rig, "[owner:]\nsessions = 1\n", "the name in the section");
	config_rig_expect(rig, "[workspace:1234567890123456789012345678901234567]\njobs = 1\n",
			  "the name in the section");
	config_rig_expect(rig, "[workspace:a]\nlaunches_per_second = 1\n",
			  "[workspace] has no option launches_per_second");
	config_rig_expect(rig, "[host:a]\njobs = 1\n", "unknown section [host:a]");
	for (int i = 0; i <= QUOTA_OVERRIDES_MAX; i++)
		used += (size_t)snprintf(text + used, sizeof(text) - used, "[owner:u%d]\njobs=1\n",
					 i);
	config_rig_expect(rig, text, "at most 256 owners and workspaces");
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
	struct config_rig *rig = *state;

	config_rig_expect(rig, "[limits]\nsessions = x\nbad = 1\n[nope]\na = 1\n", "line 2:");
	assert_non_null(strstr(buf_text(&rig->complaints), "line 3:"));
	assert_non_null(strstr(buf_text(&rig->complaints), "line 5:"));
}

static void test_config_parse_hostile_text_is_refused(void **state)
{
	struct config_rig *rig = *state;
	static const char nul[] = "[limits]\0sessions = 1\n";
	const struct config_text file = {.text = nul, .size = sizeof(nul) - 1};
	char text[1024];

	assert_int_equal(config_parse(&file, 1, rig->answer, NULL, &rig->complaints), -EINVAL);
	config_rig_expect(rig, "[limits]\n\xff\xfe = 1\n", "no UTF-8");
	(void)snprintf(text, sizeof(text), "[endpoints]\nkafka_bootstrap = %0300d\n", 0);
	config_rig_expect(rig, text, "line 2: a line holds at most");
	for (int i = 0; i < 40; i++)
		(void)snprintf(text + (size_t)i * 6, 7, "a = 1\n");
	config_rig_expect(rig, text, "line 16:");
	assert_null(strstr(buf_text(&rig->complaints), "line 17:"));
}

static const struct CMUnitTest tests[] = {
	CONFIG_TEST(test_config_parse_empty_file_gives_an_answer_that_passes),
	CONFIG_TEST(test_config_parse_values_land_in_their_fields),
	CONFIG_TEST(test_config_parse_unknown_names_are_explained),
	CONFIG_TEST(test_config_parse_wrong_values_are_never_echoed),
	CONFIG_TEST(test_config_parse_a_range_is_named),
	CONFIG_TEST(test_config_parse_repeated_option_is_refused),
	CONFIG_TEST(test_config_parse_a_later_file_goes_before_an_earlier_one),
	CONFIG_TEST(test_config_parse_a_complaint_names_its_file),
	CONFIG_TEST(test_config_parse_quota_of_one_tenant),
	CONFIG_TEST(test_config_parse_keys_of_snapshots),
	CONFIG_TEST(test_config_parse_quota_mistakes_are_named),
	cmocka_unit_test(test_bundle_read_takes_whole_bundles_only),
	CONFIG_TEST(test_config_parse_every_mistake_is_named_in_one_run),
	CONFIG_TEST(test_config_parse_hostile_text_is_refused),
};

TEST_MAIN(tests)
