/*
 * The seam to a provider, seen from the worker's own clients: what becomes of a sandbox whose
 * provider fails, is late, says it twice, loses it, or does not know it. The provider is `fake`,
 * and its word is the test's.
 */
#include <errno.h>
#include <string.h>

#include "base/fd.h"
#include "base/launch.h"
#include "base/str.h"

#include "tests/unit/api_rig.h"

#define SANDBOXES "/v1/sandboxes"
#define FAKE_BODY "{\"provider\": \"fake\"}"
#define NOBODY    SANDBOXES "/5eb3b2c4-4c1d-4f0a-9a3e-0123456789ab"

static int create(struct api_rig *rig, struct launch_msg *ret_start)
{
	int call = api_send(rig, "POST", SANDBOXES, FAKE_BODY);

	*ret_start = api_hear(rig, API_FAR_FAKE, LAUNCH_START);
	return call;
}

static void path_of(const struct launch_msg *start, char path[64])
{
	char text[ID_TEXT_BYTES];
	struct id id;

	memcpy(id.bytes, start->session, ID_BYTES);
	id_format(&id, text);
	assert_int_equal(str_format(path, 64, SANDBOXES "/%s", text), 0);
}

static void expect_gone(struct api_rig *rig, const struct launch_msg *start)
{
	char path[64];

	path_of(start, path);
	api_expect(rig, api_send(rig, "GET", path, NULL), 404, NULL);
}

static void expect_asked(const struct launch_msg *ask, const uint8_t id[ID_BYTES])
{
	assert_memory_equal(ask->session, id, ID_BYTES);
}

/* The use of one whose process tree is gone makes another. */
static void expect_made_again(struct api_rig *rig, struct api_sandbox *sandbox)
{
	int call = api_use(rig, sandbox);
	struct launch_msg start = api_hear(rig, API_FAR_FAKE, LAUNCH_START);

	expect_asked(&start, sandbox->id.bytes);
	sandbox->shim = api_launch(rig, API_FAR_FAKE, &start);
	api_shim_run(rig, sandbox->shim, "hello");
	api_expect(rig, call, 200, NULL);
}

static void expect_deleted(struct api_rig *rig, const struct api_sandbox *sandbox)
{
	int call = api_send(rig, "DELETE", sandbox->path, NULL);
	struct launch_msg ask = api_hear(rig, API_FAR_FAKE, LAUNCH_KILL);

	expect_asked(&ask, sandbox->id.bytes);
	api_answer(rig, API_FAR_FAKE, &ask, LAUNCH_E_NONE);
	api_expect(rig, call, 200, NULL);
	api_expect(rig, api_send(rig, "GET", sandbox->path, NULL), 404, NULL);
}

static void test_create_runs_and_is_deleted(void **state)
{
	struct api_rig *rig = *state;
	struct api_sandbox sandbox;

	api_start_empty(rig, 0);
	api_create(rig, API_FAR_FAKE, &sandbox);
	api_works(rig, &sandbox);
	expect_deleted(rig, &sandbox);
	api_shim_wait_closed(rig, sandbox.shim);
	api_leave(rig);
}

static void test_create_that_fails_leaves_no_row(void **state)
{
	struct api_rig *rig = *state;
	struct launch_msg start;
	int call;

	api_start_empty(rig, 0);
	call = create(rig, &start);
	api_answer(rig, API_FAR_FAKE, &start, LAUNCH_E_STEP);
	api_expect(rig, call, 503, "provider_unavailable");
	expect_gone(rig, &start);
	api_leave(rig);
	api_start_empty(rig, 0);
	expect_gone(rig, &start);
	api_leave(rig);
}

static void test_create_of_what_it_can_never_do_is_501(void **state)
{
	struct api_rig *rig = *state;
	struct launch_msg start;
	int call;

	api_start_empty(rig, 0);
	call = create(rig, &start);
	api_answer(rig, API_FAR_FAKE, &start, LAUNCH_E_UNSUPPORTED);
	api_expect(rig, call, 501, "not_supported");
	expect_gone(rig, &start);
	api_leave(rig);
}

