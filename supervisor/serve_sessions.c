/*
 * Theory. Who waits for what of a session. Requests that take time remember who asked:
 *
 * - START is answered from `started`, with a connected socket or with the step that failed.
 * - KILL is answered from `ended`, when nothing of the session is left; several may wait.
 * - ADOPT walks the list of all sessions, one whenever the client's queue is empty. What the host
 *   had to end at its start, because another release had made it, is told once behind them.
 *
 * A session whose asker died before its START was answered is known to nobody: it is killed, and
 * the next worker, which adopts what lives, never sees it. A session that ends by itself is told to
 * the api worker with EVENT_GONE unless a KILL waits for it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "base/id.h"
#include "base/launch.h"
#include "base/log.h"

#include "supervisor/host.h"
#include "supervisor/serve_state.h"
#include "supervisor/session.h"

static struct list *bucket_of(struct serve *serve, const uint8_t bytes[ID_BYTES])
{
	struct id id;

	memcpy(id.bytes, bytes, sizeof(id.bytes));
	return &serve->bucket[id_hash(&id) & (SERVE_N_BUCKETS - 1)];
}

struct serve_session *serve_find(struct serve *serve, const uint8_t id[ID_BYTES])
{
	LIST_FOR_EACH (link, bucket_of(serve, id)) {
		struct serve_session *entry = LIST_ENTRY(link, struct serve_session, bucket_link);

		if (memcmp(entry->plan.session, id, ID_BYTES) == 0)
			return entry;
	}
	return NULL;
}

void serve_maybe_emptied(struct serve *serve)
{
	if (!serve->emptying || serve->n_sessions > 0)
		return;
	serve->emptying = false;
	serve->options.emptied(serve->options.userdata);
}

static void forget_session(struct serve_session *entry)
{
	struct serve *serve = entry->serve;

	list_remove(&entry->bucket_link);
	list_remove(&entry->all_link);
	list_remove(&entry->net_link);
	ceilings_give(&serve->ceilings, &entry->plan);
	serve->n_sessions--;
	free(entry);
	serve_maybe_emptied(serve);
}

static void answer_start(struct serve_session *entry, enum launch_error error,
			 const struct err *err, int fd)
{
	struct launch_msg answer = serve_answer_later(LAUNCH_START, entry->start_serial,
						      entry->plan.session, LAUNCH_E_NONE);
	struct serve_client *asker = entry->asker;

	entry->asker = NULL;
	if (!asker) {
		(void)fd_close(fd);
		return;
	}
	answer.error = error;
	if (error == LAUNCH_E_STEP && err)
		answer.u.err = *err;
	if (error == LAUNCH_E_NONE) {
		answer.u.trace = *session_trace(entry->session);
		entry->announced = true;
	}
	peer_send(&asker->peer, &answer, fd);
}

static void answer_waiters(struct serve_session *entry, const struct launch_gone *gone)
{
	for (uint32_t i = 0; i < entry->n_waiters; i++) {
		struct launch_msg answer = serve_answer_later(LAUNCH_KILL, entry->waiter[i].serial,
							      entry->plan.session, LAUNCH_E_NONE);

		answer.u.gone = *gone;
		peer_send(&entry->waiter[i].client->peer, &answer, -1);
	}
	entry->n_waiters = 0;
}

static void on_started(void *userdata, struct session *session, enum launch_error error,
		       const struct err *err)
{
	struct serve_session *entry = userdata;
	struct launch_gone gone = {0};
	struct err connect_err = ERR_NULL;
	int fd = -1;
	int r;

	if (error != LAUNCH_E_NONE) {
		/* No `ended` follows. */
		log_err(LOG_LEVEL_WARNING, &(struct log_context){.session = session_id(session)},
			"launch failed", err ? err : &connect_err);
		answer_start(entry, error, err, -1);
		session_fill_gone(session, &gone);
		answer_waiters(entry, &gone);
		forget_session(entry);
		return;
	}
	if (!entry->asker) {
		session_kill(session); /* its asker died: nobody knows it */
		return;
	}
	r = session_connect(session, &fd);
	if (r < 0) {
		(void)err_fail(&connect_err, r, "connect", "socket of the shim");
		answer_start(entry, LAUNCH_E_STEP, &connect_err, -1);
		session_kill(session);
		return;
	}
	/* First: whoever hears that it has started may count on its network. */
	serve_net_live(entry);
	answer_start(entry, LAUNCH_E_NONE, NULL, fd);
}

