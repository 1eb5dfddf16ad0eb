#include "base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/str.h"

int err_fail(struct err *err, int error_number, const char *step, const char *format, ...)
{
	va_list args;

	ASSERT(error_number < 0);
	if (!err)
		return error_number;
	*err = ERR_NULL;
	err->error_number = -error_number;
	if (step)
		(void)snprintf(err->step, sizeof(err->step), "%s", step);
	va_start(args, format);
	(void)vsnprintf(err->text, sizeof(err->text), format, args);
	va_end(args);
	str_printable(err->step);
	str_printable(err->text);
	return error_number;
}

void err_sanitize(struct err *err)
{
	/* 4095 is the kernel's own last errno (MAX_ERRNO). */
	if (err->error_number < 0 || err->error_number > 4095)
		err->error_number = EPROTO;
	err->zero = 0;
	err->step[sizeof(err->step) - 1] = '\0';
	err->text[sizeof(err->text) - 1] = '\0';
	str_printable(err->step);
	str_printable(err->text);
}

void assert_failed(const char *expression, const char *file, int line)
{
	char text[512];
	int n;

	/* One raw write: stdio may be in any state, and the child between clone and exec has none.
	 */
	n = snprintf(text, sizeof(text), "%s:%d: assertion failed: %s\n", file, line, expression);
	if (n > 0) {
		size_t length = (size_t)n < sizeof(text) ? (size_t)n : sizeof(text) - 1;
		ssize_t written = write(STDERR_FILENO, text, length);
		(void)written;
	}
	abort();
}