/* Its answer is as good as none: the sandbox is ended, and the handle that comes with it closed. */
static void test_create_that_is_late_is_ended(void **state)
{
	struct api_rig *rig = *state;
	struct api_sandbox other;
	struct launch_msg answer;
	struct launch_msg start;
	struct launch_msg kill;
	int call;
	int shim;

	api_start_empty(rig, API_LATE(LAUNCH_START));
	call = create(rig, &start);
	kill = api_hear(rig, API_FAR_FAKE, LAUNCH_KILL);
	expect_asked(&kill, start.session);
	api_expect(rig, call, 503, "provider_unavailable");
	answer = api_answer_to(&start, LAUNCH_E_NONE);
	shim = api_give(rig, API_FAR_FAKE, &answer);
	api_shim_wait_closed(rig, shim);
	api_answer(rig, API_FAR_FAKE, &kill, LAUNCH_E_NONE);
	expect_gone(rig, &start);
	assert_int_equal(api_n_asked(rig, API_FAR_FAKE, LAUNCH_KILL), 0);
	api_leave(rig);
	api_start_empty(rig, 0);
	expect_gone(rig, &start);
	api_create(rig, API_FAR_FAKE, &other);
	api_works(rig, &other);
	api_leave(rig);
}

static void test_create_that_answers_twice_is_one_sandbox(void **state)
{
	struct api_rig *rig = *state;
	struct api_sandbox sandbox;
	struct launch_msg answer;
	struct launch_msg start;
	char path[64];
	int call;
	int second;

	api_start_empty(rig, 0);
	call = create(rig, &start);
	path_of(&start, path);
	memcpy(sandbox.path, path, sizeof(path));
	sandbox.shim = api_launch(rig, API_FAR_FAKE, &start);
	answer = api_answer_to(&start, LAUNCH_E_NONE);
	second = api_give(rig, API_FAR_FAKE, &answer);
	api_answer(rig, API_FAR_FAKE, &start, LAUNCH_E_STEP); /* and a third time */
	api_expect(rig, call, 201, NULL);
	api_shim_wait_closed(rig, second);
	api_works(rig, &sandbox);
	assert_int_equal(api_n_asked(rig, API_FAR_FAKE, LAUNCH_KILL), 0);
	api_leave(rig);
}

static void test_create_without_a_handle_is_ended(void **state)
{
	struct api_rig *rig = *state;
	struct launch_msg start;
	struct launch_msg kill;
	int call;

	api_start_empty(rig, 0);
	call = create(rig, &start);
	api_answer(rig, API_FAR_FAKE, &start, LAUNCH_E_NONE);
	api_expect(rig, call, 503, "provider_unavailable");
	kill = api_hear(rig, API_FAR_FAKE, LAUNCH_KILL);
	expect_asked(&kill, start.session);
	api_answer(rig, API_FAR_FAKE, &kill, LAUNCH_E_NOT_FOUND);
	expect_gone(rig, &start);
	api_leave(rig);
}

/* The provider may say why within the next look; the use after that makes another. */
static void test_handle_that_ends_at_once_is_made_again(void **state)
{
	struct api_rig *rig = *state;
	struct api_sandbox sandbox;
	struct launch_msg start;
	struct launch_msg kill;
	int call;

	api_start_empty(rig, 0);
	api_create(rig, API_FAR_FAKE, &sandbox);
	api_shim_close(rig, sandbox.shim);
	kill = api_hear(rig, API_FAR_FAKE, LAUNCH_KILL);
	expect_asked(&kill, sandbox.id.bytes);
	/* Whoever comes now waits for the end of this one. */
	call = api_use(rig, &sandbox);
	api_answer(rig, API_FAR_FAKE, &kill, LAUNCH_E_NOT_FOUND);
	start = api_hear(rig, API_FAR_FAKE, LAUNCH_START);
	expect_asked(&start, sandbox.id.bytes);
	sandbox.shim = api_launch(rig, API_FAR_FAKE, &start);
	api_shim_run(rig, sandbox.shim, "hello");
	api_expect(rig, call, 200, NULL);
	api_works(rig, &sandbox);
	expect_deleted(rig, &sandbox);
	api_leave(rig);
}

