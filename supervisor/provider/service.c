/*
 * Theory. A sandbox here is an entry with a pump, from the moment that its container is being
 * started, or that one is found that lives. Its handle is a socket pair: one end goes to the api
 * worker, the other is the pump's. The pump moves nothing before it is connected, so a handle of a
 * container that is paused, where no command can be run, waits in it.
 *
 * A request is answered once, to the api worker that made it: where that has ended meanwhile the
 * answer is dropped, and the next worker asks for what lives. Its answer to ADOPT ends every handle
 * of the former one, as a shim has one connection.
 *
 * A sandbox that is being started is no container yet, or is one already: whoever asks for its end
 * waits until that is known, or what is started then would be nobody's.
 *
 * A stream that ends is replaced by another one, for so long: an engine that is started again, or a
 * network that cuts, ends no handle and loses no byte of it. The end of a pump is the end of its
 * handle, and the api worker's to act on: it knows whether the sandbox is meant to live.
 */
#include "supervisor/provider/service.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/launch.h"
#include "base/list.h"
#include "base/log.h"
#include "base/plan.h"
#include "base/sockmsg.h"

#include "supervisor/peer.h"
#include "supervisor/provider/pump.h"

#define MAX_QUEUED   4096u
#define MAX_REQUESTS 8192u /* twice what an api worker has on the way */

/* Streams that are asked for at once, but for those of starts: each is a process that the engine
 * makes, and after a start of the api worker every sandbox wants one. */
#define MAX_CONNECTING 4u

#define RETRY_AFTER (250 * USEC_PER_MS)
#define RETRY_FOR   (30 * USEC_PER_SEC) /* from the end of a stream on */
/* And as many tries at least: where each takes seconds there is no time for more than a few, and
 * one in a full group of processes is a matter of luck. */
#define RETRY_TRIES 20u

struct service {
	struct loop *loop;
	struct engine *engine;
	const struct image *policy;
	struct peer peer;
	bool is_linked;
	uint32_t link; /* counts them: whose answer it is */
	uint32_t n_requests;
	struct list sandboxes;
	struct list unconnected; /* sandbox->turn: they wait for theirs */
	uint32_t n_connecting;
};

struct sandbox {
	struct list link; /* service->sandboxes */
	struct list turn; /* service->unconnected, or of itself */
	struct service *service;
	struct id id;
	struct pump *pump; /* NULL: its handle has ended, or is none yet */
	uint32_t n_pumps;  /* counts them: whose stream it is */
	struct loop_source *retry;
	usec_t give_up_at; /* no other stream is looked for later, after n_tries for one */
	uint32_t n_tries;
	bool is_paused;
	bool is_starting;
	struct list kills; /* struct request: they wait for the end of the start */
};

/* A request that waits for the engine. */
struct request {
	struct list waiting; /* sandbox->kills */
	struct service *service;
	uint32_t link;
	uint32_t serial;
	uint16_t type;
	struct id id;
	uint32_t n_pumps;
	int handle_fd; /* to go with the answer; -1: none */
};

/* --- answers --------------------------------------------------------------------------------- */

static struct launch_msg answer_to(const struct request *request, enum launch_error error)
{
	struct launch_msg answer =
		launch_message(request->type + 1, request->serial, request->id.bytes);

	answer.error = error;
	return answer;
}

/* fd (or -1) becomes the peer's. */
static void send_answer(const struct request *request, const struct launch_msg *answer, int fd)
{
	struct service *service = request->service;

	if (service->is_linked && request->link == service->link)
		peer_send(&service->peer, answer, fd);
	else
		(void)fd_close(fd);
}

static struct request *request_free(struct request *request)
{
	request->handle_fd = fd_close(request->handle_fd);
	request->service->n_requests--;
	free(request);
	return NULL;
}

static void answer_result(struct request *request, int result, const char *step)
{
	struct launch_msg answer = answer_to(request, LAUNCH_E_NONE);

	if (result == -ENOENT && request->type != LAUNCH_START) {
		answer.error = LAUNCH_E_NOT_FOUND;
	} else if (result < 0) {
		answer.error = LAUNCH_E_STEP;
		(void)err_fail(&answer.u.err, result, step, "engine");
	}
	send_answer(request, &answer, result < 0 ? -1 : TAKE_FD(request->handle_fd));
	(void)request_free(request);
}

