#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

#include "supervisor/api/jobs/progress.h"
#include "tests/lib/test.h"

#define SECRET "http://s3cret.example"

struct rig {
	struct session *session;
	struct job *job;
	struct summary_context context;
};

static void rig_init(struct rig *rig)
{
	struct spec_create spec = {.ttl_minutes = 1};
	struct id id = {{1}};

	spec.endpoint[0] = strdup(SECRET);
	rig->session = session_new(&id, &spec, 0);
	assert_non_null(rig->session);
	rig->job = job_new(&id, rig->session, 0);
	assert_non_null(rig->job);
	rig->context = (struct summary_context){.host = "h", .operator_default = {[1] = SECRET}};
	job_enqueue(rig->job, rig->session);
	job_start(rig->job, 1, 0);
	assert_int_equal(progress_start(rig->job, rig->session, &rig->context, 0), 0);
}

static void rig_done(struct rig *rig, enum job_state state)
{
	job_end(rig->job, rig->session, state, 0);
	(void)job_free(rig->job);
	(void)session_free(rig->session);
}

static int feed(struct rig *rig, uint32_t type, const char *name, const char *text)
{
	struct loader_record r = {.magic = LOADER_MAGIC, .type = type, .line = 5, .n_documents = 3};

	(void)snprintf(r.name, sizeof(r.name), "%s", name);
	(void)snprintf(r.text, sizeof(r.text), "%s", text);
	return progress_feed(rig->job, rig->session, &r, sizeof(r), 0);
}

/* Stage letters of all frames, for example "smmd". */
static void stages(const struct rig *rig, char *text)
{
	for (size_t i = 0; i < rig->job->frames.n_lines; i++)
		*text++ = frames_stage_text(rig->job->frames.line[i].stage)[0];
	*text = '\0';
}

static json_t *frame(const struct rig *rig, size_t index)
{
	const struct frames_line *line = &rig->job->frames.line[index];
	const char *reason;
	json_t *doc;

	assert_true(index < rig->job->frames.n_lines);
	assert_int_equal(doc_parse(line->text, line->size, &doc, &reason), 0);
	return doc;
}

static void test_progress_start_names_but_never_values(void **state)
{
	struct rig rig;
	json_t *doc;
	json_t *metadata;

	(void)state;
	rig_init(&rig);
	assert_null(strstr(rig.job->frames.line[0].text, "s3cret"));
	doc = frame(&rig, 0);
	metadata = json_object_get(doc, "metadata");
	assert_string_equal(json_string_value(json_object_get(doc, "message")),
			    "sandbox session 01000000-0000-0000-0000-000000000000 executing");
	assert_string_equal(json_string_value(json_object_get(metadata, "error_code")),
			    "sandbox_endpoint_isolation_unavailable");
	assert_string_equal(json_string_value(json_object_get(metadata, "live_loader")), "refused");
	assert_string_equal(json_string_value(json_object_get(metadata, "fallback_loader")),
			    "manifest");
	assert_int_equal(json_integer_value(json_object_get(metadata, "endpoint_count")), 6);
	assert_int_equal(json_array_size(json_object_get(metadata, "endpoint_names")), 6);
	metadata = json_object_get(metadata, "endpoint_sources");
	assert_string_equal(json_string_value(json_object_get(metadata, "iceberg_rest_uri")),
			    "caller");
	assert_string_equal(json_string_value(json_object_get(metadata, "iceberg_warehouse")),
			    "operator");
	assert_string_equal(json_string_value(json_object_get(metadata, "kafka_bootstrap")),
			    "closed");
	json_decref(doc);
	progress_fail(rig.job, rig.session, "x", "y", 0);
	rig_done(&rig, JOB_STATE_ERROR);
}

