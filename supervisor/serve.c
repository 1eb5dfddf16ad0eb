/*
 * Theory. A worker may ask only what the table below permits: this request, from this kind of
 * worker, after its HELLO, and some only once. Whatever else arrives is no mistake of ours, since
 * both ends are one release; the connection ends and the worker is started again. What may happen
 * by timing (a session that ended a moment ago, a freeze of a frozen one) is answered with a
 * LAUNCH_E_ number instead.
 *
 * A request is answered exactly once, and those that take time remember who asked:
 *
 *   START   answered from `started` with a connected socket, or with the step that failed
 *   KILL    answered from `ended`, when nothing of the session is left; several may wait
 *   ADOPT   walks the list, one session whenever the queue of answers is empty
 *
 * A session whose asker died before its START was answered is known to nobody: it is killed, and
 * the next worker, which adopts what lives, never sees it. A session that ends by itself is told to
 * the api worker with EVENT_GONE unless a KILL waits for it.
 *
 * Handlers run as root in the supervisor's own mount namespace. They must not block, must not open
 * a path, and must not believe a number that `permit` or a check did not look at.
 */
#include "supervisor/serve.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "base/id.h"
#include "base/launch.h"
#include "base/log.h"
#include "base/plan.h"
#include "base/str.h"

#include "sandboxd/policy_image.h"
#include "supervisor/host.h"
#include "supervisor/session.h"

#define N_BUCKETS   1024 /* power of two */
#define MAX_WAITERS 4    /* KILLs of one session that wait */

struct serve_session {
	struct list bucket_link;
	struct list all_link;
	struct serve *serve;
	struct session *session;
	struct plan plan;
	struct serve_client *asker; /* START not answered yet; else NULL */
	uint32_t start_serial;
	bool announced; /* the worker that runs now has its socket: its end is told */
	bool adopt_pending;
	uint32_t n_waiters;
	struct {
		struct serve_client *client;
		uint32_t serial;
	} waiter[MAX_WAITERS];
};

struct serve {
	struct serve_options options;
	struct ceilings ceilings;
	struct serve_client *api; /* after its HELLO */
	bool stopping;
	bool emptying;
	uint32_t n_sessions;
	uint32_t n_clients;
	struct list all;
	struct list bucket[N_BUCKETS];
};

static struct list *bucket_of(struct serve *serve, const uint8_t bytes[ID_BYTES])
{
	struct id id;

	memcpy(id.bytes, bytes, sizeof(id.bytes));
	return &serve->bucket[id_hash(&id) & (N_BUCKETS - 1)];
}

static struct serve_session *find_session(struct serve *serve, const uint8_t id[ID_BYTES])
{
	LIST_FOR_EACH (link, bucket_of(serve, id)) {
		struct serve_session *entry = LIST_ENTRY(link, struct serve_session, bucket_link);

		if (memcmp(entry->plan.session, id, ID_BYTES) == 0)
			return entry;
	}
	return NULL;
}

static void send_answer(struct serve_client *client, const struct launch_msg *answer, int fd)
{
	peer_send(&client->peer, answer, fd);
}

/* An answer has the number of its request plus one, which is no name of the enum. */
static struct launch_msg answer_message(unsigned int request_type, uint32_t serial,
					const uint8_t session[ID_BYTES])
{
	return launch_message((enum launch_type)(request_type + 1), serial, session);
}

static struct launch_msg answer_to(const struct launch_msg *request, enum launch_error error)
{
	struct launch_msg answer = answer_message(request->type, request->serial, request->session);

	answer.error = error;
	return answer;
}

/* The whole answer where there is nothing to add to the number. */
static int refuse(struct serve_client *client, const struct launch_msg *request,
		  enum launch_error error)
{
	struct launch_msg answer = answer_to(request, error);

	send_answer(client, &answer, -1);
	return 0;
}

static void maybe_emptied(struct serve *serve)
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
	ceilings_give(&serve->ceilings, &entry->plan);
	serve->n_sessions--;
	free(entry);
	maybe_emptied(serve);
}

static void answer_start(struct serve_session *entry, enum launch_error error,
			 const struct err *err, int fd)
{
	struct launch_msg answer =
		answer_message(LAUNCH_START, entry->start_serial, entry->plan.session);
	struct serve_client *asker = entry->asker;

	entry->asker = NULL;
	if (!asker) {
		(void)fd_close(fd);
		return;
	}
	answer.error = error;
	if (error == LAUNCH_E_STEP && err)
		answer.u.err = *err;
	if (error == LAUNCH_E_NONE)
		entry->announced = true;
	send_answer(asker, &answer, fd);
}

