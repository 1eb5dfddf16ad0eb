/*
 * Connections of sessions, from accept to close.
 *
 *   OPENING   accepted; its rule is found. Upstream is dialled and, where the rule asks for it, the
 *             TLS hello is looked at, at the same time; nothing is passed on before both are done.
 *   RELAYING  two pumps; or, where HTTP is checked, the requests by http_flow and the rest by a
 *             pump.
 *   CLOSING   we have answered in HTTP ourselves, and wait for the client to read it.
 *
 * A refusal is a reset at once and a denial record; never a hang. One that comes after very many of
 * the same session waits for its turn (accept.c).
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/host_name.h"
#include "base/socket_address.h"

#include "supervisor/egress/http_flow.h"
#include "supervisor/egress/resolver.h"
#include "supervisor/egress/worker.h"

#define DNS_PORT 53

struct launch_msg;

/* What each connection of a session is counted and closed by. */
struct conn_base {
	struct list link; /* session.connections */
	struct session *session;
	int client_fd;
	void (*free)(struct conn_base *base);
};

/* One address that is being connected to. */
struct dial_attempt {
	struct conn *conn;
	struct loop_source *source; /* NULL: the place is free */
	int fd;
	uint32_t index; /* of dial.address */
};

#define DIAL_ATTEMPTS 4 /* of one connection at once */
struct dial {
	struct resolver_query query;
	struct egress_address address[RESOLVER_MAX_ADDRESSES]; /* connected: only that one */
	struct dial_attempt attempt[DIAL_ATTEMPTS];
	uint32_t n_attempts; /* places that are taken */
	uint32_t n;
	uint32_t next;
	uint32_t port;
	bool resolving;
	struct list service_link; /* egress.service_dials: the supervisor makes the socket */
	uint32_t service_serial;  /* of its request; 0: it waits for its turn */
	char *chain;              /* owned: resolver_answer.chain */
	usec_t deadline;          /* boottime; of all attempts */
};

struct conn {
	struct conn_base base; /* first */
	int upstream_fd;
	struct loop_source *client;
	struct loop_source *upstream;
	struct loop_source *timer;
	uint32_t rule; /* of session.policy */
	uint32_t port; /* dialled */
	uint32_t source_port;
	struct egress_address dialled;
	char name[HOST_NAME_BYTES]; /* "": an address was dialled */
	bool checked;               /* the hello was looked at, or need not be */
	bool connected;
	bool closing;
	size_t peeked;
	struct dial dial;
	struct http_flow *http; /* owned; NULL: not checked */
	struct pump out;        /* client to upstream; only its state where there is http */
	struct pump in;
	struct list paused_link;
	usec_t active_at;
};

/* What was dialled, before there is a connection of ours. */
struct dialled {
	struct egress_address address;
	char name[HOST_NAME_BYTES];
	uint32_t port;
	uint32_t source_port;
	uint32_t rule;
};

/* Loop callbacks of a session's listener and of its timer. */
int relay_on_connection(void *userdata, uint32_t events);
int relay_on_refill(void *userdata, uint32_t events);
/* One that may go on; fd is taken over. */
void relay_open(struct session *session, int fd, const struct dialled *dialled);
/* The other end sees a reset, not an end: a refusal is none that a protocol could take for one. */
void relay_close_by_reset(int fd);

void relay_close_all(struct session *session);
void relay_policy_changed(struct session *session, const struct policy *old);

void relay_conn_init(struct conn_base *base, struct session *session, int client_fd,
		     void (*free_conn)(struct conn_base *base));
void relay_conn_done(struct conn_base *base); /* closes client_fd */

/* For dial: a denial record and a reset; the connection is gone. */
void relay_refuse(struct conn *conn, enum egress_channel channel, uint32_t reason, uint32_t rule);
const struct egress_rule *relay_rule(const struct conn *conn);

/* dial.c: where the rule leads. Each may end in relay_refuse: the connection may be gone. */
void dial_start(struct conn *conn);
void dial_on_timeout(struct conn *conn);
/* Whether the rules in force permit the address that it is connected to, and those still to be
 * tried; *ret_rule: which one does not. */
bool dial_is_permitted(const struct conn *conn, uint32_t *ret_rule);
void dial_stop(struct conn *conn);
int relay_on_upstream(void *userdata, uint32_t events);
/* service.c: a Unix socket of this host, which the supervisor connects to. Each may end in
 * relay_refuse. */
void service_dial(struct conn *conn);
MUST_USE int service_answered(struct egress *egress, const struct launch_msg *answer, int fd);
/* Upstream is there and watched by relay_on_upstream. As a loop callback. */
MUST_USE int relay_connected(struct conn *conn);
