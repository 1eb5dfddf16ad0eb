/*
 * The api worker's end of the supervisor's socket (include/sandboxd/launch.h): one table of
 * outstanding requests, each with a deadline. Never blocks; what the socket does not take at once
 * waits in order.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <systemd/sd-event.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/id.h"

#include "sandboxd/launch.h"

/*
 * answer: NULL when the deadline passed or the connection ended. fd: a descriptor that came with
 * the answer, or -1; the callee owns it. For LAUNCH_ADOPT it is called once per live session and
 * once more with more = 0. The last call for a request is final: the request is then forgotten.
 */
typedef void (*supervisor_answer)(void *userdata, const struct launch_msg *answer, int fd);

struct supervisor_client_events {
	void (*gone)(void *userdata, const struct id *session, const struct launch_gone *gone);
	void (*facts)(void *userdata, const struct launch_facts *facts); /* may be NULL */
	/* fd: the configuration again, or -1; the callee owns it. */
	void (*config)(void *userdata, const struct launch_config *state, int fd);
	/* The new socket to that egress worker (egress.h); the callee owns it. May be NULL. */
	void (*egress_link)(void *userdata, uint32_t egress, int fd);
	void (*closed)(void *userdata, int error); /* the supervisor left, or said nonsense */
};

struct supervisor_client;

/* fd becomes the client's. */
MUST_USE int supervisor_client_new(sd_event *event, int fd,
				   const struct supervisor_client_events *events, void *userdata,
				   struct supervisor_client **ret_client);
/* Outstanding requests are answered with NULL first. Accepts NULL; returns NULL. */
struct supervisor_client *supervisor_client_free(struct supervisor_client *client);

struct supervisor_request {
	enum launch_type type;
	const struct id *session;             /* NULL: HELLO, ADOPT, LOG_LEVEL, LINK, LEASE */
	const struct plan *plan;              /* LAUNCH_START only */
	const struct secret_request *secrets; /* of it; NULL: none */
	const char *request_id;               /* the HTTP request of it; NULL: none */
	const char *template;                 /* of it; NULL or "": none */
	uint32_t level;                       /* LAUNCH_LOG_LEVEL only */
	uint32_t egress;                      /* LAUNCH_LINK only */
	const struct launch_redis *redis;     /* LAUNCH_REDIS only */
	usec_t lease_until;                   /* LAUNCH_LEASE only */
	usec_t timeout;
};

/* 0; -ENOBUFS: too many are outstanding; -EPIPE: closed; -ENOMEM. Then no answer follows. */
MUST_USE int supervisor_client_request(struct supervisor_client *client,
				       const struct supervisor_request *request,
				       supervisor_answer callback, void *userdata);
/* The other end has closed, whether or not that was seen yet. */
bool supervisor_client_is_gone(const struct supervisor_client *client);
/* When the oldest request was made that is answered at once where all is well (boottime), or
 * USEC_NEVER: none waits. */
usec_t supervisor_client_waits_since(const struct supervisor_client *client);
