/*
 * The worker on a Celery queue: its connections, its clock, and what it says about itself.
 *
 * Every connection comes back by itself (redis/client.h); when the broker's does, bindings and
 * everything that was under way are written again, so a server that was restarted or emptied is
 * served as before.
 */
#include "supervisor/api/celery.h"

#include <errno.h>
#include <hiredis.h>
#include <string.h>

#include "base/log.h"
#include "base/str.h"

#include "supervisor/api/celery_state.h"
#include "supervisor/api/metrics/metrics.h"
#include "supervisor/api/store/postgres.h"

#define PIDBOX         "celery.pidbox"
#define BINDING_PREFIX "_kombu.binding."
#define BINDING_BYTES  (sizeof(BINDING_PREFIX) + CELERY_NAME_BYTES)
#define ANSWER_BYTES   ((size_t)64 * 1024 * 1024) /* a message that is too big is still taken */
#define REFRESH_MIN    (USEC_PER_SEC / 4)
#define REFRESH_MAX    (5 * USEC_PER_SEC)
#define RESTORE_MIN    USEC_PER_SEC
#define RESTORE_MAX    (100 * USEC_PER_SEC)
#define TURN_MAX       (5 * USEC_PER_SEC)
#define REFRESH_WORDS  64

static const char *const count_labels[] = {
	[CELERY_COUNT_SUCCESS] = "result=\"success\"",
	[CELERY_COUNT_FAILURE] = "result=\"failure\"",
	[CELERY_COUNT_REVOKED] = "result=\"revoked\"",
	[CELERY_COUNT_BROKEN] = "result=\"broken\"",
	[CELERY_COUNT_DUPLICATE] = "result=\"duplicate\"",
	[CELERY_COUNT_RESTORED] = "result=\"restored\"",
	[CELERY_COUNT_RETURNED] = "result=\"returned\"",
};
_Static_assert(ARRAY_SIZE(count_labels) == CELERY_COUNT_MAX_, "one label per result");

struct redis_client *celery_results(struct celery *celery)
{
	return celery->results ? celery->results : celery->broker;
}

bool celery_is_scheduled(const struct delivery *delivery, usec_t realtime)
{
	return delivery->state == DELIVERY_WAITING && delivery->message.eta > realtime;
}

bool celery_is_revoked(const struct celery *celery, const struct id *task)
{
	uint32_t n =
		celery->n_revoked < CELERY_REVOKED_KEPT ? celery->n_revoked : CELERY_REVOKED_KEPT;

	for (uint32_t i = 0; i < n; i++)
		if (id_equal(&celery->revoked[i], task))
			return true;
	return false;
}

bool celery_takes(const struct celery *celery, const char *task)
{
	const char *names = celery->app->config->celery.task_name;
	size_t length = strlen(task);

	while (*names) {
		size_t n = strcspn(names, " ");

		if (n == length && memcmp(names, task, n) == 0)
			return true;
		names += n + strspn(names + n, " ");
	}
	return false;
}

/* The clock. */

void celery_wake(struct celery *celery, usec_t delay)
{
	usec_t at = clock_add(clock_boottime(), delay);
	uint64_t planned;

	if (!celery->timer)
		return; /* the end */
	if (sd_event_source_get_time(celery->timer, &planned) >= 0 && planned <= at)
		return;
	(void)sd_event_source_set_time(celery->timer, at);
}

static usec_t bound(usec_t span, usec_t min, usec_t max)
{
	if (span < min)
		return min;
	return span > max ? max : span;
}

static usec_t visibility(const struct celery *celery)
{
	return celery->app->config->celery.visibility_timeout_s * USEC_PER_SEC;
}

/* What is held is not given to anybody else. XX: what somebody did take back stays his. */
static void refresh(struct celery *celery)
{
	const char *word[3 + 2 * REFRESH_WORDS] = {"ZADD", CELERY_UNACKED_INDEX, "XX"};
	char now[32];
	size_t n = 3;

	IGNORE_RESULT(str_format(now, sizeof(now), "%.6f",
				 (double)clock_realtime() / (double)USEC_PER_SEC));
	LIST_FOR_EACH (entry, &celery->deliveries) {
		const struct delivery *delivery = LIST_ENTRY(entry, struct delivery, link);

		if (!delivery->entered)
			continue;
		word[n++] = now;
		word[n++] = delivery->message.tag;
		if (n == ARRAY_SIZE(word) || entry->next == &celery->deliveries) {
			IGNORE_RESULT(redis_client_send(
				celery->broker, &(struct redis_command){.word = word, .n = n}, NULL,
				NULL));
			n = 3;
		}
	}
	if (n > 3)
		IGNORE_RESULT(redis_client_send(
			celery->broker, &(struct redis_command){.word = word, .n = n}, NULL, NULL));
}

