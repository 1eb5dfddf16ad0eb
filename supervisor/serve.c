/*
 * Theory. A worker may ask only what the table below permits: this request, from this kind of
 * worker, after its HELLO, and some only once. Whatever else arrives is no mistake of ours, since
 * both ends are one release; the connection ends and the worker is started again. What may happen
 * by timing (a session that ended a moment ago, a freeze of a frozen one) is answered with a
 * LAUNCH_E_ number instead.
 *
 * A request is answered exactly once; those that take time, by serve_sessions.c.
 *
 * Handlers run as root in the supervisor's own mount namespace. They must not block, must not open
 * a path, and must not believe a number that `permit` or a check did not look at.
 */
#include "supervisor/serve.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/launch.h"
#include "base/log.h"
#include "base/plan.h"
#include "base/str.h"

#include "sandboxd/policy_image.h"
#include "supervisor/host.h"
#include "supervisor/serve_state.h"
#include "supervisor/session.h"

struct launch_msg serve_answer(const struct launch_msg *request, enum launch_error error)
{
	return serve_answer_later((enum launch_type)request->type, request->serial,
				  request->session, error);
}

struct launch_msg serve_answer_later(enum launch_type request, uint32_t serial,
				     const uint8_t session[ID_BYTES], enum launch_error error)
{
	struct launch_msg answer = launch_message((enum launch_type)(request + 1), serial, session);

	answer.error = error;
	return answer;
}

/* The whole answer where there is nothing to add to the number. */
static int refuse(struct serve_client *client, const struct launch_msg *request,
		  enum launch_error error)
{
	struct launch_msg answer = serve_answer(request, error);

	peer_send(&client->peer, &answer, -1);
	return 0;
}

/* r < 0: the engine could not do it, and the answer says at which step. */
static int answer_result(struct serve_client *client, struct launch_msg *answer, int r,
			 const char *step)
{
	if (r < 0) {
		memset(&answer->u, 0, sizeof(answer->u));
		answer->error = LAUNCH_E_STEP;
		(void)err_fail(&answer->u.err, r, step, "groups of the session");
	}
	peer_send(&client->peer, answer, -1);
	return 0;
}

/* --- handlers ------------------------------------------------------------------------------- */

static int priv_hello(struct serve_client *client, const struct launch_msg *msg,
		      struct serve_session *entry)
{
	struct serve *serve = client->serve;
	struct launch_msg answer = serve_answer(msg, LAUNCH_E_NONE);
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
	hello->limits_missing = host_limits_missing(serve->options.host);
	peer_send(&client->peer, &answer, -1);
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

/* Who has no root commands would have a root that nobody can write to, and another Landlock domain
 * for nothing. */
static bool may_have_template(const struct serve *serve, const struct plan *plan)
{
	return host_policy(serve->options.host)->profile[plan->profile].root == POLICY_ROOT_ALLOWED;
}

static int priv_start(struct serve_client *client, const struct launch_msg *msg,
		      struct serve_session *existing)
{
	struct serve *serve = client->serve;
	struct launch_msg answer = serve_answer(msg, LAUNCH_E_STEP);
	enum launch_error error;

	if (memcmp(msg->session, msg->u.plan.session, ID_BYTES) != 0)
		return -EPROTO;
	if (serve->stopping)
		return refuse(client, msg, LAUNCH_E_STOPPING);
	if (existing || serve_is_sealed(serve, msg->session))
		return refuse(client, msg, LAUNCH_E_EXISTS);
	if (plan_check(&msg->u.plan, NULL) < 0 || !plan_is_known(serve, &msg->u.plan))
		return refuse(client, msg, LAUNCH_E_PLAN);
	if (msg->u.start.template[0] != '\0' && !may_have_template(serve, &msg->u.plan))
		return refuse(client, msg, LAUNCH_E_PLAN);
	error = ceilings_take(&serve->ceilings, &msg->u.plan, clock_boottime());
	if (error != LAUNCH_E_NONE)
		return refuse(client, msg, error);
	if (msg->u.start.secrets.n > 0)
		return serve_start_sealed(client, msg);
	if (serve_start(client, msg, -1, &error, &answer.u.err) == 0)
		return 0; /* answered when it has started */
	if (error != LAUNCH_E_STEP)
		return refuse(client, msg, error);
	peer_send(&client->peer, &answer, -1);
	return 0;
}

static int priv_kill(struct serve_client *client, const struct launch_msg *msg,
		     struct serve_session *entry)
{
	if (entry->n_waiters == SERVE_MAX_WAITERS)
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
	struct launch_msg answer = serve_answer(msg, LAUNCH_E_NONE);

