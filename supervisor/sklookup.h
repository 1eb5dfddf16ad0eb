/*
 * The program that takes every outward TCP connection of a session to one listener.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/auto.h"

/*
 * In the network namespace of netns_fd, connections to any address but loopback, and those to the
 * session's resolver (SESSION_RESOLVER, port 53), go to listener_fd, whatever port they name and
 * whoever else listens. The link, in force while it is open, or -errno.
 */
MUST_USE int sklookup_attach(int netns_fd, int listener_fd);
/* Is the link in force in the namespace of that inode? */
bool sklookup_holds(int link_fd, uint64_t netns_inode);