static usec_t next_eta(const struct celery *celery, usec_t realtime)
{
	usec_t delay = TURN_MAX;

	LIST_FOR_EACH (entry, &celery->deliveries) {
		const struct delivery *delivery = LIST_ENTRY(entry, struct delivery, link);
		usec_t at[] = {delivery->message.eta, delivery->message.expires};

		for (size_t i = 0; delivery->state == DELIVERY_WAITING && i < ARRAY_SIZE(at); i++)
			if (at[i] > realtime && at[i] - realtime < delay)
				delay = at[i] - realtime;
	}
	return delay;
}

static int on_turn(sd_event_source *source, uint64_t at, void *userdata)
{
	struct celery *celery = userdata;
	usec_t now = clock_boottime();
	usec_t span = bound(visibility(celery) / 4, REFRESH_MIN, REFRESH_MAX);

	(void)at;
	(void)sd_event_source_set_time(source, clock_add(now, TURN_MAX));
	if (now >= celery->refresh_at && redis_client_is_up(celery->broker)) {
		refresh(celery);
		celery->refresh_at = clock_add(now, span);
	}
	if (now >= celery->restore_at && redis_client_is_up(celery->broker)) {
		celery_restore(celery);
		celery->restore_at =
			clock_add(now, bound(visibility(celery) / 2, RESTORE_MIN, RESTORE_MAX));
	}
	LIST_FOR_EACH_SAFE (entry, following, &celery->deliveries) {
		struct delivery *delivery = LIST_ENTRY(entry, struct delivery, link);

		delivery_write(delivery);
	}
	LIST_FOR_EACH_SAFE (entry, following, &celery->deliveries)
		delivery_next(LIST_ENTRY(entry, struct delivery, link));
	celery_take(celery);
	celery_wake(celery, bound(next_eta(celery, clock_realtime()), 0, span));
	return sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
}

/* Connections. */

static int binding_key(const char *exchange, char key[BINDING_BYTES])
{
	return str_format(key, BINDING_BYTES, BINDING_PREFIX "%s", exchange);
}

static void bind_queue(struct celery *celery, const char *exchange, const char *routing_key,
		       const char *queue)
{
	AUTO_FREE char *member = celery_binding(routing_key, queue);
	char key[BINDING_BYTES];

	if (member && binding_key(exchange, key) >= 0)
		IGNORE_RESULT(redis_client_ask(celery->broker, NULL, NULL, "SADD", key, member));
}

int celery_push(struct celery *celery, const char *text, redis_answer answer, void *userdata)
{
	const char *queue = celery->app->config->celery.queue;
	AUTO_FREE char *member = celery_binding(queue, queue);
	char key[BINDING_BYTES];
	const struct redis_command commands[] = {
		REDIS_COMMAND("SADD", key, member),
		REDIS_COMMAND("LPUSH", queue, text),
	};
	int r = member ? binding_key(queue, key) : -ENOMEM;

	return r < 0 ? r
		     : redis_client_transact(celery->broker, commands, ARRAY_SIZE(commands), answer,
					     userdata);
}

/* Everything that the server should know, again: it may be another one, or empty. */
static void on_connected(void *userdata)
{
	struct celery *celery = userdata;
	const char *queue = celery->app->config->celery.queue;
	char mailbox[2 * CELERY_NAME_BYTES];

	bind_queue(celery, queue, queue, queue);
	if (str_format(mailbox, sizeof(mailbox), "%s." PIDBOX, celery->node) >= 0)
		bind_queue(celery, PIDBOX, "", mailbox);
	LIST_FOR_EACH (entry, &celery->deliveries) {
		struct delivery *delivery = LIST_ENTRY(entry, struct delivery, link);

		if (delivery->state != DELIVERY_RETURNING && !delivery->written)
			delivery_enter(delivery);
	}
	celery_adopt(celery);
	celery->restore_at = 0;
	celery_wake(celery, 0);
}

static void on_control_connected(void *userdata)
{
	struct celery *celery = userdata;

	IGNORE_RESULT(redis_client_ask(celery->control, NULL, NULL, "PSUBSCRIBE", celery->channel));
}

static void on_up(void *userdata)
{
	celery_wake(userdata, 0);
}

static const struct redis_client_events broker_events = {.connected = on_connected};
static const struct redis_client_events taker_events = {.connected = on_up};
static const struct redis_client_events control_events = {
	.connected = on_control_connected,
	.message = celery_control_message,
};

static int connect_all(struct celery *celery)
{
	const struct celery_config *config = &celery->app->config->celery;
	struct redis_client_options options = {
		.event = celery->app->event,
		.names = celery->app->names,
		.server = &config->broker,
	};
	int r;

	options.name = "celery";
	r = redis_client_new(&options, &broker_events, celery, &celery->broker);
	options.name = "celery-control";
	if (r >= 0)
		r = redis_client_new(&options, &control_events, celery, &celery->control);
	options.name = "celery-queue";
	options.max_bytes = ANSWER_BYTES;
	if (r >= 0)
		r = redis_client_new(&options, &taker_events, celery, &celery->taker);
	options.name = "celery-results";
	options.max_bytes = 0;
	options.server = &config->results;
	if (r >= 0 && config->results.place.port != 0)
		r = redis_client_new(&options, &taker_events, celery, &celery->results);
	return r;
}