static void tell_gone(struct serve_session *entry, const struct launch_gone *gone)
{
	struct serve_client *api = entry->serve->api;
	struct launch_msg event;

	/* Without a worker nobody is waiting; the next one learns it from what ADOPT lacks. */
	if (!api || !entry->announced)
		return;
	event = launch_message(LAUNCH_EVENT_GONE, 0, entry->plan.session);
	event.u.gone = *gone;
	peer_send(&api->peer, &event, -1);
}

static void on_ended(void *userdata, struct session *session, enum launch_gone_reason reason,
		     int wait_status)
{
	struct serve_session *entry = userdata;
	struct launch_gone gone = {.reason = reason, .wait_status = wait_status};
	struct err err = ERR_NULL;

	session_fill_gone(session, &gone);
	serve_net_ended(entry);
	if (entry->asker) {
		/* Killed, or dead, between its clone and its READY. */
		(void)err_fail(&err, -ECANCELED, "start", "the session ended before it was ready");
		answer_start(entry, LAUNCH_E_STEP, &err, -1);
	} else if (entry->n_waiters == 0) {
		tell_gone(entry, &gone);
	}
	answer_waiters(entry, &gone);
	forget_session(entry);
}

static const struct session_events session_events = {
	.started = on_started,
	.ended = on_ended,
};

static void add_entry(struct serve *serve, struct serve_session *entry, const struct plan *plan)
{
	entry->serve = serve;
	entry->plan = *plan;
	list_append(bucket_of(serve, entry->plan.session), &entry->bucket_link);
	list_append(&serve->all, &entry->all_link);
	list_init(&entry->net_link);
	serve->n_sessions++;
}

int serve_take_adopted(struct serve *serve)
{
	for (;;) {
		struct serve_session *entry = calloc(1, sizeof(*entry));
		int r;

		if (!entry)
			return -ENOMEM;
		r = host_take_adopted(serve->options.host, &session_events, entry, &entry->session);
		if (r < 0) {
			free(entry);
			return r == -ENOENT ? 0 : r;
		}
		add_entry(serve, entry, session_plan(entry->session));
		ceilings_count(&serve->ceilings, &entry->plan);
	}
}

int serve_start(struct serve_client *client, const struct launch_msg *request, int secrets_fd,
		enum launch_error *ret_error, struct err *err)
{
	struct serve *serve = client->serve;
	const struct plan *plan = &request->u.plan;
	struct session_launch launch;
	struct serve_session *entry;
	int r;

	*ret_error = LAUNCH_E_STEP;
	entry = calloc(1, sizeof(*entry));
	if (!entry) {
		ceilings_give(&serve->ceilings, plan);
		return err_fail(err, -ENOMEM, "start", "memory");
	}
	entry->asker = client;
	entry->start_serial = request->serial;
	add_entry(serve, entry, plan);
	launch = (struct session_launch){.plan = &entry->plan,
					 .secrets_fd = secrets_fd,
					 .request_id = request->u.start.request,
					 .template = request->u.start.template};
	r = session_start(serve->options.host, &launch, &session_events, entry, &entry->session,
			  ret_error, err);
	if (r < 0)
		forget_session(entry);
	return r;
}

static void forget_waiters(struct serve_session *entry, const struct serve_client *client)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < entry->n_waiters; i++) {
		if (entry->waiter[i].client != client)
			entry->waiter[kept++] = entry->waiter[i];
	}
	entry->n_waiters = kept;
}

void serve_forget_client(struct serve_client *client)
{
	struct serve *serve = client->serve;

	serve_forget_sealed(client);
	if (serve->api == client)
		serve->api = NULL;
	LIST_FOR_EACH_SAFE (link, following, &serve->all) {
		struct serve_session *entry = LIST_ENTRY(link, struct serve_session, all_link);

		/* The next api worker hears only of what it adopts; egress workers of nothing. */
		if (client->worker == SERVE_WORKER_API)
			entry->announced = false;
		forget_waiters(entry, client);
		if (entry->parter == client) {
			entry->parter = NULL;
			entry->part_waits = false;
		}
		if (entry->asker == client) {
			entry->asker = NULL;
			session_kill(entry->session);
		}
	}
}

static void on_parted(void *userdata, struct session *session, int r);

static int begin_part(struct serve_session *entry)
{
	return session_part(entry->session, entry->part_type == LAUNCH_PART, on_parted, entry);
}

