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
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/launch.h"
#include "base/list.h"
#include "base/log.h"
#include "base/plan.h"

#include "supervisor/peer.h"
#include "supervisor/provider/pump.h"
#include "supervisor/provider/service_state.h"

#define MAX_QUEUED   4096u
#define MAX_REQUESTS 8192u /* twice what an api worker has on the way */

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

struct request *request_free(struct request *request)
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

struct request *request_new(struct service *service, const struct id *id)
{
	struct request *request = calloc(1, sizeof(*request));

	if (!request)
		return NULL;
	*request = (struct request){.service = service, .id = *id, .handle_fd = -1};
	service->n_requests++;
	return request;
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

	sandbox_forget(service, id);
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
	struct sandbox *sandbox = sandbox_find(service, id);

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
		sandbox_forget(service, id);
}

static void on_connected(void *userdata, int fd)
{
	struct request *request = userdata;
	int r = sandbox_take_stream(request->service, &request->id, request->n_pumps, fd);

	end_start(request->service, &request->id, r < 0);
	if (r < 0 || request->link != request->service->link)
		sweep(request->service, &request->id);
	answer_result(request, r, "connect");
}

static void on_started(void *userdata, int result)
{
	struct request *request = userdata;
	struct service *service = request->service;
	struct sandbox *sandbox =
		sandbox_find(service, &request->id); /* it is starting, so it is there */
	int r = result;

	if (r == 0)
		r = sandbox_open_handle(sandbox, &request->handle_fd);
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
	sandbox = sandbox_get(request->service, &request->id);
	if (!sandbox)
		return -ENOMEM;
	if (sandbox->is_starting)
		return -EBUSY;
	r = engine_start(request->service->engine, plan, profile->name, on_started, request);
	sandbox->is_starting = r == 0;
	if (r < 0)
		sandbox_forget(request->service, &request->id);
	return r;
}

/* --- end, pause, stat ------------------------------------------------------------------------ */

static void on_removed(void *userdata, int result)
{
	struct request *request = userdata;

	if (result == 0)
		sandbox_forget(request->service, &request->id);
	answer_result(request, result, "remove");
}

static int kill_one(struct request *request)
{
	struct sandbox *sandbox = sandbox_find(request->service, &request->id);

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
		sandbox_forget(request->service, &request->id);
}

static void on_frozen(void *userdata, int result)
{
	struct request *request = userdata;
	struct sandbox *sandbox = sandbox_find(request->service, &request->id);
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

static void on_thawed(void *userdata, int result)
{
	struct request *request = userdata;
	struct sandbox *sandbox = sandbox_find(request->service, &request->id);

	if (result == 0 && sandbox) {
		sandbox->is_paused = false;
		sandbox_want_stream(sandbox);
	}
	note_absent(request, result);
	answer_result(request, result, "unpause");
}

static void on_stat(void *userdata, int result, const struct launch_stat *stat)
{
	struct request *request = userdata;
	struct sandbox *sandbox = sandbox_find(request->service, &request->id);
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

	sandbox = sandbox_find(service, id);
	if (sandbox && sandbox->is_starting)
		return; /* for a former api worker: it is swept when it has started */
	if (!lives) {
		sweep(service, id);
		return;
	}
	sandbox = sandbox_get(service, id);
	if (!sandbox || sandbox_open_handle(sandbox, &fd) < 0)
		return; /* not told: it is as if it were gone, and the next use replaces it */
	sandbox->is_paused = is_paused;
	if (!is_paused)
		sandbox_want_stream(sandbox);
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
