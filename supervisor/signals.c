#include "supervisor/signals.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/io.h"

/* Logs go to standard error and nothing is ever read from standard input: what was there is not
 * inherited by anybody. */
static int quiet_standard_descriptors(void)
{
	/* A descriptor below 3 was missing and stays open; the first above ends it. */
	for (;;) {
		int fd = open("/dev/null", O_RDWR | O_NOCTTY); /* NOLINT(android-cloexec-open) */

		if (fd < 0)
			return -errno;
		if (fd <= STDERR_FILENO)
			continue;
		if (dup2(fd, STDIN_FILENO) < 0 || dup2(fd, STDOUT_FILENO) < 0) {
			int r = -errno;

			(void)fd_close(fd);
			return r;
		}
		(void)fd_close(fd);
		return 0;
	}
}

int signals_open(const int *signals, struct err *err)
{
	struct sigaction ignore = {.sa_handler = SIG_IGN};
	sigset_t set;
	int fd;
	int r;

	r = quiet_standard_descriptors();
	if (r < 0)
		return err_fail(err, r, "signals", "/dev/null");
	if (sigaction(SIGPIPE, &ignore, NULL) < 0)
		return err_fail(err, -errno, "signals", "ignore SIGPIPE");
	(void)sigemptyset(&set);
	for (size_t i = 0; signals[i]; i++)
		(void)sigaddset(&set, signals[i]);
	if (sigprocmask(SIG_BLOCK, &set, NULL) < 0) /* NOLINT(concurrency-mt-unsafe): no threads */
		return err_fail(err, -errno, "signals", "block");
	fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (fd < 0)
		return err_fail(err, -errno, "signals", "signalfd");
	return fd;
}

int signals_read(int fd)
{
	struct signalfd_siginfo info;
	ssize_t n = io_read(fd, &info, sizeof(info));

	if (n == -EAGAIN)
		return 0;
	if (n < 0)
		return (int)n;
	if (n != (ssize_t)sizeof(info))
		return -EIO;
	return (int)info.ssi_signo;
}

int signals_reset(void)
{
	struct sigaction by_default = {.sa_handler = SIG_DFL};
	sigset_t none;

	for (int number = 1; number < NSIG; number++) {
		/* EINVAL: KILL, STOP and libc's own numbers keep what they have. */
		if (sigaction(number, &by_default, NULL) < 0 && errno != EINVAL)
			return -errno;
	}
	(void)sigemptyset(&none);
	/* No thread exists. NOLINTNEXTLINE(concurrency-mt-unsafe) */
	if (sigprocmask(SIG_SETMASK, &none, NULL) < 0)
		return -errno;
	return 0;
}
