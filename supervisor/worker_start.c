#include "supervisor/worker_start.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>

#include "base/launch.h"
#include "base/sockmsg.h"

#include "sandboxd/worker.h"

#define GREETING_TIMEOUT_MS 10000

int worker_start_signals(void)
{
	sigset_t set;
	int fd;

	(void)sigemptyset(&set);
	(void)sigaddset(&set, SIGTERM);
	if (sigprocmask(SIG_BLOCK, &set, NULL) < 0) /* NOLINT(concurrency-mt-unsafe): no threads */
		return -errno;
	fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return fd < 0 ? -errno : fd;
}

int worker_start_greet(struct launch_hello *ret_hello)
{
	struct launch_msg msg = launch_message(LAUNCH_HELLO, 1, (const uint8_t[ID_BYTES]){0});
	struct pollfd answer = {.fd = WORKER_FD_SUPERVISOR, .events = POLLIN};
	ssize_t n;
	int r;

	msg.u.hello.magic = LAUNCH_MAGIC;
	msg.u.hello.version = LAUNCH_VERSION;
	msg.u.hello.message_bytes = sizeof(msg);
	r = sockmsg_send(WORKER_FD_SUPERVISOR, &msg, sizeof(msg), NULL, 0);
	if (r < 0)
		return r;
	if (poll(&answer, 1, GREETING_TIMEOUT_MS) != 1)
		return -ETIMEDOUT;
	n = sockmsg_recv(WORKER_FD_SUPERVISOR, &msg, sizeof(msg), NULL, 0);
	if (n < 0)
		return (int)n;
	if (launch_check(&msg, (size_t)n, 1) < 0 || msg.type != LAUNCH_HELLO + 1 ||
	    msg.error != LAUNCH_E_NONE)
		return -EPROTO;
	*ret_hello = msg.u.hello;
	return 0;
}