static void answer_waiters(struct serve_session *entry)
{
	for (uint32_t i = 0; i < entry->n_waiters; i++) {
		struct launch_msg answer =
			answer_message(LAUNCH_KILL, entry->waiter[i].serial, entry->plan.session);

		send_answer(entry->waiter[i].client, &answer, -1);
	}
	entry->n_waiters = 0;
}

static void on_started(void *userdata, struct session *session, enum launch_error error,
		       const struct err *err)
{
	struct serve_session *entry = userdata;
	struct err connect_err = ERR_NULL;
	int fd = -1;
	int r;

	if (error != LAUNCH_E_NONE) {
		/* No `ended` follows. */
		log_err(LOG_LEVEL_WARNING, &(struct log_context){.session = session_id(session)},
			"launch failed", err ? err : &connect_err);
		answer_start(entry, error, err, -1);
		answer_waiters(entry);
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
	answer_start(entry, LAUNCH_E_NONE, NULL, fd);
}

static void tell_gone(struct serve_session *entry, enum launch_gone_reason reason, int wait_status)
{
	struct serve_client *api = entry->serve->api;
	struct launch_msg event;

	/* Without a worker nobody is waiting; the next one learns it from what ADOPT lacks. */
	if (!api || !entry->announced)
		return;
	event = launch_message(LAUNCH_EVENT_GONE, 0, entry->plan.session);
	event.u.gone.reason = reason;
	event.u.gone.wait_status = wait_status;
	send_answer(api, &event, -1);
}

static void on_ended(void *userdata, struct session *session, enum launch_gone_reason reason,
		     int wait_status)
{
	struct serve_session *entry = userdata;
	struct err err = ERR_NULL;

	(void)session;
	if (entry->asker) {
		/* Killed, or dead, between its clone and its READY. */
		(void)err_fail(&err, -ECANCELED, "start", "the session ended before it was ready");
		answer_start(entry, LAUNCH_E_STEP, &err, -1);
	} else if (entry->n_waiters == 0) {
		tell_gone(entry, reason, wait_status);
	}
	answer_waiters(entry);
	forget_session(entry);
}

static const struct session_events session_events = {
	.started = on_started,
	.ended = on_ended,
};

/* --- handlers ------------------------------------------------------------------------------- */

static int priv_hello(struct serve_client *client, const struct launch_msg *msg,
		      struct serve_session *entry)
{
	struct serve *serve = client->serve;
	struct launch_msg answer = answer_to(msg, LAUNCH_E_NONE);
	struct launch_hello *hello = &answer.u.hello;

	(void)entry;
	if (msg->u.hello.magic != LAUNCH_MAGIC || msg->u.hello.version != LAUNCH_VERSION ||
	    msg->u.hello.message_bytes != sizeof(struct launch_msg))
		return -EPROTO;
	hello->magic = LAUNCH_MAGIC;
	hello->version = LAUNCH_VERSION;
	hello->message_bytes = sizeof(struct launch_msg);
	memcpy(hello->instance, serve->options.instance,
	       strnlen(serve->options.instance, sizeof(hello->instance) - 1));
	hello->max_sessions = ceilings_sessions(&serve->ceilings);
	hello->n_profiles = host_policy(serve->options.host)->n_profiles;
	hello->max_memory_bytes = serve->ceilings.max_memory_bytes;
	hello->kernel_probes = host_probes(serve->options.host);
	hello->n_egress = serve->options.n_egress;
	send_answer(client, &answer, -1);
	if (client->worker == SERVE_WORKER_API)
		serve->api = client;
	if (client->hello)
		client->hello(client->userdata);
	return 0;
}

/* The plan names a profile of the image that both sides mean, and an egress worker that exists. */
static bool plan_is_known(const struct serve *serve, const struct plan *plan)
{
	const struct policy_image_header *image = host_policy(serve->options.host);
	const struct policy_profile *profile;

	if (plan->profile >= image->n_profiles || plan->profile >= POLICY_MAX_PROFILES)
		return false;
	profile = &image->profile[plan->profile];
	return profile->kind == POLICY_KIND_SESSION &&
	       memcmp(profile->hash, plan->profile_hash, sizeof(profile->hash)) == 0 &&
	       plan->egress < serve->options.n_egress;
}

static void add_session(struct serve *serve, struct serve_session *entry)
{
	list_append(bucket_of(serve, entry->plan.session), &entry->bucket_link);
	list_append(&serve->all, &entry->all_link);
	serve->n_sessions++;
}

static int priv_start(struct serve_client *client, const struct launch_msg *msg,
		      struct serve_session *existing)
{
	struct serve *serve = client->serve;
	struct launch_msg answer = answer_to(msg, LAUNCH_E_STEP);
	enum launch_error error = LAUNCH_E_NONE;
	struct serve_session *entry;
	int r;

	if (memcmp(msg->session, msg->u.plan.session, ID_BYTES) != 0)
		return -EPROTO;
	if (serve->stopping)
		return refuse(client, msg, LAUNCH_E_STOPPING);
	if (existing)
		return refuse(client, msg, LAUNCH_E_EXISTS);
	if (plan_check(&msg->u.plan, NULL) < 0 || !plan_is_known(serve, &msg->u.plan))
		return refuse(client, msg, LAUNCH_E_PLAN);
	error = ceilings_take(&serve->ceilings, &msg->u.plan, clock_boottime());
	if (error != LAUNCH_E_NONE)
		return refuse(client, msg, error);

	entry = calloc(1, sizeof(*entry));
	if (!entry) {
		ceilings_give(&serve->ceilings, &msg->u.plan);
		(void)err_fail(&answer.u.err, -ENOMEM, "start", "memory");
		send_answer(client, &answer, -1);
		return 0;
	}
	entry->serve = serve;
	entry->plan = msg->u.plan;
	entry->asker = client;
	entry->start_serial = msg->serial;
	add_session(serve, entry);
	r = session_start(serve->options.host, &entry->plan, &session_events, entry,
			  &entry->session, &error, &answer.u.err);
	if (r < 0) {
		answer.error = error == LAUNCH_E_NONE ? LAUNCH_E_STEP : error;
		if (answer.error != LAUNCH_E_STEP)
			memset(&answer.u, 0, sizeof(answer.u));
		forget_session(entry);
		send_answer(client, &answer, -1);
	}
	return 0;
}

static int priv_kill(struct serve_client *client, const struct launch_msg *msg,
		     struct serve_session *entry)
{
	if (entry->n_waiters == MAX_WAITERS)
		return refuse(client, msg, LAUNCH_E_STATE);
	entry->waiter[entry->n_waiters].client = client;
	entry->waiter[entry->n_waiters].serial = msg->serial;
	entry->n_waiters++;
	session_kill(entry->session);
	return 0;
}

static int priv_freeze(struct serve_client *client, const struct launch_msg *msg,
		       struct serve_session *entry)
{
	struct launch_msg answer = answer_to(msg, LAUNCH_E_NONE);
	int r = session_freeze(entry->session);

	if (r < 0) {
		answer.error = LAUNCH_E_STEP;
		(void)err_fail(&answer.u.err, r, "freeze", "group of the session");
	}
	send_answer(client, &answer, -1);
	return 0;
}

static int priv_thaw(struct serve_client *client, const struct launch_msg *msg,
		     struct serve_session *entry)
{
	struct launch_msg answer = answer_to(msg, LAUNCH_E_NONE);
	int r = session_thaw(entry->session);

	if (r < 0) {
		answer.error = LAUNCH_E_STEP;
		(void)err_fail(&answer.u.err, r, "thaw", "group of the session");
	}
	send_answer(client, &answer, -1);
	return 0;
}

static int priv_stat(struct serve_client *client, const struct launch_msg *msg,
		     struct serve_session *entry)
{
	struct launch_msg answer = answer_to(msg, LAUNCH_E_NONE);
	int r = session_stat(entry->session, &answer.u.stat);

	if (r < 0) {
		answer.error = LAUNCH_E_STEP;
		(void)err_fail(&answer.u.err, r, "stat", "groups of the session");
	}
	send_answer(client, &answer, -1);
	return 0;
}

static int priv_proof(struct serve_client *client, const struct launch_msg *msg,
		      struct serve_session *entry)
{
	struct launch_msg answer = answer_to(msg, LAUNCH_E_NONE);

	answer.u.proof = *session_proof(entry->session);
	send_answer(client, &answer, -1);
	return 0;
}

static int priv_trace(struct serve_client *client, const struct launch_msg *msg,
		      struct serve_session *entry)
{
	struct launch_msg answer = answer_to(msg, LAUNCH_E_NONE);

	answer.u.trace = *session_trace(entry->session);
	send_answer(client, &answer, -1);
	return 0;
}

static void adopt_one(struct serve_client *client, struct serve_session *entry)
{
	struct launch_msg answer =
		answer_message(LAUNCH_ADOPT, client->adopt_serial, entry->plan.session);
	int fd = -1;
	int r = session_connect(entry->session, &fd);

	answer.more = 1;
	/* No socket: the worker hears of the session all the same and can have it killed. */
	if (r < 0) {
		answer.error = LAUNCH_E_STEP;
		(void)err_fail(&answer.u.err, r, "connect", "socket of the shim");
	}
	entry->announced = true;
	send_answer(client, &answer, fd);
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
	client->adopting = false;
	end = answer_message(LAUNCH_ADOPT, client->adopt_serial, (const uint8_t[ID_BYTES]){0});
	send_answer(client, &end, -1);
}

/* As many at once as the socket takes without a queue; the rest when it has drained. */
static void adopt_pump(struct serve_client *client)
{
	while (client->adopting && !client->peer.broken && list_empty(&client->peer.queue))
		adopt_next(client);
}

static int priv_adopt(struct serve_client *client, const struct launch_msg *msg,
		      struct serve_session *entry)
{
	(void)entry;
	client->adopting = true;
	client->adopt_serial = msg->serial;
	LIST_FOR_EACH (link, &client->serve->all)
		LIST_ENTRY(link, struct serve_session, all_link)->adopt_pending = true;
	adopt_pump(client);
	return 0;
}

/* --- the permit table ----------------------------------------------------------------------- */

enum permit_flag {
	PERMIT_ONCE = 1,       /* once in a connection */
	PERMIT_BEFORE = 2,     /* before HELLO, and only as the first message */
	PERMIT_NO_SESSION = 4, /* the session id is all zero */
	PERMIT_NEW = 8,        /* the session id names none yet */
};

#define FROM_API    (1u << SERVE_WORKER_API)
#define FROM_EGRESS (1u << SERVE_WORKER_EGRESS)

#define STARTING (1u << SESSION_STATE_STARTING)
#define LIVE     (1u << SESSION_STATE_LIVE)
#define FROZEN   (1u << SESSION_STATE_FROZEN)
#define ENDING   (1u << SESSION_STATE_ENDING)

static const struct permit {
	enum launch_type type;
	const char *name;
	int (*handler)(struct serve_client *client, const struct launch_msg *msg,
		       struct serve_session *entry);
	unsigned int workers;
	unsigned int states; /* of the session; others are LAUNCH_E_STATE */
	unsigned int flags;
} permits[] = {
	{LAUNCH_HELLO,  "hello",  priv_hello,  FROM_API | FROM_EGRESS, 0,
	 PERMIT_ONCE | PERMIT_BEFORE | PERMIT_NO_SESSION										 },
	{LAUNCH_ADOPT,  "adopt",  priv_adopt,  FROM_API,               0,                                 PERMIT_ONCE | PERMIT_NO_SESSION},
	{LAUNCH_START,  "start",  priv_start,  FROM_API,               0,                                 PERMIT_NEW                     },
	{LAUNCH_KILL,   "kill",   priv_kill,   FROM_API,               STARTING | LIVE | FROZEN | ENDING, 0                              },
	{LAUNCH_FREEZE, "freeze", priv_freeze, FROM_API,               LIVE,                              0                              },
	{LAUNCH_THAW,   "thaw",   priv_thaw,   FROM_API,               FROZEN,                            0                              },
	{LAUNCH_STAT,   "stat",   priv_stat,   FROM_API,               LIVE | FROZEN,                     0                              },
	{LAUNCH_PROOF,  "proof",  priv_proof,  FROM_API,               LIVE | FROZEN,                     0                              },
	{LAUNCH_TRACE,  "trace",  priv_trace,  FROM_API,               LIVE | FROZEN,                     0                              },
};
_Static_assert(ARRAY_SIZE(permits) <= 32, "one bit each in serve_client.used");

/* The row that permits this message now, or NULL. */
static const struct permit *find_permit(const struct serve_client *client,
					const struct launch_msg *msg, unsigned int *ret_row)
{
	for (unsigned int i = 0; i < ARRAY_SIZE(permits); i++) {
		const struct permit *permit = &permits[i];
		bool first = client->used == 0;

		if (permit->type != msg->type)
			continue;
		if (!(permit->workers & 1u << client->worker))
			return NULL;
		if (first != !!(permit->flags & PERMIT_BEFORE))
			return NULL;
		if ((permit->flags & PERMIT_ONCE) && (client->used & 1u << i))
			return NULL;
		*ret_row = i;
		return permit;
	}
	return NULL;
}

static int on_request(struct peer *peer, const struct launch_msg *msg)
{
	struct serve_client *client = peer->userdata;
	static const uint8_t zero[ID_BYTES];
	const struct permit *permit;
	struct serve_session *entry = NULL;
	unsigned int row;

	permit = find_permit(client, msg, &row);
	if (!permit) {
		log_line(LOG_LEVEL_ERROR, NULL, "request is not permitted", "worker=%s type=%u",
			 peer->name, msg->type);
		return -EPERM;
	}
	client->used |= 1u << row;
	if ((permit->flags & PERMIT_NO_SESSION) != 0) {
		if (memcmp(msg->session, zero, ID_BYTES) != 0)
			return -EPROTO;
		return permit->handler(client, msg, NULL);
	}
	entry = find_session(client->serve, msg->session);
	if (!(permit->flags & PERMIT_NEW)) {
		if (!entry)
			return refuse(client, msg, LAUNCH_E_NOT_FOUND);
		if (!(permit->states & 1u << session_state(entry->session)))
			return refuse(client, msg, LAUNCH_E_STATE);
	}
	return permit->handler(client, msg, entry);
}

static void on_drained(struct peer *peer)
{
	adopt_pump(peer->userdata);
}

static void on_lost(struct peer *peer)
{
	struct serve_client *client = peer->userdata;

	client->lost(client->userdata);
}

static const struct peer_events peer_events = {
	.request = on_request,
	.drained = on_drained,
	.lost = on_lost,
};

/* --- clients and sessions as a whole -------------------------------------------------------- */

int serve_client_open(struct serve_client *client, struct serve *serve, enum serve_worker worker,
		      int socket_fd, const char *name)
{
	int r;

	client->serve = serve;
	client->worker = worker;
	client->used = 0;
	client->adopting = false;
	r = peer_open(&client->peer, serve->options.loop, socket_fd, name, &peer_events, client);
	if (r < 0)
		return r;
	/* While it does not read, each of its sessions can end once; answers come to it one a
	 * request, and requests are not read while the queue is not empty. */
	client->peer.max_queued = ceilings_sessions(&serve->ceilings) * (1 + MAX_WAITERS) + 64;
	serve->n_clients++;
	return 0;
}

static void forget_client(struct serve_session *entry, const struct serve_client *client)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < entry->n_waiters; i++) {
		if (entry->waiter[i].client != client)
			entry->waiter[kept++] = entry->waiter[i];
	}
	entry->n_waiters = kept;
	if (entry->asker == client) {
		entry->asker = NULL;
		session_kill(entry->session);
	}
}

