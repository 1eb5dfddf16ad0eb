/* Documents of the Docker Engine API. */
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/str.h"

#include "supervisor/provider/engine_json.h"
#include "tests/lib/test.h"

static const struct plan plan = {
	.session = {0x0f, 0x6a, 0x2c, 0x1e, 0x5b, 0x7d, 0x4c, 0x8a, 0x9e, 0x3f, 0x1a, 0x2b, 0x3c,
		    0x4d, 0x5e, 0x6f},
	.tmpfs_bytes = 1 << 20,
	.memory_bytes = 1 << 28,
	.max_pids = 77,
	.max_files = 512,
	.cpu_pct = 150,
};

static json_t *made(const char *programs_dir)
{
	const struct engine_container container = {
		.instance = "1234abcd",
		.image = "image:1",
		.programs_dir = programs_dir,
		.profile = "agent",
		.plan = &plan,
		.max_processes = -1,
	};
	char *text = engine_json_container(&container);
	const char *reason;
	json_t *document;

	assert_non_null(text);
	assert_int_equal(doc_parse(text, strlen(text), &document, &reason), 0);
	free(text);
	return document;
}

static void test_a_container_is_closed(void **state)
{
	json_t *document = made("/usr/libexec/sandboxd");
	const json_t *host = json_object_get(document, "HostConfig");
	const json_t *ulimits = json_object_get(host, "Ulimits");

	(void)state;
	assert_string_equal(json_string_value(json_object_get(host, "NetworkMode")), "none");
	assert_true(json_is_true(json_object_get(host, "ReadonlyRootfs")));
	assert_string_equal(json_string_value(json_array_get(json_object_get(host, "CapDrop"), 0)),
			    "ALL");
	assert_string_equal(
		json_string_value(json_array_get(json_object_get(host, "SecurityOpt"), 0)),
		"no-new-privileges");
	assert_null(json_object_get(host, "Privileged"));
	assert_string_equal(
		json_string_value(json_array_get(
			json_object_get(json_object_get(document, "Healthcheck"), "Test"), 0)),
		"NONE");
	assert_int_equal(json_integer_value(json_object_get(host, "Memory")), plan.memory_bytes);
	assert_int_equal(json_integer_value(json_object_get(host, "MemorySwap")),
			 plan.memory_bytes);
	assert_int_equal(json_integer_value(json_object_get(host, "PidsLimit")), plan.max_pids);
	assert_int_equal(json_integer_value(json_object_get(host, "NanoCpus")), 1500000000);
	assert_int_equal(json_integer_value(json_object_get(json_array_get(ulimits, 0), "Hard")),
			 plan.max_files);
	assert_string_equal(json_string_value(json_array_get(json_object_get(host, "Binds"), 0)),
			    "/usr/libexec/sandboxd/sandbox-contain:/.sandboxd/sandbox-contain:ro");
	json_decref(document);
}

static void test_a_container_is_named(void **state)
{
	json_t *document = made("/p");
	const json_t *labels = json_object_get(document, "Labels");
	const json_t *entry = json_object_get(document, "Entrypoint");

	(void)state;
	assert_string_equal(json_string_value(json_object_get(labels, ENGINE_LABEL_INSTANCE)),
			    "1234abcd");
	assert_string_equal(json_string_value(json_object_get(labels, ENGINE_LABEL_SANDBOX)),
			    "0f6a2c1e-5b7d-4c8a-9e3f-1a2b3c4d5e6f");
	assert_string_equal(json_string_value(json_array_get(entry, 2)),
			    "0f6a2c1e-5b7d-4c8a-9e3f-1a2b3c4d5e6f");
	assert_string_equal(json_string_value(json_array_get(entry, 4)), "512");
	json_decref(document);
}