static void on_parted(void *userdata, struct session *session, int r)
{
	struct serve_session *entry = userdata;
	struct serve_client *client = entry->parter;
	struct launch_msg answer = serve_answer_later(entry->part_type, entry->part_serial,
						      entry->plan.session, LAUNCH_E_NONE);

	(void)session;
	if (entry->part_waits) {
		/* This was the end of what nobody waits for. */
		entry->part_waits = false;
		r = begin_part(entry);
		if (r >= 0)
			return;
	}
	entry->parter = NULL;
	if (!client)
		return;
	if (r < 0) {
		answer.error = LAUNCH_E_STEP;
		(void)err_fail(&answer.u.err, r, "part", "move the session's processes");
	}
	peer_send(&client->peer, &answer, -1);
}

int serve_part(struct serve_client *client, const struct launch_msg *request,
	       struct serve_session *entry)
{
	int r;

	/* One at a time. */
	if (entry->parter)
		return -EBUSY;
	entry->part_serial = request->serial;
	entry->part_type = (enum launch_type)request->type;
	/* What a worker that is gone has asked for goes on first. */
	entry->part_waits = session_is_moving(entry->session);
	r = entry->part_waits ? 0 : begin_part(entry);
	if (r >= 0)
		entry->parter = client;
	return r;
}

static void adopt_one(struct serve_client *client, struct serve_session *entry)
{
	struct launch_msg answer = serve_answer_later(LAUNCH_ADOPT, client->adopt_serial,
						      entry->plan.session, LAUNCH_E_NONE);
	int fd = -1;
	int r = session_connect(entry->session, &fd);

	answer.more = 1;
	answer.u.adopted.is_frozen = session_state(entry->session) == SESSION_STATE_FROZEN;
	answer.u.adopted.is_parted = session_is_parted(entry->session);
	/* No socket: the worker hears of the session all the same and can have it killed. */
	if (r < 0) {
		answer.error = LAUNCH_E_STEP;
		(void)err_fail(&answer.u.err, r, "connect", "socket of the shim");
	}
	entry->announced = true;
	peer_send(&client->peer, &answer, fd);
}

/* The next session that was ended because another release had made it. False: none is left. */
static bool adopt_incompatible(struct serve_client *client)
{
	const struct serve *serve = client->serve;
	size_t n = 0;
	const struct id *ids = host_incompatible(serve->options.host, &n);
	struct launch_msg answer;

	if (serve->incompatible_told || client->adopt_incompatible >= n)
		return false;
	answer = serve_answer_later(LAUNCH_ADOPT, client->adopt_serial,
				    ids[client->adopt_incompatible++].bytes, LAUNCH_E_NONE);
	answer.more = 1;
	answer.error = LAUNCH_E_INCOMPATIBLE;
	peer_send(&client->peer, &answer, -1);
	return true;
}

/*
 * One session, or the end. Visited entries go to the tail and new ones are appended without the
 * mark, so the first entry without it is the end of the walk.
 */
static void adopt_next(struct serve_client *client)
{
	struct serve *serve = client->serve;
	struct launch_msg end;

	while (!list_empty(&serve->all)) {
		struct serve_session *entry =
			LIST_ENTRY(serve->all.next, struct serve_session, all_link);
		enum session_state state;

		if (!entry->adopt_pending)
			break;
		entry->adopt_pending = false;
		list_remove(&entry->all_link);
		list_append(&serve->all, &entry->all_link);
		state = session_state(entry->session);
		if (state != SESSION_STATE_LIVE && state != SESSION_STATE_FROZEN)
			continue;
		adopt_one(client, entry);
		return;
	}
	if (adopt_incompatible(client))
		return;
	serve->incompatible_told = true;
	client->adopting = false;
	end = serve_answer_later(LAUNCH_ADOPT, client->adopt_serial, (const uint8_t[ID_BYTES]){0},
				 LAUNCH_E_NONE);
	peer_send(&client->peer, &end, -1);
}

/* As many at once as the socket takes without a queue; the rest when it has drained. */
void serve_adopt_more(struct serve_client *client)
{
	while (client->adopting && !client->peer.broken && list_empty(&client->peer.queue))
		adopt_next(client);
}

void serve_adopt(struct serve_client *client, uint32_t serial)
{
	client->adopting = true;
	client->adopt_serial = serial;
	client->adopt_incompatible = 0;
	LIST_FOR_EACH (link, &client->serve->all)
		LIST_ENTRY(link, struct serve_session, all_link)->adopt_pending = true;
	serve_adopt_more(client);
}
