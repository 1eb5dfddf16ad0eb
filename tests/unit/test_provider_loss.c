/*
 * The process behind a provider ends, and another one comes: in which order whatever of it is
 * noticed, and whatever is under way. The provider is `docker` with its own code; a neighbour, of
 * `fake`, shows that the worker is the same one all the time.
 */
#include <string.h>

#include "base/fd.h"
#include "base/launch.h"
#include "base/str.h"

#include "tests/unit/api_rig.h"

#define SANDBOXES "/v1/sandboxes"
#define SAID      2 /* durable frames of a command that says something and ends */

/* What ran in it before: nothing that is not acknowledged. */
static void tell_one(struct api_rig *rig, const struct launch_msg *adopt,
		     struct api_sandbox *sandbox, bool is_frozen)
{
	sandbox->shim = api_give_adopted(rig, API_FAR_DOCKER, adopt, sandbox->id.bytes, is_frozen);
}

static void tell_lives(struct api_rig *rig, const struct launch_msg *adopt,
		       struct api_sandbox *sandbox)
{
	tell_one(rig, adopt, sandbox, false);
	api_shim_greet(rig, sandbox->shim, sandbox->id.bytes, SAID);
}

/* Another process, which says what lives. */
static struct launch_msg begin_again(struct api_rig *rig)
{
	api_far_link(rig);
	return api_hear(rig, API_FAR_DOCKER, LAUNCH_ADOPT);
}

static void find_again(struct api_rig *rig, struct api_sandbox *sandbox)
{
	struct launch_msg adopt = begin_again(rig);

	tell_lives(rig, &adopt, sandbox);
	api_answer(rig, API_FAR_DOCKER, &adopt, LAUNCH_E_NONE);
}

static void find_none(struct api_rig *rig)
{
	struct launch_msg adopt = begin_again(rig);

	api_answer(rig, API_FAR_DOCKER, &adopt, LAUNCH_E_NONE);
}

/* It cannot be used now, and nothing is made in its place. */
static void expect_away(struct api_rig *rig, const struct api_sandbox *sandbox)
{
	api_expect(rig, api_use(rig, sandbox), 503, "provider_unavailable");
	api_expect_state(rig, sandbox, "open");
}

static void start(struct api_rig *rig)
{
	struct launch_msg adopt;

	rig->has_docker = true;
	api_start(rig, 0);
	adopt = api_hear(rig, API_FAR_DOCKER, LAUNCH_ADOPT);
	api_answer(rig, API_FAR_DOCKER, &adopt, LAUNCH_E_NONE);
	adopt = api_hear(rig, API_FAR_FAKE, LAUNCH_ADOPT);
	api_answer(rig, API_FAR_FAKE, &adopt, LAUNCH_E_NONE);
}

static void create(struct api_rig *rig, struct api_sandbox *ret_sandbox)
{
	api_create(rig, API_FAR_DOCKER, ret_sandbox);
	api_works(rig, ret_sandbox);
}

/* Its process, and with it its handles. */
static void lose(struct api_rig *rig, const struct api_sandbox *sandbox)
{
	api_far_close(rig, API_FAR_DOCKER);
	api_shim_close(rig, sandbox->shim);
}

/* With one whose container is gone. */
static void start_without(struct api_rig *rig, struct api_sandbox *ret_sandbox)
{
	start(rig);
	create(rig, ret_sandbox);
	lose(rig, ret_sandbox);
	expect_away(rig, ret_sandbox);
	find_none(rig);
	api_answer_of(rig, ret_sandbox, LAUNCH_KILL, LAUNCH_E_NOT_FOUND);
}

/* Nothing was ended, and the worker ends as it should. */
static void leave(struct api_rig *rig)
{
	assert_int_equal(api_n_asked(rig, API_FAR_DOCKER, LAUNCH_KILL), 0);
	assert_int_equal(api_n_asked(rig, API_FAR_DOCKER, LAUNCH_START), 0);
	assert_int_equal(api_n_asked(rig, API_FAR_FAKE, LAUNCH_KILL), 0);
	api_leave(rig);
}

static void test_loss_is_of_its_own_sandboxes(void **state)
{
	struct api_rig *rig = *state;
	struct api_sandbox neighbour;
	struct api_sandbox sandbox;
	struct launch_msg adopt;
	int theirs;
	int call;

	start(rig);
	create(rig, &sandbox);
	api_create(rig, API_FAR_FAKE, &neighbour);
	theirs = api_use(rig, &neighbour);
	call = api_use(rig, &sandbox);
	(void)api_shim_begin(rig, sandbox.shim);
	lose(rig, &sandbox);
	api_expect(rig, call, 409, "host_restarted");
	expect_away(rig, &sandbox);
	adopt = begin_again(rig);
	expect_away(rig, &sandbox);
	tell_lives(rig, &adopt, &sandbox);
	api_expect_state(rig, &sandbox, "open");
	api_answer(rig, API_FAR_DOCKER, &adopt, LAUNCH_E_NONE);
	api_works(rig, &sandbox);
	assert_false(api_is_answered(rig, theirs));
	api_shim_run(rig, neighbour.shim, "hello");
	api_expect(rig, theirs, 200, NULL);
	leave(rig);
}

