/*
 * Theory. A publication is a reader of a task's frames, as a stream is: a position, not a queue.
 * What it has not published lies in memory or in the store anyway.
 *
 *   held      nobody has subscribed yet: pub/sub keeps nothing for later. The server is asked for
 *             all of them in one question, until a subscriber is there or the time is over.
 *   flowing   each frame that readers may see is published; the server answers in order.
 *   over      the terminal frame was answered.
 *
 * When the connection is lost the position goes back to the last frame that was answered, and the
 * subscribers, whose connection was lost too, are waited for again. So one that stayed may get a
 * frame twice (they are numbered), and none is left out. What has ended is given up when the
 * server stays away.
 */
#include "supervisor/api/platform.h"

#include <errno.h>
#include <hiredis.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/str.h"

#include "supervisor/api/redis/client.h"

#define PUBLICATIONS_MAX 4096u
#define ASK_EVERY        (100 * USEC_PER_MS)
#define ASK_MAX          512u                /* channels in one question */
#define LOOK_EVERY       (1 * USEC_PER_SEC)  /* for what is given up */
#define GIVE_UP_AFTER    (10 * USEC_PER_SEC) /* without a server */
#define ON_ITS_WAY_MAX   64u                 /* of one task */
#define READ_BYTES       ((size_t)64 * 1024)
#define CHANNEL_BYTES    (CONFIG_TEXT_BYTES + 8 + ID_TEXT_BYTES)

struct publication {
	struct list link; /* platform->publications, oldest first */
	struct platform *platform;
	struct id task;
	uint32_t sent;     /* up to here */
	uint32_t answered; /* up to here */
	uint32_t n_on_way;
	usec_t since; /* boottime: of the hold, of the end, of the loss, whichever is latest */
	bool is_held;
	uint32_t read_from; /* the store was asked for what is behind */
	bool reading;
	bool has_ended; /* the terminal frame was sent, or all that there is */
};

struct platform {
	struct app *app;
	struct redis_client *redis;
	struct list publications;
	size_t n_publications;
	sd_event_source *timer;
	sd_event_source *deferred;
	bool is_asking;
	bool was_refused; /* said once for each connection */
	struct platform_counters counters;
};

/* A frame on its way. */
struct publish {
	struct publication *publication;
	uint32_t seq;
};

static int channel_of(const struct platform *platform, const struct id *task,
		      char text[CHANNEL_BYTES])
{
	char id[ID_TEXT_BYTES];

	id_format(task, id);
	return str_format(text, CHANNEL_BYTES, "%stask:%s",
			  platform->app->config->platform.frames_prefix, id);
}

static usec_t hold_of(const struct app *app)
{
	/* Whoever leaves has no time for those who are not there yet. */
	return app->phase == APP_PHASE_SERVING || app->phase == APP_PHASE_GREETING
		       ? app->config->platform.frames_hold_s * USEC_PER_SEC
		       : 0;
}

static void pump_later(struct platform *platform)
{
	(void)sd_event_source_set_enabled(platform->deferred, SD_EVENT_ONESHOT);
}

static void publication_free(struct publication *publication)
{
	list_remove(&publication->link);
	publication->platform->n_publications--;
	free(publication);
}

/* --- publishing ------------------------------------------------------------------------------ */

/* Once for each connection; the frames are counted. */
static void note_refused(struct platform *platform)
{
	if (!platform->was_refused)
		log_line(LOG_LEVEL_WARNING, NULL, "frames are not published",
			 "reason=\"the server refuses\"");
	platform->was_refused = true;
}

static void on_published(void *userdata, const struct redisReply *reply)
{
	struct publish *publish = userdata;
	struct publication *publication = publish->publication;
	struct platform *platform = publication->platform;

	publication->n_on_way--;
	if (reply) {
		publication->answered = publish->seq;
		if (reply->type == REDIS_REPLY_INTEGER) {
			platform->counters.n_published++;
			platform->counters.n_unheard += reply->integer == 0;
		} else {
			platform->counters.n_given_up++;
			note_refused(platform);
		}
		pump_later(platform);
	}
	free(publish);
}

