/*
 * When the shim gives a listener of refused calls up. A closed one answers its callers ENOSYS, so
 * nothing less than the end of all of them may do it. Ends of pipes stand for the listeners.
 */
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"

#include "shim/denials.h"
#include "shim/serve.h"
#include "shim/shim.h"
#include "tests/lib/test.h"

void serve_flush(struct shim *shim)
{
	(void)shim;
}

static int leave(void *userdata, uint32_t events)
{
	(void)events;
	loop_quit(userdata, 0);
	return 0;
}

/* One turn of the loop with `fd` as the listener. True: it is listened to still. */
static bool stays(int fd)
{
	static struct shim shim;
	struct loop_source *timer = NULL;
	bool is_there;

	memset(&shim, 0, sizeof(shim));
	assert_int_equal(loop_new(&shim.loop), 0);
	assert_int_equal(denials_init(&shim), 0);
	assert_int_equal(denials_listen(&shim, fd), 0);
	assert_int_equal(loop_add_timer(shim.loop, clock_boottime(), leave, shim.loop, &timer), 0);
	assert_int_equal(loop_run(shim.loop), 0);
	is_there = shim.denials.listener[0].fd >= 0;
	shim.denials.listener[0].source = loop_remove(shim.denials.listener[0].source);
	shim.denials.listener[0].fd = fd_close(shim.denials.listener[0].fd);
	shim.denials.timer = loop_remove(shim.denials.timer);
	(void)loop_remove(timer);
	loop_free(shim.loop);
	return is_there;
}

/* The kernel's poll of a listener says so when a freeze interrupts it. */
static void test_shim_denials_error_alone_closes_nothing(void **state)
{
	int fd[2];

	(void)state;
	assert_int_equal(pipe2(fd, O_CLOEXEC | O_NONBLOCK), 0);
	(void)fd_close(fd[0]);
	assert_true(stays(fd[1])); /* EPOLLERR */
}

static void test_shim_denials_hang_up_closes(void **state)
{
	int fd[2];

	(void)state;
	assert_int_equal(pipe2(fd, O_CLOEXEC | O_NONBLOCK), 0);
	(void)fd_close(fd[1]);
	assert_false(stays(fd[0])); /* EPOLLHUP */
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_shim_denials_error_alone_closes_nothing),
	cmocka_unit_test(test_shim_denials_hang_up_closes),
};

TEST_MAIN(tests)
