/*
 * Remote control: a table of what is answered. `shutdown` and what changes a pool are not ours to
 * do; `hello`, which real workers ask each other at their start, stays unanswered, as of any worker
 * that was started without mingle.
 */
#include <errno.h>
#include <hiredis.h>
#include <string.h>

#include "base/log.h"
#include "base/str.h"

#include "supervisor/api/celery_state.h"

#define REPLY_BINDINGS "_kombu.binding.reply.celery.pidbox"
#define REPLY_SECONDS  "300" /* a list that nobody reads does not stay */
#define REPLIES_MAX    8     /* queues of one routing key */

static json_t *task_list(struct celery *celery)
{
	const char *names = celery->app->config->celery.task_name;
	json_t *list = json_array();

	while (*names) {
		size_t n = strcspn(names, " ");

		(void)json_array_append_new(list, json_stringn(names, n));
		names += n + strspn(names + n, " ");
	}
	return list;
}

static json_t *describe(const struct delivery *delivery)
{
	const struct celery *celery = delivery->celery;
	const struct celery_message *message = &delivery->message;
	char session[ID_TEXT_BYTES];
	char id[ID_TEXT_BYTES];

	id_format(&message->id, id);
	id_format(&message->session, session);
	return json_pack("{s:s, s:s, s:s, s:[s], s:{}, s:s, s:f, s:b, s:n, s:{s:s, s:s, s:i}}",
			 "id", id, "name", message->task, "type", message->task, "args", session,
			 "kwargs", "hostname", celery->node, "time_start",
			 (double)delivery->started_at / (double)USEC_PER_SEC, "acknowledged", 0,
			 "worker_pid", "delivery_info", "exchange", "", "routing_key",
			 celery->app->config->celery.queue, "priority", (int)message->priority);
}

static json_t *list_of(struct celery *celery, enum delivery_state state, bool is_scheduled)
{
	usec_t now = clock_realtime();
	json_t *list = json_array();

	LIST_FOR_EACH (entry, &celery->deliveries) {
		const struct delivery *delivery = LIST_ENTRY(entry, struct delivery, link);
		char eta[CLOCK_ISO_BYTES];

		if (delivery->state != state || celery_is_scheduled(delivery, now) != is_scheduled)
			continue;
		clock_format_iso(delivery->message.eta, eta);
		(void)json_array_append_new(
			list, is_scheduled ? json_pack("{s:s, s:i, s:o}", "eta", eta, "priority",
						       (int)delivery->message.priority, "request",
						       describe(delivery))
					   : describe(delivery));
	}
	return list;
}

static json_t *do_ping(struct celery *celery, const struct celery_control *control)
{
	(void)celery;
	(void)control;
	return json_pack("{s:s}", "ok", "pong");
}

static json_t *do_registered(struct celery *celery, const struct celery_control *control)
{
	(void)control;
	return task_list(celery);
}

static json_t *do_active(struct celery *celery, const struct celery_control *control)
{
	(void)control;
	return list_of(celery, DELIVERY_RUNNING, false);
}

static json_t *do_reserved(struct celery *celery, const struct celery_control *control)
{
	(void)control;
	return list_of(celery, DELIVERY_WAITING, false);
}

static json_t *do_scheduled(struct celery *celery, const struct celery_control *control)
{
	(void)control;
	return list_of(celery, DELIVERY_WAITING, true);
}

static json_t *do_revoked(struct celery *celery, const struct celery_control *control)
{
	uint32_t n =
		celery->n_revoked < CELERY_REVOKED_KEPT ? celery->n_revoked : CELERY_REVOKED_KEPT;
	json_t *list = json_array();
	char id[ID_TEXT_BYTES];

	(void)control;
	for (uint32_t i = 0; i < n; i++) {
		id_format(&celery->revoked[i], id);
		(void)json_array_append_new(list, json_string(id));
	}
	return list;
}

static json_t *do_revoke(struct celery *celery, const struct celery_control *control)
{
	bool terminate = json_is_true(json_object_get(control->arguments, "terminate"));
	struct id ids[CELERY_REVOKE_MAX];
	size_t n = celery_control_ids(control, ids);

	for (size_t i = 0; i < n; i++) {
		struct delivery *delivery = delivery_of_task(celery, &ids[i], NULL);

		if (!celery_is_revoked(celery, &ids[i]))
			celery->revoked[celery->n_revoked++ % CELERY_REVOKED_KEPT] = ids[i];
		if (delivery)
			delivery_revoke(delivery, terminate);
	}
	return json_pack("{s:s}", "ok", "tasks flagged as revoked");
}

