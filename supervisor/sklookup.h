/*
 * The program that takes every outward TCP connection of a session to one listener.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/auto.h"

/* The program with its map, attached to nothing. It knows no session yet, so it can be made ahead:
 * the kernel's look at a program is the longest part of an attachment. */
struct sklookup {
	int map_fd;
	int program_fd;
};
#define SKLOOKUP_NULL ((struct sklookup){-1, -1})

MUST_USE int sklookup_make(struct sklookup *ret_lookup);
void sklookup_close(struct sklookup *lookup); /* accepts SKLOOKUP_NULL, and leaves it */
/*
 * In the network namespace of netns_fd, connections to any address but loopback, and those to the
 * session's resolver (SESSION_RESOLVER, port 53), go to listener_fd, whatever port they name and
 * whoever else listens. The link, in force while it is open, or -errno. One that was attached is
 * for no other namespace.
 */
MUST_USE int sklookup_attach(const struct sklookup *lookup, int netns_fd, int listener_fd);
/* Is the link in force in the namespace of that inode? */
bool sklookup_holds(int link_fd, uint64_t netns_inode);