static void test_progress_good_run_in_order(void **state)
{
	const struct wire_exit good = {0};
	enum job_state ended;
	struct rig rig;
	char text[32];
	json_t *doc;
	json_t *part;

	(void)state;
	rig_init(&rig);
	assert_int_equal(feed(&rig, LOADER_ASSET, "a.yaml", ""), 0);
	assert_int_equal(feed(&rig, LOADER_ASSET, "b.yaml", ""), 0);
	assert_true(progress_held_bytes(rig.job) > 0);
	assert_int_equal(feed(&rig, LOADER_PROBLEM, "a.yaml", "broken"), 0);
	assert_int_equal(feed(&rig, LOADER_STORED, "c.yml", ""), 0);
	assert_int_equal(feed(&rig, LOADER_END, "", ""), 0);
	assert_int_equal(progress_held_bytes(rig.job), 0);
	stages(&rig, text);
	assert_string_equal(text, "smml");
	assert_int_equal(progress_finish(rig.job, rig.session, &good, 0, &ended), 0);
	assert_int_equal(ended, JOB_STATE_DONE);
	stages(&rig, text);
	assert_string_equal(text, "smmld");

	doc = frame(&rig, 1);
	assert_string_equal(json_string_value(json_object_get(doc, "message")),
			    "materialising sandbox/a");
	part = json_object_get(doc, "asset_key");
	assert_string_equal(json_string_value(json_array_get(part, 0)), "sandbox");
	assert_string_equal(json_string_value(json_array_get(part, 1)), "a");
	part = json_object_get(json_object_get(doc, "metadata"), "problem");
	assert_int_equal(json_integer_value(json_object_get(part, "line")), 5);
	json_decref(doc);
	doc = frame(&rig, 2);
	assert_null(json_object_get(json_object_get(doc, "metadata"), "problem"));
	json_decref(doc);
	doc = frame(&rig, 3);
	assert_string_equal(json_string_value(json_object_get(doc, "message")),
			    "a.yaml:5:0: broken");
	json_decref(doc);
	doc = frame(&rig, 4);
	assert_string_equal(json_string_value(json_object_get(doc, "message")), "Task complete");
	part = json_object_get(doc, "result");
	assert_true(json_is_true(json_object_get(part, "ok")));
	assert_int_equal(json_integer_value(json_object_get(part, "asset_count")), 2);
	assert_int_equal(json_array_size(json_object_get(part, "problems")), 1);
	json_decref(doc);

	assert_true(rig.session->loaded);
	assert_int_equal(rig.session->load.n_assets, 2);
	assert_int_equal(json_array_size(rig.session->log_summary), 5);
	part = json_array_get(rig.session->log_summary, 4);
	assert_non_null(json_object_get(part, "run_id"));
	rig_done(&rig, ended);
}

static void test_progress_finish_failures_are_one_error(void **state)
{
	static const struct {
		struct wire_exit exit_info;
		bool complete;
		const char *code;
	} cases[] = {
		{{.code = 1},					      true,  "\"code\":\"loader_failed\""},
		{{.code = -1, .signal = 9},                                true,  "\"code\":\"loader_failed\""},
		{{.code = -1, .signal = 9, .flags = WIRE_EXIT_TIMED_OUT},
		 true,							    "\"code\":\"timeout\""      },
		{{.code = -1, .signal = 15, .flags = WIRE_EXIT_CANCELLED},
		 true,							    "\"code\":\"cancelled\""    },
		{{.code = 0},					      false, "\"code\":\"loader_output\""},
		{{.code = 0, .flags = WIRE_EXIT_TRUNCATED},                true,  "\"code\":\"loader_output\""},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		enum job_state ended;
		struct rig rig;
		char text[32];

		rig_init(&rig);
		assert_int_equal(feed(&rig, LOADER_ASSET, "a.yaml", ""), 0);
		if (cases[i].complete)
			assert_int_equal(feed(&rig, LOADER_END, "", ""), 0);
		assert_int_equal(
			progress_finish(rig.job, rig.session, &cases[i].exit_info, 0, &ended), 0);
		assert_int_equal(ended, JOB_STATE_ERROR);
		stages(&rig, text);
		assert_string_equal(text, "sme");
		assert_non_null(strstr(rig.job->frames.line[2].text, cases[i].code));
		progress_fail(rig.job, rig.session, "again", "", 0);
		assert_int_equal(rig.job->frames.n_lines, 3);
		assert_false(rig.session->loaded);
		rig_done(&rig, ended);
	}
}

static void test_progress_feed_holds_a_bounded_amount(void **state)
{
	struct rig rig;
	char name[64];

	(void)state;
	rig_init(&rig);
	for (int i = 0; i < 1023; i++) {
		(void)snprintf(name, sizeof(name), "a%d.yaml", i);
		assert_int_equal(feed(&rig, LOADER_PROBLEM, name, ""), 0);
	}
	assert_int_equal(rig.job->frames.n_lines, 1);
	assert_int_equal(feed(&rig, LOADER_PROBLEM, "last.yaml", ""), 0);
	assert_int_equal(rig.job->frames.n_lines, 1025);
	assert_int_equal(progress_held_bytes(rig.job), 0);
	/* A record that is cut stays held: its frame's number may not be settled. */
	assert_int_equal(progress_feed(rig.job, rig.session, "DAOL", 4, 0), 0);
	assert_int_equal(progress_held_bytes(rig.job), 4);
	progress_fail(rig.job, rig.session, "x", "y", 0);
	rig_done(&rig, JOB_STATE_ERROR);
}

/* Whoever writes byte by byte costs a number each: those are bounded as well. */
static void test_progress_feed_in_small_pieces_holds_few(void **state)
{
	const struct loader_record record = {
		.magic = LOADER_MAGIC, .type = LOADER_ASSET, .name = "a.yaml"};
	struct rig rig;

	(void)state;
	rig_init(&rig);
	for (size_t i = 0; i < 4 * sizeof(record) - 1; i++) {
		assert_int_equal(progress_feed(rig.job, rig.session,
					       (const char *)&record + i % sizeof(record), 1, 0),
				 0);
		assert_true(progress_held_bytes(rig.job) < (uint64_t)PROGRESS_HOLD_FEEDS + 512);
	}
	assert_true(rig.job->frames.n_lines > 1);
	progress_fail(rig.job, rig.session, "x", "y", 0);
	rig_done(&rig, JOB_STATE_ERROR);
}

