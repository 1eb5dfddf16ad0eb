/*
 * The two listening sockets of the service. They outlive the supervisor and its workers: systemd or
 * the keeper holds them, so that a restart refuses no client.
 */
#pragma once

#include <stdbool.h>

#include "base/auto.h"
#include "base/err.h"

struct listeners {
	int control_fd;
	int operator_fd;
	int keeper_fd;  /* SOCK_SEQPACKET to the keeper; -1 without one */
	int runtime_fd; /* the runtime directory */
	bool made_here; /* remove the sockets at the end */
};
#define LISTENERS_NULL                                                                             \
	((struct listeners){.control_fd = -1, .operator_fd = -1, .keeper_fd = -1, .runtime_fd = -1})

/* LISTEN_FDS is set for this process. */
bool listeners_are_passed(void);
/* Take passed sockets by their names `control`, `operator` and `keeper` (LISTEN_FDNAMES). A missing
 * or unusable one: -EINVAL. */
MUST_USE int listeners_take(struct listeners *listeners, struct err *err);
/* Make the missing ones in the runtime directory; a stale socket is replaced, anything else of that
 * name is an error. */
MUST_USE int listeners_make(struct listeners *listeners, struct err *err);
/* Give the control socket to a group; only for sockets that we or our keeper made. */
MUST_USE int listeners_set_group(const struct listeners *listeners, unsigned int gid,
				 struct err *err);
void listeners_done(struct listeners *listeners);

#define LISTENERS_FIRST_FD 3 /* of the LISTEN_FDS protocol */
#define LISTENERS_CONTROL  "control.sock"
#define LISTENERS_OPERATOR "operator.sock"
