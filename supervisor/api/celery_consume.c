/*
 * Taking messages. A message is taken off its list, then entered into `unacked`, as kombu does it:
 * whoever dies between the two loses it. Its tag also goes into a set of our own, by which the next
 * worker of this host finds at once what was ours, and need not wait for the visibility timeout.
 */
#include <errno.h>
#include <hiredis.h>
#include <string.h>

#include "base/log.h"
#include "base/plant.h"
#include "base/str.h"

#include "supervisor/api/celery_state.h"
#include "supervisor/api/tasks.h"

#define TAKE_SECONDS "0.5" /* Redis 6 takes fractions; a stop waits for it */
#define TAKE_TIMEOUT (REDIS_CLIENT_TIMEOUT + USEC_PER_SEC)
#define TIME_BYTES   32

struct delivery *delivery_new(struct celery *celery, struct celery_message *message)
{
	struct delivery *delivery = calloc(1, sizeof(*delivery));

	if (!delivery)
		return NULL;
	delivery->celery = celery;
	delivery->message = *message;
	*message = CELERY_MESSAGE_NULL;
	list_append(&celery->deliveries, &delivery->link);
	return delivery;
}

struct delivery *delivery_free(struct delivery *delivery)
{
	list_remove(&delivery->link);
	celery_message_done(&delivery->message);
	free(delivery->result);
	free(delivery);
	return NULL;
}

struct delivery *delivery_of_task(struct celery *celery, const struct id *task,
				  const struct delivery *other)
{
	LIST_FOR_EACH (entry, &celery->deliveries) {
		struct delivery *delivery = LIST_ENTRY(entry, struct delivery, link);

		if (delivery != other && id_equal(&delivery->message.id, task))
			return delivery;
	}
	return NULL;
}

struct delivery *delivery_of_tag(struct celery *celery, const char *tag)
{
	LIST_FOR_EACH (entry, &celery->deliveries) {
		struct delivery *delivery = LIST_ENTRY(entry, struct delivery, link);

		if (str_equal(delivery->message.tag, tag))
			return delivery;
	}
	return NULL;
}

static void on_entered(void *userdata, const struct redisReply *reply)
{
	struct celery *celery = userdata;

	/* A new connection does it again. */
	if (!reply || reply->type != REDIS_REPLY_ERROR)
		return;
	log_line(LOG_LEVEL_WARNING, NULL, "a message cannot be entered", "node=%s", celery->node);
}

void delivery_enter(struct delivery *delivery)
{
	struct celery *celery = delivery->celery;
	const char *tag = delivery->message.tag;
	AUTO_FREE char *entry = NULL;
	char now[TIME_BYTES];

	if (!tag[0])
		return;
	entry = celery_unacked_format(delivery->message.envelope,
				      celery->app->config->celery.queue);
	if (!entry)
		return;
	IGNORE_RESULT(str_format(now, sizeof(now), "%.6f",
				 (double)clock_realtime() / (double)USEC_PER_SEC));
	const struct redis_command commands[] = {
		REDIS_COMMAND("ZADD", CELERY_UNACKED_INDEX, now, tag),
		REDIS_COMMAND("HSET", CELERY_UNACKED, tag, entry),
		REDIS_COMMAND("SADD", celery->held, tag),
	};

	delivery->entered = redis_client_transact(celery->broker, commands, ARRAY_SIZE(commands),
						  on_entered, celery) >= 0;
}

int celery_put_back(struct celery *celery, const char *tag, const struct celery_message *message,
		    redis_answer answer, void *userdata)
{
	uint32_t step = celery_priority_step(message->priority);
	AUTO_FREE char *text = celery_message_redelivered(message);
	const struct redis_command commands[] = {
		REDIS_COMMAND("RPUSH", celery->list_name[step / 3], text),
		REDIS_COMMAND("ZREM", CELERY_UNACKED_INDEX, tag),
		REDIS_COMMAND("HDEL", CELERY_UNACKED, tag),
		REDIS_COMMAND("SREM", celery->held, tag),
	};

	return text ? redis_client_transact(celery->broker, commands, ARRAY_SIZE(commands), answer,
					    userdata)
		    : -ENOMEM;
}

static void on_returned(void *userdata, const struct redisReply *reply)
{
	struct delivery *delivery = userdata;

	/* What did not come back to the queue is still ours, in the set. */
	if (reply && reply->type == REDIS_REPLY_ARRAY)
		delivery->celery->n[CELERY_COUNT_RETURNED]++;
	(void)delivery_free(delivery);
}

void delivery_return(struct delivery *delivery)
{
	if (celery_put_back(delivery->celery, delivery->message.tag, &delivery->message,
			    on_returned, delivery) < 0)
		(void)delivery_free(delivery);
	else
		delivery->state = DELIVERY_RETURNING;
}

