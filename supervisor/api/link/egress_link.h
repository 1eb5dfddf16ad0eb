/*
 * The api worker's end of the socket to one egress worker (include/sandboxd/egress.h). Never
 * blocks: what the socket does not take at once waits in order, up to a bound. What comes in is
 * checked; a surprise ends the connection, and the next one begins from nothing.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <systemd/sd-event.h>

#include "base/auto.h"
#include "base/id.h"

#include "sandboxd/egress.h"
#include "supervisor/api/egress/policy.h"

struct egress_link;

struct egress_link_events {
	void (*ready)(void *userdata);   /* it greeted: whatever policies there are can be sent */
	void (*drained)(void *userdata); /* nothing waits for the socket any more */
	/* The policy of that generation is in force; error: it was not taken, nothing is allowed.
	 */
	void (*acked)(void *userdata, const struct id *session, uint32_t generation, int error);
	void (*denied)(void *userdata, const struct id *session,
		       const struct egress_denial *denial);
	/* One a rule, then of all (more = false). error: ENOENT, it does not know the session. */
	void (*counted)(void *userdata, uint32_t serial, const struct egress_counters *counters,
			bool more, int error);
	/* It left, or said nonsense. Freed by the callee, or later. */
	void (*closed)(void *userdata, int error);
};

/* fd becomes the link's. 0 or -errno. */
MUST_USE int egress_link_new(sd_event *event, int fd, const struct egress_link_events *events,
			     void *userdata, struct egress_link **ret_link);
struct egress_link *egress_link_free(struct egress_link *link); /* accepts NULL; returns NULL */
bool egress_link_ready(const struct egress_link *link);         /* NULL: no */

/* So much waits that the next policy should not be said before `drained`. */
bool egress_link_is_busy(const struct egress_link *link);

/* 0; -EPIPE: closed; -ENOBUFS: it does not read; -ENOMEM. */
MUST_USE int egress_link_policy(struct egress_link *link, const struct id *session,
				uint32_t generation, const struct net_policy *policy);
/* Never lost: where it cannot wait for the socket either, the link is closed, and the next one
 * begins from nothing. */
void egress_link_forget(struct egress_link *link, const struct id *session);
MUST_USE int egress_link_count(struct egress_link *link, const struct id *session, uint32_t serial);