static void test_handle_that_ends_within_a_frame_ends_what_runs(void **state)
{
	struct api_rig *rig = *state;
	struct api_sandbox sandbox;
	struct launch_msg kill;
	int call;

	api_start_empty(rig, 0);
	api_create(rig, API_FAR_FAKE, &sandbox);
	call = api_use(rig, &sandbox);
	(void)api_shim_begin(rig, sandbox.shim);
	api_shim_cut(rig, sandbox.shim);
	kill = api_hear(rig, API_FAR_FAKE, LAUNCH_KILL);
	expect_asked(&kill, sandbox.id.bytes);
	api_answer(rig, API_FAR_FAKE, &kill, LAUNCH_E_NONE);
	api_expect(rig, call, 409, "session_lost");
	expect_made_again(rig, &sandbox);
	api_leave(rig);
}

/* What lives without a row is ended; a row without a sandbox waits for its use. */
static void test_connect_finds_one_that_nobody_knows_and_misses_one(void **state)
{
	static const uint8_t nobody[ID_BYTES] = {9, 9, 9, 9, 9, 9, 0x49, 9, 0x89};
	struct api_rig *rig = *state;
	struct api_sandbox missed;
	struct api_sandbox found;
	struct launch_msg adopt;
	struct launch_msg kill;
	int shim;

	api_start_empty(rig, 0);
	api_create(rig, API_FAR_FAKE, &missed);
	api_create(rig, API_FAR_FAKE, &found);
	api_crash(rig);

	api_start(rig, 0);
	adopt = api_hear(rig, API_FAR_FAKE, LAUNCH_ADOPT);
	shim = api_give_adopted(rig, API_FAR_FAKE, &adopt, nobody, false);
	found.shim = api_give_adopted(rig, API_FAR_FAKE, &adopt, found.id.bytes, false);
	api_answer(rig, API_FAR_FAKE, &adopt, LAUNCH_E_NONE);
	api_shim_greet(rig, found.shim, found.id.bytes, 0);

	kill = api_hear(rig, API_FAR_FAKE, LAUNCH_KILL);
	expect_asked(&kill, nobody);
	api_answer(rig, API_FAR_FAKE, &kill, LAUNCH_E_NONE);
	api_shim_wait_closed(rig, shim);
	api_works(rig, &found);
	expect_made_again(rig, &missed);
	assert_int_equal(api_n_asked(rig, API_FAR_FAKE, LAUNCH_KILL), 0);
	expect_deleted(rig, &missed);
	expect_deleted(rig, &found);
	api_leave(rig);
}

static int give_docker(struct api_rig *rig, const struct launch_msg *adopt, const struct id *id)
{
	struct launch_msg answer = api_answer_to(adopt, LAUNCH_E_NONE);
	int fd;
	int shim = api_shim(rig, &fd);

	answer.more = 1;
	memcpy(answer.session, id->bytes, ID_BYTES);
	api_say(rig, API_FAR_DOCKER, &answer, fd);
	(void)fd_close(fd);
	return shim;
}

static void expect_ended_by_docker(struct api_rig *rig, const struct id *id, int shim)
{
	struct launch_msg kill = api_hear(rig, API_FAR_DOCKER, LAUNCH_KILL);

	expect_asked(&kill, id->bytes);
	api_answer(rig, API_FAR_DOCKER, &kill, LAUNCH_E_NONE);
	api_shim_wait_closed(rig, shim);
}

/* Whose a sandbox is its row says: what another provider has of that id is nobody's, and is ended
 * there alone. */
static void test_connect_that_tells_of_another_providers_sandboxes(void **state)
{
	struct api_rig *rig = *state;
	struct api_sandbox dormant;
	struct api_sandbox found;
	struct launch_msg adopt;
	int shim[2];

	api_start_empty(rig, 0);
	api_create(rig, API_FAR_FAKE, &dormant);
	api_create(rig, API_FAR_FAKE, &found);
	api_crash(rig);

	rig->has_docker = true;
	api_start(rig, 0);
	adopt = api_hear(rig, API_FAR_DOCKER, LAUNCH_ADOPT);
	shim[0] = give_docker(rig, &adopt, &dormant.id);
	shim[1] = give_docker(rig, &adopt, &found.id);
	api_answer(rig, API_FAR_DOCKER, &adopt, LAUNCH_E_NONE);
	adopt = api_hear(rig, API_FAR_FAKE, LAUNCH_ADOPT);
	found.shim = api_give_adopted(rig, API_FAR_FAKE, &adopt, found.id.bytes, false);
	api_answer(rig, API_FAR_FAKE, &adopt, LAUNCH_E_NONE);
	api_shim_greet(rig, found.shim, found.id.bytes, 0);

	expect_ended_by_docker(rig, &dormant.id, shim[0]);
	expect_ended_by_docker(rig, &found.id, shim[1]);
	api_works(rig, &found);
	expect_made_again(rig, &dormant);
	assert_int_equal(api_n_asked(rig, API_FAR_FAKE, LAUNCH_KILL), 0);
	expect_deleted(rig, &dormant);
	expect_deleted(rig, &found);
	assert_int_equal(api_n_asked(rig, API_FAR_DOCKER, LAUNCH_KILL), 0);
	api_leave(rig);
}

