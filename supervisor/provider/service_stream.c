/*
 * Theory. The handle of a sandbox lives longer than its streams: one that ends, or is refused, is
 * asked for again for so long. Few are asked for at once, the others wait for their turn; one that
 * is paused wants none before it goes on.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/sockmsg.h"

#include "supervisor/provider/pump.h"
#include "supervisor/provider/service_state.h"

/* Streams that are asked for at once, but for those of starts: each is a process that the engine
 * makes, and after a start of the api worker every sandbox wants one. */
#define MAX_CONNECTING 4u

#define RETRY_AFTER (250 * USEC_PER_MS)
#define RETRY_FOR   (30 * USEC_PER_SEC) /* from the end of a stream on */
/* And as many tries at least: where each takes seconds there is no time for more than a few, and
 * one in a full group of processes is a matter of luck. */
#define RETRY_TRIES 20u

struct sandbox *sandbox_find(struct service *service, const struct id *id)
{
	LIST_FOR_EACH (link, &service->sandboxes) {
		struct sandbox *sandbox = LIST_ENTRY(link, struct sandbox, link);

		if (id_equal(&sandbox->id, id))
			return sandbox;
	}
	return NULL;
}

static void try_again_later(struct sandbox *sandbox)
{
	loop_timer_set(sandbox->retry, clock_add(clock_boottime(), RETRY_AFTER));
}

static bool is_given_up(const struct sandbox *sandbox)
{
	return clock_boottime() >= sandbox->give_up_at && sandbox->n_tries >= RETRY_TRIES;
}

/* Whether it is still looked for; then it will be. */
static bool is_retried(const struct request *request)
{
	struct sandbox *sandbox = sandbox_find(request->service, &request->id);

	if (!sandbox || !sandbox->pump || sandbox->n_pumps != request->n_pumps ||
	    is_given_up(sandbox))
		return false;
	try_again_later(sandbox);
	return true;
}

static void connect_next(struct service *service);

int sandbox_take_stream(struct service *service, const struct id *id, uint32_t n_pumps, int fd)
{
	struct sandbox *sandbox = sandbox_find(service, id);
	int r = fd;

	if (!sandbox || !sandbox->pump || sandbox->n_pumps != n_pumps) {
		(void)fd_close(fd);
		return -ECANCELED;
	}
	if (fd >= 0)
		r = pump_connect(sandbox->pump, fd);
	if (r < 0)
		sandbox->pump = pump_free(sandbox->pump);
	return r < 0 ? r : 0;
}

/* A handle that waited for it. */
static void on_late_stream(void *userdata, int fd)
{
	struct request *request = userdata;
	struct service *service = request->service;

	service->n_connecting--;
	if ((fd >= 0 || fd == -ENOENT || !is_retried(request)) &&
	    sandbox_take_stream(service, &request->id, request->n_pumps, fd) < 0)
		log_line(LOG_LEVEL_WARNING, &(struct log_context){.session = &request->id},
			 "a sandbox cannot be connected", "errno=%d", fd < 0 ? -fd : 0);
	(void)request_free(request);
	connect_next(service);
}

/* request: made for it, and freed with its end. */
static void connect_now(struct sandbox *sandbox)
{
	struct service *service = sandbox->service;
	struct request *request = request_new(service, &sandbox->id);

	if (request) {
		request->n_pumps = sandbox->n_pumps;
		if (engine_connect(service->engine, &sandbox->id, on_late_stream, request) == 0) {
			sandbox->n_tries++;
			service->n_connecting++;
			return;
		}
		(void)request_free(request);
	}
	/* The api worker sees the end of its handle. */
	sandbox->pump = pump_free(sandbox->pump);
}

/* One that is paused gets its stream when it goes on. */
static void connect_next(struct service *service)
{
	while (service->n_connecting < MAX_CONNECTING && !list_empty(&service->unconnected)) {
		struct sandbox *sandbox =
			LIST_ENTRY(service->unconnected.next, struct sandbox, turn);

		list_remove(&sandbox->turn);
		if (sandbox->pump && !pump_is_connected(sandbox->pump) && !sandbox->is_paused)
			connect_now(sandbox);
	}
}

/* When it is its turn. */
static void connect_late(struct sandbox *sandbox)
{
	if (list_empty(&sandbox->turn))
		list_append(&sandbox->service->unconnected, &sandbox->turn);
	connect_next(sandbox->service);
}

/* From now on for so long. */
static void begin_tries(struct sandbox *sandbox)
{
	sandbox->give_up_at = clock_add(clock_boottime(), RETRY_FOR);
	sandbox->n_tries = 0;
}

void sandbox_want_stream(struct sandbox *sandbox)
{
	begin_tries(sandbox);
	connect_late(sandbox);
}

static int on_retry(void *userdata, uint32_t events)
{
	struct sandbox *sandbox = userdata;

	(void)events;
	connect_late(sandbox);
	return 0;
}

/* One that said nothing is none: the engine took the request, and what was to serve it did not
 * start. */
static void on_pump_lost(void *userdata, bool has_said)
{
	struct sandbox *sandbox = userdata;
	const struct log_context context = {.session = &sandbox->id};

	log_line(has_said ? LOG_LEVEL_INFO : LOG_LEVEL_DEBUG, &context,
		 "the engine has ended a stream", NULL);
	if (has_said)
		begin_tries(sandbox);
	if (!is_given_up(sandbox)) {
		try_again_later(sandbox);
		return;
	}
	log_line(LOG_LEVEL_WARNING, &context, "a sandbox cannot be connected", NULL);
	sandbox->pump = pump_free(sandbox->pump);
}

static void on_pump_ended(void *userdata)
{
	struct sandbox *sandbox = userdata;

	sandbox->pump = pump_free(sandbox->pump);
}

static const struct pump_events pump_events = {
	.ended = on_pump_ended,
	.lost = on_pump_lost,
};

int sandbox_open_handle(struct sandbox *sandbox, int *ret_fd)
{
	int fds[2];
	int r;

	sandbox->pump = pump_free(sandbox->pump);
	r = sockmsg_pair(fds, 1);
	if (r < 0)
		return r;
	r = pump_new(sandbox->service->loop, fds[0], sandbox->service->engine->calls->wraps_streams,
		     &pump_events, sandbox, &sandbox->pump);
	if (r < 0) {
		(void)fd_close(fds[0]);
		(void)fd_close(fds[1]);
		return r;
	}
	sandbox->n_pumps++;
	*ret_fd = fds[1];
	return 0;
}

struct sandbox *sandbox_get(struct service *service, const struct id *id)
{
	struct sandbox *sandbox = sandbox_find(service, id);

	if (sandbox)
		return sandbox;
	sandbox = calloc(1, sizeof(*sandbox));
	if (!sandbox)
		return NULL;
	sandbox->service = service;
	sandbox->id = *id;
	if (loop_add_timer(service->loop, USEC_NEVER, on_retry, sandbox, &sandbox->retry) < 0) {
		free(sandbox);
		return NULL;
	}
	list_init(&sandbox->turn);
	list_init(&sandbox->kills);
	list_append(&service->sandboxes, &sandbox->link);
	return sandbox;
}

void sandbox_forget(struct service *service, const struct id *id)
{
	struct sandbox *sandbox = sandbox_find(service, id);

	if (!sandbox)
		return;
	sandbox->pump = pump_free(sandbox->pump);
	if (sandbox->is_starting)
		return; /* the end of the start comes */
	sandbox->retry = loop_remove(sandbox->retry);
	list_remove(&sandbox->turn);
	list_remove(&sandbox->link);
	free(sandbox);
}