	int r = session_freeze(entry->session);

	if (r == 0)
		r = session_stat(entry->session, &answer.u.stat);
	return answer_result(client, &answer, r, "freeze");
}

static int priv_thaw(struct serve_client *client, const struct launch_msg *msg,
		     struct serve_session *entry)
{
	struct launch_msg answer = serve_answer(msg, LAUNCH_E_NONE);

	return answer_result(client, &answer, session_thaw(entry->session), "thaw");
}

static int priv_part(struct serve_client *client, const struct launch_msg *msg,
		     struct serve_session *entry)
{
	struct launch_msg answer = serve_answer(msg, LAUNCH_E_NONE);
	int r = serve_part(client, msg, entry);

	return r < 0 ? answer_result(client, &answer, r, "part") : 0;
}

static int priv_stat(struct serve_client *client, const struct launch_msg *msg,
		     struct serve_session *entry)
{
	struct launch_msg answer = serve_answer(msg, LAUNCH_E_NONE);
	int r = session_stat(entry->session, &answer.u.stat);

	return answer_result(client, &answer, r, "stat");
}

static int priv_proof(struct serve_client *client, const struct launch_msg *msg,
		      struct serve_session *entry)
{
	struct launch_msg answer = serve_answer(msg, LAUNCH_E_NONE);

	answer.u.proof = *session_proof(entry->session);
	peer_send(&client->peer, &answer, -1);
	return 0;
}

static int priv_trace(struct serve_client *client, const struct launch_msg *msg,
		      struct serve_session *entry)
{
	struct launch_msg answer = serve_answer(msg, LAUNCH_E_NONE);

	answer.u.trace = *session_trace(entry->session);
	peer_send(&client->peer, &answer, -1);
	return 0;
}

static int priv_adopt(struct serve_client *client, const struct launch_msg *msg,
		      struct serve_session *entry)
{
	(void)entry;
	serve_adopt(client, msg->serial);
	return 0;
}

static int priv_log_level(struct serve_client *client, const struct launch_msg *msg,
			  struct serve_session *entry)
{
	struct launch_msg answer = serve_answer(msg, LAUNCH_E_NONE);

	(void)entry;
	if (msg->u.level.level >= LOG_LEVEL_MAX_)
		return -EPROTO;
	client->serve->options.log_level(client->serve->options.userdata,
					 (enum log_level)msg->u.level.level);
	peer_send(&client->peer, &answer, -1);
	return 0;
}

static int priv_link(struct serve_client *client, const struct launch_msg *msg,
		     struct serve_session *entry)
{
	const struct serve_options *options = &client->serve->options;
	bool linked = msg->u.link.egress < options->n_egress &&
		      options->link(options->userdata, msg->u.link.egress);