static int name_all(struct celery *celery)
{
	const struct celery_config *config = &celery->app->config->celery;
	const char *database = config->broker.database;
	char instance[ID_TEXT_BYTES];
	int r = postgres_instance(WORKER_FD_STATE, instance);

	for (uint32_t i = 0; r >= 0 && i < CELERY_PRIORITIES; i++)
		r = celery_list_name(config->queue, 3 * i, celery->list_name[i]);
	if (r >= 0)
		r = str_format(celery->node, sizeof(celery->node), "sandboxd@%.8s", instance);
	if (r >= 0)
		r = str_format(celery->held, sizeof(celery->held), "sandboxd.held.%s", instance);
	if (r >= 0)
		r = str_format(celery->channel, sizeof(celery->channel), "/%s." PIDBOX,
			       database[0] ? database : "0");
	return r;
}

int celery_start(struct app *app)
{
	struct celery *celery;
	int r;

	if (app->config->celery.broker.place.port == 0)
		return 0;
	celery = calloc(1, sizeof(*celery));
	if (!celery)
		return -ENOMEM;
	app->celery = celery;
	celery->app = app;
	celery->began_at = clock_boottime();
	list_init(&celery->deliveries);
	r = name_all(celery);
	if (r >= 0)
		r = sd_event_add_time(app->event, &celery->timer, CLOCK_BOOTTIME,
				      clock_add(clock_boottime(), REFRESH_MIN), USEC_PER_MS,
				      on_turn, celery);
	if (r >= 0)
		r = connect_all(celery);
	return r < 0 ? r : 0;
}

void celery_stop(struct app *app)
{
	struct celery *celery = app->celery;

	if (!celery)
		return;
	/* Answers that still come out of this find everything but the clock. */
	celery->timer = sd_event_source_disable_unref(celery->timer);
	celery->leaving = true;
	celery->control = redis_client_free(celery->control);
	celery->taker = redis_client_free(celery->taker);
	celery->results = redis_client_free(celery->results);
	celery->broker = redis_client_free(celery->broker);
	while (!list_empty(&celery->deliveries))
		(void)delivery_free(LIST_ENTRY(celery->deliveries.next, struct delivery, link));
	free(celery);
	app->celery = NULL;
}

void celery_leave(struct app *app)
{
	struct celery *celery = app->celery;

	if (!celery || celery->leaving)
		return;
	celery->leaving = true;
	celery_wake(celery, 0);
}

void celery_serve(struct app *app)
{
	if (app->celery)
		celery_wake(app->celery, 0);
}

bool celery_is_idle(const struct app *app)
{
	const struct celery *celery = app->celery;

	if (!celery || !redis_client_is_up(celery->broker))
		return true;
	LIST_FOR_EACH (entry, &celery->deliveries) {
		const struct delivery *delivery = LIST_ENTRY(entry, struct delivery, link);

		/* What runs is the next worker's, unless the sessions end as well. */
		if (delivery->state != DELIVERY_RUNNING)
			return false;
	}
	return !celery->taking;
}

/* What it says. */

void celery_observe(struct app *app)
{
	const struct celery *celery = app->celery;
	const struct redis_client *parts[] = {celery ? celery->broker : NULL,
					      celery ? celery->taker : NULL,
					      celery ? celery->results : NULL};
	const struct redis_client *bad = NULL;

	for (size_t i = 0; i < ARRAY_SIZE(parts); i++)
		if (parts[i] && !redis_client_is_up(parts[i]))
			bad = parts[i];
	readiness_set(&app->readiness, READINESS_CELERY, !bad,
		      bad ? redis_client_reason(bad) : NULL);
}

int celery_append_metrics(struct buf *text, const struct app *app)
{
	const struct celery *celery = app->celery;
	struct metrics_value values[CELERY_COUNT_MAX_];
	uint64_t n_held = 0;
	int r;

	if (!celery)
		return 0;
	for (size_t i = 0; i < ARRAY_SIZE(values); i++)
		values[i] = (struct metrics_value){count_labels[i], celery->n[i]};
	LIST_FOR_EACH (entry, &celery->deliveries)
		n_held++;
	r = metrics_append(text, "celery_tasks_total", "counter", "Messages of the Celery queue.",
			   values, ARRAY_SIZE(values));
	if (r < 0)
		return r;
	return metrics_append(text, "celery_tasks_held", "gauge",
			      "Messages that are taken and not acknowledged.",
			      &(struct metrics_value){"", n_held}, 1);
}
