/*
 * Suspend and resume over the seam, where the provider does not do at once, or at all, what it is
 * asked. Whatever it says, a suspend ends nothing: the row and what the sandbox has stay.
 */
#include <string.h>

#include "base/launch.h"
#include "base/str.h"

#include "sandboxd/wire.h"
#include "tests/unit/api_rig.h"

static int post(struct api_rig *rig, const struct api_sandbox *sandbox, const char *what,
		const char *body)
{
	char path[96];

	assert_int_equal(str_format(path, sizeof(path), "%s/%s", sandbox->path, what), 0);
	return api_send(rig, "POST", path, body);
}

static int suspend(struct api_rig *rig, const struct api_sandbox *sandbox)
{
	return post(rig, sandbox, "suspend", "{\"durable\": \"never\"}");
}

static struct launch_msg hear(struct api_rig *rig, const struct api_sandbox *sandbox,
			      enum launch_type type)
{
	struct launch_msg ask = api_hear(rig, API_FAR_FAKE, type);

	assert_memory_equal(ask.session, sandbox->id.bytes, ID_BYTES);
	return ask;
}

static void answer(struct api_rig *rig, const struct api_sandbox *sandbox, enum launch_type type,
		   enum launch_error error)
{
	struct launch_msg ask = hear(rig, sandbox, type);

	api_answer(rig, API_FAR_FAKE, &ask, error);
}

/* What it uses, and whether all of it has stopped. */
static void answer_stat(struct api_rig *rig, const struct api_sandbox *sandbox,
			enum launch_type type, bool is_frozen)
{
	struct launch_msg ask = hear(rig, sandbox, type);
	struct launch_msg stat = api_answer_to(&ask, LAUNCH_E_NONE);

	stat.u.stat.frozen = is_frozen;
	stat.u.stat.memory_bytes = 4096;
	api_say(rig, API_FAR_FAKE, &stat, -1);
}

/* "": running. */
static void expect_status(struct api_rig *rig, const struct api_sandbox *sandbox,
			  const char *status)
{
	json_t *doc = NULL;

	assert_int_equal(api_call(rig, "GET", sandbox->path, NULL, &doc), 200);
	assert_string_equal(json_string_value(json_object_get(doc, "status")), status);
	json_decref(doc);
}

static void begin(struct api_rig *rig, uint64_t is_late, struct api_sandbox *ret_sandbox)
{
	api_start_empty(rig, is_late);
	api_create(rig, ret_sandbox);
}

static void begin_suspended(struct api_rig *rig, struct api_sandbox *ret_sandbox)
{
	int call;

	begin(rig, 0, ret_sandbox);
	call = suspend(rig, ret_sandbox);
	answer_stat(rig, ret_sandbox, LAUNCH_FREEZE, true);
	api_expect(rig, call, 200, NULL);
	expect_status(rig, ret_sandbox, "suspended");
}

/* It is resumed, its processes go on, and nobody has asked for its end. */
static void expect_resumed(struct api_rig *rig, const struct api_sandbox *sandbox)
{
	json_t *doc = NULL;
	int call = post(rig, sandbox, "resume", NULL);

	answer(rig, sandbox, LAUNCH_THAW, LAUNCH_E_NONE);
	assert_int_equal(api_status(rig, call, &doc), 200);
	assert_string_equal(json_string_value(json_object_get(doc, "resumed")), "memory");
	json_decref(doc);
	api_works(rig, sandbox);
	assert_int_equal(api_n_asked(rig, API_FAR_FAKE, LAUNCH_KILL), 0);
	api_leave(rig);
}

static void expect_runs(struct api_rig *rig, const struct api_sandbox *sandbox)
{
	expect_status(rig, sandbox, "open");
	api_works(rig, sandbox);
	assert_int_equal(api_n_asked(rig, API_FAR_FAKE, LAUNCH_KILL), 0);
	api_leave(rig);
}

static void test_suspend_and_resume_delete_nothing(void **state)
{
	struct api_rig *rig = *state;
	struct api_sandbox sandbox;

	begin_suspended(rig, &sandbox);
	/* Once more is no other suspend. */
	api_expect(rig, suspend(rig, &sandbox), 200, NULL);
	assert_int_equal(api_n_asked(rig, API_FAR_FAKE, LAUNCH_FREEZE), 0);
	expect_resumed(rig, &sandbox);
}