static json_t *do_stats(struct celery *celery, const struct celery_control *control)
{
	json_t *total = json_object();
	json_t *names = task_list(celery);
	const json_t *name = json_array_get(names, 0);
	uint64_t n = celery->n[CELERY_COUNT_SUCCESS] + celery->n[CELERY_COUNT_FAILURE] +
		     celery->n[CELERY_COUNT_REVOKED];

	(void)control;
	/* By the first name: they are one task. */
	if (name)
		(void)json_object_set_new(total, json_string_value(name),
					  json_integer((json_int_t)n));
	json_decref(names);
	return json_pack("{s:o, s:s, s:I, s:i, s:{s:s, s:i}, s:{s:s}}", "total", total, "clock",
			 "1", "uptime",
			 (json_int_t)((clock_boottime() - celery->began_at) / USEC_PER_SEC),
			 "prefetch_count", (int)celery->app->config->celery.prefetch, "pool",
			 "implementation", "sandboxd", "max-concurrency",
			 (int)celery->app->config->celery.prefetch, "broker", "transport", "redis");
}

static json_t *do_active_queues(struct celery *celery, const struct celery_control *control)
{
	const char *queue = celery->app->config->celery.queue;

	(void)control;
	if (celery->paused)
		return json_array();
	return json_pack("[{s:s, s:{s:s, s:s}, s:s, s:b}]", "name", queue, "exchange", "name",
			 queue, "type", "direct", "routing_key", queue, "durable", 1);
}

static json_t *set_paused(struct celery *celery, const struct celery_control *control, bool paused)
{
	const char *queue = celery_text(control->arguments, "queue");

	if (!queue || !str_equal(queue, celery->app->config->celery.queue))
		return json_pack("{s:s}", "error", "no such queue here");
	celery->paused = paused;
	celery_wake(celery, 0);
	return json_pack("{s:s}", "ok",
			 paused ? "no longer consuming from the queue"
				: "consuming from the queue");
}

static json_t *do_cancel_consumer(struct celery *celery, const struct celery_control *control)
{
	return set_paused(celery, control, true);
}

static json_t *do_add_consumer(struct celery *celery, const struct celery_control *control)
{
	return set_paused(celery, control, false);
}

static const struct method {
	const char *name;
	json_t *(*act)(struct celery *celery, const struct celery_control *control);
} methods[] = {
	{"ping",            do_ping           },
	{"registered",      do_registered     },
	{"active",          do_active         },
	{"reserved",        do_reserved       },
	{"scheduled",       do_scheduled      },
	{"revoked",         do_revoked        },
	{"revoke",          do_revoke         },
	{"stats",           do_stats          },
	{"active_queues",   do_active_queues  },
	{"cancel_consumer", do_cancel_consumer},
	{"add_consumer",    do_add_consumer   },
};

/* Answering: the queues that are bound to the routing key get it. */

struct answer_op {
	struct celery *celery;
	char *text;
	char key[CELERY_NAME_BYTES];
};

static void on_bindings(void *userdata, const struct redisReply *reply)
{
	struct answer_op *op = userdata;
	struct redis_client *broker = op->celery->broker;
	size_t n = 0;

	for (size_t i = 0; reply && reply->type == REDIS_REPLY_ARRAY && i < reply->elements; i++) {
		const struct redisReply *member = reply->element[i];
		const char *queue =
			member->type == REDIS_REPLY_STRING
				? celery_binding_queue(member->str, member->len, op->key)
				: NULL;

		if (!queue || n++ == REPLIES_MAX)
			continue;
		if (redis_client_ask(broker, NULL, NULL, "LPUSH", queue, op->text) >= 0)
			IGNORE_RESULT(redis_client_ask(broker, NULL, NULL, "EXPIRE", queue,
						       REPLY_SECONDS));
	}
	free(op->text);
	free(op);
}

/* Steals the reply. */
static void answer(struct celery *celery, const struct celery_control *control, json_t *reply)
{
	struct answer_op *op = calloc(1, sizeof(*op));
	struct id tag;

	if (!op || id_random(&tag) < 0) {
		json_decref(reply);
		free(op);
		return;
	}
	op->celery = celery;
	IGNORE_RESULT(str_copy(op->key, sizeof(op->key), control->reply_key));
	op->text = celery_reply_format(control, celery->node, reply, &tag);
	if (op->text &&
	    redis_client_ask(celery->broker, on_bindings, op, "SMEMBERS", REPLY_BINDINGS) >= 0)
		return;
	free(op->text);
	free(op);
}

static json_t *act(struct celery *celery, const struct celery_control *control)
{
	for (size_t i = 0; i < ARRAY_SIZE(methods); i++)
		if (str_equal(methods[i].name, control->method))
			return methods[i].act(celery, control);
	return str_equal(control->method, "hello")
		       ? NULL
		       : json_pack("{s:s}", "error", "not a command of this worker");
}

void celery_control_message(void *userdata, const struct redisReply *reply)
{
	struct celery *celery = userdata;
	const struct redisReply *last =
		reply->elements > 0 ? reply->element[reply->elements - 1] : NULL;
	struct celery_control control;
	json_t *answered;

	if (!last || last->type != REDIS_REPLY_STRING)
		return;
	if (celery_control_parse(last->str, last->len, celery->node, clock_realtime(), &control) ==
	    0) {
		answered = act(celery, &control);
		if (answered && control.reply_key[0])
			answer(celery, &control, answered);
		else
			json_decref(answered);
	}
	celery_control_done(&control);
}