/* -EAGAIN: not now. */
static int publish_frame(struct publication *publication, uint32_t seq, const char *text,
			 size_t size)
{
	struct platform *platform = publication->platform;
	char channel[CHANNEL_BYTES];
	const char *words[] = {"PUBLISH", channel, text};
	size_t sizes[] = {strlen("PUBLISH"), 0, size};
	struct publish *publish;

	if (publication->n_on_way >= ON_ITS_WAY_MAX ||
	    channel_of(platform, &publication->task, channel) < 0)
		return -EAGAIN;
	sizes[1] = strlen(channel);
	publish = malloc(sizeof(*publish));
	if (!publish)
		return -EAGAIN;
	*publish = (struct publish){publication, seq};
	if (redis_client_send(platform->redis,
			      &(struct redis_command){.word = words, .size = sizes, .n = 3},
			      on_published, publish) < 0) {
		free(publish);
		return -EAGAIN;
	}
	publication->n_on_way++;
	publication->sent = seq;
	return 0;
}

static void on_read(void *userdata, enum store_result result, const struct store_frame *frames,
		    size_t n, bool more)
{
	struct publication *publication = userdata;
	const struct job *job;
	int r = 0;

	publication->reading = false;
	if (result != STORE_OK && result != STORE_NOT_FOUND)
		return; /* the timer asks again */
	/* The connection was lost meanwhile, and the position with it. */
	if (publication->sent != publication->read_from) {
		pump_later(publication->platform);
		return;
	}
	for (size_t i = 0; r == 0 && i < n; i++) {
		r = publish_frame(publication, frames[i].seq, frames[i].text, frames[i].size);
		if (r == 0 && frames_stage_terminal(frames[i].stage))
			publication->has_ended = true;
	}
	/* Not at once: what it has answered, or the timer, makes room. */
	if (r < 0)
		return;
	pump_later(publication->platform);
	if (more)
		return;
	job = job_table_find(&publication->platform->app->tasks, &publication->task);
	/* No task in memory makes more; what retention has deleted does not come again. */
	if (!job)
		publication->has_ended = true;
	else if (publication->sent < job->frames.trimmed_seq)
		publication->sent = job->frames.trimmed_seq;
}

static void read_on(struct publication *publication)
{
	struct app *app = publication->platform->app;

	if (publication->n_on_way >= ON_ITS_WAY_MAX)
		return;
	publication->read_from = publication->sent;
	publication->reading = store_frames_get(app->store, &publication->task, publication->sent,
						READ_BYTES, on_read, publication) >= 0;
}

static void publish_more(struct publication *publication)
{
	struct app *app = publication->platform->app;
	const struct job *job = job_table_find(&app->tasks, &publication->task);
	const struct frames_line *line;

	if (publication->reading || publication->has_ended)
		return;
	if (!job || frames_need_store(&job->frames, publication->sent)) {
		read_on(publication);
		return;
	}
	while (!publication->has_ended &&
	       (line = frames_next_visible(&job->frames, publication->sent)) &&
	       publish_frame(publication, line->seq, line->text, line->size) == 0)
		publication->has_ended = frames_stage_terminal(line->stage);
	if (frames_finished(&job->frames, publication->sent))
		publication->has_ended = true;
}

/* --- holding --------------------------------------------------------------------------------- */

static bool is_over(const struct publication *publication)
{
	return publication->has_ended && publication->n_on_way == 0 && !publication->reading;
}

static void pump(struct platform *platform)
{
	LIST_FOR_EACH_SAFE (link, following, &platform->publications) {
		struct publication *publication = LIST_ENTRY(link, struct publication, link);

		if (!publication->is_held && redis_client_is_up(platform->redis))
			publish_more(publication);
		if (is_over(publication))
			publication_free(publication);
	}
}

static int on_deferred(sd_event_source *source, void *userdata)
{
	(void)source;
	pump(userdata);
	return 0;
}

