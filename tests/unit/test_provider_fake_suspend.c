/*
 * Suspend and resume over the seam, where the provider does not do at once, or at all, what it is
 * asked. Whatever it says, a suspend ends nothing: the row and what the sandbox has stay.
 */
#include <string.h>

#include "base/launch.h"
#include "base/str.h"

#include "sandboxd/wire.h"
#include "tests/unit/api_rig.h"

static void begin(struct api_rig *rig, uint64_t is_late, struct api_sandbox *ret_sandbox)
{
	api_start_empty(rig, is_late);
	api_create(rig, API_FAR_FAKE, ret_sandbox);
}

static void begin_suspended(struct api_rig *rig, struct api_sandbox *ret_sandbox)
{
	int call;

	begin(rig, 0, ret_sandbox);
	call = api_suspend(rig, ret_sandbox);
	api_answer_stat(rig, ret_sandbox, LAUNCH_FREEZE, true);
	api_expect(rig, call, 200, NULL);
	api_expect_state(rig, ret_sandbox, "suspended");
}

/* It is resumed, its processes go on, and nobody has asked for its end. */
static void expect_resumed(struct api_rig *rig, const struct api_sandbox *sandbox)
{
	json_t *doc = NULL;
	int call = api_post(rig, sandbox, "resume", NULL);

	api_answer_of(rig, sandbox, LAUNCH_THAW, LAUNCH_E_NONE);
	assert_int_equal(api_status(rig, call, &doc), 200);
	assert_string_equal(json_string_value(json_object_get(doc, "resumed")), "memory");
	json_decref(doc);
	api_works(rig, sandbox);
	assert_int_equal(api_n_asked(rig, API_FAR_FAKE, LAUNCH_KILL), 0);
	api_leave(rig);
}

static void expect_runs(struct api_rig *rig, const struct api_sandbox *sandbox)
{
	api_expect_state(rig, sandbox, "open");
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
	api_expect(rig, api_suspend(rig, &sandbox), 200, NULL);
	assert_int_equal(api_n_asked(rig, API_FAR_FAKE, LAUNCH_FREEZE), 0);
	expect_resumed(rig, &sandbox);
}

static void test_persist_that_stops_late_is_looked_at_until_then(void **state)
{
	struct api_rig *rig = *state;
	struct api_sandbox sandbox;
	int call;

	begin(rig, 0, &sandbox);
	call = api_suspend(rig, &sandbox);
	api_answer_stat(rig, &sandbox, LAUNCH_FREEZE, false);
	for (unsigned int i = 0; i < 3; i++)
		api_answer_stat(rig, &sandbox, LAUNCH_STAT, false);
	assert_false(api_is_answered(rig, call));
	api_answer_stat(rig, &sandbox, LAUNCH_STAT, true);
	api_expect(rig, call, 200, NULL);
	expect_resumed(rig, &sandbox);
}

static void test_persist_that_never_stops_goes_on(void **state)
{
	struct api_rig *rig = *state;
	struct api_sandbox sandbox;
	int call;

	begin(rig, 0, &sandbox);
	call = api_suspend(rig, &sandbox);
	api_answer_stat(rig, &sandbox, LAUNCH_FREEZE, false);
	while (!api_is_answered(rig, call))
		if (api_n_asked(rig, API_FAR_FAKE, LAUNCH_STAT) > 0)
			api_answer_stat(rig, &sandbox, LAUNCH_STAT, false);
		else
			api_wait(rig);
	api_expect(rig, call, 504, "timeout");
	api_answer_of(rig, &sandbox, LAUNCH_THAW, LAUNCH_E_NONE);
	expect_runs(rig, &sandbox);
}

static void test_persist_that_fails_goes_on(void **state)
{
	struct api_rig *rig = *state;
	struct api_sandbox sandbox;
	int call;

	begin(rig, 0, &sandbox);
	call = api_suspend(rig, &sandbox);
	api_answer_of(rig, &sandbox, LAUNCH_FREEZE, LAUNCH_E_STEP);
	api_expect(rig, call, 503, "provider_unavailable");
	api_answer_of(rig, &sandbox, LAUNCH_THAW, LAUNCH_E_STATE); /* it never stopped */
	expect_runs(rig, &sandbox);
}

static void test_persist_that_it_can_never_do_is_501(void **state)
{
	struct api_rig *rig = *state;
	struct api_sandbox sandbox;
	int call;

	begin(rig, 0, &sandbox);
	call = api_suspend(rig, &sandbox);
	api_answer_of(rig, &sandbox, LAUNCH_FREEZE, LAUNCH_E_UNSUPPORTED);
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
	call = api_suspend(rig, &sandbox);
	freeze = api_hear_of(rig, &sandbox, LAUNCH_FREEZE);
	api_expect(rig, call, 503, "provider_unavailable");
	api_answer(rig, API_FAR_FAKE, &freeze, LAUNCH_E_NONE);
	api_answer(rig, API_FAR_FAKE, &freeze, LAUNCH_E_NONE);
	api_answer_of(rig, &sandbox, LAUNCH_THAW, LAUNCH_E_NONE);
	expect_runs(rig, &sandbox);
}

