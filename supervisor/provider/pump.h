/*
 * One handle: whole messages between the api worker's socket and the stream to the shim.
 */
#pragma once

#include <stdbool.h>

#include "base/auto.h"
#include "base/loop.h"

struct pump;

/* Either end has closed, or the stream says nonsense; the pump is there until pump_free. */
typedef void (*pump_ended)(void *userdata);

/* handle_fd: SOCK_SEQPACKET, non-blocking; becomes the pump's on success. Nothing moves before
 * pump_connect. 0 or -errno. */
MUST_USE int pump_new(struct loop *loop, int handle_fd, pump_ended ended, void *userdata,
		      struct pump **ret_pump);
/* The stream, non-blocking; becomes the pump's in any case. 0 or -errno. */
MUST_USE int pump_connect(struct pump *pump, int stream_fd);
/* Accepts NULL, returns NULL. Both ends are closed. */
struct pump *pump_free(struct pump *pump);
bool pump_is_connected(const struct pump *pump);