	(void)entry;
	return refuse(client, msg, linked ? LAUNCH_E_NONE : LAUNCH_E_STATE);
}

static int priv_service(struct serve_client *client, const struct launch_msg *msg,
			struct serve_session *entry)
{
	(void)entry;
	return serve_service(client, msg);
}

static int priv_lease(struct serve_client *client, const struct launch_msg *msg,
		      struct serve_session *entry)
{
	(void)entry;
	serve_lease(client->serve, msg->u.lease.until);
	return refuse(client, msg, LAUNCH_E_NONE);
}

static int priv_redis(struct serve_client *client, const struct launch_msg *msg,
		      struct serve_session *entry)
{
	(void)entry; /* a user outlives trees */
	return serve_redis(client, msg);
}

static int priv_s3(struct serve_client *client, const struct launch_msg *msg,
		   struct serve_session *entry)
{
	(void)entry;
	return serve_s3(client, msg);
}

/* --- the permit table ----------------------------------------------------------------------- */

enum permit_flag {
	PERMIT_ONCE = 1,       /* once in a connection */
	PERMIT_BEFORE = 2,     /* before HELLO, and only as the first message */
	PERMIT_NO_SESSION = 4, /* the session id is all zero */
	PERMIT_NEW = 8,        /* the session id names none yet, or need not */
};

#define FROM_API      (1u << SERVE_WORKER_API)
#define FROM_EGRESS   (1u << SERVE_WORKER_EGRESS)
#define FROM_PROVIDER (1u << SERVE_WORKER_PROVIDER)

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
	{LAUNCH_HELLO,     "hello",     priv_hello,     FROM_API | FROM_EGRESS | FROM_PROVIDER, 0,
	 PERMIT_ONCE | PERMIT_BEFORE | PERMIT_NO_SESSION													  },
	{LAUNCH_ADOPT,     "adopt",     priv_adopt,     FROM_API,                               0,                                 PERMIT_ONCE | PERMIT_NO_SESSION},
	{LAUNCH_START,     "start",     priv_start,     FROM_API,                               0,                                 PERMIT_NEW                     },
	{LAUNCH_KILL,      "kill",      priv_kill,      FROM_API,                               STARTING | LIVE | FROZEN | ENDING, 0                              },
	{LAUNCH_FREEZE,    "freeze",    priv_freeze,    FROM_API,                               LIVE,                              0                              },
	{LAUNCH_THAW,      "thaw",      priv_thaw,      FROM_API,                               FROZEN,                            0                              },
	{LAUNCH_PART,      "part",      priv_part,      FROM_API,                               FROZEN,                            0                              },
	{LAUNCH_JOIN,      "join",      priv_part,      FROM_API,                               FROZEN,                            0                              },
	{LAUNCH_STAT,      "stat",      priv_stat,      FROM_API,                               LIVE | FROZEN,                     0                              },
	{LAUNCH_PROOF,     "proof",     priv_proof,     FROM_API,                               LIVE | FROZEN,                     0                              },
	{LAUNCH_TRACE,     "trace",     priv_trace,     FROM_API,                               LIVE | FROZEN,                     0                              },
	{LAUNCH_LOG_LEVEL, "log-level", priv_log_level, FROM_API,                               0,                                 PERMIT_NO_SESSION              },
	{LAUNCH_REDIS,     "redis",     priv_redis,     FROM_API,                               0,                                 PERMIT_NEW                     },
	{LAUNCH_S3,        "s3",        priv_s3,        FROM_API,                               0,                                 PERMIT_NO_SESSION              },
	{LAUNCH_LINK,      "link",      priv_link,      FROM_API,                               0,                                 PERMIT_NO_SESSION              },
	{LAUNCH_SERVICE,   "service",   priv_service,   FROM_EGRESS,                            0,                                 PERMIT_NO_SESSION              },
	{LAUNCH_LEASE,     "lease",     priv_lease,     FROM_API,                               0,                                 PERMIT_NO_SESSION              },
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
	entry = serve_find(client->serve, msg->session);
	if (!(permit->flags & PERMIT_NEW)) {
		if (!entry) {
			if (msg->type == LAUNCH_KILL)
				serve_cancel_sealed(client->serve, msg->session);
			return refuse(client, msg, LAUNCH_E_NOT_FOUND);
		}
		if (!(permit->states & 1u << session_state(entry->session)))
			return refuse(client, msg, LAUNCH_E_STATE);
	}
	return permit->handler(client, msg, entry);
}

