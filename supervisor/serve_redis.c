/*
 * Theory. Requests about Redis wait here for their helper: few run at once, those of one session
 * never at the same time and always in order, so that a user that was dropped is not made again by
 * a request from before. What looks at all keys of the server may take long, and leaves room for
 * what does not. What is asked for again takes the place of what still waits. The helper gets the
 * credential from the configuration in force; the api worker, which asks, never has it. When the
 * asker ends, what it asked for is still done: only nobody is told.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/str.h"

#include "supervisor/redis_helper.h"
#include "supervisor/serve_state.h"
#include "supervisor/unseal.h"

#define LONG_MAX    4u /* of the helpers */
#define WAITING_MAX 4096u

struct pending {
	struct list link; /* serve->redis_waiting */
	struct serve *serve;
	struct serve_client *client; /* NULL: it has ended */
	struct launch_msg request;
	struct redis_helper *helper; /* NULL: waits for its turn */
	bool is_behind;              /* one about the same session came before */
};

static void run_waiting(struct serve *serve);

/* The first one about the session: no other is before it. */
static struct pending *first_of(struct serve *serve, const uint8_t session[ID_BYTES])
{
	LIST_FOR_EACH (link, &serve->redis_waiting) {
		struct pending *pending = LIST_ENTRY(link, struct pending, link);

		if (memcmp(pending->request.session, session, ID_BYTES) == 0)
			return pending;
	}
	return NULL;
}

static void finish(struct pending *pending, const struct redis_report *report)
{
	struct serve *serve = pending->serve;
	struct launch_msg answer = serve_answer(&pending->request, LAUNCH_E_NONE);
	struct pending *first;

	answer.u.redis_report = (struct redis_report){.status = REDIS_E_SERVER};
	if (report)
		answer.u.redis_report = *report;
	if (pending->client)
		peer_send(&pending->client->peer, &answer, -1);
	list_remove(&pending->link);
	serve->n_redis_waiting--;
	first = first_of(serve, pending->request.session);
	if (first)
		first->is_behind = false;
	free(pending);
}

static bool is_long(const struct pending *pending)
{
	uint32_t action = pending->request.u.redis.action;

	return action == REDIS_DROP || action == REDIS_MEASURE;
}

static void on_done(void *userdata, const struct redis_report *report)
{
	struct pending *pending = userdata;
	struct serve *serve = pending->serve;

	serve->n_redis_helpers--;
	serve->n_redis_long -= is_long(pending);
	finish(pending, report);
	run_waiting(serve);
}

static int start(struct pending *pending, struct err *err)
{
	const struct serve_options *options = &pending->serve->options;
	const struct config_answer *config = options->config;
	struct redis_request request = {
		.magic = REDIS_MAGIC,
		.version = REDIS_VERSION,
		.action = (uint16_t)pending->request.u.redis.action,
		.place = config->api.redis,
		.is_over = pending->request.u.redis.is_over,
		.max_keys = config->api.redis_max_keys,
		.max_bytes = config->api.redis_max_bytes,
	};
	const struct redis_helper_place place = {options->loop, options->host,
						 options->unsealer->null_fd};
	int r;

	memcpy(request.session, pending->request.session, sizeof(request.session));
	memcpy(request.password_hash, pending->request.u.redis.password_hash,
	       sizeof(request.password_hash));
	IGNORE_RESULT(str_copy(request.instance, sizeof(request.instance), options->instance));
	memcpy(request.root, config->api.redis_root, sizeof(request.root));
	memcpy(request.user, config->redis.user, sizeof(request.user));
	memcpy(request.password, config->redis.password, sizeof(request.password));
	r = redis_helper_start(&place, &request, on_done, pending, &pending->helper, err);
	explicit_bzero(&request, sizeof(request));
	return r;
}

static void run_waiting(struct serve *serve)
{
	LIST_FOR_EACH_SAFE (link, following, &serve->redis_waiting) {
		struct pending *pending = LIST_ENTRY(link, struct pending, link);
		struct err err = ERR_NULL;

		if (serve->n_redis_helpers >= REDIS_HELPERS_MAX)
			return;
		if (pending->helper || (is_long(pending) && serve->n_redis_long >= LONG_MAX) ||
		    pending->is_behind)
			continue;
		if (start(pending, &err) < 0) {
			log_err(LOG_LEVEL_ERROR, NULL, "the helper for Redis", &err);
			finish(pending, NULL);
			continue;
		}
		serve->n_redis_helpers++;
		serve->n_redis_long += is_long(pending);
	}
}

/* Whoever asks again after a while would else leave one more there each time. A user is made with
 * what each request says. */
static void supersede(struct serve *serve, const struct launch_msg *request)
{
	if (request->u.redis.action == REDIS_MAKE)
		return;
	LIST_FOR_EACH_SAFE (link, following, &serve->redis_waiting) {
		struct pending *pending = LIST_ENTRY(link, struct pending, link);

		if (!pending->helper &&
		    pending->request.u.redis.action == request->u.redis.action &&
		    memcmp(pending->request.session, request->session, ID_BYTES) == 0)
			finish(pending, NULL);
	}
}

int serve_redis(struct serve_client *client, const struct launch_msg *request)
{
	struct serve *serve = client->serve;
	const struct config_answer *config = serve->options.config;
	struct pending *pending = NULL;

	supersede(serve, request);
	if (config && config->api.redis.port != 0 && serve->options.unsealer &&
	    serve->n_redis_waiting < WAITING_MAX)
		pending = calloc(1, sizeof(*pending));
	if (!pending) {
		struct launch_msg answer = serve_answer(request, LAUNCH_E_STATE);

		peer_send(&client->peer, &answer, -1);
		return 0;
	}
	pending->serve = serve;
	pending->client = client;
	pending->request = *request;
	pending->is_behind = first_of(serve, request->session) != NULL;
	serve->n_redis_waiting++;
	list_append(&serve->redis_waiting, &pending->link);
	run_waiting(serve);
	return 0;
}

void serve_forget_redis(struct serve_client *client)
{
	LIST_FOR_EACH (link, &client->serve->redis_waiting) {
		struct pending *pending = LIST_ENTRY(link, struct pending, link);

		if (pending->client == client)
			pending->client = NULL;
	}
}

void serve_drop_redis(struct serve *serve)
{
	LIST_FOR_EACH_SAFE (link, following, &serve->redis_waiting) {
		struct pending *pending = LIST_ENTRY(link, struct pending, link);

		pending->helper = redis_helper_cancel(pending->helper);
		list_remove(&pending->link);
		free(pending);
	}
	serve->n_redis_waiting = serve->n_redis_helpers = serve->n_redis_long = 0;
}
