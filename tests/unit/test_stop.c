/*
 * The order of a stop, and that nothing which does not end can hold it up: the loop, the workers
 * and the sessions are of paper, and time passes when a test says so.
 */
#include <errno.h>
#include <signal.h>

#include "base/log.h"

#include "supervisor/serve.h"
#include "supervisor/stop.h"
#include "supervisor/workers.h"
#include "tests/lib/test.h"

/* The supervisor's promise to its keeper, which kills after a minute. */
#define STOP_MAX (45 * USEC_PER_SEC)

/* --- paper ------------------------------------------------------------------------------------ */

struct paper {
	struct stop stop;
	loop_callback callback;
	usec_t armed_at; /* USEC_NEVER: not armed */
	usec_t waited;   /* by all timers that came */
	bool quit;
	int quit_value;
	unsigned int n_stopped[SERVE_WORKER_MAX_];
	int signal_number[SERVE_WORKER_MAX_];
	unsigned int n_killed_all;
	unsigned int n_killed_starting;
	bool workers_end;
	bool sessions_end;
};

/* One for all tests, as the interfaces know no other. NOLINTNEXTLINE(*-global-variables) */
static struct paper paper;

int loop_add_timer(struct loop *loop, usec_t at, loop_callback callback, void *userdata,
		   struct loop_source **ret_source)
{
	(void)loop;
	(void)userdata;
	(void)ret_source;
	paper.callback = callback;
	paper.armed_at = at;
	return 0;
}

void loop_timer_set(struct loop_source *source, usec_t at)
{
	(void)source;
	paper.armed_at = at;
}

struct loop_source *loop_remove(struct loop_source *source)
{
	(void)source;
	return NULL;
}

void loop_quit(struct loop *loop, int value)
{
	(void)loop;
	paper.quit = true;
	paper.quit_value = value;
}

void workers_stop(struct workers *workers, enum serve_worker kind, int signal_number, usec_t grace)
{
	(void)workers;
	(void)grace;
	paper.signal_number[kind] = signal_number;
	paper.n_stopped[kind]++;
	if (paper.workers_end)
		stop_workers_gone(&paper.stop, kind);
}

void serve_refuse_launches(struct serve *serve)
{
	(void)serve;
}

void serve_kill_starting(struct serve *serve)
{
	(void)serve;
	paper.n_killed_starting++;
}

void serve_kill_all(struct serve *serve)
{
	(void)serve;
	paper.n_killed_all++;
	if (paper.sessions_end)
		stop_sessions_gone(&paper.stop);
}

uint32_t serve_session_count(const struct serve *serve)
{
	(void)serve;
	return 1;
}

/* Let time pass until the loop is told to end. Fails where nothing would ever wake it. */
static void run_to_the_end(void)
{
	for (int i = 0; i < 10 && !paper.quit; i++) {
		assert_true(paper.armed_at != USEC_NEVER);
		if (paper.armed_at > clock_boottime())
			paper.waited += paper.armed_at - clock_boottime();
		paper.armed_at = USEC_NEVER;
		assert_int_equal(paper.callback(&paper.stop, 0), 0);
	}
	assert_true(paper.quit);
	assert_true(paper.waited < STOP_MAX);
}

static int set_up(void **state)
{
	static const struct notify notify = {.fd = -1};
	static int something;
	void *workers = &something; /* an address is all that is needed of them */

	(void)state;
	log_set_level(LOG_LEVEL_ERROR);
	paper = (struct paper){.workers_end = true, .sessions_end = true};
	paper.stop.workers = workers;
	return stop_init(&paper.stop, NULL, &notify);
}

/* --- tests ------------------------------------------------------------------------------------ */

static void test_stop_ends_all_in_order(void **state)
{
	(void)state;
	stop_begin(&paper.stop, 7);
	stop_begin(&paper.stop, 9); /* the first one counts */
	assert_int_equal(paper.stop.state, STOP_STATE_DONE);
	assert_false(paper.quit); /* not from within */
	run_to_the_end();
	assert_int_equal(paper.quit_value, 7);
	assert_int_equal(paper.n_stopped[SERVE_WORKER_API], 1);
	assert_int_equal(paper.n_killed_all, 1);
	assert_int_equal(paper.n_stopped[SERVE_WORKER_EGRESS], 1);
	assert_int_equal(paper.waited, 0); /* and waits for nothing */
}

static void test_stop_without_workers(void **state)
{
	(void)state;
	paper.stop.workers = NULL;
	stop_begin(&paper.stop, 0);
	run_to_the_end();
	assert_int_equal(paper.quit_value, 0);
	assert_int_equal(paper.n_killed_all, 1);
}

