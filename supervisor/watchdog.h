/*
 * The life sign that a service manager waits for (WATCHDOG_USEC): sent from the loop, so it ends
 * when the loop does not turn any more.
 */
#pragma once

#include "base/err.h"
#include "base/loop.h"

struct notify;

struct watchdog {
	const struct notify *notify;
	usec_t interval;
	struct loop_source *timer; /* NULL: nobody waits */
};
#define WATCHDOG_NULL ((struct watchdog){0})

/* What WATCHDOG_USEC says, if it is meant for this process (WATCHDOG_PID); 0: nobody waits. */
usec_t watchdog_period(void);
/* loop and notify outlive it. 0 or -errno. */
MUST_USE int watchdog_start(struct watchdog *watchdog, struct loop *loop,
			    const struct notify *notify, struct err *err);
void watchdog_done(struct watchdog *watchdog);
