/*
 * Messages that were taken and whose taker is gone: our own, found by the set of their tags, and
 * those of other workers of our queue, whose time in `unacked_index` is older than the visibility
 * timeout. Of other queues nothing is touched.
 */
#include <errno.h>
#include <hiredis.h>
#include <string.h>

#include "base/log.h"
#include "base/str.h"

#include "supervisor/api/celery_state.h"

#define MUTEX       "unacked_mutex"
#define MUTEX_MS    "300000"
#define BATCH       "512"
#define FIRST_FOUND "0"

struct entry_op {
	struct celery *celery;
	char tag[CELERY_NAME_BYTES];
};

static const char *queue_of(const struct celery *celery)
{
	return celery->app->config->celery.queue;
}

/* Asks for an entry of `unacked`. 0 or -errno. */
static int ask_entry(struct celery *celery, const struct redisReply *tag, redis_answer answer)
{
	struct entry_op *op;
	int r;

	if (tag->type != REDIS_REPLY_STRING || tag->len == 0 || memchr(tag->str, '\0', tag->len))
		return -EINVAL;
	op = calloc(1, sizeof(*op));
	if (!op)
		return -ENOMEM;
	op->celery = celery;
	r = str_copy_n(op->tag, sizeof(op->tag), tag->str, tag->len);
	if (r >= 0)
		r = redis_client_ask(celery->broker, answer, op, "HGET", CELERY_UNACKED, op->tag);
	if (r < 0)
		free(op);
	return r;
}

static void put_back(struct celery *celery, const char *tag, const struct celery_message *message)
{
	if (celery_put_back(celery, tag, message, NULL, NULL) < 0)
		return;
	celery->n[CELERY_COUNT_RESTORED]++;
	log_line(LOG_LEVEL_WARNING, NULL, "a message that nobody acknowledged is put back",
		 "queue=%s", queue_of(celery));
}

/* Ours. */

static void on_own_entry(void *userdata, const struct redisReply *reply)
{
	struct entry_op *op = userdata;
	struct celery *celery = op->celery;
	struct celery_message message = CELERY_MESSAGE_NULL;
	struct delivery *delivery = NULL;
	int fault = 0;

	if (!reply || celery->leaving || delivery_of_tag(celery, op->tag)) {
		free(op);
		return;
	}
	if (reply->type == REDIS_REPLY_STRING &&
	    celery_unacked_parse(reply->str, reply->len, queue_of(celery), &message, &fault) == 0 &&
	    fault != CELERY_E_BROKEN) {
		/* The set is only what a server says: the same bounds as of the queue. */
		if (celery_has_room(celery))
			delivery = delivery_new(celery, &message);
		else
			put_back(celery, op->tag, &message);
	}
	if (!delivery)
		IGNORE_RESULT(redis_client_ask(celery->broker, NULL, NULL, "SREM", celery->held,
					       op->tag));
	celery_message_done(&message);
	free(op);
	if (!delivery)
		return;
	delivery_enter(delivery);
	delivery_begin(delivery, fault);
}

static void on_own(void *userdata, const struct redisReply *reply)
{
	struct celery *celery = userdata;

	if (!reply || reply->type != REDIS_REPLY_ARRAY)
		return;
	for (size_t i = 0; i < reply->elements; i++)
		IGNORE_RESULT(ask_entry(celery, reply->element[i], on_own_entry));
}

void celery_adopt(struct celery *celery)
{
	IGNORE_RESULT(redis_client_ask(celery->broker, on_own, celery, "SMEMBERS", celery->held));
}

/* Of others. */

static void on_entry(void *userdata, const struct redisReply *reply)
{
	struct entry_op *op = userdata;
	struct celery_message message = CELERY_MESSAGE_NULL;
	int fault = 0;

	if (reply && reply->type == REDIS_REPLY_STRING && !delivery_of_tag(op->celery, op->tag) &&
	    celery_unacked_parse(reply->str, reply->len, queue_of(op->celery), &message, &fault) ==
		    0)
		put_back(op->celery, op->tag, &message);
	celery_message_done(&message);
	free(op);
}

static void on_holder(void *userdata, const struct redisReply *reply)
{
	struct celery *celery = userdata;

	if (!reply)
		return;
	celery->has_mutex = reply->type == REDIS_REPLY_STRING &&
			    str_equal(reply->str, celery->node) &&
			    redis_client_ask(celery->broker, NULL, NULL, "DEL", MUTEX) < 0;
}

/* It may have run out, and be somebody else's. What cannot be sent is sent in the next round. */
static void give_mutex_back(struct celery *celery)
{
	celery->restoring = false;
	IGNORE_RESULT(redis_client_ask(celery->broker, on_holder, celery, "GET", MUTEX));
}

static void on_round(void *userdata, const struct redisReply *reply)
{
	(void)reply;
	/* What was read was put back before this was sent: answers come in order. */
	give_mutex_back(userdata);
}

static void on_old(void *userdata, const struct redisReply *reply)
{
	struct celery *celery = userdata;

	for (size_t i = 0; reply && reply->type == REDIS_REPLY_ARRAY && i < reply->elements; i++)
		IGNORE_RESULT(ask_entry(celery, reply->element[i], on_entry));
	if (redis_client_ask(celery->broker, on_round, celery, "PING") < 0)
		give_mutex_back(celery);
}

static void on_mutex(void *userdata, const struct redisReply *reply)
{
	struct celery *celery = userdata;
	usec_t before =
		clock_realtime() - celery->app->config->celery.visibility_timeout_s * USEC_PER_SEC;
	char limit[32];

	IGNORE_RESULT(
		str_format(limit, sizeof(limit), "%.6f", (double)before / (double)USEC_PER_SEC));
	celery->has_mutex = !reply || reply->type == REDIS_REPLY_STATUS;
	if (!celery->has_mutex)
		celery->restoring = false; /* somebody else looks */
	else if (redis_client_ask(celery->broker, on_old, celery, "ZRANGEBYSCORE",
				  CELERY_UNACKED_INDEX, "0", limit, "LIMIT", FIRST_FOUND,
				  BATCH) < 0)
		give_mutex_back(celery);
}

void celery_restore(struct celery *celery)
{
	if (celery->restoring || celery->leaving)
		return;
	if (celery->has_mutex) {
		give_mutex_back(celery); /* of a round that broke off */
		return;
	}
	celery->restoring = redis_client_ask(celery->broker, on_mutex, celery, "SET", MUTEX,
					     celery->node, "PX", MUTEX_MS, "NX") >= 0;
}
