/*
 * A session's network namespace: lo, every address on it, and the sockets that the egress worker
 * serves it by.
 */
#pragma once

#include <stdbool.h>

#include "base/auto.h"

#include "sandboxd/launch.h"
#include "supervisor/sklookup.h"

/* What outlives the child: LAUNCH_NET_FDS sockets for the egress worker, and the link that steers
 * connections to the first of them while it is open. */
enum netns_fd {
	NETNS_LINK = LAUNCH_NET_FDS,
	NETNS_FDS,
};

/* Steps of the child. 0 or -errno. */
MUST_USE int netns_loopback(void);
/* netns_routes.c: which packets go where. */
MUST_USE int netns_routes(bool ipv6);
/* What nobody inside can change. */
MUST_USE int netns_sysctls(void);
/* Needs /proc. lookup: made ahead, or SKLOOKUP_NULL. The descriptors are the caller's; on failure
 * there is none. */
MUST_USE int netns_sockets(bool ipv6, const struct sklookup *lookup, int ret_fds[NETNS_FDS]);
struct host;
/* netns_restore.c: the same again for the sessions that this start found. */
void netns_restore(const struct host *host);
/* Does this kernel have IPv6? */
bool netns_has_ipv6(void);