/* The kernel closes one socket after the other. */
static void test_loss_that_a_handle_tells_first(void **state)
{
	struct api_rig *rig = *state;
	struct api_sandbox sandbox;
	int call;

	start(rig);
	create(rig, &sandbox);
	call = api_use(rig, &sandbox);
	(void)api_shim_begin(rig, sandbox.shim);
	api_shim_close(rig, sandbox.shim);
	api_far_close(rig, API_FAR_DOCKER);
	api_expect(rig, call, 409, "host_restarted");
	find_again(rig, &sandbox);
	api_works(rig, &sandbox);
	leave(rig);
}

/* The next process is there before anything of the last one has ended. */
static void test_loss_that_the_next_process_tells_first(void **state)
{
	struct api_rig *rig = *state;
	struct api_sandbox sandbox;
	int former;
	int call;

	start(rig);
	create(rig, &sandbox);
	call = api_use(rig, &sandbox);
	(void)api_shim_begin(rig, sandbox.shim);
	former = sandbox.shim;
	find_again(rig, &sandbox);
	api_expect(rig, call, 409, "host_restarted");
	api_shim_wait_closed(rig, former);
	api_works(rig, &sandbox);
	leave(rig);
}

static void test_one_that_is_not_found_again_is_made_again(void **state)
{
	struct api_rig *rig = *state;
	struct api_sandbox sandbox;
	struct launch_msg ask;
	int call;

	start_without(rig, &sandbox);
	call = api_use(rig, &sandbox);
	ask = api_hear_of(rig, &sandbox, LAUNCH_START);
	sandbox.shim = api_launch(rig, API_FAR_DOCKER, &ask);
	api_shim_run(rig, sandbox.shim, "hello");
	api_expect(rig, call, 200, NULL);
	leave(rig);
}

static void test_one_that_is_deleted_meanwhile_is_ended(void **state)
{
	struct api_rig *rig = *state;
	struct api_sandbox sandbox;
	struct launch_msg adopt;

	start(rig);
	create(rig, &sandbox);
	lose(rig, &sandbox);
	expect_away(rig, &sandbox);
	api_expect(rig, api_send(rig, "DELETE", sandbox.path, NULL), 200, NULL);
	adopt = begin_again(rig);
	tell_one(rig, &adopt, &sandbox, false);
	api_answer(rig, API_FAR_DOCKER, &adopt, LAUNCH_E_NONE);
	api_answer_of(rig, &sandbox, LAUNCH_KILL, LAUNCH_E_NONE);
	api_shim_wait_closed(rig, sandbox.shim);
	api_expect(rig, api_send(rig, "GET", sandbox.path, NULL), 404, NULL);
	leave(rig);
}

/* In the middle of what the next one says; and what that was not able to say is asked again. */
static void test_loss_again_while_it_is_said_what_lives(void **state)
{
	struct api_rig *rig = *state;
	struct api_sandbox sandbox[2];
	struct launch_msg adopt;

	start(rig);
	create(rig, &sandbox[0]);
	create(rig, &sandbox[1]);
	lose(rig, &sandbox[0]);
	api_shim_close(rig, sandbox[1].shim);
	expect_away(rig, &sandbox[1]);
	adopt = begin_again(rig);
	tell_lives(rig, &adopt, &sandbox[0]);
	lose(rig, &sandbox[0]);
	expect_away(rig, &sandbox[0]);
	adopt = begin_again(rig);
	tell_lives(rig, &adopt, &sandbox[1]);
	api_answer(rig, API_FAR_DOCKER, &adopt, LAUNCH_E_STEP);
	/* It is known, and the other one may live. */
	expect_away(rig, &sandbox[0]);
	lose(rig, &sandbox[1]);
	adopt = begin_again(rig);
	tell_lives(rig, &adopt, &sandbox[0]);
	tell_lives(rig, &adopt, &sandbox[1]);
	api_answer(rig, API_FAR_DOCKER, &adopt, LAUNCH_E_NONE);
	api_works(rig, &sandbox[0]);
	api_works(rig, &sandbox[1]);
	leave(rig);
}

