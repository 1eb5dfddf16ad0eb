/*
 * The supervisor's side of launch.h: the table of what a worker may ask, and the sessions.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/auto.h"
#include "base/err.h"
#include "base/list.h"
#include "base/log.h"
#include "base/loop.h"

#include "supervisor/ceilings.h"
#include "supervisor/peer.h"

struct config_answer;
struct host;
struct unsealer;
struct serve;

enum serve_worker {
	SERVE_WORKER_API,
	SERVE_WORKER_EGRESS,
	SERVE_WORKER_PROVIDER,
	SERVE_WORKER_MAX_,
};

struct serve_options {
	struct loop *loop;
	struct host *host;
	const char *instance;
	struct ceilings ceilings; /* with nothing taken */
	uint32_t n_egress;
	int lease_fd;              /* serve_lease.c: the next supervisor has it; -1: none */
	struct unsealer *unsealer; /* NULL: no secrets */
	const struct config_answer *config; /* in force, changed in place; NULL: no Redis */
	/* The operator wants another level: of this process and of every worker. */
	void (*log_level)(void *userdata, enum log_level level);
	/* A new socket pair for the api worker and that egress worker; false: it is not up. */
	bool (*link)(void *userdata, uint32_t egress);
	/* Every session has ended; only while stopping. */
	void (*emptied)(void *userdata);
	void *userdata;
};

/* One connection of one worker. */
struct serve_client {
	struct peer peer;
	struct serve *serve;
	enum serve_worker worker;
	uint32_t index;          /* among its kind; set before serve_client_open */
	struct list net_waiting; /* sessions whose sockets it does not have yet */
	uint32_t used;           /* bit per row of the permit table: requests that come once */
	bool adopting;
	uint32_t adopt_serial;
	size_t adopt_incompatible;     /* of these the next to tell */
	void (*hello)(void *userdata); /* its first message was right */
	void (*lost)(void *userdata);  /* the connection has ended; call serve_client_done later */
	void *userdata;
};

MUST_USE int serve_new(const struct serve_options *options, struct serve **ret_serve);
/* Every session that the host found at its start becomes one of ours: counted, whatever the
 * ceilings say by now. Before the first client. */
MUST_USE int serve_take_adopted(struct serve *serve);
struct serve *serve_free(struct serve *serve); /* asserts that no session and no client is left */

/* socket_fd becomes the client's on success. Callbacks and userdata are set before. */
MUST_USE int serve_client_open(struct serve_client *client, struct serve *serve,
			       enum serve_worker worker, int socket_fd, const char *name);
/* The worker is gone: its waiting requests are forgotten, its unfinished launches are killed. */
void serve_client_done(struct serve_client *client);

void serve_refuse_launches(struct serve *serve); /* from now on LAUNCH_E_STOPPING */
/* Kill every session; `emptied` follows, at once where there is none. */
void serve_kill_all(struct serve *serve);
/* Its ceilings as they would be with this configuration. */
struct ceilings serve_ceilings(const struct serve *serve, const struct supervisor_config *config);
/* Other maxima from now on. */
void serve_configure(struct serve *serve, const struct supervisor_config *config);
/* To the api worker, if it has said HELLO. fd (or -1) becomes ours. */
void serve_tell_config(struct serve *serve, const struct launch_config *state, int fd);
/* The egress worker has said HELLO: it gets the sockets of its sessions, one after the other. */
void serve_hand_over(struct serve_client *client);
/* Kill those whose launch is under way: nobody would hear of them. `emptied` does not follow. */
void serve_kill_starting(struct serve *serve);
uint32_t serve_session_count(const struct serve *serve);
