/*
 * Tiny programs that prove what the launch engine takes for granted about the kernel. Exit status:
 * 0 holds, 1 does not, 77 cannot be tried here (no root).
 */
#pragma once

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KERNEL_SKIP 77

#define KERNEL_CHECK(condition)                                                                    \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			(void)fprintf(stderr, "%s:%d: %s (errno %d)\n", __FILE__, __LINE__,        \
				      #condition, errno);                                          \
			return 1;                                                                  \
		}                                                                                  \
	} while (0)