/* Nobody knows whether it was made. */
static void test_loss_within_a_create(void **state)
{
	struct api_rig *rig = *state;
	struct api_sandbox sandbox;
	struct launch_msg adopt;
	struct launch_msg ask;
	int call;

	start(rig);
	call = api_begin_create(rig, API_FAR_DOCKER, &sandbox, &ask);
	api_far_close(rig, API_FAR_DOCKER);
	api_expect(rig, call, 503, "provider_unavailable");
	adopt = begin_again(rig);
	tell_one(rig, &adopt, &sandbox, false);
	api_answer(rig, API_FAR_DOCKER, &adopt, LAUNCH_E_NONE);
	api_answer_of(rig, &sandbox, LAUNCH_KILL, LAUNCH_E_NONE);
	api_shim_wait_closed(rig, sandbox.shim);
	api_expect(rig, api_send(rig, "GET", sandbox.path, NULL), 404, NULL);
	api_leave(rig);
}

static void test_loss_within_a_delete(void **state)
{
	struct api_rig *rig = *state;
	struct api_sandbox sandbox;
	struct launch_msg adopt;
	int call;

	start(rig);
	create(rig, &sandbox);
	call = api_send(rig, "DELETE", sandbox.path, NULL);
	(void)api_hear_of(rig, &sandbox, LAUNCH_KILL);
	lose(rig, &sandbox);
	api_expect(rig, call, 503, NULL);
	api_expect(rig, api_send(rig, "GET", sandbox.path, NULL), 404, NULL);
	adopt = begin_again(rig);
	tell_one(rig, &adopt, &sandbox, false);
	api_answer(rig, API_FAR_DOCKER, &adopt, LAUNCH_E_NONE);
	api_shim_wait_closed(rig, sandbox.shim);
	api_answer_of(rig, &sandbox, LAUNCH_KILL, LAUNCH_E_NONE); /* the tick's */
	api_leave(rig);
}

/* Its handle ended a moment before, and what follows for it comes when the next process has said
 * what lives: nothing of that one is lost again. */
static void test_delete_of_one_whose_handle_has_ended(void **state)
{
	struct api_rig *rig = *state;
	struct api_sandbox deleted;
	struct api_sandbox sandbox;
	struct launch_msg adopt;
	int call;

	start(rig);
	create(rig, &sandbox);
	create(rig, &deleted);
	api_shim_close(rig, deleted.shim);
	call = api_send(rig, "DELETE", deleted.path, NULL);
	(void)api_hear_of(rig, &deleted, LAUNCH_KILL);
	lose(rig, &sandbox);
	api_expect(rig, call, 503, NULL);
	adopt = begin_again(rig);
	tell_lives(rig, &adopt, &sandbox);
	tell_one(rig, &adopt, &deleted, false);
	api_answer(rig, API_FAR_DOCKER, &adopt, LAUNCH_E_NONE);
	api_works(rig, &sandbox);
	api_answer_of(rig, &deleted, LAUNCH_KILL, LAUNCH_E_NONE); /* the tick's */
	api_works(rig, &sandbox);
	create(rig, &deleted);
	leave(rig);
}

/* It could not be begun, and was not removed: nobody goes on with what is half filled. */
static void test_one_that_is_half_made_again_is_ended(void **state)
{
	struct api_rig *rig = *state;
	struct api_sandbox sandbox;
	struct launch_msg adopt;
	int call;

	start_without(rig, &sandbox);
	call = api_use(rig, &sandbox);
	api_answer_of(rig, &sandbox, LAUNCH_START, LAUNCH_E_STEP);
	api_expect(rig, call, 503, NULL);
	api_far_close(rig, API_FAR_DOCKER);
	adopt = begin_again(rig);
	tell_one(rig, &adopt, &sandbox, false);
	api_answer(rig, API_FAR_DOCKER, &adopt, LAUNCH_E_NONE);
	api_answer_of(rig, &sandbox, LAUNCH_KILL, LAUNCH_E_NONE);
	api_shim_wait_closed(rig, sandbox.shim);
	api_expect_state(rig, &sandbox, "open");
	leave(rig);
}

/* Whether it had stopped is said by the next one: then it is let go. */
static void test_loss_within_a_suspend(void **state)
{
	struct api_rig *rig = *state;
	struct api_sandbox sandbox;
	struct launch_msg adopt;
	int call;

	start(rig);
	create(rig, &sandbox);
	call = api_suspend(rig, &sandbox);
	(void)api_hear_of(rig, &sandbox, LAUNCH_FREEZE);
	lose(rig, &sandbox);
	api_expect(rig, call, 503, "provider_unavailable");
	expect_away(rig, &sandbox);
	adopt = begin_again(rig);
	tell_one(rig, &adopt, &sandbox, true);
	api_answer(rig, API_FAR_DOCKER, &adopt, LAUNCH_E_NONE);
	api_answer_of(rig, &sandbox, LAUNCH_THAW, LAUNCH_E_NONE);
	api_shim_greet(rig, sandbox.shim, sandbox.id.bytes, SAID);
	api_works(rig, &sandbox);
	leave(rig);
}

