/*
 * sandboxd-egress: carries the sessions' network. This release confines it, greets the supervisor
 * and lets it idle: sessions have no network but lo, and no egress worker is ever handed a socket.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/launch.h"
#include "base/log.h"
#include "base/sockmsg.h"

#include "policy/confine_worker.h"
#include "sandboxd/launch.h"
#include "sandboxd/worker.h"

#define GREETING_TIMEOUT_MS 10000

/* TERM as a descriptor; made before the filter, which has no use for more of them. */
static int open_signals(void)
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

static int greet(void)
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
	return 0;
}

/* What is sent to this worker without its asking. 0, -ECONNRESET (the supervisor has ended), or
 * -errno. Nothing is relayed yet. */
static int take_event(void)
{
	struct launch_msg msg;
	int fds[LAUNCH_NET_FDS];
	ssize_t n = sockmsg_recv(WORKER_FD_SUPERVISOR, &msg, sizeof(msg), fds, ARRAY_SIZE(fds));

	if (n <= 0)
		return n == 0 ? -ECONNRESET : (int)n;
	/* It no longer listens, whoever else holds it: connections are refused at once. */
	if (fds[LAUNCH_NET_LISTENER] >= 0)
		(void)shutdown(fds[LAUNCH_NET_LISTENER], SHUT_RDWR);
	for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
		(void)fd_close(fds[i]);
	if (launch_check(&msg, (size_t)n, 1) < 0)
		return -EPROTO;
	if (msg.type == LAUNCH_EVENT_LINK || msg.type == LAUNCH_EVENT_NET ||
	    msg.type == LAUNCH_EVENT_NET_GONE)
		return 0;
	if (msg.type != LAUNCH_EVENT_FACTS || msg.u.facts.log_level >= LOG_LEVEL_MAX_)
		return -EPROTO;
	log_set_level((enum log_level)msg.u.facts.log_level);
	log_line(LOG_LEVEL_DEBUG, NULL, "log level taken", NULL);
	return 0;
}

/* Until TERM (0) or the end of the supervisor (0). */
static int idle(int signal_fd)
{
	struct pollfd fds[2] = {
		{.fd = WORKER_FD_SUPERVISOR, .events = POLLIN},
		{.fd = signal_fd,            .events = POLLIN},
	};
	int r = 0;

	while (r == 0) {
		if (poll(fds, ARRAY_SIZE(fds), -1) < 0) {
			if (errno != EINTR)
				return -errno;
			continue;
		}
		if (fds[1].revents)
			return 0;
		r = take_event();
	}
	return r == -ECONNRESET ? 0 : r;
}

int main(void)
{
	int signal_fd;
	int r;

	log_init("sandboxd-egress", LOG_LEVEL_INFO);
	log_set_format(LOG_FORMAT_RECORD); /* the supervisor gives it its form */
	signal_fd = open_signals();
	if (signal_fd < 0)
		return EXIT_FAILURE;
	if (confine_fileless_worker(WORKER_FD_POLICY, "worker-egress") < 0)
		return EXIT_FAILURE;
	r = greet();
	if (r == 0)
		r = idle(signal_fd);
	if (r < 0)
		log_line(LOG_LEVEL_ERROR, NULL, "egress worker ends", "errno=%d", -r);
	return r < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
