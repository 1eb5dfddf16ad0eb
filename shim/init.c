/*
 * Theory. pid 1 inherits every process whose runner has left, and reaps it. All signals are
 * blocked: none of the session's processes may send one (another id, no capability), and of the
 * supervisor's only SIGTERM means something: leave. When pid 1 leaves the kernel kills all that is
 * left in the PID namespace, so there is no order to keep.
 *
 * Without the nursery nothing can be started any more. It cannot be ended from inside; if it does
 * end, the session is broken, and its end says so better than a session that refuses everything.
 */
#include "shim/init.h"

#include <errno.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>

#include "base/io.h"
#include "base/loop.h"

#include "shim/shim.h"

static void init_reap(struct shim *shim)
{
	for (;;) {
		pid_t pid;

		pid = waitpid(-1, NULL, WNOHANG);
		if (pid <= 0)
			return;
		if (pid == shim->nursery_pid)
			loop_quit(shim->loop, 1);
		else
			shim->n_orphans_reaped++;
	}
}

static int init_on_signal(void *userdata, uint32_t events)
{
	struct shim *shim = userdata;
	struct signalfd_siginfo info;
	ssize_t n;

	(void)events;
	n = io_read(shim->signal_fd, &info, sizeof(info));
	if (n == -EAGAIN)
		return 0;
	if (n != (ssize_t)sizeof(info))
		return -EIO;
	if (info.ssi_signo == SIGTERM)
		loop_quit(shim->loop, 0);
	else
		init_reap(shim);
	return 0;
}

int init_start(struct shim *shim)
{
	sigset_t mask;

	(void)sigemptyset(&mask);
	(void)sigaddset(&mask, SIGCHLD);
	(void)sigaddset(&mask, SIGTERM);
	shim->signal_fd = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
	if (shim->signal_fd < 0)
		return -errno;
	return loop_add(shim->loop, shim->signal_fd, EPOLLIN, init_on_signal, shim,
			&shim->signal_source);
}
