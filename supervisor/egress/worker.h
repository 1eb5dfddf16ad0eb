/*
 * The egress worker's objects. One process, one loop; sessions own their connections, and nothing
 * of one session is reached from another's.
 *
 *   main      the worker: loop, sockets to supervisor and api worker
 *   sessions  by id: sockets from the supervisor, policy from the api worker
 *   stub      answers DNS questions of one session
 *   accept    connections of one session: which of them may be
 *   relay     what becomes of those, until they are closed
 *   dial      where a connection really goes: name, address, connect
 *   service   where that is a Unix socket of the host
 *   pump      bytes from one socket to another through a pipe of the pool
 *   http_flow requests of one connection, each checked
 *   denials   what was refused, told within a rate
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/id.h"
#include "base/list.h"
#include "base/loop.h"

#include "supervisor/egress/names.h"
#include "supervisor/egress/policy.h"
#include "supervisor/egress/pump.h"

#define SESSION_BUCKETS 1024
/* Attempts of all connections, beyond which none is made beside another of the same connection. */
#define DIAL_RACING_MAX 256u

/* So many at once and so many a second; `per_second` 0: no bound. */
struct bucket {
	uint64_t left;
	usec_t filled_at;
};
/* Tokens there are now, at most burst of them. */
uint64_t bucket_fill(struct bucket *bucket, uint64_t per_second, uint64_t burst, usec_t now);

struct resolver;
struct out_message;

struct api_link {
	int fd;
	struct loop_source *source;
	struct list queue; /* struct out_message: what the socket did not take */
	uint32_t n_queued;
	bool greeted; /* its EGRESS_HELLO has come */
};

struct egress {
	struct loop *loop;
	int inspector_fd;
	struct resolver *resolver;
	struct pipe_pool pipes;
	struct api_link api;
	struct list sessions[SESSION_BUCKETS];
	uint32_t n_connections;
	struct list service_dials; /* conn.dial.service_link, as they came */
	uint32_t n_services_asked; /* requests that are not answered yet */
	uint32_t last_serial;      /* of requests to the supervisor */
	struct list resting;       /* intake.resting_link */
	struct loop_source *resting_timer;
	uint32_t n_attempts;      /* sockets that are being connected */
	uint32_t max_connections; /* by RLIMIT_NOFILE */
};

#define DENIAL_KEYS 16
struct denial_key {
	uint64_t hash; /* 0: free */
	uint32_t count;
	usec_t told_at;
};
struct denials {
	struct denial_key key[DENIAL_KEYS];
	uint32_t next;
	struct bucket rate;
	uint64_t untold;
};

/* A socket that a session makes work with. */
struct intake {
	int fd; /* -1: the supervisor has not sent it yet */
	struct loop_source *source;
	struct list resting_link; /* it is not watched for a while */
};

struct session {
	struct list link;
	struct egress *egress;
	struct id id;
	struct intake listener;
	struct intake resolver;
	struct policy *policy;   /* owned; NULL: nothing is allowed */
	struct policy *incoming; /* owned; between BEGIN and END */
	struct names names;
	struct list connections; /* conn.link */
	uint32_t n_connections;
	uint32_t n_pipes;
	struct bucket connects;
	struct bucket refusals;
	struct bucket questions;
	struct bucket bytes;
	struct list paused;         /* conn.paused_link: the byte rate is used up */
	bool is_refilling;          /* and they have their turn */
	struct loop_source *refill; /* timer of `paused` */
	struct policy_counters total;
	struct denials denials;
};

/* sessions.c */
struct session *sessions_find(const struct egress *egress, const struct id *id);
/* The session, a new one where needed; NULL without memory. */
struct session *sessions_get(struct egress *egress, const struct id *id);
/* The descriptors are taken over, also on failure. 0 or -errno. */
MUST_USE int sessions_open(struct session *session, int listener_fd, int resolver_fd);
void sessions_free(struct session *session); /* with its connections */
void sessions_drop_unopened(struct egress *egress);
/* What waits there waits on, for 50 ms at most: there is no descriptor for it, or the session has
 * had its share of our time. 0 or -errno. */
MUST_USE int intake_rest(struct egress *egress, struct intake *intake);
/* Callback of the timer of those. */
int intakes_on_rested(void *userdata, uint32_t events);
/* What its new policy no longer permits is closed. `policy` is taken over; NULL: none. */
void sessions_set_policy(struct session *session, struct policy *policy);

/* api_link.c. Takes the descriptor over and replaces the former link. */
MUST_USE int api_link_open(struct egress *egress, int fd);
void api_link_close(struct egress *egress);
void api_link_send(struct egress *egress, const struct egress_msg *msg);
/* One that may be lost where the other end is slow; false: it was. */
bool api_link_try(struct egress *egress, const struct egress_msg *msg);

/* denials.c */
struct denial {
	enum egress_channel channel;
	uint32_t reason; /* enum egress_reason */
	uint32_t rule;
	const char *name; /* "": address */
	const struct egress_address *address;
	uint32_t port;
	uint32_t source_port;
	const char *label; /* NULL: the rule's */
};
void denials_add(struct session *session, const struct denial *denial);

/* stub.c: negative ends the worker, as a loop callback. */
int stub_on_question(void *userdata, uint32_t events);
/* A DNS connection inside the session; takes the descriptor over. */
void stub_accept(struct session *session, int fd);
