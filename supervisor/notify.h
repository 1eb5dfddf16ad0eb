/*
 * What the supervisor tells its service manager, or its keeper in the same words: READY=1,
 * STOPPING=1, WATCHDOG=1. One datagram each; libsystemd stays out of the root process.
 */
#pragma once

#include <stdbool.h>

#include "base/auto.h"
#include "base/err.h"

struct notify {
	int fd; /* -1: nobody listens */
};
#define NOTIFY_NULL ((struct notify){.fd = -1})

/* NOTIFY_SOCKET is set. */
bool notify_is_wanted(void);
/* Connect now, in the host's mount namespace; the supervisor leaves it soon after. keeper_fd (not
 * owned) wins over NOTIFY_SOCKET. 0 or -errno. */
MUST_USE int notify_open(struct notify *notify, int keeper_fd, struct err *err);
/* Losing a message harms nobody, so failures are only returned. */
int notify_send(const struct notify *notify, const char *text);
void notify_done(struct notify *notify);
