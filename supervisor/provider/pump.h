/*
 * One handle: whole messages between the api worker's socket and the shim, over a tether that lives
 * longer than the streams which carry it.
 */
#pragma once

#include <stdbool.h>

#include "base/auto.h"
#include "base/loop.h"

struct pump;

struct pump_events {
	/* The handle was closed, or the far end does not go on; the pump is there until pump_free.
	 */
	void (*ended)(void *userdata);
	/* The stream has ended, which said something or nothing: another one is wanted. */
	void (*lost)(void *userdata, bool has_said);
};

/* handle_fd: SOCK_SEQPACKET, non-blocking; becomes the pump's on success. is_wrapped: what comes on
 * its streams is as unwrap.h says. Nothing moves before pump_connect. 0 or -errno. */
MUST_USE int pump_new(struct loop *loop, int handle_fd, bool is_wrapped,
		      const struct pump_events *events, void *userdata, struct pump **ret_pump);
/* A stream, non-blocking; becomes the pump's in any case, in place of the one before. 0 or -errno.
 */
MUST_USE int pump_connect(struct pump *pump, int stream_fd);
/* Accepts NULL, returns NULL. Both ends are closed. */
struct pump *pump_free(struct pump *pump);
bool pump_is_connected(const struct pump *pump);