/* The answer names channels and numbers in turn, in the order of the question, which is that of the
 * list. */
static void on_subscribers(void *userdata, const struct redisReply *reply)
{
	struct platform *platform = userdata;
	struct list *link = platform->publications.next;

	platform->is_asking = false;
	if (!reply || reply->type != REDIS_REPLY_ARRAY)
		return;
	for (size_t i = 0; i + 1 < reply->elements; i += 2) {
		const struct redisReply *name = reply->element[i];
		const struct redisReply *number = reply->element[i + 1];

		if (name->type != REDIS_REPLY_STRING || number->type != REDIS_REPLY_INTEGER)
			return;
		for (; link != &platform->publications; link = link->next) {
			struct publication *publication =
				LIST_ENTRY(link, struct publication, link);
			char channel[CHANNEL_BYTES];

			if (channel_of(platform, &publication->task, channel) < 0 ||
			    !str_equal(channel, name->str))
				continue;
			publication->is_held = publication->is_held && number->integer == 0;
			break;
		}
	}
	pump_later(platform);
}

static void ask_for_subscribers(struct platform *platform)
{
	const char *words[2 + ASK_MAX] = {"PUBSUB", "NUMSUB"};
	AUTO_FREE char *channels = malloc((size_t)ASK_MAX * CHANNEL_BYTES);
	size_t n = 0;

	if (!channels || platform->is_asking)
		return;
	LIST_FOR_EACH (link, &platform->publications) {
		const struct publication *publication = LIST_ENTRY(link, struct publication, link);
		char *channel = channels + n * CHANNEL_BYTES;

		if (!publication->is_held || channel_of(platform, &publication->task, channel) < 0)
			continue;
		words[2 + n++] = channel;
		if (n == ASK_MAX)
			break; /* the others when these are over */
	}
	platform->is_asking =
		n > 0 && redis_client_send(platform->redis,
					   &(struct redis_command){.word = words, .n = 2 + n},
					   on_subscribers, platform) >= 0;
}

/* How many frames nobody will publish any more. */
static void give_up(struct platform *platform, struct publication *publication)
{
	const struct job *job = job_table_find(&platform->app->tasks, &publication->task);

	if (job)
		platform->counters.n_given_up += job->frames.next_seq - 1 - publication->answered;
	else
		platform->counters.n_given_up++;
	publication_free(publication);
}

static bool is_ended(const struct platform *platform, const struct publication *publication)
{
	const struct job *job = job_table_find(&platform->app->tasks, &publication->task);

	return !job || job_state_ended(job->state);
}

/* True: it is looked at again soon. */
static bool look_at(struct platform *platform, struct publication *publication, usec_t now)
{
	bool is_up = redis_client_is_up(platform->redis);

	if (publication->is_held && now >= clock_add(publication->since, hold_of(platform->app)))
		publication->is_held = false;
	if (is_up || !is_ended(platform, publication))
		return publication->is_held;
	if (publication->n_on_way == 0 && !publication->reading &&
	    now >= clock_add(publication->since, GIVE_UP_AFTER))
		give_up(platform, publication);
	return false;
}

static int on_timer(sd_event_source *source, uint64_t at, void *userdata)
{
	struct platform *platform = userdata;
	usec_t now = clock_boottime();
	bool soon = false;

	(void)at;
	LIST_FOR_EACH_SAFE (link, following, &platform->publications)
		soon |= look_at(platform, LIST_ENTRY(link, struct publication, link), now);
	if (soon && redis_client_is_up(platform->redis))
		ask_for_subscribers(platform);
	pump(platform);
	if (list_empty(&platform->publications))
		return sd_event_source_set_enabled(source, SD_EVENT_OFF);
	(void)sd_event_source_set_time(source, clock_add(now, soon ? ASK_EVERY : LOOK_EVERY));
	return sd_event_source_set_enabled(source, SD_EVENT_ONESHOT);
}

