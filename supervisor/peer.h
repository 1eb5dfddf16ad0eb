/*
 * The supervisor's end of one worker's socket: whole messages in, a bounded queue of answers out.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/auto.h"
#include "base/list.h"
#include "base/loop.h"

#include "sandboxd/launch.h"

struct peer;

struct peer_events {
	/* One checked request. A negative return ends the connection. */
	int (*request)(struct peer *peer, const struct launch_msg *msg);
	/* The queue is empty: more may be put in. */
	void (*drained)(struct peer *peer);
	/* The connection has ended, for a reason that is logged. The last event of this peer, which
	 * may be freed in it. */
	void (*lost)(struct peer *peer);
};

struct peer {
	struct loop *loop;
	const struct peer_events *events;
	void *userdata;
	const char *name; /* for the log; not owned */
	int fd;           /* owned */
	struct loop_source *source;
	struct list queue; /* of struct peer_message */
	uint32_t n_queued;
	uint32_t max_queued;
	bool broken;
};

/* socket_fd (non-blocking) becomes the peer's on success. */
MUST_USE int peer_open(struct peer *peer, struct loop *loop, int socket_fd, const char *name,
		       const struct peer_events *events, void *userdata);
/* May be called in any of its events but `request`. */
void peer_done(struct peer *peer);
/* Send or queue. fd (or -1) becomes the peer's in any case. A peer that lets the queue grow beyond
 * max_queued is broken. */
void peer_send(struct peer *peer, const struct launch_msg *msg, int fd);
/* The same with as many as SOCKMSG_MAX_FDS of them. */
void peer_send_fds(struct peer *peer, const struct launch_msg *msg, int *fds, size_t n_fds);
/* End the connection; `lost` follows from the loop. */
void peer_break(struct peer *peer, const char *why);