static void test_names_of_commands(void **state)
{
	static const char *const wrong[] = {"",
					    "[]",
					    "{}",
					    "{\"Id\":1}",
					    "{\"Id\":\"\"}",
					    "{\"Id\":\"a/b\"}",
					    "{\"Id\":\"a b\"}",
					    "{\"Id\":\"a\\r\\n\"}"};
	char id[ENGINE_EXEC_BYTES];

	(void)state;
	assert_int_equal(engine_json_id("{\"Id\":\"abc1\"}", 13, id), 0);
	assert_string_equal(id, "abc1");
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++)
		assert_int_equal(engine_json_id(wrong[i], strlen(wrong[i]), id), -EBADMSG);
}

struct seen {
	int n;
	int n_paused;
	int n_alive;
};

static void see(void *userdata, const struct id *id, bool is_paused, bool lives)
{
	struct seen *seen = userdata;

	assert_memory_equal(id->bytes, plan.session, ID_BYTES);
	seen->n++;
	seen->n_paused += is_paused;
	seen->n_alive += lives;
}

static void test_lists(void **state)
{
#define ONE(state_text)                                                                            \
	"{\"State\":\"" state_text "\",\"Labels\":{\"sandboxd.sandbox\":"                          \
	"\"0f6a2c1e-5b7d-4c8a-9e3f-1a2b3c4d5e6f\"}}"
	static const char list[] = "[" ONE("running") "," ONE("paused") "," ONE(
		"exited") ",{},{\"Labels\":null},{\"State\":\"running\",\"Labels\":"
			  "{\"sandboxd.sandbox\":\"../x\"}}]";
	struct seen seen = {0};

	(void)state;
	assert_int_equal(engine_json_list(list, strlen(list), see, &seen), 0);
	assert_int_equal(seen.n, 3);
	assert_int_equal(seen.n_paused, 1);
	assert_int_equal(seen.n_alive, 2);
	assert_int_equal(engine_json_list("{}", 2, see, &seen), -EBADMSG);
	assert_int_equal(engine_json_list("[", 1, see, &seen), -EBADMSG);
}

static void test_whether_one_runs(void **state)
{
	static const struct {
		const char *text;
		int runs;
		int is_paused;
	} rows[] = {
		{"{\"State\":{\"Running\":true,\"Paused\":false}}",  1,        0       },
		{"{\"State\":{\"Running\":true,\"Paused\":true}}",   1,        1       },
		{"{\"State\":{\"Running\":false,\"Paused\":true}}",  1,        1       },
		{"{\"State\":{\"Running\":false,\"Paused\":false}}", 0,        -EBADMSG},
		{"{\"State\":{\"Running\":\"no\"}}",                 -EBADMSG, -EBADMSG},
		{"{\"State\":null}",                                 -EBADMSG, -EBADMSG},
		{"[]",					       -EBADMSG, -EBADMSG},
		{"{",						-EBADMSG, -EBADMSG},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		size_t size = strlen(rows[i].text);

		assert_int_equal(engine_json_runs(rows[i].text, size), rows[i].runs);
		assert_int_equal(engine_json_is_paused(rows[i].text, size), rows[i].is_paused);
	}
}

static void test_counts(void **state)
{
	static const char text[] =
		"{\"memory_stats\":{\"usage\":4096,\"max_usage\":-5},\"cpu_stats\":{\"cpu_usage\":"
		"{\"total_usage\":7000}},\"pids_stats\":{\"current\":3}}";
	struct launch_stat stat;

	(void)state;
	assert_int_equal(engine_json_stat(text, strlen(text), &stat), 0);
	assert_int_equal(stat.memory_bytes, 4096);
	assert_int_equal(stat.memory_peak_bytes, 0);
	assert_int_equal(stat.cpu_us, 7);
	assert_int_equal(stat.n_pids, 3);
	assert_int_equal(engine_json_stat("{}", 2, &stat), 0);
	assert_int_equal(stat.memory_bytes, 0);
	assert_int_equal(engine_json_stat("", 0, &stat), -EBADMSG);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_container_is_closed),
		cmocka_unit_test(test_a_container_is_named),
		cmocka_unit_test(test_names_of_commands),
		cmocka_unit_test(test_lists),
		cmocka_unit_test(test_whether_one_runs),
		cmocka_unit_test(test_counts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