static void look_now(struct platform *platform)
{
	(void)sd_event_source_set_time(platform->timer, 0);
	(void)sd_event_source_set_enabled(platform->timer, SD_EVENT_ONESHOT);
}

/* --- tasks and connections ------------------------------------------------------------------- */

static void begin(struct platform *platform, struct job *job)
{
	struct publication *publication = calloc(1, sizeof(*publication));

	job->is_announced = true;
	if (!publication || platform->n_publications >= PUBLICATIONS_MAX) {
		free(publication);
		platform->counters.n_given_up++;
		return;
	}
	publication->platform = platform;
	publication->task = job->id;
	/* What an earlier worker stored was an earlier worker's to publish. */
	publication->sent = publication->answered = job->frames.trimmed_seq;
	publication->since = clock_boottime();
	publication->is_held = hold_of(platform->app) > 0;
	list_append(&platform->publications, &publication->link);
	platform->n_publications++;
	look_now(platform);
}

void platform_frames(struct app *app, struct job *job)
{
	struct platform *platform = app->platform;

	if (!platform)
		return;
	if (!job->is_announced)
		begin(platform, job);
	pump_later(platform);
}

static void on_connected(void *userdata)
{
	struct platform *platform = userdata;

	platform->was_refused = false;
	look_now(platform);
}

static void on_lost(void *userdata)
{
	struct platform *platform = userdata;
	usec_t now = clock_boottime();

	LIST_FOR_EACH (link, &platform->publications) {
		struct publication *publication = LIST_ENTRY(link, struct publication, link);

		publication->sent = publication->answered;
		publication->has_ended = false;
		publication->since = now;
		publication->is_held = hold_of(platform->app) > 0;
	}
}

bool platform_is_idle(const struct app *app)
{
	return !app->platform || list_empty(&app->platform->publications) ||
	       !redis_client_is_up(app->platform->redis);
}

static int add_sources(struct platform *platform)
{
	sd_event *event = platform->app->event;
	int r = sd_event_add_time(event, &platform->timer, CLOCK_BOOTTIME, USEC_NEVER, USEC_PER_MS,
				  on_timer, platform);

	if (r >= 0)
		r = sd_event_source_set_enabled(platform->timer, SD_EVENT_OFF);
	if (r >= 0)
		r = sd_event_add_defer(event, &platform->deferred, on_deferred, platform);
	return r < 0 ? r : sd_event_source_set_enabled(platform->deferred, SD_EVENT_OFF);
}

int platform_start(struct app *app)
{
	static const struct redis_client_events events = {
		.connected = on_connected,
		.lost = on_lost,
	};
	const struct redis_client_options options = {
		.event = app->event,
		.names = app->names,
		.server = &app->config->platform.redis,
		.name = "platform",
	};
	struct platform *platform;
	int r;

	if (app->config->platform.redis.place.port == 0)
		return 0;
	platform = app->platform = calloc(1, sizeof(*platform));
	if (!platform)
		return -ENOMEM;
	platform->app = app;
	list_init(&platform->publications);
	r = add_sources(platform);
	return r < 0 ? r : redis_client_new(&options, &events, platform, &platform->redis);
}

void platform_stop(struct app *app)
{
	struct platform *platform = app->platform;

	if (!platform)
		return;
	platform->redis = redis_client_free(platform->redis);
	LIST_FOR_EACH_SAFE (link, following, &platform->publications)
		publication_free(LIST_ENTRY(link, struct publication, link));
	platform->timer = sd_event_source_disable_unref(platform->timer);
	platform->deferred = sd_event_source_disable_unref(platform->deferred);
	free(platform);
	app->platform = NULL;
}

void platform_observe(struct app *app)
{
	const struct redis_client *redis = app->platform ? app->platform->redis : NULL;

	readiness_set(&app->readiness, READINESS_REDIS, !redis || redis_client_is_up(redis),
		      redis ? redis_client_reason(redis) : NULL);
}

struct platform_counters platform_counters(const struct app *app)
{
	return app->platform ? app->platform->counters : (struct platform_counters){0};
}
