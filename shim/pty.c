/*
 * Theory. Runs in the runner: pid 1 opens no file, and a terminal's owner is the file system id
 * that opened it, so that a program which opens its terminal by name is let in, and of two ids in a
 * session neither gets at the other's. The runner takes that id for the one call. A change of it
 * sets dumpable to fs.suid_dumpable, so that is taken back at once; the ids by which a tracer is
 * judged stay ours all the time (A12, B10).
 *
 * What a terminal could do to somebody else is refused to every command by the filter: pushing
 * characters into it (TIOCSTI) and line disciplines, which are drivers (B8, B11).
 */
#include "shim/pty.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/fsuid.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <termios.h>
#include <unistd.h>

#include "base/fd.h"

#include "shim/steps.h"

/* ptmx of this session's devpts, whatever /dev/ptmx is. */
static const char pty_path[] = "/dev/pts/ptmx";

static int pty_open_as(const struct shim_params *params, bool is_root)
{
	uint32_t uid = is_root ? 0 : params->user_id;
	int fd;
	int r;

	/* The return value is the id before, never an error: a refusal shows as the wrong owner. */
	(void)setfsuid(uid);
	fd = open(pty_path, O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
	r = fd < 0 ? -errno : fd;
	/* Ours has no number in here; but this sets the file system id to the effective one. */
	if (syscall(SYS_setreuid, -1, -1) < 0)
		_exit(1);
	(void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
	return r;
}

int pty_open(const struct shim_params *params, bool is_root, const struct wire_size *size,
	     int *ret_pty_fd, int *ret_tty_fd)
{
	const struct winsize window = {.ws_row = size->rows, .ws_col = size->cols};
	AUTO_CLOSE int pty_fd = -1;
	AUTO_CLOSE int tty_fd = -1;
	struct termios mode;
	int unlocked = 0;

	pty_fd = pty_open_as(params, is_root);
	if (pty_fd < 0)
		return pty_fd;
	if (ioctl(pty_fd, TIOCSPTLCK, &unlocked) < 0)
		return -errno;
	tty_fd = ioctl(pty_fd, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (tty_fd < 0)
		return -errno;
	if (ioctl(pty_fd, TIOCSWINSZ, &window) < 0 || ioctl(tty_fd, TCGETS, &mode) < 0)
		return -errno;
	mode.c_iflag |= IUTF8; /* one backspace is one character */
	if (ioctl(tty_fd, TCSETS, &mode) < 0)
		return -errno;
	*ret_pty_fd = TAKE_FD(pty_fd);
	*ret_tty_fd = TAKE_FD(tty_fd);
	return 0;
}
