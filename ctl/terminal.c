#include "terminal.h"

#include <errno.h>
#include <sys/ioctl.h>
#include <unistd.h>

int terminal_make_raw(struct terminal *terminal)
{
	struct termios raw;

	if (tcgetattr(STDIN_FILENO, &terminal->before) < 0)
		return -errno;
	raw = terminal->before;
	cfmakeraw(&raw);
	if (tcsetattr(STDIN_FILENO, TCSANOW, &raw) < 0)
		return -errno;
	terminal->is_raw = true;
	return 0;
}

void terminal_restore(struct terminal *terminal)
{
	/* A terminal that hung up has no modes any more. */
	if (terminal->is_raw)
		(void)tcsetattr(STDIN_FILENO, TCSANOW, &terminal->before);
	terminal->is_raw = false;
}

void terminal_size(uint16_t *ret_rows, uint16_t *ret_cols)
{
	struct winsize size = {0};

	(void)ioctl(STDIN_FILENO, TIOCGWINSZ, &size);
	*ret_rows = size.ws_row ? size.ws_row : 24;
	*ret_cols = size.ws_col ? size.ws_col : 80;
}