static void test_progress_feed_hostile_bytes(void **state)
{
	struct rig rig;
	char junk[600];

	(void)state;
	rig_init(&rig);
	memset(junk, 'A', sizeof(junk));
	assert_int_equal(progress_feed(rig.job, rig.session, junk, sizeof(junk), 0), -EBADMSG);
	progress_fail(rig.job, rig.session, "loader_output", "bad output", 0);
	rig_done(&rig, JOB_STATE_ERROR);
}

static void test_progress_load_finish_result_and_failure(void **state)
{
	struct loader_record end = {.magic = LOADER_MAGIC, .type = LOADER_END};
	struct load_parser parser = LOAD_PARSER_NULL;
	const struct wire_exit good = {0};
	const struct wire_exit bad = {.code = 3};
	struct rig rig;

	(void)state;
	rig_init(&rig);
	assert_int_equal(progress_load_finish(&parser, rig.session, &good), 0);
	assert_int_equal(rig.session->load.n_problems, 1);
	assert_string_equal(rig.session->load.problem[0].file, "");
	assert_string_equal(rig.session->load.problem[0].text, "the loader's output is incomplete");
	assert_int_equal(load_parser_feed(&parser, &end, sizeof(end)), 0);
	assert_int_equal(progress_load_finish(&parser, rig.session, &bad), 0);
	assert_int_equal(rig.session->load.n_problems, 1);
	assert_string_equal(rig.session->load.problem[0].text, "the loader ended with status 3");
	assert_int_equal(load_parser_feed(&parser, &end, sizeof(end)), 0);
	assert_int_equal(progress_load_finish(&parser, rig.session, &good), 0);
	assert_int_equal(rig.session->load.n_problems, 0);
	assert_true(rig.session->load.complete);
	progress_fail(rig.job, NULL, "x", "y", 0);
	rig_done(&rig, JOB_STATE_ERROR);
}

static void *no_memory(size_t size)
{
	(void)size;
	return NULL;
}

/* A task that cannot be ended would stand in its session's queue for ever. */
static void test_progress_fail_needs_no_memory(void **state)
{
	struct rig rig;
	json_t *last;

	(void)state;
	rig_init(&rig);
	json_set_alloc_funcs(no_memory, free);
	progress_fail(rig.job, rig.session, "memory", "a \"quoted\" \\ message\n", 1500000);
	json_set_alloc_funcs(malloc, free);
	assert_true(rig.job->frames.terminal);
	assert_int_equal(rig.job->frames.n_lines, 2);
	last = frame(&rig, 1);
	assert_string_equal(json_string_value(json_object_get(last, "stage")), "error");
	assert_string_equal(json_string_value(json_object_get(last, "code")), "memory");
	assert_string_equal(json_string_value(json_object_get(last, "message")),
			    "a ?quoted? ? message?");
	assert_int_equal(json_integer_value(json_object_get(last, "seq")), 2);
	assert_true(json_real_value(json_object_get(last, "timestamp")) > 1.4);
	json_decref(last);
	progress_fail(rig.job, rig.session, "again", "", 0);
	assert_int_equal(rig.job->frames.n_lines, 2);
	rig_done(&rig, JOB_STATE_ERROR);
}

static void test_progress_warn_is_a_log_frame(void **state)
{
	struct rig rig;
	json_t *last;

	(void)state;
	rig_init(&rig);
	assert_int_equal(progress_warn(rig.job, rig.session, 1, 0), 0);
	last = frame(&rig, 1);
	assert_string_equal(json_string_value(json_object_get(last, "stage")), "log");
	assert_string_equal(json_string_value(json_object_get(last, "message")),
			    "the session expires in less than 1 minute");
	json_decref(last);
	progress_fail(rig.job, rig.session, "x", "y", 0);
	rig_done(&rig, JOB_STATE_ERROR);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_progress_start_names_but_never_values),
		cmocka_unit_test(test_progress_good_run_in_order),
		cmocka_unit_test(test_progress_finish_failures_are_one_error),
		cmocka_unit_test(test_progress_feed_holds_a_bounded_amount),
		cmocka_unit_test(test_progress_feed_in_small_pieces_holds_few),
		cmocka_unit_test(test_progress_feed_hostile_bytes),
		cmocka_unit_test(test_progress_load_finish_result_and_failure),
		cmocka_unit_test(test_progress_fail_needs_no_memory),
		cmocka_unit_test(test_progress_warn_is_a_log_frame),
	};
	int n_before = test_begin();

	return test_end(n_before, cmocka_run_group_tests(tests, NULL, NULL));
}