static void test_persist_that_stops_late_is_looked_at_until_then(void **state)
{
	struct api_rig *rig = *state;
	struct api_sandbox sandbox;
	int call;

	begin(rig, 0, &sandbox);
	call = suspend(rig, &sandbox);
	answer_stat(rig, &sandbox, LAUNCH_FREEZE, false);
	for (unsigned int i = 0; i < 3; i++)
		answer_stat(rig, &sandbox, LAUNCH_STAT, false);
	assert_false(api_is_answered(rig, call));
	answer_stat(rig, &sandbox, LAUNCH_STAT, true);
	api_expect(rig, call, 200, NULL);
	expect_resumed(rig, &sandbox);
}

static void test_persist_that_never_stops_goes_on(void **state)
{
	struct api_rig *rig = *state;
	struct api_sandbox sandbox;
	int call;

	begin(rig, 0, &sandbox);
	call = suspend(rig, &sandbox);
	answer_stat(rig, &sandbox, LAUNCH_FREEZE, false);
	while (!api_is_answered(rig, call))
		if (api_n_asked(rig, API_FAR_FAKE, LAUNCH_STAT) > 0)
			answer_stat(rig, &sandbox, LAUNCH_STAT, false);
		else
			api_wait(rig);
	api_expect(rig, call, 504, "timeout");
	answer(rig, &sandbox, LAUNCH_THAW, LAUNCH_E_NONE);
	expect_runs(rig, &sandbox);
}

static void test_persist_that_fails_goes_on(void **state)
{
	struct api_rig *rig = *state;
	struct api_sandbox sandbox;
	int call;

	begin(rig, 0, &sandbox);
	call = suspend(rig, &sandbox);
	answer(rig, &sandbox, LAUNCH_FREEZE, LAUNCH_E_STEP);
	api_expect(rig, call, 503, "provider_unavailable");
	answer(rig, &sandbox, LAUNCH_THAW, LAUNCH_E_STATE); /* it never stopped */
	expect_runs(rig, &sandbox);
}

static void test_persist_that_it_can_never_do_is_501(void **state)
{
	struct api_rig *rig = *state;
	struct api_sandbox sandbox;
	int call;

	begin(rig, 0, &sandbox);
	call = suspend(rig, &sandbox);
	answer(rig, &sandbox, LAUNCH_FREEZE, LAUNCH_E_UNSUPPORTED);
	api_expect(rig, call, 501, "not_supported");
	expect_runs(rig, &sandbox);
}

/* Its answer comes when nobody waits for it: what stopped by then goes on. */
static void test_persist_that_is_late_goes_on(void **state)
{
	struct api_rig *rig = *state;
	struct api_sandbox sandbox;
	struct launch_msg freeze;
	int call;

	begin(rig, API_LATE(LAUNCH_FREEZE), &sandbox);
	call = suspend(rig, &sandbox);
	freeze = hear(rig, &sandbox, LAUNCH_FREEZE);
	api_expect(rig, call, 503, "provider_unavailable");
	api_answer(rig, API_FAR_FAKE, &freeze, LAUNCH_E_NONE);
	api_answer(rig, API_FAR_FAKE, &freeze, LAUNCH_E_NONE);
	answer(rig, &sandbox, LAUNCH_THAW, LAUNCH_E_NONE);
	expect_runs(rig, &sandbox);
}

/* Nobody knows whether it runs by then: it is made to stand still again. */
static void test_resume_that_fails_once_is_tried_again(void **state)
{
	struct api_rig *rig = *state;
	struct api_sandbox sandbox;
	int call;

	begin_suspended(rig, &sandbox);
	call = post(rig, &sandbox, "resume", NULL);
	answer(rig, &sandbox, LAUNCH_THAW, LAUNCH_E_STEP);
	api_expect(rig, call, 503, "provider_unavailable");
	answer_stat(rig, &sandbox, LAUNCH_FREEZE, true);
	expect_status(rig, &sandbox, "suspended");
	expect_resumed(rig, &sandbox);
}

/* The provider has lost it, and nobody has said so: the row makes another. */
static void test_resume_that_finds_nothing_makes_another(void **state)
{
	struct api_rig *rig = *state;
	struct api_sandbox sandbox;
	struct launch_msg start;
	json_t *doc = NULL;
	int call;

	begin_suspended(rig, &sandbox);
	call = post(rig, &sandbox, "resume", NULL);
	answer(rig, &sandbox, LAUNCH_THAW, LAUNCH_E_NOT_FOUND);
	start = hear(rig, &sandbox, LAUNCH_START);
	sandbox.shim = api_launch(rig, &start);
	assert_int_equal(api_status(rig, call, &doc), 200);
	assert_string_equal(json_string_value(json_object_get(doc, "resumed")), "snapshot");
	json_decref(doc);
	expect_runs(rig, &sandbox);
}