static struct request *request_new(struct service *service, const struct id *id)
{
	struct request *request = calloc(1, sizeof(*request));

	if (!request)
		return NULL;
	*request = (struct request){.service = service, .id = *id, .handle_fd = -1};
	service->n_requests++;
	return request;
}

/* --- sandboxes and their handles ------------------------------------------------------------- */

static struct sandbox *find(struct service *service, const struct id *id)
{
	LIST_FOR_EACH (link, &service->sandboxes) {
		struct sandbox *sandbox = LIST_ENTRY(link, struct sandbox, link);

		if (id_equal(&sandbox->id, id))
			return sandbox;
	}
	return NULL;
}

static int on_retry(void *userdata, uint32_t events);

static struct sandbox *get(struct service *service, const struct id *id)
{
	struct sandbox *sandbox = find(service, id);

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

static void forget(struct service *service, const struct id *id)
{
	struct sandbox *sandbox = find(service, id);

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

static void on_pump_ended(void *userdata)
{
	struct sandbox *sandbox = userdata;

	sandbox->pump = pump_free(sandbox->pump);
}

static void on_pump_lost(void *userdata, bool has_said);

static const struct pump_events pump_events = {
	.ended = on_pump_ended,
	.lost = on_pump_lost,
};

/* A pump that is not connected yet. *ret_fd: the other end of its handle. */
static int open_handle(struct sandbox *sandbox, int *ret_fd)
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

/* The stream of the pump that it was asked for, or nobody's any more. fd is ours. */
static int take_stream(struct service *service, const struct id *id, uint32_t n_pumps, int fd)
{
	struct sandbox *sandbox = find(service, id);
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

/* --- start ----------------------------------------------------------------------------------- */

/* What was asked for has no owner: its api worker has ended, or it could not be connected. */
static void on_swept(void *userdata, int result)
{
	struct id *id = userdata;
	struct log_context context = {.session = id};

	if (result < 0)
		log_line(LOG_LEVEL_ERROR, &context, "a container is left behind", "errno=%d",
			 -result);
	free(id);
}

static void sweep(struct service *service, const struct id *id)
{
	struct id *copy = malloc(sizeof(*copy));

	forget(service, id);
	if (!copy)
		return;
	*copy = *id;
	if (engine_remove(service->engine, id, on_swept, copy) < 0)
		free(copy);
}

static void on_removed(void *userdata, int result);

/* Well or not; what was made of one that failed is being removed, or never was there. */
static void end_start(struct service *service, const struct id *id, bool has_failed)
{
	struct sandbox *sandbox = find(service, id);

	if (!sandbox)
		return;
	sandbox->is_starting = false;
	LIST_FOR_EACH_SAFE (link, following, &sandbox->kills) {
		struct request *request = LIST_ENTRY(link, struct request, waiting);
		int r = engine_remove(service->engine, id, on_removed, request);

		list_remove(link);
		if (r < 0)
			answer_result(request, r, "remove");
	}
	if (has_failed)
		forget(service, id);
}

static void on_connected(void *userdata, int fd)
{
	struct request *request = userdata;
	int r = take_stream(request->service, &request->id, request->n_pumps, fd);

	end_start(request->service, &request->id, r < 0);
	if (r < 0 || request->link != request->service->link)
		sweep(request->service, &request->id);
	answer_result(request, r, "connect");
}

static void on_started(void *userdata, int result)
{
	struct request *request = userdata;
	struct service *service = request->service;
	struct sandbox *sandbox = find(service, &request->id); /* it is starting, so it is there */
	int r = result;

	if (r == 0)
		r = open_handle(sandbox, &request->handle_fd);
	if (r == 0) {
		request->n_pumps = sandbox->n_pumps;
		r = engine_connect(service->engine, &request->id, on_connected, request);
	}
	if (r == 0)
		return;
	end_start(service, &request->id, true);
	if (result == 0)
		sweep(service, &request->id);
	answer_result(request, r, "start");
}

/* The profile that both sides mean, or NULL. */
static const struct policy_profile *profile_of(const struct service *service,
					       const struct plan *plan)
{
	const struct policy_profile *profile = image_profile(service->policy, plan->profile);

	return profile && profile->kind == POLICY_KIND_SESSION &&
			       memcmp(profile->hash, plan->profile_hash, sizeof(profile->hash)) == 0
		       ? profile
		       : NULL;
}

static int start(struct request *request, const struct launch_msg *msg)
{
	const struct plan *plan = &msg->u.start.plan;
	const struct policy_profile *profile;
	struct sandbox *sandbox;
	struct launch_msg answer;
	int r;

	if (memcmp(msg->session, plan->session, ID_BYTES) != 0)
		return -EPROTO;
	profile = plan_check(plan, NULL) < 0 ? NULL : profile_of(request->service, plan);
	if (!profile || msg->u.start.secrets.n > 0) {
		answer = answer_to(request, LAUNCH_E_PLAN);
		send_answer(request, &answer, -1);
		(void)request_free(request);
		return 0;
	}
	sandbox = get(request->service, &request->id);
	if (!sandbox)
		return -ENOMEM;
	if (sandbox->is_starting)
		return -EBUSY;
	r = engine_start(request->service->engine, plan, profile->name, on_started, request);
	sandbox->is_starting = r == 0;
	if (r < 0)
		forget(request->service, &request->id);
	return r;
}

/* --- end, pause, stat ------------------------------------------------------------------------ */

static void on_removed(void *userdata, int result)
{
	struct request *request = userdata;

	if (result == 0)
		forget(request->service, &request->id);
	answer_result(request, result, "remove");
}

static int kill_one(struct request *request)
{
	struct sandbox *sandbox = find(request->service, &request->id);

	if (!sandbox || !sandbox->is_starting)
		return engine_remove(request->service->engine, &request->id, on_removed, request);
	list_append(&sandbox->kills, &request->waiting);
	return 0;
}

/* One that is gone: who resumes it waits for the end of its handle, and no stream says so while it
 * is paused. */
static void note_absent(const struct request *request, int result)
{
	if (result == -ENOENT)
		forget(request->service, &request->id);
}

static void on_frozen(void *userdata, int result)
{
	struct request *request = userdata;
	struct sandbox *sandbox = find(request->service, &request->id);
	struct launch_msg answer = answer_to(request, LAUNCH_E_NONE);

	if (result < 0) {
		note_absent(request, result);
		answer_result(request, result, "pause");
		return;
	}
	if (sandbox)
		sandbox->is_paused = true;
	answer.u.stat.frozen = 1;
	send_answer(request, &answer, -1);
	(void)request_free(request);
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
	struct sandbox *sandbox = find(request->service, &request->id);

	if (!sandbox || !sandbox->pump || sandbox->n_pumps != request->n_pumps ||
	    is_given_up(sandbox))
		return false;
	try_again_later(sandbox);
	return true;
}

static void connect_next(struct service *service);

/* A handle that waited for it. */
static void on_late_stream(void *userdata, int fd)
{
	struct request *request = userdata;
	struct service *service = request->service;

	service->n_connecting--;
	if ((fd >= 0 || fd == -ENOENT || !is_retried(request)) &&
	    take_stream(service, &request->id, request->n_pumps, fd) < 0)
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

static void want_stream(struct sandbox *sandbox)
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

static void on_thawed(void *userdata, int result)
{
	struct request *request = userdata;
	struct sandbox *sandbox = find(request->service, &request->id);

	if (result == 0 && sandbox) {
		sandbox->is_paused = false;
		want_stream(sandbox);
	}
	note_absent(request, result);
	answer_result(request, result, "unpause");
}

static void on_stat(void *userdata, int result, const struct launch_stat *stat)
{
	struct request *request = userdata;
	struct sandbox *sandbox = find(request->service, &request->id);
	struct launch_msg answer = answer_to(request, LAUNCH_E_NONE);

	if (result < 0) {
		answer_result(request, result, "stats");
		return;
	}
	answer.u.stat = *stat;
	answer.u.stat.frozen = sandbox && sandbox->is_paused;
	send_answer(request, &answer, -1);
	(void)request_free(request);
}

/* --- what lives ------------------------------------------------------------------------------ */

static void on_each(void *userdata, const struct id *id, bool is_paused, bool lives)
{
	struct request *request = userdata;
	struct service *service = request->service;
	struct request one = *request;
	struct launch_msg answer;
	struct sandbox *sandbox;
	int fd = -1;

	sandbox = find(service, id);
	if (sandbox && sandbox->is_starting)
		return; /* for a former api worker: it is swept when it has started */
	if (!lives) {
		sweep(service, id);
		return;
	}
	sandbox = get(service, id);
	if (!sandbox || open_handle(sandbox, &fd) < 0)
		return; /* not told: it is as if it were gone, and the next use replaces it */
	sandbox->is_paused = is_paused;
	if (!is_paused)
		want_stream(sandbox);
	one.id = *id;
	answer = answer_to(&one, LAUNCH_E_NONE);
	answer.more = 1;
	answer.u.adopted.is_frozen = is_paused;
	send_answer(&one, &answer, fd);
}

/* Where the engine does not say what lives this process ends, and the next one asks: the api worker
 * makes nothing before it knows. */
static void on_listed(void *userdata, int result)
{
	struct request *request = userdata;
	struct loop *loop = request->service->loop;

	answer_result(request, result, "list");
	if (result < 0)
		loop_quit(loop, result);
}

/* --- the api worker -------------------------------------------------------------------------- */

static int begin(struct request *request, const struct launch_msg *msg)
{
	struct service *service = request->service;
	struct engine *engine = service->engine;

	switch (msg->type) {
	case LAUNCH_START:
		return start(request, msg);
	case LAUNCH_KILL:
		return kill_one(request);
	case LAUNCH_FREEZE:
	case LAUNCH_JOIN:
		return engine_pause(engine, &request->id, true, on_frozen, request);
	case LAUNCH_THAW:
	case LAUNCH_PART: /* its shim has stopped its commands before the pause */
		return engine_pause(engine, &request->id, false, on_thawed, request);
	case LAUNCH_STAT:
		return engine_stat(engine, &request->id, on_stat, request);
	case LAUNCH_ADOPT:
		return engine_list(engine, &(struct engine_list){.each = on_each,
								 .done = on_listed,
								 .userdata = request});
	default:
		return -EPROTO;
	}
}

static int on_request(struct peer *peer, const struct launch_msg *msg)
{
	struct service *service = peer->userdata;
	struct request *request;
	struct id id;
	int r;

	memcpy(id.bytes, msg->session, ID_BYTES);
	request = request_new(service, &id);
	if (!request)
		return -ENOMEM;
	request->link = service->link;
	request->serial = msg->serial;
	request->type = msg->type;
	r = service->n_requests > MAX_REQUESTS ? -ENOBUFS : begin(request, msg);
	if (r == -EPROTO)
		(void)request_free(request);
	else if (r < 0)
		answer_result(request, r, "ask");
	return r == -EPROTO ? r : 0;
}

static void on_drained(struct peer *peer)
{
	(void)peer;
}

static void on_lost(struct peer *peer)
{
	struct service *service = peer->userdata;

	peer_done(peer);
	service->is_linked = false;
}

static const struct peer_events peer_events = {
	.request = on_request,
	.drained = on_drained,
	.lost = on_lost,
};

void service_link(struct service *service, int fd)
{
	if (service->is_linked)
		peer_done(&service->peer);
	service->link++;
	service->is_linked =
		peer_open(&service->peer, service->loop, fd, "api", &peer_events, service) == 0;
	if (!service->is_linked) {
		/* It sees the end of its socket. */
		(void)fd_close(fd);
		return;
	}
	service->peer.max_queued = MAX_QUEUED;
}

int service_new(struct loop *loop, struct engine *engine, const struct image *policy,
		struct service **ret_service)
{
	struct service *service = calloc(1, sizeof(*service));

	if (!service)
		return -ENOMEM;
	service->loop = loop;
	service->engine = engine;
	service->policy = policy;
	list_init(&service->sandboxes);
	list_init(&service->unconnected);
	*ret_service = service;
	return 0;
}
