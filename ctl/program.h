/*
 * Our own programs that sandboxctl becomes when it needs a parser or a key that it does not have
 * itself.
 */
#pragma once

#include "base/auto.h"

/* Become the program: `name` in the directory of sandboxctl (a build that was not installed), else
 * where the package has it. stdin_fd becomes its standard input. Returns only on failure, with the
 * exit status, after a message. */
int program_become(const char *name, int stdin_fd, char *const argv[]);
