/*
 * The PostgreSQL store's own state, shared by its files: pg_connect.c (the connection's life),
 * pg_batch.c (writes), pg_reads.c, pg_open.c (start, flush, end).
 */
#pragma once

#include <libpq-fe.h>
#include <systemd/sd-event.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/list.h"

#include "supervisor/api/store/pg_dsn.h"
#include "supervisor/api/store/pg_queries.h"
#include "supervisor/api/store/queue.h"
#include "supervisor/api/store/rows.h"

#define PG_CONNECT_TIMEOUT (5 * USEC_PER_SEC)
#define PG_PATIENCE        (1 * USEC_PER_SEC)  /* then those who wait are told */
#define PG_ANSWER_TIMEOUT  (10 * USEC_PER_SEC) /* then the connection is given up */
#define PG_FENCED_PAUSE    (5 * USEC_PER_SEC)  /* another service has taken the place */

enum pg_state {
	PG_STATE_DOWN,
	PG_STATE_RESOLVING, /* its hosts' names */
	PG_STATE_CONNECTING,
	PG_STATE_SETUP, /* statements are being prepared */
	PG_STATE_READY,
	PG_STATE_MAX_,
};

/* What was sent up to one Sync, in the order in which it is answered. */
enum pg_sent_kind {
	PG_SENT_SETUP,
	PG_SENT_BATCH,
	PG_SENT_READ,
	PG_SENT_NOW,   /* somebody waits in pg_ask */
	PG_SENT_RENEW, /* of the lease */
};
struct pg_sent {
	struct list link;
	enum pg_sent_kind kind;
	struct read *read; /* of queue.reading; NULL once it was answered early */
	usec_t asked;      /* when, of what moves the lease on */
	bool takes;        /* a session */
	bool takes_again;  /* one that may be ours already */
	uint32_t n_results;
	bool failed;      /* a result was an error; further ones are "aborted" */
	PGresult *result; /* of a read: owned */
};

struct pg_store {
	struct store_queue queue;
	sd_event *event;
	sd_event_source *source;
	PGconn *conn;
	enum pg_state state;
	bool wants_write;
	bool is_refused; /* the schema or the login: no retry makes it better, at start */
	struct err err;  /* why there is no connection */
	char refusal[ERR_TEXT_BYTES]; /* why the last batch was not taken */
	struct pg_dsn dsn;
	struct names *names; /* not owned; NULL: none can be looked up */
	struct names_query query[PG_HOSTS_MAX];
	char *instance;
	struct list sent;     /* struct pg_sent */
	struct list answered; /* struct pg_sent: callbacks are owed */
	usec_t deadline;      /* of connecting and of the setup */
	usec_t waiting_since; /* somebody waits, and nothing came; 0: nobody does */

	usec_t renew_asked;    /* when the last renewal of its own was sent; 0: it is due */
	usec_t lease_until;    /* as we count it: from before it was asked for */
	bool lease_is_renewed; /* a renewal of its own is on its way */
	bool lease_lapsed;     /* and nobody was told that it is held again */
	bool has_others;       /* other instances are, or were of late, on this store */
	bool others_live;      /* one of them, minutes before ours was last renewed */
	struct holds unsure;   /* sessions taken, perhaps, by what nobody has heard the answer of */

	uint64_t generation;  /* of this connection */
	uint64_t found_batch; /* the last one that the server has, as this connection saw it */
	uint64_t batch;       /* number of the last one sent */
	bool batch_is_open;   /* its connection was lost before its answer */
	/* How far its answers have come: */
	struct write *write;
	struct write_step *step;
	bool is_fenced; /* there is a newer connection of this instance */
	struct write *failed;
	enum store_result failed_result; /* STORE_DEGRADED: the store refused, not the write */

	PGresult *now_result; /* of PG_SENT_NOW */
	bool now_done;
};

/* It has a deadline. */
static inline bool pg_is_connecting(const struct pg_store *s)
{
	return s->state > PG_STATE_DOWN && s->state < PG_STATE_READY;
}
static inline struct pg_store *pg_store_of(struct store *store)
{
	return (struct pg_store *)(void *)store;
}
static inline const struct pg_store *pg_store_of_const(const struct store *store)
{
	return (const struct pg_store *)(const void *)store;
}

/* pg_connect.c */
void pg_connect(struct pg_store *s, usec_t now);
/* The connection is over: what was on its way goes back, or waits to be known. */
void pg_disconnect(struct pg_store *s, usec_t now, const char *why);
/* What the socket has. */
void pg_drive(struct pg_store *s, usec_t now);
void pg_flush_out(struct pg_store *s, usec_t now);
struct pg_sent *pg_sent_new(struct pg_store *s, enum pg_sent_kind kind);
void pg_sent_free(struct pg_sent *sent);
/* Send one prepared query. False: the connection is broken, or no memory. */
MUST_USE bool pg_send(struct pg_store *s, unsigned int query, const struct value *values,
		      size_t n_values);
MUST_USE bool pg_sync(struct pg_store *s);

/* pg_setup.c */
MUST_USE bool pg_setup_send(struct pg_store *s);
/* 0; -EPROTONOSUPPORT: the schema; -EIO: another refusal. s->err says why. */
MUST_USE int pg_setup_result(struct pg_store *s, struct pg_sent *sent, const PGresult *result);

/* pg_batch.c */
void pg_batch_send(struct pg_store *s, usec_t now);
void pg_batch_result(struct pg_store *s, struct pg_sent *sent, PGresult *result);
void pg_batch_done(struct pg_store *s, struct pg_sent *sent, usec_t now);
void pg_batch_lost(struct pg_store *s);
/* After a new connection: committed is what the server has of ours. */
void pg_batch_found(struct pg_store *s, uint64_t committed);

/* pg_lease.c */
void pg_lease_send(struct pg_store *s, usec_t now);
usec_t pg_lease_next(const struct pg_store *s); /* when pg_lease_send has something to do */
void pg_lease_result(struct pg_store *s, usec_t asked, const PGresult *result, usec_t now);
/* The answer to what was asked then. */
void pg_lease_renewed(struct pg_store *s, usec_t asked, usec_t now);
int pg_lease_ask(struct pg_store *s); /* at start: waits for the answer. 0 or -errno */
bool pg_lease_lapsed(const struct store *store, usec_t now);
bool pg_lease_regained(struct store *store);
usec_t pg_lease_end(const struct store *store);

/* pg_reads.c */
bool pg_reads_may_send(const struct pg_store *s); /* fewer are on their way than may be */
void pg_reads_send(struct pg_store *s, usec_t now);
void pg_reads_deliver(struct pg_store *s);
void pg_reads_refuse(struct pg_store *s); /* all that wait, and all that were sent */
extern const struct store_ops pg_ops;     /* pg_open.c */
int pg_each_open_session(struct store *store, store_session_seen seen, void *userdata);
int pg_each_open_task(struct store *store, store_task_seen seen, void *userdata);
int pg_each_redis_left(struct store *store, uint32_t max, store_id_seen seen, void *userdata);
int pg_each_usage(struct store *store, uint32_t day, store_usage_seen seen, void *userdata);
int pg_task_progress(struct store *store, const struct id *task,
		     struct store_progress *ret_progress, store_output_seen seen, void *userdata);

/* pg_open.c: wait for the answer of one query, at start; the result is the caller's. 0 or -errno.
 */
MUST_USE int pg_ask(struct pg_store *s, unsigned int query, const struct value *values,
		    size_t n_values, PGresult **ret_result);
