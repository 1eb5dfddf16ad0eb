/*
 * Ownership by scope. A local that owns something is declared with one of the AUTO_ macros and
 * initialised at once; it gives its value away with TAKE_PTR or TAKE_FD and then owns nothing.
 */
#pragma once

#include <stdlib.h>

#include "base/fd.h"

#define MUST_USE          __attribute__((warn_unused_result))
#define PRINTF_LIKE(f, a) __attribute__((format(printf, f, a)))
#define ARRAY_SIZE(a)     (sizeof(a) / sizeof((a)[0]))

/* A result that is knowingly not looked at (a cast to void does not silence gcc). The line above
 * says why. */
#define IGNORE_RESULT(expression)                                                                  \
	do {                                                                                       \
		__typeof__(expression) ignored_ = (expression);                                    \
		(void)ignored_;                                                                    \
	} while (0)

static inline void auto_free_ptr(void *p)
{
	free(*(void **)p);
}

static inline void auto_close_fd(int *fd)
{
	*fd = fd_close(*fd);
}

#define AUTO_FREE  __attribute__((cleanup(auto_free_ptr)))
#define AUTO_CLOSE __attribute__((cleanup(auto_close_fd)))

/* DEFINE_AUTO(struct buf *, buf_free): a cleanup function for AUTO(buf_free). */
#define DEFINE_AUTO(type, free_function)                                                           \
	static inline void auto_##free_function(type *p)                                           \
	{                                                                                          \
		if (*p)                                                                            \
			(void)free_function(*p);                                                   \
	}                                                                                          \
	_Static_assert(1, "a semicolon follows")
#define AUTO(free_function) __attribute__((cleanup(auto_##free_function)))

#define TAKE_PTR(p)                                                                                \
	__extension__({                                                                            \
		__typeof__(p) take_ = (p);                                                         \
		(p) = NULL;                                                                        \
		take_;                                                                             \
	})
#define TAKE_FD(fd)                                                                                \
	__extension__({                                                                            \
		int take_ = (fd);                                                                  \
		(fd) = -1;                                                                         \
		take_;                                                                             \
	})
