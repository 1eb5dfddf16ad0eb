#include "supervisor/api/session/fit.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/err.h"

void fit_text(char *dest, size_t dest_bytes, const char *format, ...)
{
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(dest, dest_bytes, format, args);
	va_end(args);
	ASSERT(n >= 0 && (size_t)n < dest_bytes);
}
