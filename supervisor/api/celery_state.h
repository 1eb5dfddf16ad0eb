/*
 * What the parts of the Celery worker share: celery.c (connections, timer), celery_consume.c (the
 * queue), celery_task.c (a delivery's life), celery_control.c, celery_restore.c.
 */
#pragma once

#include "base/list.h"

#include "supervisor/api/celery.h"
#include "supervisor/api/celery/message.h"
#include "supervisor/api/redis/client.h"

#define CELERY_UNACKED       "unacked"
#define CELERY_UNACKED_INDEX "unacked_index"
#define CELERY_REVOKED_KEPT  1024u
#define CELERY_HELD_BYTES    ((size_t)32 * 1024 * 1024) /* of all messages that are held */
/* Tasks that wait for their eta; they take no place otherwise. */
#define CELERY_SCHEDULED_MAX 1000u

enum celery_count {
	CELERY_COUNT_SUCCESS,
	CELERY_COUNT_FAILURE,
	CELERY_COUNT_REVOKED,
	CELERY_COUNT_BROKEN,    /* no message, or one without an id */
	CELERY_COUNT_DUPLICATE, /* of a task that is here */
	CELERY_COUNT_RESTORED,  /* of a worker that died, put back */
	CELERY_COUNT_RETURNED,  /* of ours, put back at a stop */
	CELERY_COUNT_MAX_,
};

/*
 *   WAITING    for its eta, for the store, for its session's turn or tree
 *   RUNNING    a job of that id is there and has not ended
 *   FINISHING  its result is written, then it is acknowledged; tried until both are done
 *   RETURNING  it is put back
 */
enum delivery_state {
	DELIVERY_WAITING,
	DELIVERY_RUNNING,
	DELIVERY_FINISHING,
	DELIVERY_RETURNING,
};

struct delivery {
	struct list link; /* celery->deliveries, oldest first */
	struct celery *celery;
	struct celery_message message;
	enum delivery_state state;
	usec_t started_at; /* realtime */
	bool entered;      /* it stands in `unacked` */
	bool known;        /* the store was asked, and does not have the task */
	bool sought;       /* its session was looked for in the store */
	bool asking;       /* the store, or the server: an answer comes */
	bool terminated;   /* its end was asked for through Celery */
	bool written;      /* the result is */
	uint32_t n_trees;  /* that were asked for */
	char *result;      /* owned */
};

struct celery {
	struct app *app;
	struct redis_client *taker;   /* BRPOP alone, which holds up what is behind it */
	struct redis_client *broker;  /* everything else of the broker */
	struct redis_client *results; /* NULL: the broker keeps them */
	struct redis_client *control; /* subscribes */
	struct list deliveries;
	bool taking;
	bool paused; /* cancel_consumer */
	bool leaving;
	bool restoring;
	bool has_mutex;   /* of those who restore, as far as we know */
	bool was_refused; /* said once, until it is done */
	sd_event_source *timer;
	usec_t refresh_at; /* boottime */
	usec_t restore_at;
	char list_name[CELERY_PRIORITIES][CELERY_NAME_BYTES]; /* most urgent first */
	char node[CELERY_NAME_BYTES];
	char channel[CELERY_NAME_BYTES]; /* of the remote control */
	char held[CELERY_NAME_BYTES];    /* set of the tags that are ours, for the next worker */
	struct id revoked[CELERY_REVOKED_KEPT];
	uint32_t n_revoked; /* ever: a ring */
	usec_t began_at;
	uint64_t n[CELERY_COUNT_MAX_];
};

/* celery.c */
struct redis_client *celery_results(struct celery *celery);
void celery_wake(struct celery *celery, usec_t delay); /* celery_turn within that time */
bool celery_is_scheduled(const struct delivery *delivery, usec_t realtime);
bool celery_is_revoked(const struct celery *celery, const struct id *task);
/* A message for the queue. 0, and answer is called for EXEC; -errno. */
MUST_USE int celery_push(struct celery *celery, const char *text, redis_answer answer,
			 void *userdata);
bool celery_takes(const struct celery *celery, const char *task);

/* celery_consume.c */
bool celery_has_room(const struct celery *celery); /* for one message more */
void celery_take(struct celery *celery); /* if there is room and nothing is asked already */
struct delivery *delivery_new(struct celery *celery, struct celery_message *message);
struct delivery *delivery_free(struct delivery *delivery);
struct delivery *delivery_of_task(struct celery *celery, const struct id *task,
				  const struct delivery *other);
struct delivery *delivery_of_tag(struct celery *celery, const char *tag);
void delivery_enter(struct delivery *delivery);
void delivery_return(struct delivery *delivery);
/* Back to the queue for whoever takes it, and out of `unacked`. 0 or -errno. */
MUST_USE int celery_put_back(struct celery *celery, const char *tag,
			     const struct celery_message *message, redis_answer answer,
			     void *userdata);
/* A message that was taken, or was ours before: it goes its way. */
void delivery_begin(struct delivery *delivery, int fault);

/* celery_task.c */
void delivery_next(struct delivery *delivery); /* what can be done now */
void delivery_finish(struct delivery *delivery, const struct celery_result *result);
void delivery_write(struct delivery *delivery); /* FINISHING: again, if nothing is under way */
void delivery_revoke(struct delivery *delivery, bool terminate);

/* celery_control.c */
void celery_control_message(void *userdata, const struct redisReply *reply);

/* celery_restore.c */
void celery_adopt(struct celery *celery);   /* what was ours before */
void celery_restore(struct celery *celery); /* what nobody has any more */
