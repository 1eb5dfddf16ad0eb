/*
 * A session's network namespace: loopback only.
 */
#pragma once

#include "base/auto.h"

/* Steps of the child. 0 or -errno. */
MUST_USE int netns_loopback(void);
/* Every port can be listened on: nobody inside has NET_BIND_SERVICE, and nobody else is in there.
 */
MUST_USE int netns_ports(void);
