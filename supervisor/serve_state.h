/*
 * Inside of struct serve: for serve*.c only.
 */
#pragma once

#include "sandboxd/config.h"
#include "sandboxd/launch.h"
#include "supervisor/serve.h"

#define SERVE_N_BUCKETS   1024 /* power of two */
#define SERVE_MAX_WAITERS 4    /* KILLs of one session that wait */

struct serve_session {
	struct list bucket_link;
	struct list all_link;
	struct list net_link; /* client->net_waiting */
	struct serve *serve;
	struct session *session; /* NULL only while it is being started */
	struct plan plan;
	struct serve_client *asker; /* START not answered yet; else NULL */
	uint32_t start_serial;
	struct serve_client *parter; /* PART or JOIN not answered yet; else NULL */
	uint32_t part_serial;
	enum launch_type part_type;
	bool part_waits; /* for the end of one that a worker before had asked for */
	bool announced;  /* the api worker that runs now has its socket: its end is told */
	bool adopt_pending;
	bool net_told; /* its egress worker, the one that runs now, has its sockets */
	uint32_t n_waiters;
	struct {
		struct serve_client *client;
		uint32_t serial;
	} waiter[SERVE_MAX_WAITERS];
};

struct serve {
	struct serve_options options;
	struct ceilings ceilings;
	struct serve_client *api;                       /* after its HELLO */
	struct serve_client *egress[CONFIG_EGRESS_MAX]; /* likewise */
	bool stopping;
	bool emptying;
	bool incompatible_told; /* to an api worker that heard the end of its ADOPT */
	uint32_t n_sessions;
	uint32_t n_clients;
	uint32_t n_unsealing;      /* of `unsealing`: their helper runs */
	struct list unsealing;     /* launches that wait for their secrets: serve_secrets.c */
	struct list redis_waiting; /* serve_redis.c */
	uint32_t n_redis_waiting;
	uint32_t n_redis_helpers;  /* of them, that run */
	uint32_t n_redis_long;     /* of those, that look at all keys */
	struct list service_dials; /* serve_service.c */
	struct list s3_runs;       /* serve_s3.c */
	uint32_t n_s3_runs;
	struct loop_source *lease; /* serve_lease.c: its end */
	struct list all;
	struct list bucket[SERVE_N_BUCKETS];
};

/* An answer has the number of its request plus one, which is no name of the enum. */
struct launch_msg serve_answer(const struct launch_msg *request, enum launch_error error);
/* For who did not keep the request. */
struct launch_msg serve_answer_later(enum launch_type request, uint32_t serial,
				     const uint8_t session[ID_BYTES], enum launch_error error);

struct serve_session *serve_find(struct serve *serve, const uint8_t id[ID_BYTES]);
/* secrets_fd: as in struct session_launch.
 * Start what the request asks for; it is checked, and the ceilings are taken. 0, or -errno with the
 * number and the step for its answer: then nothing is left and the ceilings are given back. */
MUST_USE int serve_start(struct serve_client *client, const struct launch_msg *request,
			 int secrets_fd, enum launch_error *ret_error, struct err *err);
/* As serve_start for a request with secrets, but always answered by itself. */
MUST_USE int serve_start_sealed(struct serve_client *client, const struct launch_msg *request);
/* A launch that still waits for its secrets is given up, and its START answered. */
void serve_cancel_sealed(struct serve *serve, const uint8_t id[ID_BYTES]);
bool serve_is_sealed(const struct serve *serve, const uint8_t id[ID_BYTES]);
/* The same for all of a client, without answers. */
void serve_forget_sealed(struct serve_client *client);
/* serve_redis.c: a user of the Redis server; answered when that is done. */
MUST_USE int serve_redis(struct serve_client *client, const struct launch_msg *request);
/* Nobody is told any more. */
void serve_forget_redis(struct serve_client *client);
/* Ends the helpers; what waits is not done. */
void serve_drop_redis(struct serve *serve);
/* serve_s3.c: a helper of the object store; answered at once with the socket to it. */
MUST_USE int serve_s3(struct serve_client *client, const struct launch_msg *request);
/* Ends them. */
void serve_drop_s3(struct serve *serve);
/* serve_service.c: a connection to a Unix socket of this host; answered when it is made. */
MUST_USE int serve_service(struct serve_client *client, const struct launch_msg *request);
/* Nobody is told any more. */
void serve_forget_services(struct serve_client *client);
/* Ends what is under way. */
void serve_drop_services(struct serve *serve);
/* PART and JOIN: answered when it is done. 0, or -errno: not begun. */
MUST_USE int serve_part(struct serve_client *client, const struct launch_msg *request,
			struct serve_session *entry);
/* Nobody waits under this name any more; what was started for it alone is killed. */
void serve_forget_client(struct serve_client *client);
/* Send the client every live session, with a connection each, then the end. */
void serve_adopt(struct serve_client *client, uint32_t serial);
/* Go on with it: the client's queue is empty again. */
void serve_adopt_more(struct serve_client *client);
/* serve_net.c. A session is live: its egress worker gets its sockets. */
void serve_net_live(struct serve_session *entry);
/* It has ended, and the worker hears of it if it had heard of it. */
void serve_net_ended(struct serve_session *entry);
/* Go on with what waits: the client's queue is empty again. */
void serve_net_more(struct serve_client *client);
/* Nothing waits for this client any more. */
void serve_net_forget(struct serve_client *client);
/* serve_lease.c. LAUNCH_LEASE: sessions may run until then, by CLOCK_BOOTTIME. */
void serve_lease(struct serve *serve, usec_t until);
/* Its timer, with the end that a former supervisor was told. 0 or -errno. */
MUST_USE int serve_lease_init(struct serve *serve);
/* Tells `emptied` if that is waited for and no session is left. */
void serve_maybe_emptied(struct serve *serve);