/* Nobody knows whether it runs by then: it is made to stand still again. */
static void test_resume_that_fails_once_is_tried_again(void **state)
{
	struct api_rig *rig = *state;
	struct api_sandbox sandbox;
	int call;

	begin_suspended(rig, &sandbox);
	call = api_post(rig, &sandbox, "resume", NULL);
	api_answer_of(rig, &sandbox, LAUNCH_THAW, LAUNCH_E_STEP);
	api_expect(rig, call, 503, "provider_unavailable");
	api_answer_stat(rig, &sandbox, LAUNCH_FREEZE, true);
	api_expect_state(rig, &sandbox, "suspended");
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
	call = api_post(rig, &sandbox, "resume", NULL);
	api_answer_of(rig, &sandbox, LAUNCH_THAW, LAUNCH_E_NOT_FOUND);
	start = api_hear_of(rig, &sandbox, LAUNCH_START);
	sandbox.shim = api_launch(rig, API_FAR_FAKE, &start);
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
	call = api_suspend(rig, &sandbox);
	api_answer_of(rig, &sandbox, LAUNCH_FREEZE, LAUNCH_E_NOT_FOUND);
	api_expect(rig, call, 503, "provider_unavailable");
	call = api_post(rig, &sandbox, "commands", "{\"argv\": [\"hello\"]}");
	start = api_hear_of(rig, &sandbox, LAUNCH_START);
	sandbox.shim = api_launch(rig, API_FAR_FAKE, &start);
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
	api_expect_state(rig, &sandbox, "suspended");
	call = api_post(rig, &sandbox, "resume", NULL);
	start = api_hear_of(rig, &sandbox, LAUNCH_START);
	sandbox.shim = api_launch(rig, API_FAR_FAKE, &start);
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
	api_answer_of(rig, &sandbox, LAUNCH_KILL, LAUNCH_E_NONE);
	api_expect(rig, call, 200, NULL);
	api_expect(rig, api_send(rig, "GET", sandbox.path, NULL), 404, NULL);
	api_leave(rig);
}

static void adopt(struct api_rig *rig, struct api_sandbox *sandbox, bool is_frozen)
{
	struct launch_msg ask;

	api_start(rig, 0);
	ask = api_hear(rig, API_FAR_FAKE, LAUNCH_ADOPT);
	sandbox->shim = api_give_adopted(rig, API_FAR_FAKE, &ask, sandbox->id.bytes, is_frozen);
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
	(void)api_suspend(rig, &sandbox);
	(void)api_hear_of(rig, &sandbox, LAUNCH_FREEZE);
	api_crash(rig);
	adopt(rig, &sandbox, false);
	api_answer_stat(rig, &sandbox, LAUNCH_FREEZE, true);
	api_expect_state(rig, &sandbox, "suspended");
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
	api_expect_state(rig, &sandbox, "suspended");
	call = api_post(rig, &sandbox, "resume", NULL);
	api_answer_of(rig, &sandbox, LAUNCH_THAW, LAUNCH_E_NONE);
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
	(void)api_post(rig, &sandbox, "resume", NULL);
	(void)api_hear_of(rig, &sandbox, LAUNCH_THAW);
	api_crash(rig);
	adopt(rig, &sandbox, true);
	api_answer_of(rig, &sandbox, LAUNCH_THAW, LAUNCH_E_NONE);
	api_shim_greet(rig, sandbox.shim, sandbox.id.bytes, 0);
	expect_runs(rig, &sandbox);
}

static int suspend_durably(struct api_rig *rig, const struct api_sandbox *sandbox)
{
	int call = api_post(rig, sandbox, "suspend", "{\"durable\": \"wait\"}");

	api_shim_pause(rig, sandbox->shim);
	api_answer_stat(rig, sandbox, LAUNCH_FREEZE, true);
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
	api_answer_of(rig, &sandbox, LAUNCH_PART, LAUNCH_E_STEP);
	api_answer_of(rig, &sandbox, LAUNCH_JOIN, LAUNCH_E_NONE);
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
	api_answer_of(rig, &sandbox, LAUNCH_PART, LAUNCH_E_STEP);
	api_answer_of(rig, &sandbox, LAUNCH_JOIN, LAUNCH_E_STEP);
	expect_not_durable(rig, call);
	call = api_post(rig, &sandbox, "resume", NULL);
	api_answer_of(rig, &sandbox, LAUNCH_JOIN, LAUNCH_E_STEP);
	api_expect(rig, call, 503, "provider_unavailable");
	assert_int_equal(api_n_asked(rig, API_FAR_FAKE, LAUNCH_THAW), 0);
	call = api_post(rig, &sandbox, "resume", NULL);
	api_answer_of(rig, &sandbox, LAUNCH_JOIN, LAUNCH_E_NONE);
	api_answer_of(rig, &sandbox, LAUNCH_THAW, LAUNCH_E_NONE);
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
	api_expect(rig, api_suspend(rig, &sandbox), 503, "provider_unavailable");
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