static void test_persist_that_finds_nothing_is_its_end(void **state)
{
	struct api_rig *rig = *state;
	struct api_sandbox sandbox;
	struct launch_msg start;
	int call;

	begin(rig, 0, &sandbox);
	call = suspend(rig, &sandbox);
	answer(rig, &sandbox, LAUNCH_FREEZE, LAUNCH_E_NOT_FOUND);
	api_expect(rig, call, 503, "provider_unavailable");
	call = post(rig, &sandbox, "commands", "{\"argv\": [\"hello\"]}");
	start = hear(rig, &sandbox, LAUNCH_START);
	sandbox.shim = api_launch(rig, &start);
	api_shim_run(rig, sandbox.shim, "hello");
	api_expect(rig, call, 200, NULL);
	expect_runs(rig, &sandbox);
}

/* The same where its handle ends, and the provider says that it is gone. */
static void test_suspended_one_that_is_lost_is_made_again(void **state)
{
	struct api_rig *rig = *state;
	struct api_sandbox sandbox;
	struct launch_msg gone;
	struct launch_msg start;
	int call;

	begin_suspended(rig, &sandbox);
	gone = launch_message(LAUNCH_EVENT_GONE, 0, sandbox.id.bytes);
	gone.u.gone.reason = LAUNCH_GONE_KILLED;
	api_shim_close(rig, sandbox.shim);
	api_say(rig, API_FAR_FAKE, &gone, -1);
	expect_status(rig, &sandbox, "suspended");
	call = post(rig, &sandbox, "resume", NULL);
	start = hear(rig, &sandbox, LAUNCH_START);
	sandbox.shim = api_launch(rig, &start);
	api_expect(rig, call, 200, NULL);
	expect_runs(rig, &sandbox);
}

static void test_suspended_one_is_deleted(void **state)
{
	struct api_rig *rig = *state;
	struct api_sandbox sandbox;
	int call;

	begin_suspended(rig, &sandbox);
	call = api_send(rig, "DELETE", sandbox.path, NULL);
	answer(rig, &sandbox, LAUNCH_KILL, LAUNCH_E_NONE);
	api_expect(rig, call, 200, NULL);
	api_expect(rig, api_send(rig, "GET", sandbox.path, NULL), 404, NULL);
	api_leave(rig);
}

static void adopt(struct api_rig *rig, struct api_sandbox *sandbox, bool is_frozen)
{
	struct launch_msg ask;

	api_start(rig, 0);
	ask = api_hear(rig, API_FAR_FAKE, LAUNCH_ADOPT);
	sandbox->shim = api_give_adopted(rig, &ask, sandbox->id.bytes, is_frozen);
	api_answer(rig, API_FAR_FAKE, &ask, LAUNCH_E_NONE);
	if (!is_frozen)
		api_shim_greet(rig, sandbox->shim, sandbox->id.bytes, 0);
}

/* Its row says that it is to stand still. */
static void test_crash_within_a_persist_goes_on_with_it(void **state)
{
	struct api_rig *rig = *state;
	struct api_sandbox sandbox;

	begin(rig, 0, &sandbox);
	(void)suspend(rig, &sandbox);
	(void)hear(rig, &sandbox, LAUNCH_FREEZE);
	api_crash(rig);
	adopt(rig, &sandbox, false);
	answer_stat(rig, &sandbox, LAUNCH_FREEZE, true);
	expect_status(rig, &sandbox, "suspended");
	expect_resumed(rig, &sandbox);
}

static void test_crash_after_a_persist_finds_it_suspended(void **state)
{
	struct api_rig *rig = *state;
	struct api_sandbox sandbox;
	int call;

	begin_suspended(rig, &sandbox);
	api_crash(rig);
	adopt(rig, &sandbox, true);
	expect_status(rig, &sandbox, "suspended");
	call = post(rig, &sandbox, "resume", NULL);
	answer(rig, &sandbox, LAUNCH_THAW, LAUNCH_E_NONE);
	api_shim_greet(rig, sandbox.shim, sandbox.id.bytes, 0);
	api_expect(rig, call, 200, NULL);
	expect_runs(rig, &sandbox);
}

/* Its row says that it runs. */
static void test_crash_within_a_resume_goes_on_with_it(void **state)
{
	struct api_rig *rig = *state;
	struct api_sandbox sandbox;

	begin_suspended(rig, &sandbox);
	(void)post(rig, &sandbox, "resume", NULL);
	(void)hear(rig, &sandbox, LAUNCH_THAW);
	api_crash(rig);
	adopt(rig, &sandbox, true);
	answer(rig, &sandbox, LAUNCH_THAW, LAUNCH_E_NONE);
	api_shim_greet(rig, sandbox.shim, sandbox.id.bytes, 0);
	expect_runs(rig, &sandbox);
}