/* It is suspended as before, and its resume is asked for again. */
static void test_loss_within_a_resume(void **state)
{
	struct api_rig *rig = *state;
	struct api_sandbox sandbox;
	struct launch_msg adopt;
	int call;

	start(rig);
	create(rig, &sandbox);
	call = api_suspend(rig, &sandbox);
	api_answer_stat(rig, &sandbox, LAUNCH_FREEZE, true);
	api_expect(rig, call, 200, NULL);
	call = api_post(rig, &sandbox, "resume", NULL);
	(void)api_hear_of(rig, &sandbox, LAUNCH_THAW);
	lose(rig, &sandbox);
	api_expect(rig, call, 503, "provider_unavailable");
	api_expect_state(rig, &sandbox, "suspended");
	api_expect(rig, api_post(rig, &sandbox, "resume", NULL), 503, "provider_unavailable");
	api_expect_state(rig, &sandbox, "suspended");
	adopt = begin_again(rig);
	tell_one(rig, &adopt, &sandbox, true);
	api_answer(rig, API_FAR_DOCKER, &adopt, LAUNCH_E_NONE);
	call = api_post(rig, &sandbox, "resume", NULL);
	api_answer_of(rig, &sandbox, LAUNCH_THAW, LAUNCH_E_NONE);
	api_shim_greet(rig, sandbox.shim, sandbox.id.bytes, SAID);
	api_expect(rig, call, 200, NULL);
	api_works(rig, &sandbox);
	leave(rig);
}

/* The next worker finds the row as any other. */
static void test_worker_ends_as_well(void **state)
{
	struct api_rig *rig = *state;
	struct api_sandbox sandbox;
	struct launch_msg adopt;

	start(rig);
	create(rig, &sandbox);
	lose(rig, &sandbox);
	expect_away(rig, &sandbox);
	api_leave(rig);
	api_start(rig, 0);
	adopt = api_hear(rig, API_FAR_DOCKER, LAUNCH_ADOPT);
	tell_lives(rig, &adopt, &sandbox);
	api_answer(rig, API_FAR_DOCKER, &adopt, LAUNCH_E_NONE);
	adopt = api_hear(rig, API_FAR_FAKE, LAUNCH_ADOPT);
	api_answer(rig, API_FAR_FAKE, &adopt, LAUNCH_E_NONE);
	api_works(rig, &sandbox);
	leave(rig);
}

/* Before it has said what lives at the start: its rows wait for the next one. */
static void test_loss_within_the_start(void **state)
{
	struct api_rig *rig = *state;
	struct api_sandbox sandbox;
	struct launch_msg adopt;

	start(rig);
	create(rig, &sandbox);
	api_crash(rig);
	api_start(rig, 0);
	adopt = api_hear(rig, API_FAR_DOCKER, LAUNCH_ADOPT);
	tell_one(rig, &adopt, &sandbox, false);
	lose(rig, &sandbox);
	adopt = api_hear(rig, API_FAR_FAKE, LAUNCH_ADOPT);
	api_answer(rig, API_FAR_FAKE, &adopt, LAUNCH_E_NONE);
	expect_away(rig, &sandbox);
	find_again(rig, &sandbox);
	api_works(rig, &sandbox);
	leave(rig);
}

static const struct CMUnitTest tests[] = {
	API_TEST(test_loss_is_of_its_own_sandboxes),
	API_TEST(test_loss_that_a_handle_tells_first),
	API_TEST(test_loss_that_the_next_process_tells_first),
	API_TEST(test_one_that_is_not_found_again_is_made_again),
	API_TEST(test_one_that_is_deleted_meanwhile_is_ended),
	API_TEST(test_loss_again_while_it_is_said_what_lives),
	API_TEST(test_loss_within_a_create),
	API_TEST(test_loss_within_a_delete),
	API_TEST(test_delete_of_one_whose_handle_has_ended),
	API_TEST(test_one_that_is_half_made_again_is_ended),
	API_TEST(test_loss_within_a_suspend),
	API_TEST(test_loss_within_a_resume),
	API_TEST(test_worker_ends_as_well),
	API_TEST(test_loss_within_the_start),
};

TEST_MAIN(tests)