/* Its request ends with the worker, and that is no answer to go on with. */
static void test_leave_while_a_provider_is_asked_what_lives(void **state)
{
	struct api_rig *rig = *state;

	rig->has_docker = rig->has_stray = true;
	api_start(rig, 0);
	(void)api_hear(rig, API_FAR_DOCKER, LAUNCH_ADOPT);
	api_far_close(rig, API_FAR_FAKE); /* which is not asked, then */
	api_leave(rig);
}

/* Nobody knows whether a row was written by then: either way there is no third state. */
static void test_crash_within_a_create_leaves_nothing_or_a_whole_one(void **state)
{
	struct api_rig *rig = *state;
	struct api_sandbox sandbox;
	struct launch_msg adopt;
	struct launch_msg start;
	struct launch_msg kill;
	int status;
	int shim;

	api_start_empty(rig, 0);
	(void)create(rig, &start);
	api_crash(rig);

	api_start(rig, 0);
	adopt = api_hear(rig, API_FAR_FAKE, LAUNCH_ADOPT);
	shim = api_give_adopted(rig, API_FAR_FAKE, &adopt, start.session, false);
	api_answer(rig, API_FAR_FAKE, &adopt, LAUNCH_E_NONE);
	path_of(&start, sandbox.path);
	memcpy(sandbox.id.bytes, start.session, ID_BYTES);
	sandbox.shim = shim;
	status = api_call(rig, "GET", sandbox.path, NULL, NULL);
	if (status == 200) {
		api_shim_greet(rig, shim, start.session, 0);
		api_works(rig, &sandbox);
		expect_deleted(rig, &sandbox);
	} else {
		assert_int_equal(status, 404);
		kill = api_hear(rig, API_FAR_FAKE, LAUNCH_KILL);
		expect_asked(&kill, start.session);
		api_answer(rig, API_FAR_FAKE, &kill, LAUNCH_E_NONE);
		api_shim_wait_closed(rig, shim);
	}
	api_leave(rig);
}

/* Until what lives is known nothing is made, and nothing that is known is ended. */
static void test_connect_that_fails_keeps_the_rows(void **state)
{
	struct api_rig *rig = *state;
	struct api_sandbox sandbox;
	struct launch_msg adopt;

	api_start_empty(rig, 0);
	api_create(rig, API_FAR_FAKE, &sandbox);
	api_crash(rig);
	api_start(rig, 0);
	adopt = api_hear(rig, API_FAR_FAKE, LAUNCH_ADOPT);
	api_answer(rig, API_FAR_FAKE, &adopt, LAUNCH_E_STEP);
	api_expect(rig, api_send(rig, "GET", sandbox.path, NULL), 200, NULL);
	api_expect(rig, api_use(rig, &sandbox), 503, "provider_unavailable");
	api_expect(rig, api_send(rig, "POST", SANDBOXES, FAKE_BODY), 503, "provider_unavailable");
	api_expect(rig, api_send(rig, "GET", sandbox.path, NULL), 200, NULL);
	assert_int_equal(api_n_asked(rig, API_FAR_FAKE, LAUNCH_START), 0);
	assert_int_equal(api_n_asked(rig, API_FAR_FAKE, LAUNCH_KILL), 0);
	api_leave(rig);
	/* The next one is told. */
	api_start_empty(rig, 0);
	expect_made_again(rig, &sandbox);
	api_leave(rig);
}

