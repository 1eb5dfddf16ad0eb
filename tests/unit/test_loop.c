#include <errno.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/err.h"
#include "base/io.h"
#include "base/loop.h"

#include "tests/lib/test.h"

#define N_TIMERS 200

struct app {
	struct loop *loop;
	struct loop_source *source[4];
	int fds[2];
	int n_calls;
	usec_t last_at;
	int order[8];
	int n_order;
};

static int setup(void **state)
{
	static struct app app;

	app = (struct app){0};
	assert_int_equal(pipe2(app.fds, O_CLOEXEC | O_NONBLOCK), 0);
	assert_int_equal(loop_new(&app.loop), 0);
	*state = &app;
	return 0;
}

static int teardown(void **state)
{
	struct app *app = *state;

	for (size_t i = 0; i < ARRAY_SIZE(app->source); i++)
		app->source[i] = loop_remove(app->source[i]);
	loop_free(app->loop);
	(void)fd_close(app->fds[0]);
	(void)fd_close(app->fds[1]);
	return 0;
}

static int on_quit(void *userdata, uint32_t events)
{
	struct app *app = userdata;

	(void)events;
	app->n_calls++;
	loop_quit(app->loop, 42);
	return 0;
}

static void test_loop_add_readable_is_called(void **state)
{
	struct app *app = *state;

	assert_int_equal(io_write(app->fds[1], "x", 1), 1);
	assert_int_equal(loop_add(app->loop, app->fds[0], EPOLLIN, on_quit, app, &app->source[0]),
			 0);
	assert_int_equal(loop_run(app->loop), 42);
	assert_int_equal(app->n_calls, 1);
	assert_int_equal(loop_run(app->loop), 42); /* level-triggered, and runs again */
}

static void test_loop_add_regular_file_is_eperm(void **state)
{
	struct app *app = *state;
	int fd AUTO_CLOSE = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);

	assert_int_equal(loop_add(app->loop, fd, EPOLLIN, on_quit, app, &app->source[0]), -EPERM);
	assert_null(app->source[0]);
}

static int on_fail(void *userdata, uint32_t events)
{
	(void)userdata;
	(void)events;
	return -EXDEV;
}

static void test_loop_run_callback_error_ends(void **state)
{
	struct app *app = *state;

	assert_int_equal(loop_add_timer(app->loop, 0, on_fail, app, &app->source[0]), 0);
	assert_int_equal(loop_run(app->loop), -EXDEV);
}

static void test_loop_quit_before_run_returns_at_once(void **state)
{
	struct app *app = *state;

	loop_quit(app->loop, 3);
	assert_int_equal(loop_run(app->loop), 3);
}

static void test_loop_timer_comes_at_its_time(void **state)
{
	struct app *app = *state;
	usec_t at = clock_boottime() + 20 * USEC_PER_MS;

	assert_int_equal(loop_add_timer(app->loop, at, on_quit, app, &app->source[0]), 0);
	assert_int_equal(loop_run(app->loop), 42);
	assert_true(clock_boottime() >= at);
}

/* Timers in random order, some moved, some disarmed: the rest comes sorted and once. */
struct timer {
	struct app *app;
	struct loop_source *source;
	usec_t at; /* USEC_NEVER: must not come */
};

static int on_timer(void *userdata, uint32_t events)
{
	struct timer *timer = userdata;

	(void)events;
	assert_true(timer->at != USEC_NEVER);
	assert_true(timer->at >= timer->app->last_at);
	timer->app->last_at = timer->at;
	timer->app->n_calls++;
	timer->source = loop_remove(timer->source);
	timer->at = USEC_NEVER;
	return 0;
}

static void test_loop_timers_come_sorted(void **state)
{
	struct app *app = *state;
	struct test_random random = TEST_RANDOM(21);
	struct timer timers[N_TIMERS];
	usec_t base = clock_boottime() - USEC_PER_SEC;
	int n_expected = 0;

	for (size_t i = 0; i < N_TIMERS; i++) {
		timers[i] =
			(struct timer){.app = app, .at = base + test_random_below(&random, 999)};
		assert_int_equal(loop_add_timer(app->loop, timers[i].at, on_timer, &timers[i],
						&timers[i].source),
				 0);
	}
	for (int step = 0; step < 1000; step++) {
		struct timer *timer = &timers[test_random_below(&random, N_TIMERS)];

		timer->at = test_random_below(&random, 3) ? base + test_random_below(&random, 999)
							  : USEC_NEVER;
		loop_timer_set(timer->source, timer->at);
	}
	for (size_t i = 0; i < N_TIMERS; i++)
		n_expected += timers[i].at != USEC_NEVER;
	assert_int_equal(
		loop_add_timer(app->loop, base + USEC_PER_SEC, on_quit, app, &app->source[0]), 0);
	assert_int_equal(loop_run(app->loop), 42);
	assert_int_equal(app->n_calls, n_expected + 1);
	for (size_t i = 0; i < N_TIMERS; i++)
		timers[i].source = loop_remove(timers[i].source);
}

static int on_rearm(void *userdata, uint32_t events)
{
	struct app *app = userdata;

	(void)events;
	if (++app->n_calls == 5)
		loop_quit(app->loop, 5);
	else
		loop_timer_set(app->source[0], 0); /* in the past */
	return 0;
}