static void on_drained(struct peer *peer)
{
	serve_adopt_more(peer->userdata);
	serve_net_more(peer->userdata);
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

/* While it does not read, each of its sessions can end once; answers come to it one a request, and
 * requests are not read while the queue is not empty. Never smaller than before, nor than what
 * lives: sessions above a maximum that was lowered, here or before they were adopted, live on. */
static void bound_queue(struct serve_client *client)
{
	const struct serve *serve = client->serve;
	uint32_t n = ceilings_sessions(&serve->ceilings);

	if (n < serve->n_sessions)
		n = serve->n_sessions;
	n = n * (1 + SERVE_MAX_WAITERS) + 64;
	if (client->peer.max_queued < n)
		client->peer.max_queued = n;
}

int serve_client_open(struct serve_client *client, struct serve *serve, enum serve_worker worker,
		      int socket_fd, const char *name)
{
	int r;

	r = peer_open(&client->peer, serve->options.loop, socket_fd, name, &peer_events, client);
	if (r < 0)
		return r;
	client->serve = serve;
	client->worker = worker;
	client->used = 0;
	client->adopting = false;
	list_init(&client->net_waiting);
	bound_queue(client);
	serve->n_clients++;
	return 0;
}

void serve_client_done(struct serve_client *client)
{
	struct serve *serve = client->serve;

	if (!serve)
		return;
	serve_forget_client(client);
	serve_net_forget(client);
	serve_forget_redis(client);
	serve_forget_services(client);
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
	serve_maybe_emptied(serve);
}

struct ceilings serve_ceilings(const struct serve *serve, const struct supervisor_config *config)
{
	struct ceilings ceilings = serve->ceilings;

	ceilings_configure(&ceilings, config);
	return ceilings;
}

void serve_configure(struct serve *serve, const struct supervisor_config *config)
{
	ceilings_configure(&serve->ceilings, config);
	if (serve->api)
		bound_queue(serve->api);
}

void serve_tell_config(struct serve *serve, const struct launch_config *state, int fd)
{
	struct launch_msg event;

	if (!serve->api) {
		(void)fd_close(fd);
		return;
	}
	event = launch_message(LAUNCH_EVENT_CONFIG, 0, NULL);
	event.u.config = *state;
	peer_send(&serve->api->peer, &event, fd);
}

void serve_kill_starting(struct serve *serve)
{
	serve->stopping = true;
	LIST_FOR_EACH_SAFE (link, following, &serve->all) {
		struct session *session = LIST_ENTRY(link, struct serve_session, all_link)->session;

		if (session_state(session) == SESSION_STATE_STARTING)
			session_kill(session);
	}
}

uint32_t serve_session_count(const struct serve *serve)
{
	return serve->n_sessions;
}

int serve_new(const struct serve_options *options, struct serve **ret_serve)
{
	struct serve *serve = calloc(1, sizeof(*serve));
	int r;

	if (!serve)
		return -ENOMEM;
	serve->options = *options;
	serve->ceilings = options->ceilings;
	r = serve_lease_init(serve);
	if (r < 0) {
		free(serve);
		return r;
	}
	list_init(&serve->all);
	list_init(&serve->unsealing);
	list_init(&serve->redis_waiting);
	list_init(&serve->s3_runs);
	list_init(&serve->service_dials);
	for (size_t i = 0; i < SERVE_N_BUCKETS; i++)
		list_init(&serve->bucket[i]);
	*ret_serve = serve;
	return 0;
}

struct serve *serve_free(struct serve *serve)
{
	if (!serve)
		return NULL;
	ASSERT(serve->n_clients == 0);
	ASSERT(list_empty(&serve->unsealing)); /* each has a client */
	ASSERT(list_empty(&serve->all));
	serve_drop_redis(serve);
	serve_drop_s3(serve);
	serve_drop_services(serve);
	serve->lease = loop_remove(serve->lease);
	free(serve);
	return NULL;
}