static void test_destroy_that_finds_nothing_is_as_good(void **state)
{
	struct api_rig *rig = *state;
	struct api_sandbox sandbox;
	struct launch_msg kill;
	int call;

	api_start_empty(rig, 0);
	api_create(rig, API_FAR_FAKE, &sandbox);
	call = api_send(rig, "DELETE", sandbox.path, NULL);
	kill = api_hear(rig, API_FAR_FAKE, LAUNCH_KILL);
	api_answer(rig, API_FAR_FAKE, &kill, LAUNCH_E_NOT_FOUND);
	api_expect(rig, call, 200, NULL);
	api_leave(rig);
}

static void test_destroy_that_fails_is_asked_again(void **state)
{
	struct api_rig *rig = *state;
	struct api_sandbox sandbox;
	struct launch_msg kill;
	int status;
	int call;
	int again;

	api_start_empty(rig, 0);
	api_create(rig, API_FAR_FAKE, &sandbox);
	call = api_send(rig, "DELETE", sandbox.path, NULL);
	kill = api_hear(rig, API_FAR_FAKE, LAUNCH_KILL);
	api_answer(rig, API_FAR_FAKE, &kill, LAUNCH_E_STEP);
	api_expect(rig, call, 503, NULL);
	/* Its row is closed already; whoever deletes it again waits for the same end, or comes
	 * behind it. */
	again = api_send(rig, "DELETE", sandbox.path, NULL);
	kill = api_hear(rig, API_FAR_FAKE, LAUNCH_KILL);
	expect_asked(&kill, sandbox.id.bytes);
	api_answer(rig, API_FAR_FAKE, &kill, LAUNCH_E_NONE);
	status = api_status(rig, again, NULL);
	assert_true(status == 200 || status == 404);
	api_expect(rig, api_send(rig, "GET", sandbox.path, NULL), 404, NULL);
	api_leave(rig);
}

static void test_destroy_that_is_late_is_asked_again(void **state)
{
	struct api_rig *rig = *state;
	struct api_sandbox sandbox;
	struct launch_msg kill;

	api_start_empty(rig, API_LATE(LAUNCH_KILL));
	api_create(rig, API_FAR_FAKE, &sandbox);
	api_expect(rig, api_send(rig, "DELETE", sandbox.path, NULL), 503, NULL);
	kill = api_hear(rig, API_FAR_FAKE, LAUNCH_KILL);
	kill = api_hear(rig, API_FAR_FAKE, LAUNCH_KILL); /* the tick's */
	expect_asked(&kill, sandbox.id.bytes);
	/* Late, too: of no request that still waits. */
	api_answer(rig, API_FAR_FAKE, &kill, LAUNCH_E_NONE);
	api_expect(rig, api_send(rig, "GET", sandbox.path, NULL), 404, NULL);
	api_leave(rig);
}

/* A provider that refuses at once is not asked as fast as it refuses. */
static void test_destroy_of_one_that_nobody_knows_is_asked_again_later(void **state)
{
	static const uint8_t nobody[ID_BYTES] = {9, 9, 9, 9, 9, 9, 0x49, 9, 0x89};
	struct api_rig *rig = *state;
	struct launch_msg adopt;
	struct launch_msg kill;
	int shim;

	rig->kill_refused = LAUNCH_E_STEP;
	api_start(rig, 0);
	adopt = api_hear(rig, API_FAR_FAKE, LAUNCH_ADOPT);
	shim = api_give_adopted(rig, API_FAR_FAKE, &adopt, nobody, false);
	api_answer(rig, API_FAR_FAKE, &adopt, LAUNCH_E_NONE);
	api_shim_wait_closed(rig, shim);
	/* Each is a turn of the worker at least. */
	for (unsigned int i = 0; i < 100; i++)
		api_expect(rig, api_send(rig, "GET", NOBODY, NULL), 404, NULL);
	assert_in_range(rig->n_kills, 1, 50);
	rig->kill_refused = LAUNCH_E_NONE;
	kill = api_hear(rig, API_FAR_FAKE, LAUNCH_KILL);
	expect_asked(&kill, nobody);
	api_answer(rig, API_FAR_FAKE, &kill, LAUNCH_E_NONE);
	api_leave(rig);
}