/* A planted fault: as if nobody had seen that it came before. */
static void run_again(const struct delivery *delivery)
{
	struct app *app = delivery->celery->app;
	struct session *session = registry_find(&app->registry, &delivery->message.session);
	struct id id;

	if (session && session_has_tree(session) && id_random(&id) >= 0)
		IGNORE_RESULT(tasks_begin(app, session, &id, NULL));
}

/* Two messages of one task: the first stays. */
static bool is_duplicate(struct delivery *delivery)
{
	struct celery *celery = delivery->celery;
	const struct delivery *first = delivery_of_task(celery, &delivery->message.id, delivery);

	if (!first)
		return false;
	celery->n[CELERY_COUNT_DUPLICATE]++;
	if (planted("run-redelivered"))
		run_again(delivery);
	/* Of the same tag: one entry, which the first one acknowledges. */
	if (str_equal(first->message.tag, delivery->message.tag)) {
		(void)delivery_free(delivery);
		return true;
	}
	delivery->state = DELIVERY_FINISHING;
	delivery->written = true;
	delivery_write(delivery);
	return true;
}

void delivery_begin(struct delivery *delivery, int fault)
{
	struct celery_result result = {.state = CELERY_STATE_FAILURE, .module = CELERY_EXCEPTIONS};

	if (is_duplicate(delivery))
		return;
	if (delivery->message.task[0] && !celery_takes(delivery->celery, delivery->message.task)) {
		result.type = "NotRegistered";
		result.text = delivery->message.task;
	} else if (fault == CELERY_E_INVALID) {
		result.type = "TypeError";
		result.module = "builtins";
		result.text = delivery->message.fault;
	}
	if (result.type)
		delivery_finish(delivery, &result);
	else
		delivery_next(delivery);
}

static void taken(struct celery *celery, const char *text, size_t size)
{
	struct celery_message message;
	struct delivery *delivery = NULL;
	int r = celery_message_parse(text, size, &message);

	if (r == 0 || r == CELERY_E_INVALID)
		delivery = delivery_new(celery, &message);
	celery_message_done(&message);
	if (!delivery) {
		celery->n[CELERY_COUNT_BROKEN]++;
		log_line(LOG_LEVEL_WARNING, NULL, "a message of the queue is dropped",
			 "reason=\"%s\" bytes=%zu", r < 0 ? "no memory" : "not a task's", size);
		return;
	}
	delivery_enter(delivery);
	delivery_begin(delivery, r);
}

static void on_taken(void *userdata, const struct redisReply *reply)
{
	struct celery *celery = userdata;

	celery->taking = false;
	if (reply && reply->type == REDIS_REPLY_ARRAY && reply->elements == 2 &&
	    reply->element[1]->type == REDIS_REPLY_STRING)
		taken(celery, reply->element[1]->str, reply->element[1]->len);
	else if (reply && reply->type == REDIS_REPLY_ERROR)
		log_line(LOG_LEVEL_WARNING, NULL, "the queue cannot be read", "queue=%s",
			 celery->app->config->celery.queue);
	/* Not from in here: a server that refuses at once would be asked without a pause. */
	celery_wake(celery, reply && reply->type != REDIS_REPLY_ERROR ? 0 : USEC_PER_SEC);
}

bool celery_has_room(const struct celery *celery)
{
	usec_t now = clock_realtime();
	uint32_t n_scheduled = 0;
	uint32_t n = 0;
	size_t bytes = 0;

	LIST_FOR_EACH (entry, &celery->deliveries) {
		const struct delivery *delivery = LIST_ENTRY(entry, struct delivery, link);

		bytes += delivery->message.envelope_bytes;
		if (celery_is_scheduled(delivery, now))
			n_scheduled++;
		else
			n++;
	}
	return n < celery->app->config->celery.prefetch && n_scheduled < CELERY_SCHEDULED_MAX &&
	       bytes < CELERY_HELD_BYTES;
}

void celery_take(struct celery *celery)
{
	if (celery->taking || celery->paused || celery->leaving ||
	    celery->app->phase != APP_PHASE_SERVING || !redis_client_is_up(celery->broker) ||
	    !celery_has_room(celery))
		return;
	celery->taking =
		redis_client_send(
			celery->taker,
			&(struct redis_command){
				.word = (const char *[]){"BRPOP", celery->list_name[0],
							 celery->list_name[1], celery->list_name[2],
							 celery->list_name[3], TAKE_SECONDS},
				.n = 6,
				.timeout = TAKE_TIMEOUT
        },
			on_taken, celery) >= 0;
}
