/*
 * A session's network namespace: loopback only.
 */
#pragma once

#include "base/auto.h"

/* Steps of the child. 0 or -errno. */
MUST_USE int netns_loopback(void);
/* Settings of the network that nobody inside can change. */
MUST_USE int netns_sysctls(void);