static void test_stop_goes_on_without_what_does_not_end(void **state)
{
	(void)state;
	paper.workers_end = false;
	paper.sessions_end = false;
	stop_begin(&paper.stop, 0);
	assert_int_equal(paper.n_killed_all, 0); /* the api worker has its time */
	run_to_the_end();
	assert_int_equal(paper.n_killed_all, 1);
	assert_int_equal(paper.n_stopped[SERVE_WORKER_EGRESS], 1);
	assert_int_equal(paper.quit_value, -ETIMEDOUT);
}

static void test_stop_ignores_what_comes_late(void **state)
{
	(void)state;
	paper.workers_end = false;
	paper.sessions_end = false;
	stop_begin(&paper.stop, 0);
	stop_sessions_gone(&paper.stop); /* the last one ended by itself */
	assert_int_equal(paper.stop.state, STOP_STATE_API);
	stop_workers_gone(&paper.stop, SERVE_WORKER_API);
	assert_int_equal(paper.stop.state, STOP_STATE_SESSIONS);
	stop_workers_gone(&paper.stop, SERVE_WORKER_API);
	assert_int_equal(paper.stop.state, STOP_STATE_SESSIONS);
	stop_sessions_gone(&paper.stop);
	assert_int_equal(paper.stop.state, STOP_STATE_EGRESS);
	stop_workers_gone(&paper.stop, SERVE_WORKER_EGRESS);
	run_to_the_end();
	assert_int_equal(paper.quit_value, 0);
}

static void test_stop_leave_touches_no_session(void **state)
{
	(void)state;
	stop_leave(&paper.stop, 0, false);
	run_to_the_end();
	assert_int_equal(paper.quit_value, 0);
	assert_int_equal(paper.signal_number[SERVE_WORKER_API], SIGUSR2);
	assert_int_equal(paper.signal_number[SERVE_WORKER_EGRESS], SIGTERM);
	assert_int_equal(paper.n_killed_all, 0);
	assert_int_equal(paper.n_killed_starting, 1);
}

static void test_stop_leave_at_once(void **state)
{
	(void)state;
	stop_leave(&paper.stop, -EPROTO, true);
	run_to_the_end();
	assert_int_equal(paper.quit_value, -EPROTO);
	assert_int_equal(paper.signal_number[SERVE_WORKER_API], SIGKILL);
	assert_int_equal(paper.n_killed_all, 0);
}

static void test_stop_is_stronger_than_leave(void **state)
{
	(void)state;
	paper.workers_end = false;
	stop_leave(&paper.stop, 0, false);
	stop_begin(&paper.stop, 0);
	stop_workers_gone(&paper.stop, SERVE_WORKER_API);
	assert_int_equal(paper.n_killed_all, 1);
}

/* With the sessions left already, and with nothing left to do but to go. */
static void test_stop_is_stronger_than_leave_to_the_end(void **state)
{
	static const enum stop_state states[] = {STOP_STATE_SESSIONS, STOP_STATE_EGRESS,
						 STOP_STATE_DONE};

	for (size_t i = 0; i < ARRAY_SIZE(states); i++) {
		assert_int_equal(set_up(state), 0);
		paper.workers_end = states[i] == STOP_STATE_DONE;
		stop_leave(&paper.stop, 0, false);
		if (!paper.workers_end)
			stop_workers_gone(&paper.stop, SERVE_WORKER_API);
		if (states[i] != STOP_STATE_SESSIONS)
			assert_int_equal(paper.callback(&paper.stop, 0), 0);
		assert_int_equal(paper.stop.state, states[i]);
		assert_int_equal(paper.n_killed_all, 0);
		stop_begin(&paper.stop, 0);
		stop_begin(&paper.stop, 0);
		assert_int_equal(paper.n_killed_all, 1);
		paper.workers_end = true;
		stop_workers_gone(&paper.stop, SERVE_WORKER_EGRESS);
		run_to_the_end();
		assert_int_equal(paper.quit_value, 0);
	}
}

#define STOP_TEST(function) cmocka_unit_test_setup(function, set_up)

static const struct CMUnitTest tests[] = {
	STOP_TEST(test_stop_ends_all_in_order),
	STOP_TEST(test_stop_without_workers),
	STOP_TEST(test_stop_goes_on_without_what_does_not_end),
	STOP_TEST(test_stop_ignores_what_comes_late),
	STOP_TEST(test_stop_leave_touches_no_session),
	STOP_TEST(test_stop_leave_at_once),
	STOP_TEST(test_stop_is_stronger_than_leave),
	STOP_TEST(test_stop_is_stronger_than_leave_to_the_end),
};

TEST_MAIN(tests)