static void test_loop_timer_rearmed_in_past_waits_a_turn(void **state)
{
	struct app *app = *state;

	assert_int_equal(loop_add_timer(app->loop, 0, on_rearm, app, &app->source[0]), 0);
	assert_int_equal(loop_run(app->loop), 5);
}

static int on_remove_all(void *userdata, uint32_t events)
{
	struct app *app = userdata;

	(void)events;
	app->n_calls++;
	for (size_t i = 0; i < 3; i++)
		app->source[i] = loop_remove(app->source[i]); /* its own included */
	loop_quit(app->loop, 1);
	return 0;
}

static void test_loop_remove_in_callback_stops_the_others(void **state)
{
	struct app *app = *state;
	int copy AUTO_CLOSE = fd_dup(app->fds[0], 0);

	assert_int_equal(io_write(app->fds[1], "x", 1), 1);
	assert_int_equal(
		loop_add(app->loop, app->fds[0], EPOLLIN, on_remove_all, app, &app->source[0]), 0);
	assert_int_equal(loop_add(app->loop, copy, EPOLLIN, on_remove_all, app, &app->source[1]),
			 0);
	assert_int_equal(loop_add_timer(app->loop, 0, on_fail, app, &app->source[2]), 0);
	assert_int_equal(loop_run(app->loop), 1);
	assert_int_equal(app->n_calls, 1);
}

static int on_deferred(void *userdata, uint32_t events)
{
	struct app *app = userdata;

	(void)events;
	app->order[app->n_order++] = 3;
	if (app->n_order >= 6)
		loop_quit(app->loop, 0);
	return 0;
}

static int on_order_timer(void *userdata, uint32_t events)
{
	struct app *app = userdata;

	(void)events;
	app->order[app->n_order++] = 2;
	return 0;
}

static int on_order_read(void *userdata, uint32_t events)
{
	struct app *app = userdata;
	char byte;

	(void)events;
	assert_int_equal(io_read(app->fds[0], &byte, 1), 1);
	app->order[app->n_order++] = 1;
	return 0;
}

static void test_loop_turn_order_is_descriptors_timers_deferred(void **state)
{
	static const int wanted[] = {1, 2, 3, 3, 3, 3};
	struct app *app = *state;

	assert_int_equal(io_write(app->fds[1], "x", 1), 1);
	assert_int_equal(loop_add_deferred(app->loop, on_deferred, app, &app->source[0]), 0);
	assert_int_equal(loop_add_timer(app->loop, 0, on_order_timer, app, &app->source[1]), 0);
	assert_int_equal(
		loop_add(app->loop, app->fds[0], EPOLLIN, on_order_read, app, &app->source[2]), 0);
	assert_int_equal(loop_run(app->loop), 0);
	assert_memory_equal(app->order, wanted, sizeof(wanted));
}

static void test_loop_deferred_disabled_is_not_called(void **state)
{
	struct app *app = *state;

	assert_int_equal(loop_add_deferred(app->loop, on_fail, app, &app->source[0]), 0);
	loop_deferred_set(app->source[0], 0);
	loop_deferred_set(app->source[0], 0);
	assert_int_equal(loop_add_timer(app->loop, clock_boottime() + 5 * USEC_PER_MS, on_quit, app,
					&app->source[1]),
			 0);
	assert_int_equal(loop_run(app->loop), 42);
}

/* A hang-up is reported whatever is asked for, but not to a source without events. */
static void test_loop_set_events_zero_silences_hangup(void **state)
{
	struct app *app = *state;

	assert_int_equal(loop_add(app->loop, app->fds[0], EPOLLIN, on_fail, app, &app->source[0]),
			 0);
	assert_int_equal(loop_set_events(app->source[0], 0), 0);
	app->fds[1] = fd_close(app->fds[1]);
	assert_int_equal(loop_add_timer(app->loop, clock_boottime() + 5 * USEC_PER_MS, on_quit, app,
					&app->source[1]),
			 0);
	assert_int_equal(loop_run(app->loop), 42);
	assert_int_equal(loop_set_events(app->source[0], EPOLLIN), 0);
	assert_int_equal(loop_run(app->loop), -EXDEV);
}

static void free_with_source(void *userdata)
{
	loop_free(userdata);
}

static void test_loop_free_with_source_aborts(void **state)
{
	struct app *app = *state;

	loop_free(NULL);
	assert_null(loop_remove(NULL));
	assert_int_equal(loop_add_timer(app->loop, 0, on_quit, app, &app->source[0]), 0);
	assert_true(test_aborts(free_with_source, app->loop));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
static const struct CMUnitTest tests[] = {
	TEST(test_loop_add_readable_is_called),
	TEST(test_loop_add_regular_file_is_eperm),
	TEST(test_loop_run_callback_error_ends),
	TEST(test_loop_quit_before_run_returns_at_once),
	TEST(test_loop_timer_comes_at_its_time),
	TEST(test_loop_timers_come_sorted),
	TEST(test_loop_timer_rearmed_in_past_waits_a_turn),
	TEST(test_loop_remove_in_callback_stops_the_others),
	TEST(test_loop_turn_order_is_descriptors_timers_deferred),
	TEST(test_loop_deferred_disabled_is_not_called),
	TEST(test_loop_set_events_zero_silences_hangup),
	TEST(test_loop_free_with_source_aborts),
};
TEST_MAIN(tests)