static int suspend_durably(struct api_rig *rig, const struct api_sandbox *sandbox)
{
	int call = post(rig, sandbox, "suspend", "{\"durable\": \"wait\"}");

	api_shim_pause(rig, sandbox->shim);
	answer_stat(rig, sandbox, LAUNCH_FREEZE, true);
	return call;
}

/* Suspended it is; that it is not durable is said. */
static void expect_not_durable(struct api_rig *rig, int call)
{
	json_t *doc = NULL;

	assert_int_equal(api_status(rig, call, &doc), 200);
	assert_string_equal(json_string_value(json_object_get(doc, "status")), "suspended");
	assert_true(json_is_false(json_object_get(doc, "durable")));
	assert_non_null(json_object_get(doc, "durable_error"));
	json_decref(doc);
}

static void test_persist_that_cannot_be_opened_is_not_durable(void **state)
{
	struct api_rig *rig = *state;
	struct api_sandbox sandbox;
	int call;

	rig->features = WIRE_FEATURES;
	begin(rig, 0, &sandbox);
	call = suspend_durably(rig, &sandbox);
	answer(rig, &sandbox, LAUNCH_PART, LAUNCH_E_STEP);
	answer(rig, &sandbox, LAUNCH_JOIN, LAUNCH_E_NONE);
	expect_not_durable(rig, call);
	expect_resumed(rig, &sandbox);
}

/* Nothing of it is thawed while a part of it may run. */
static void test_persist_that_cannot_be_closed_is_closed_before_a_resume(void **state)
{
	struct api_rig *rig = *state;
	struct api_sandbox sandbox;
	int call;

	rig->features = WIRE_FEATURES;
	begin(rig, 0, &sandbox);
	call = suspend_durably(rig, &sandbox);
	answer(rig, &sandbox, LAUNCH_PART, LAUNCH_E_STEP);
	answer(rig, &sandbox, LAUNCH_JOIN, LAUNCH_E_STEP);
	expect_not_durable(rig, call);
	call = post(rig, &sandbox, "resume", NULL);
	answer(rig, &sandbox, LAUNCH_JOIN, LAUNCH_E_STEP);
	api_expect(rig, call, 503, "provider_unavailable");
	assert_int_equal(api_n_asked(rig, API_FAR_FAKE, LAUNCH_THAW), 0);
	call = post(rig, &sandbox, "resume", NULL);
	answer(rig, &sandbox, LAUNCH_JOIN, LAUNCH_E_NONE);
	answer(rig, &sandbox, LAUNCH_THAW, LAUNCH_E_NONE);
	api_expect(rig, call, 200, NULL);
	expect_runs(rig, &sandbox);
}

/* Nothing is asked, and nothing is forgotten: not even why a former one failed. */
static void test_suspend_while_the_provider_is_away_is_refused(void **state)
{
	struct api_rig *rig = *state;
	struct api_sandbox sandbox;

	begin(rig, 0, &sandbox);
	api_far_close(rig, API_FAR_FAKE);
	api_expect(rig, suspend(rig, &sandbox), 503, "provider_unavailable");
	expect_runs(rig, &sandbox);
}

static const struct CMUnitTest tests[] = {
	API_TEST(test_suspend_and_resume_delete_nothing),
	API_TEST(test_persist_that_stops_late_is_looked_at_until_then),
	API_TEST(test_persist_that_never_stops_goes_on),
	API_TEST(test_persist_that_fails_goes_on),
	API_TEST(test_persist_that_it_can_never_do_is_501),
	API_TEST(test_persist_that_is_late_goes_on),
	API_TEST(test_resume_that_fails_once_is_tried_again),
	API_TEST(test_resume_that_finds_nothing_makes_another),
	API_TEST(test_persist_that_finds_nothing_is_its_end),
	API_TEST(test_suspended_one_that_is_lost_is_made_again),
	API_TEST(test_suspended_one_is_deleted),
	API_TEST(test_crash_within_a_persist_goes_on_with_it),
	API_TEST(test_crash_after_a_persist_finds_it_suspended),
	API_TEST(test_crash_within_a_resume_goes_on_with_it),
	API_TEST(test_persist_that_cannot_be_opened_is_not_durable),
	API_TEST(test_persist_that_cannot_be_closed_is_closed_before_a_resume),
	API_TEST(test_suspend_while_the_provider_is_away_is_refused),
};

TEST_MAIN(tests)