/* Whoever waits for a sandbox waits no longer than its provider's deadlines. */
static void test_use_is_answered_where_neither_create_nor_destroy_is(void **state)
{
	struct api_rig *rig = *state;
	struct api_sandbox sandbox;
	struct launch_msg kill;

	api_start_empty(rig, 0);
	api_create(rig, API_FAR_FAKE, &sandbox);
	api_crash(rig);
	rig->kill_refused = LAUNCH_E_STEP;
	api_start_empty(rig, API_LATE(LAUNCH_START));
	api_expect(rig, api_use(rig, &sandbox), 503, "provider_unavailable");
	/* Nor does the next one wait for the end of what may be there. */
	api_expect(rig, api_use(rig, &sandbox), 503, "provider_unavailable");
	rig->kill_refused = LAUNCH_E_NONE;
	kill = api_hear(rig, API_FAR_FAKE, LAUNCH_KILL);
	expect_asked(&kill, sandbox.id.bytes);
	api_answer(rig, API_FAR_FAKE, &kill, LAUNCH_E_NOT_FOUND);
	api_leave(rig);
	api_start_empty(rig, 0);
	expect_made_again(rig, &sandbox);
	api_leave(rig);
}

/* The provider's own process has ended: nothing can be asked. */
static void test_provider_that_is_away_is_said_at_once(void **state)
{
	struct api_rig *rig = *state;
	struct api_sandbox sandbox;

	api_start_empty(rig, 0);
	api_create(rig, API_FAR_FAKE, &sandbox);
	api_far_close(rig, API_FAR_FAKE);
	api_expect(rig, api_send(rig, "POST", SANDBOXES, FAKE_BODY), 503, "provider_unavailable");
	/* Its handle lives. */
	api_works(rig, &sandbox);
	api_expect(rig, api_send(rig, "GET", SANDBOXES, NULL), 200, NULL);
	api_expect(rig, api_send(rig, "DELETE", sandbox.path, NULL), 503, NULL);
	api_expect(rig, api_send(rig, "GET", sandbox.path, NULL), 404, NULL);
	assert_false(api_is_down(rig));
	api_leave(rig);
}

/* What nobody has, or somebody else, is asked of no provider. */
static void test_request_for_none_asks_no_provider(void **state)
{
	struct api_rig *rig = *state;
	static const char *const paths[] = {"/suspend", "/resume", "/stats", "/proof"};
	char path[96];

	api_start_empty(rig, 0);
	for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
		assert_int_equal(str_format(path, sizeof(path), NOBODY "%s", paths[i]), 0);
		api_expect(rig, api_send(rig, i < 2 ? "POST" : "GET", path, NULL), 404, NULL);
	}
	api_expect(rig, api_send(rig, "DELETE", NOBODY, NULL), 404, NULL);
	for (unsigned int type = LAUNCH_START; type <= LAUNCH_JOIN; type += 2)
		assert_int_equal(api_n_asked(rig, API_FAR_FAKE, (enum launch_type)type), 0);
	api_leave(rig);
}

static const struct CMUnitTest tests[] = {
	API_TEST(test_create_runs_and_is_deleted),
	API_TEST(test_create_that_fails_leaves_no_row),
	API_TEST(test_create_of_what_it_can_never_do_is_501),
	API_TEST(test_create_that_is_late_is_ended),
	API_TEST(test_create_that_answers_twice_is_one_sandbox),
	API_TEST(test_create_without_a_handle_is_ended),
	API_TEST(test_handle_that_ends_at_once_is_made_again),
	API_TEST(test_handle_that_ends_within_a_frame_ends_what_runs),
	API_TEST(test_connect_finds_one_that_nobody_knows_and_misses_one),
	API_TEST(test_connect_that_tells_of_another_providers_sandboxes),
	API_TEST(test_leave_while_a_provider_is_asked_what_lives),
	API_TEST(test_crash_within_a_create_leaves_nothing_or_a_whole_one),
	API_TEST(test_connect_that_fails_keeps_the_rows),
	API_TEST(test_destroy_that_finds_nothing_is_as_good),
	API_TEST(test_destroy_that_fails_is_asked_again),
	API_TEST(test_destroy_that_is_late_is_asked_again),
	API_TEST(test_destroy_of_one_that_nobody_knows_is_asked_again_later),
	API_TEST(test_use_is_answered_where_neither_create_nor_destroy_is),
	API_TEST(test_provider_that_is_away_is_said_at_once),
	API_TEST(test_request_for_none_asks_no_provider),
};

TEST_MAIN(tests)
