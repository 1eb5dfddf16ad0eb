/*
 * The error contract. Every function that can fail returns int: 0, or a negative errno that is
 * fatal for the operation and passed up unchanged, or a positive MODULE_E_X that the direct caller
 * must handle. Detail travels in an optional struct err: fixed size, no pointer, so that it crosses
 * pipes and clone as it is. It never holds an endpoint value or bytes of a session.
 */
#pragma once

#include <stdint.h>

#include "base/auto.h"

#define ERR_TEXT_BYTES 96

struct err {
	int32_t error_number; /* positive errno; 0: no error recorded */
	uint32_t zero;
	char step[24];             /* NUL terminated name of the step, "" where none applies */
	char text[ERR_TEXT_BYTES]; /* NUL terminated, printable ASCII */
};
_Static_assert(sizeof(struct err) == 128, "crosses pipes");

#define ERR_NULL ((struct err){0})

/*
 * Record an error and return it: `return err_fail(err, -errno, "mounts", "open %s", name);`
 * error_number: negative errno, returned unchanged. err may be NULL. Text that does not fit is cut;
 * bytes that are not printable ASCII become '?'.
 */
int err_fail(struct err *err, int error_number, const char *step, const char *format, ...)
	PRINTF_LIKE(4, 5);

/* Make a struct err that came from outside safe to print: terminate, replace what is not printable.
 */
void err_sanitize(struct err *err);

/* ASSERT checks our own logic only, in every build; outside data gets an error instead. */
void assert_failed(const char *expression, const char *file, int line) __attribute__((noreturn));
#define ASSERT(expression)                                                                         \
	do {                                                                                       \
		if (!(expression))                                                                 \
			assert_failed(#expression, __FILE__, __LINE__);                            \
	} while (0)