void serve_client_done(struct serve_client *client)
{
	struct serve *serve = client->serve;

	if (!serve)
		return;
	if (serve->api == client)
		serve->api = NULL;
	LIST_FOR_EACH_SAFE (link, following, &serve->all) {
		struct serve_session *entry = LIST_ENTRY(link, struct serve_session, all_link);

		/* The next api worker hears only of what it adopts; egress workers of nothing. */
		if (client->worker == SERVE_WORKER_API)
			entry->announced = false;
		forget_client(entry, client);
	}
	peer_done(&client->peer);
	serve->n_clients--;
	client->serve = NULL;
}

void serve_refuse_launches(struct serve *serve)
{
	serve->stopping = true;
}

void serve_kill_all(struct serve *serve)
{
	serve->stopping = true;
	serve->emptying = true;
	LIST_FOR_EACH_SAFE (link, following, &serve->all)
		session_kill(LIST_ENTRY(link, struct serve_session, all_link)->session);
	maybe_emptied(serve);
}

uint32_t serve_session_count(const struct serve *serve)
{
	return serve->n_sessions;
}

int serve_new(const struct serve_options *options, struct serve **ret_serve)
{
	struct serve *serve = calloc(1, sizeof(*serve));

	if (!serve)
		return -ENOMEM;
	serve->options = *options;
	serve->ceilings = options->ceilings;
	list_init(&serve->all);
	for (size_t i = 0; i < N_BUCKETS; i++)
		list_init(&serve->bucket[i]);
	*ret_serve = serve;
	return 0;
}

struct serve *serve_free(struct serve *serve)
{
	if (!serve)
		return NULL;
	ASSERT(serve->n_clients == 0);
	ASSERT(list_empty(&serve->all));
	free(serve);
	return NULL;
}
