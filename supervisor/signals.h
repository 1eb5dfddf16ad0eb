/*
 * Signals arrive as reads in the loop, never as handlers.
 */
#pragma once

#include "base/auto.h"
#include "base/err.h"

/* Standard descriptors exist (0 and 1 become /dev/null, 2 stays where it is open), SIGPIPE is
 * ignored, and the given signals (0 ends the list) are blocked and readable from the returned
 * descriptor. -errno otherwise. */
MUST_USE int signals_open(const int *signals, struct err *err);
/* One pending signal number, 0: none, or -errno. */
MUST_USE int signals_read(int fd);
/* In a child before its exec: default dispositions, nothing blocked. */
MUST_USE int signals_reset(void);
