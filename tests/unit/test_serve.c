/*
 * The permit table and the sessions against an engine made of paper: what a worker asks, what it
 * hears, and what is left when it or a session dies.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>

#include "base/fd.h"
#include "base/launch.h"
#include "base/log.h"
#include "base/sockmsg.h"

#include "sandboxd/policy_image.h"
#include "supervisor/host.h"
#include "supervisor/redis_helper.h"
#include "supervisor/serve.h"
#include "supervisor/session.h"
#include "supervisor/unseal.h"
#include "tests/lib/test.h"

/* --- the paper engine ------------------------------------------------------------------------ */

#define MAX_SESSIONS  64
#define KERNEL_PROBES 5u

struct session {
	bool used;
	bool killed;
	struct id id;
	struct plan plan;
	enum session_state state;
	bool has_net;
	const struct session_events *events;
	void *userdata;
};

/* One engine for all tests, as the real one is one for a process. NOLINTBEGIN(*-global-variables)
 */
static struct session sessions[MAX_SESSIONS];
static struct policy_image_header image;
static enum launch_error refuse_start;
static struct id incompatible[2];
static size_t n_incompatible;
static struct unseal {
	const struct secret_request *request; /* NULL: none runs */
	unseal_done done;
	void *userdata;
	bool cancelled;
} unsealing; /* the last one */
static unsigned int n_unseals;
static int refuse_unseal;
/* NOLINTEND(*-global-variables) */

/* NOLINTNEXTLINE(readability-function-size): the interface has six parameters */
int unseal_start(struct unsealer *unsealer, const struct secret_request *request, unseal_done done,
		 void *userdata, struct unseal **ret_unseal, struct err *err)
{
	(void)unsealer;
	if (refuse_unseal < 0)
		return err_fail(err, refuse_unseal, "paper", "told to fail");
	if (refuse_unseal > 0)
		return refuse_unseal;
	unsealing = (struct unseal){.request = request, .done = done, .userdata = userdata};
	n_unseals++;
	*ret_unseal = &unsealing;
	return 0;
}

struct unseal *unseal_cancel(struct unseal *unseal)
{
	if (!unseal)
		return NULL;
	unseal->cancelled = true;
	unseal->done = NULL;
	return NULL;
}

/* As for secrets, and all that were started. */
#define PAPER_HELPERS 16
static struct redis_helper {
	struct redis_request request;
	redis_helper_done done; /* NULL: it has ended */
	void *userdata;
} redis_helpers[PAPER_HELPERS];
static unsigned int n_redis_helpers;
static struct config_answer in_force;

int redis_helper_start(const struct redis_helper_place *place, const struct redis_request *request,
		       redis_helper_done done, void *userdata, struct redis_helper **ret_helper,
		       struct err *err)
{
	(void)place;
	(void)err;
	assert_in_range(n_redis_helpers, 0, PAPER_HELPERS - 1);
	*ret_helper = &redis_helpers[n_redis_helpers++];
	**ret_helper =
		(struct redis_helper){.request = *request, .done = done, .userdata = userdata};
	return 0;
}

struct redis_helper *redis_helper_cancel(struct redis_helper *helper)
{
	if (helper)
		helper->done = NULL;
	return NULL;
}

const struct policy_image_header *host_policy(const struct host *host)
{
	(void)host;
	return &image;
}

uint32_t host_worker_ids(const struct host *host)
{
	(void)host;
	return 0;
}

int host_mounts_fd(const struct host *host)
{
	(void)host;
	return -1;
}

uint64_t host_limits_missing(const struct host *host)
{
	(void)host;
	return PROOF_CPU;
}

uint32_t host_probes(const struct host *host)
{
	(void)host;
	return KERNEL_PROBES;
}

const struct id *host_incompatible(const struct host *host, size_t *ret_n)
{
	(void)host;
	*ret_n = n_incompatible;
	return incompatible;
}

int host_take_adopted(struct host *host, const struct session_events *events, void *userdata,
		      struct session **ret_session)
{
	(void)host;
	for (size_t i = 0; i < MAX_SESSIONS; i++) {
		if (!sessions[i].used || sessions[i].events)
			continue;
		sessions[i].events = events;
		sessions[i].userdata = userdata;
		*ret_session = &sessions[i];
		return 0;
	}
	return -ENOENT;
}

const struct plan *session_plan(const struct session *session)
{
	return &session->plan;
}

/* NOLINTNEXTLINE(readability-function-size): the interface has seven parameters */
int session_start(struct host *host, const struct session_launch *launch,
		  const struct session_events *events, void *userdata, struct session **ret_session,
		  enum launch_error *ret_error, struct err *err)
{
	(void)host;
	if (refuse_start != LAUNCH_E_NONE) {
		*ret_error = refuse_start;
		return err_fail(err, -EIO, "paper", "told to fail");
	}
	for (size_t i = 0; i < MAX_SESSIONS; i++) {
		if (sessions[i].used)
			continue;
		sessions[i] = (struct session){.used = true,
					       .plan = *launch->plan,
					       .state = SESSION_STATE_STARTING,
					       .events = events,
					       .userdata = userdata};
		memcpy(sessions[i].id.bytes, launch->plan->session, ID_BYTES);
		*ret_session = &sessions[i];
		return 0;
	}
	return -ENOSPC;
}

void session_kill(struct session *session)
{
	session->killed = true;
	session->state = SESSION_STATE_ENDING;
}

int session_freeze(struct session *session)
{
	session->state = SESSION_STATE_FROZEN;
	return 0;
}

int session_thaw(struct session *session)
{
	session->state = SESSION_STATE_LIVE;
	return 0;
}

int session_connect(struct session *session, int *ret_fd)
{
	(void)session;
	*ret_fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	return *ret_fd < 0 ? -errno : 0;
}

int session_stat(struct session *session, struct launch_stat *ret_stat)
{
	ret_stat->memory_bytes = session->plan.memory_bytes;
	return 0;
}

bool session_net(const struct session *session, int ret_fds[LAUNCH_NET_FDS])
{
	for (size_t i = 0; i < LAUNCH_NET_FDS; i++)
		ret_fds[i] = 0;
	return session->has_net;
}

const struct id *session_id(const struct session *session)
{
	return &session->id;
}

enum session_state session_state(const struct session *session)
{
	return session->state;
}

void session_fill_gone(const struct session *session, struct launch_gone *gone)
{
	(void)session;
	gone->cpu_us = 123;
	gone->oom_kills = 2;
	gone->forks_refused = 3;
}

const struct launch_proof *session_proof(const struct session *session)
{
	static const struct launch_proof proof = {.shim_pid = 77};

	(void)session;
	return &proof;
}

const struct launch_trace *session_trace(const struct session *session)
{
	static const struct launch_trace trace = {.n = 3};

	(void)session;
	return &trace;
}

static struct session *find(uint8_t number)
{
	for (size_t i = 0; i < MAX_SESSIONS; i++) {
		if (sessions[i].used && sessions[i].plan.session[0] == number)
			return &sessions[i];
	}
	fail_msg("no session %d", number);
	return NULL;
}

static void become_live(uint8_t number)
{
	struct session *session = find(number);

	session->state = SESSION_STATE_LIVE;
	session->events->started(session->userdata, session, LAUNCH_E_NONE, NULL);
}

static void end_session(uint8_t number)
{
	struct session *session = find(number);

	session->used = false;
	session->events->ended(session->userdata, session, LAUNCH_GONE_SHIM_EXITED, 9);
}

/* --- the worker's side ----------------------------------------------------------------------- */

struct fixture {
	struct loop *loop;
	struct loop_source *turn;
	struct serve *serve;
	struct serve_client client;
	int worker_fd;
	uint32_t serial;
	unsigned int n_hello;
	unsigned int n_lost;
	unsigned int n_emptied;
};

static int end_turn(void *userdata, uint32_t events)
{
	struct fixture *fixture = userdata;

	(void)events;
	loop_quit(fixture->loop, 0);
	return 0;
}

static void turns(struct fixture *fixture, int n)
{
	while (n-- > 0)
		assert_int_equal(loop_run(fixture->loop), 0);
}

static void on_hello(void *userdata)
{
	((struct fixture *)userdata)->n_hello++;
}

static void on_lost(void *userdata)
{
	((struct fixture *)userdata)->n_lost++;
}

static void on_emptied(void *userdata)
{
	((struct fixture *)userdata)->n_emptied++;
}

static void open_worker(struct fixture *fixture, enum serve_worker worker)
{
	int pair[2];

	assert_int_equal(sockmsg_pair(pair, 1), 0);
	fixture->worker_fd = pair[1];
	fixture->client.hello = on_hello;
	fixture->client.lost = on_lost;
	fixture->client.userdata = fixture;
	assert_int_equal(
		serve_client_open(&fixture->client, fixture->serve, worker, pair[0], "test"), 0);
}

static void close_worker(struct fixture *fixture)
{
	serve_client_done(&fixture->client);
	fixture->worker_fd = fd_close(fixture->worker_fd);
}

static struct launch_msg request(struct fixture *fixture, enum launch_type type, uint8_t number)
{
	uint8_t session[ID_BYTES] = {number};

	return launch_message(type, ++fixture->serial, session);
}

static void ask(struct fixture *fixture, const struct launch_msg *msg)
{
	assert_int_equal(sockmsg_send(fixture->worker_fd, msg, sizeof(*msg), NULL, 0), 0);
	turns(fixture, 3);
}

/* The next message to the worker; returns whether a descriptor came along. */
static bool hear(struct fixture *fixture, struct launch_msg *ret_msg)
{
	int fd;
	ssize_t n = sockmsg_recv(fixture->worker_fd, ret_msg, sizeof(*ret_msg), &fd, 1);

	assert_int_equal(n, sizeof(*ret_msg));
	assert_int_equal(launch_check(ret_msg, (size_t)n, 1), 0);
	if (fd < 0)
		return false;
	(void)fd_close(fd);
	return true;
}

static void expect_silence(struct fixture *fixture)
{
	struct launch_msg msg;

	assert_int_equal(sockmsg_recv(fixture->worker_fd, &msg, sizeof(msg), NULL, 0), -EAGAIN);
}

static void expect_error(struct fixture *fixture, const struct launch_msg *msg,
			 enum launch_error error)
{
	struct launch_msg answer;

	ask(fixture, msg);
	(void)hear(fixture, &answer);
	assert_int_equal(answer.type, msg->type + 1);
	assert_int_equal(answer.serial, msg->serial);
	assert_memory_equal(answer.session, msg->session, ID_BYTES);
	assert_int_equal(answer.error, error);
}

static struct launch_msg hello_message(struct fixture *fixture)
{
	struct launch_msg msg = request(fixture, LAUNCH_HELLO, 0);

	msg.u.hello.magic = LAUNCH_MAGIC;
	msg.u.hello.version = LAUNCH_VERSION;
	msg.u.hello.message_bytes = sizeof(msg);
	return msg;
}

static void greet(struct fixture *fixture)
{
	struct launch_msg msg = hello_message(fixture);

	expect_error(fixture, &msg, LAUNCH_E_NONE);
}

static struct launch_msg start_message(struct fixture *fixture, uint8_t number)
{
	struct launch_msg msg = request(fixture, LAUNCH_START, number);

	msg.u.plan = (struct plan){
		.magic = PLAN_MAGIC,
		.version = PLAN_VERSION,
		.size = sizeof(struct plan),
		.session = {number},
		.tmpfs_bytes = 16u << 20,
		.tmpfs_inodes = 1000,
		.memory_bytes = 64u << 20,
		.max_pids = 16,
		.max_files = 256,
		.cpu_pct = 100,
		.cpu_weight = 100,
		.max_ptys = 1,
	};
	memset(msg.u.plan.profile_hash, 7, sizeof(msg.u.plan.profile_hash));
	return msg;
}

/* A live session that the worker knows. */
static void start(struct fixture *fixture, uint8_t number)
{
	struct launch_msg msg = start_message(fixture, number);
	struct launch_msg answer;

	ask(fixture, &msg);
	expect_silence(fixture);
	become_live(number);
	assert_true(hear(fixture, &answer));
	assert_int_equal(answer.error, LAUNCH_E_NONE);
	assert_int_equal(answer.serial, msg.serial);
}

static int set_up(void **state)
{
	static struct fixture fixture;
	struct supervisor_config config = {
		.max_sessions = 40,
		.max_launches_per_s = 1000,
		.max_memory_bytes = 40ull * (64u << 20),
		.max_pids = 10000,
		.session = {.memory_bytes = 1ull << 30,
			    .tmpfs_bytes = 1ull << 30,
			    .tmpfs_inodes = 1u << 20,
			    .max_pids = 1000,
			    .max_files = 4096,
			    .cpu_pct = 400,
			    .max_ptys = 16},
	};
	struct serve_options options = {
		.instance = "0123abcd", .n_egress = 1, .emptied = on_emptied, .userdata = &fixture};
	static struct unsealer unsealer;

	memset(&in_force, 0, sizeof(in_force));
	in_force.api.redis.port = 6379;
	memcpy(in_force.redis.password, "credential", sizeof("credential"));

	log_set_level(LOG_LEVEL_ERROR);
	fixture = (struct fixture){.worker_fd = -1};
	memset(sessions, 0, sizeof(sessions));
	refuse_start = LAUNCH_E_NONE;
	n_incompatible = 0;
	image = (struct policy_image_header){.n_profiles = 2};
	image.profile[0].kind = POLICY_KIND_SESSION;
	memset(image.profile[0].hash, 7, sizeof(image.profile[0].hash));
	image.profile[1].kind = POLICY_KIND_WORKER;
	memset(image.profile[1].hash, 7, sizeof(image.profile[1].hash));
	ceilings_init(&options.ceilings, &config, 1ull << 34, 20000);
	assert_int_equal(loop_new(&fixture.loop), 0);
	assert_int_equal(loop_add_deferred(fixture.loop, end_turn, &fixture, &fixture.turn), 0);
	loop_deferred_set(fixture.turn, 1);
	options.loop = fixture.loop;
	options.unsealer = &unsealer;
	options.config = &in_force;
	n_redis_helpers = 0;
	refuse_unseal = 0;
	n_unseals = 0;
	assert_int_equal(serve_new(&options, &fixture.serve), 0);
	open_worker(&fixture, SERVE_WORKER_API);
	*state = &fixture;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *fixture = *state;

	close_worker(fixture);
	for (size_t i = 0; i < MAX_SESSIONS; i++) {
		if (sessions[i].used)
			end_session(sessions[i].plan.session[0]);
	}
	fixture->serve = serve_free(fixture->serve);
	fixture->turn = loop_remove(fixture->turn);
	loop_free(fixture->loop);
	return 0;
}

/* --- tests ------------------------------------------------------------------------------------ */

static void test_serve_hello_answers_the_facts(void **state)
{
	struct fixture *fixture = *state;
	struct launch_msg msg = hello_message(fixture);
	struct launch_msg answer;

	ask(fixture, &msg);
	assert_false(hear(fixture, &answer));
	assert_string_equal(answer.u.hello.instance, "0123abcd");
	assert_int_equal(answer.u.hello.max_sessions, 40);
	assert_int_equal(answer.u.hello.n_profiles, 2);
	assert_int_equal(answer.u.hello.kernel_probes, KERNEL_PROBES);
	assert_int_equal(fixture->n_hello, 1);
}

/* Each of these ends the connection, without an answer. */
static void test_serve_surprises_end_the_connection(void **state)
{
	struct fixture *fixture = *state;
	static const uint8_t short_message[10] = {1};

	for (int i = 0; i < 8; i++) {
		struct launch_msg msg = hello_message(fixture);
		unsigned int n_lost = fixture->n_lost;
		size_t size = sizeof(msg);

		if (i > 2)
			greet(fixture);
		if (i == 0 || i == 7)
			msg = start_message(fixture, 1); /* 0: before HELLO */
		else if (i == 1)
			msg.u.hello.version++;
		else if (i == 2)
			msg.session[3] = 1; /* a session where none belongs */
		else if (i == 4)
			msg.type = 98; /* unknown */
		else if (i == 5)
			msg.type = LAUNCH_START + 1; /* an answer */
		else if (i == 6)
			size -= 1;
		if (i == 7)
			msg.u.plan.session[5] = 1; /* not the message's */
		/* i == 3: a second HELLO */
		assert_int_equal(sockmsg_send(fixture->worker_fd, &msg, size, NULL, 0), 0);
		turns(fixture, 4);
		assert_int_equal(fixture->n_lost, n_lost + 1);
		assert_int_equal(sockmsg_recv(fixture->worker_fd, &msg, sizeof(msg), NULL, 0), 0);
		close_worker(fixture);
		open_worker(fixture, SERVE_WORKER_API);
	}
	assert_int_equal(
		sockmsg_send(fixture->worker_fd, short_message, sizeof(short_message), NULL, 0), 0);
	turns(fixture, 4);
	assert_int_equal(fixture->n_lost, 9);
}

/* It cannot be sent, or, before Linux 6.16, ends the connection. */
static void test_serve_descriptor_from_a_worker_is_refused(void **state)
{
	struct fixture *fixture = *state;
	struct launch_msg msg = hello_message(fixture);
	int n_before = fd_count();
	int fd = 2;
	int r;

	r = sockmsg_send(fixture->worker_fd, &msg, sizeof(msg), &fd, 1);
	turns(fixture, 4);
	if (r == 0)
		assert_int_equal(fixture->n_lost, 1);
	else
		assert_int_equal(r, -EPERM);
	assert_int_equal(fixture->n_hello, 0);
	assert_int_equal(fd_count(), n_before);
}

static void test_serve_egress_worker_may_only_greet(void **state)
{
	struct fixture *fixture = *state;
	struct launch_msg msg;

	close_worker(fixture);
	open_worker(fixture, SERVE_WORKER_EGRESS);
	greet(fixture);
	msg = start_message(fixture, 1);
	ask(fixture, &msg);
	assert_int_equal(fixture->n_lost, 1);
}

static void test_serve_start_and_kill_are_answered_when_done(void **state)
{
	struct fixture *fixture = *state;
	struct launch_msg msg;
	struct launch_msg again;
	struct launch_msg answer;

	greet(fixture);
	start(fixture, 1);
	msg = request(fixture, LAUNCH_KILL, 1);
	ask(fixture, &msg);
	again = request(fixture, LAUNCH_KILL, 1);
	ask(fixture, &again);
	expect_silence(fixture);
	end_session(1);
	(void)hear(fixture, &answer);
	assert_int_equal(answer.serial, msg.serial);
	(void)hear(fixture, &answer);
	assert_int_equal(answer.serial, again.serial);
	expect_silence(fixture); /* no EVENT_GONE beside it */
	expect_error(fixture, &msg, LAUNCH_E_NOT_FOUND);
	assert_int_equal(serve_session_count(fixture->serve), 0);
}

static void test_serve_start_failures_have_their_numbers(void **state)
{
	struct fixture *fixture = *state;
	struct launch_msg msg;
	struct launch_msg answer;
	struct err err = ERR_NULL;

	greet(fixture);
	msg = start_message(fixture, 1);
	msg.u.plan.max_pids = 0;
	expect_error(fixture, &msg, LAUNCH_E_PLAN);
	msg = start_message(fixture, 1);
	msg.u.plan.profile_hash[0]++;
	expect_error(fixture, &msg, LAUNCH_E_PLAN);
	msg = start_message(fixture, 1);
	msg.u.plan.profile = 1; /* a worker's */
	expect_error(fixture, &msg, LAUNCH_E_PLAN);
	msg.u.plan.profile = 2;
	expect_error(fixture, &msg, LAUNCH_E_PLAN);
	msg = start_message(fixture, 1);
	msg.u.plan.egress = 1;
	expect_error(fixture, &msg, LAUNCH_E_PLAN);
	msg = start_message(fixture, 1);
	msg.u.plan.cpu_pct = 401;
	expect_error(fixture, &msg, LAUNCH_E_PLAN);
	msg = start_message(fixture, 1);
	refuse_start = LAUNCH_E_IDS;
	expect_error(fixture, &msg, LAUNCH_E_IDS);
	refuse_start = LAUNCH_E_NONE;
	start(fixture, 1);
	expect_error(fixture, &msg, LAUNCH_E_EXISTS);

	msg = start_message(fixture, 2);
	ask(fixture, &msg);
	(void)err_fail(&err, -EIO, "mounts", "told to fail");
	find(2)->used = false;
	find(1)->events->started(sessions[1].userdata, &sessions[1], LAUNCH_E_STEP, &err);
	(void)hear(fixture, &answer);
	assert_int_equal(answer.error, LAUNCH_E_STEP);
	assert_string_equal(answer.u.err.step, "mounts");
	assert_int_equal(serve_session_count(fixture->serve), 1);
}

static void test_serve_start_ceiling_is_given_back(void **state)
{
	struct fixture *fixture = *state;
	struct launch_msg msg;

	greet(fixture);
	for (uint8_t i = 1; i <= 40; i++)
		start(fixture, i);
	msg = start_message(fixture, 41);
	expect_error(fixture, &msg, LAUNCH_E_SESSIONS);
	end_session(7);
	(void)hear(fixture, &msg); /* EVENT_GONE */
	start(fixture, 41);
}

static void test_serve_own_end_is_told(void **state)
{
	struct fixture *fixture = *state;
	struct launch_msg event;

	greet(fixture);
	start(fixture, 5);
	end_session(5);
	(void)hear(fixture, &event);
	assert_int_equal(event.type, LAUNCH_EVENT_GONE);
	assert_int_equal(event.session[0], 5);
	assert_int_equal(event.u.gone.reason, LAUNCH_GONE_SHIM_EXITED);
	assert_int_equal(event.u.gone.wait_status, 9);
	assert_int_equal(event.u.gone.oom_kills, 2);
	assert_int_equal(event.u.gone.forks_refused, 3);
}

static void test_serve_session_requests_need_their_state(void **state)
{
	struct fixture *fixture = *state;
	struct launch_msg msg;
	struct launch_msg answer;

	greet(fixture);
	msg = request(fixture, LAUNCH_STAT, 1);
	expect_error(fixture, &msg, LAUNCH_E_NOT_FOUND);
	msg = start_message(fixture, 1);
	ask(fixture, &msg);
	msg = request(fixture, LAUNCH_STAT, 1);
	expect_error(fixture, &msg, LAUNCH_E_STATE); /* STARTING */
	become_live(1);
	(void)hear(fixture, &answer);
	expect_error(fixture, &msg, LAUNCH_E_NONE);
	msg = request(fixture, LAUNCH_THAW, 1);
	expect_error(fixture, &msg, LAUNCH_E_STATE);
	msg = request(fixture, LAUNCH_FREEZE, 1);
	expect_error(fixture, &msg, LAUNCH_E_NONE);
	expect_error(fixture, &msg, LAUNCH_E_STATE);
	msg = request(fixture, LAUNCH_THAW, 1);
	expect_error(fixture, &msg, LAUNCH_E_NONE);
	msg = request(fixture, LAUNCH_PROOF, 1);
	ask(fixture, &msg);
	(void)hear(fixture, &answer);
	assert_int_equal(answer.u.proof.shim_pid, 77);
	msg = request(fixture, LAUNCH_TRACE, 1);
	ask(fixture, &msg);
	(void)hear(fixture, &answer);
	assert_int_equal(answer.u.trace.n, 3);
}

static void test_serve_dead_worker_leaves_sessions_for_the_next(void **state)
{
	struct fixture *fixture = *state;
	struct launch_msg msg;
	struct launch_msg answer;
	bool seen[4] = {false};

	greet(fixture);
	start(fixture, 1);
	start(fixture, 2);
	start(fixture, 3);
	msg = start_message(fixture, 4); /* never answered */
	ask(fixture, &msg);
	msg = request(fixture, LAUNCH_KILL, 3); /* in its end */
	ask(fixture, &msg);
	close_worker(fixture);
	assert_true(find(4)->killed);
	assert_false(find(1)->killed);

	open_worker(fixture, SERVE_WORKER_API);
	greet(fixture);
	msg = request(fixture, LAUNCH_ADOPT, 0);
	ask(fixture, &msg);
	for (int i = 0; i < 2; i++) {
		assert_true(hear(fixture, &answer));
		assert_int_equal(answer.more, 1);
		assert_int_equal(answer.serial, msg.serial);
		assert_true(answer.session[0] < 4);
		seen[answer.session[0]] = true;
	}
	assert_true(seen[1] && seen[2]);
	assert_false(hear(fixture, &answer));
	assert_int_equal(answer.more, 0);
	assert_int_equal(answer.session[0], 0);
	end_session(3);
	end_session(4);
	expect_silence(fixture); /* nobody of this worker knew them */
	end_session(1);
	(void)hear(fixture, &answer);
	assert_int_equal(answer.type, LAUNCH_EVENT_GONE);
}

static void find_on_host(size_t place, uint8_t number, enum session_state state)
{
	sessions[place] = (struct session){
		.used = true,
		.plan = {.session = {number}, .memory_bytes = 64u << 20, .max_pids = 64},
		.state = state,
	};
}

/* What a former supervisor left is told to the first worker as to any later one, and what it could
 * not leave is told once. */
static void test_serve_sessions_of_a_former_supervisor(void **state)
{
	struct fixture *fixture = *state;
	struct launch_msg msg;
	struct launch_msg answer;
	bool seen[8] = {false};

	find_on_host(0, 1, SESSION_STATE_LIVE);
	find_on_host(1, 2, SESSION_STATE_FROZEN);
	incompatible[0] = (struct id){{6}};
	incompatible[1] = (struct id){{7}};
	n_incompatible = 2;
	assert_int_equal(serve_take_adopted(fixture->serve), 0);
	assert_int_equal(serve_session_count(fixture->serve), 2);
	for (int round = 0; round < 2; round++) {
		greet(fixture);
		msg = request(fixture, LAUNCH_ADOPT, 0);
		ask(fixture, &msg);
		for (int i = 0; i < (round == 0 ? 4 : 2); i++) {
			bool with_socket = hear(fixture, &answer);

			assert_int_equal(answer.more, 1);
			assert_int_equal(with_socket, answer.session[0] <= 2);
			assert_int_equal(answer.error,
					 with_socket ? LAUNCH_E_NONE : LAUNCH_E_INCOMPATIBLE);
			seen[answer.session[0]] = true;
		}
		assert_false(hear(fixture, &answer));
		assert_int_equal(answer.more, 0);
		close_worker(fixture);
		open_worker(fixture, SERVE_WORKER_API);
	}
	assert_true(seen[1] && seen[2] && seen[6] && seen[7]);
	greet(fixture);
	msg = start_message(fixture, 1);
	expect_error(fixture, &msg, LAUNCH_E_EXISTS);
	msg = request(fixture, LAUNCH_THAW, 2);
	expect_error(fixture, &msg, LAUNCH_E_NONE);
	end_session(1);
	assert_int_equal(serve_session_count(fixture->serve), 1);
}

/* An egress worker that comes and goes changes nothing for the api worker. */
static void test_serve_dead_egress_worker_changes_nothing(void **state)
{
	struct fixture *fixture = *state;
	struct fixture egress = {.loop = fixture->loop, .serve = fixture->serve};
	struct launch_msg answer;

	greet(fixture);
	start(fixture, 1);
	open_worker(&egress, SERVE_WORKER_EGRESS);
	greet(&egress);
	close_worker(&egress);
	end_session(1);
	(void)hear(fixture, &answer);
	assert_int_equal(answer.type, LAUNCH_EVENT_GONE);
}

/* Its owner closes it like any other; tear_down then finds the count of clients right. */
static void test_serve_client_that_cannot_be_watched(void **state)
{
	struct fixture *fixture = *state;
	struct serve_client client = {.peer = {.fd = -1}};
	int fd = open("/dev/null", O_RDWR | O_CLOEXEC);

	assert_true(serve_client_open(&client, fixture->serve, SERVE_WORKER_API, fd, "test") < 0);
	serve_client_done(&client);
	(void)fd_close(fd);
}

static void test_serve_adopt_comes_once(void **state)
{
	struct fixture *fixture = *state;
	struct launch_msg msg;
	struct launch_msg answer;

	greet(fixture);
	msg = request(fixture, LAUNCH_ADOPT, 0);
	ask(fixture, &msg);
	(void)hear(fixture, &answer);
	ask(fixture, &msg);
	assert_int_equal(fixture->n_lost, 1);
}

/* The worker reads nothing: answers queue up, requests wait, and all arrive in order later. */
static void test_serve_slow_worker_loses_nothing(void **state)
{
	struct fixture *fixture = *state;
	struct launch_msg msg;
	struct launch_msg answer;
	uint32_t first;
	unsigned int n = 0;

	greet(fixture);
	start(fixture, 1);
	first = fixture->serial + 1;
	for (;;) {
		msg = request(fixture, LAUNCH_STAT, 1);
		if (sockmsg_send(fixture->worker_fd, &msg, sizeof(msg), NULL, 0) < 0)
			break;
		n++;
		turns(fixture, 1);
	}
	assert_true(n > 10);
	for (unsigned int i = 0; i < n; i++) {
		(void)hear(fixture, &answer);
		assert_int_equal(answer.serial, first + i);
		turns(fixture, 3);
	}
	assert_int_equal(fixture->n_lost, 0);
}

static void test_serve_stopping_refuses_and_empties(void **state)
{
	struct fixture *fixture = *state;
	struct launch_msg msg;

	greet(fixture);
	start(fixture, 1);
	start(fixture, 2);
	serve_refuse_launches(fixture->serve);
	msg = start_message(fixture, 3);
	expect_error(fixture, &msg, LAUNCH_E_STOPPING);
	serve_kill_all(fixture->serve);
	assert_true(find(1)->killed && find(2)->killed);
	end_session(1);
	assert_int_equal(fixture->n_emptied, 0);
	end_session(2);
	assert_int_equal(fixture->n_emptied, 1);
	serve_kill_all(fixture->serve);
	assert_int_equal(fixture->n_emptied, 2);
}

#define SERVE_TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)

static struct launch_msg redis_message(uint8_t number, enum redis_action action, uint32_t serial)
{
	struct launch_msg msg = launch_message(LAUNCH_REDIS, serial, (uint8_t[ID_BYTES]){number});

	msg.u.redis.action = action;
	return msg;
}

static void end_redis_helper(struct fixture *fixture, unsigned int i, uint32_t n_keys)
{
	const struct redis_report report = {.status = REDIS_DONE, .n_keys = n_keys};
	struct launch_msg answer;

	redis_helpers[i].done(redis_helpers[i].userdata, &report);
	assert_false(hear(fixture, &answer));
	assert_int_equal(answer.error, LAUNCH_E_NONE);
	assert_int_equal(answer.u.redis_report.n_keys, n_keys);
}

/* A user that is dropped is not made again by what was asked before. */
static void test_serve_redis_of_one_session_is_in_order(void **state)
{
	struct fixture *fixture = *state;
	struct launch_msg msg;

	greet(fixture);
	msg = redis_message(1, REDIS_MAKE, 11);
	ask(fixture, &msg);
	msg = redis_message(1, REDIS_DROP, 12);
	ask(fixture, &msg);
	msg = redis_message(2, REDIS_MAKE, 13);
	ask(fixture, &msg);
	expect_silence(fixture);
	assert_int_equal(n_redis_helpers, 2);
	assert_int_equal(redis_helpers[0].request.action, REDIS_MAKE);
	assert_int_equal(redis_helpers[1].request.session[0], 2);
	assert_string_equal(redis_helpers[0].request.password, "credential");
	end_redis_helper(fixture, 0, 0);
	assert_int_equal(n_redis_helpers, 3);
	assert_int_equal(redis_helpers[2].request.action, REDIS_DROP);
	end_redis_helper(fixture, 2, 7);
	end_redis_helper(fixture, 1, 0);
}

/* Who asks again and again while a server is slow has one that waits. */
static void test_serve_redis_asked_for_again_waits_once(void **state)
{
	struct fixture *fixture = *state;
	struct launch_msg msg = redis_message(1, REDIS_DROP, 11);
	struct launch_msg answer;

	greet(fixture);
	ask(fixture, &msg);
	for (uint32_t serial = 12; serial < 20; serial++) {
		msg = redis_message(1, REDIS_DROP, serial);
		ask(fixture, &msg);
		if (serial == 12)
			continue;
		assert_false(hear(fixture, &answer));
		assert_int_equal(answer.serial, serial - 1);
		assert_int_equal(answer.u.redis_report.status, REDIS_E_SERVER);
	}
	end_redis_helper(fixture, 0, 1);
	assert_int_equal(n_redis_helpers, 2);
	end_redis_helper(fixture, 1, 2);
	expect_silence(fixture);
	assert_int_equal(n_redis_helpers, 2);
}

/* Sessions that end do not keep others from beginning. */
static void test_serve_redis_leaves_room_beside_drops(void **state)
{
	struct fixture *fixture = *state;
	struct launch_msg msg;

	greet(fixture);
	for (uint8_t number = 1; number <= 8; number++) {
		msg = redis_message(number, REDIS_DROP, number);
		ask(fixture, &msg);
	}
	assert_int_equal(n_redis_helpers, 4);
	msg = redis_message(9, REDIS_MAKE, 9);
	ask(fixture, &msg);
	assert_int_equal(n_redis_helpers, 5);
	assert_int_equal(redis_helpers[4].request.action, REDIS_MAKE);
	end_redis_helper(fixture, 4, 0);
	assert_int_equal(n_redis_helpers, 5);
	for (unsigned int i = 0; i < 4; i++)
		end_redis_helper(fixture, i, 0);
	for (unsigned int i = 5; i < 9; i++)
		end_redis_helper(fixture, i, 0);
}

static void test_serve_redis_that_is_not_configured_has_no_helper(void **state)
{
	struct fixture *fixture = *state;
	struct launch_msg msg = redis_message(1, REDIS_MAKE, 11);

	greet(fixture);
	in_force.api.redis.port = 0;
	expect_error(fixture, &msg, LAUNCH_E_STATE);
	assert_int_equal(n_redis_helpers, 0);
}

static struct launch_msg sealed_message(struct fixture *fixture, uint8_t number)
{
	struct launch_msg msg = start_message(fixture, number);

	msg.u.start.secrets.n = 2;
	memcpy(msg.u.start.secrets.name[0], "first", 6);
	memcpy(msg.u.start.secrets.name[1], "second", 7);
	return msg;
}

static void report_unsealed(enum secret_status status, uint32_t index)
{
	const struct secret_report report = {
		.magic = SECRET_MAGIC,
		.version = SECRET_VERSION,
		.status = (uint16_t)status,
		.index = index,
	};
	unseal_done done = unsealing.done;

	assert_non_null(done);
	unsealing.done = NULL;
	done(unsealing.userdata, &report, -1);
}

static void test_serve_secrets_come_before_the_session(void **state)
{
	struct fixture *fixture = *state;
	struct launch_msg msg;
	struct launch_msg answer;

	greet(fixture);
	msg = sealed_message(fixture, 1);
	ask(fixture, &msg);
	expect_silence(fixture);
	assert_int_equal(serve_session_count(fixture->serve), 0);
	msg.serial++; /* the id is in use, though no session is there */
	expect_error(fixture, &msg, LAUNCH_E_EXISTS);
	report_unsealed(SECRET_OK, 0);
	assert_int_equal(serve_session_count(fixture->serve), 1);
	become_live(1);
	assert_true(hear(fixture, &answer));
	assert_int_equal(answer.error, LAUNCH_E_NONE);
}

static void test_serve_secret_that_is_missing_is_named(void **state)
{
	static const struct {
		enum secret_status status;
		int error_number;
	} rows[] = {
		{SECRET_E_UNKNOWN, ENOENT },
		{SECRET_E_CORRUPT, EBADMSG},
		{SECRET_E_TOO_BIG, E2BIG  },
		{SECRET_E_STORE,   EIO    },
	};
	struct fixture *fixture = *state;
	struct launch_msg answer;

	greet(fixture);
	/* More often than there is room for sessions: the ceilings are given back. */
	for (size_t i = 0; i < 44; i++) {
		struct launch_msg msg = sealed_message(fixture, 1);

		ask(fixture, &msg);
		report_unsealed(rows[i % 4].status, 1);
		assert_false(hear(fixture, &answer));
		assert_int_equal(answer.error, LAUNCH_E_SECRET);
		assert_int_equal(answer.u.err.error_number, rows[i % 4].error_number);
		assert_string_equal(answer.u.err.text, "second");
	}
	refuse_unseal = UNSEAL_E_NONE; /* this host has no store */
	{
		struct launch_msg msg = sealed_message(fixture, 1);

		ask(fixture, &msg);
		assert_false(hear(fixture, &answer));
		assert_int_equal(answer.error, LAUNCH_E_SECRET);
		assert_string_equal(answer.u.err.text, "first");
	}
}

static void test_serve_helpers_are_bounded_and_the_rest_waits(void **state)
{
	struct fixture *fixture = *state;
	struct launch_msg answer;

	greet(fixture);
	for (uint8_t i = 1; i <= 34; i++) {
		struct launch_msg msg = sealed_message(fixture, i);

		ask(fixture, &msg);
	}
	assert_int_equal(n_unseals, 32);
	expect_silence(fixture);
	report_unsealed(SECRET_E_UNKNOWN, 0);
	(void)hear(fixture, &answer);
	assert_int_equal(answer.error, LAUNCH_E_SECRET);
	assert_int_equal(n_unseals, 33);
	/* One that waits is killed: it never gets a helper. */
	answer = request(fixture, LAUNCH_KILL, 34);
	ask(fixture, &answer);
	report_unsealed(SECRET_E_UNKNOWN, 0);
	assert_int_equal(n_unseals, 33);
}

static void test_serve_waiting_for_secrets_ends_with_its_asker(void **state)
{
	struct fixture *fixture = *state;
	struct launch_msg msg;
	struct launch_msg answer;
	struct launch_msg kill;

	greet(fixture);
	msg = sealed_message(fixture, 1);
	ask(fixture, &msg);
	kill = request(fixture, LAUNCH_KILL, 1);
	ask(fixture, &kill);
	assert_true(unsealing.cancelled);
	assert_false(hear(fixture, &answer));
	assert_int_equal(answer.serial, msg.serial);
	assert_int_equal(answer.error, LAUNCH_E_STEP);
	assert_false(hear(fixture, &answer));
	assert_int_equal(answer.error, LAUNCH_E_NOT_FOUND);

	msg = sealed_message(fixture, 2);
	ask(fixture, &msg);
	assert_false(unsealing.cancelled);
	close_worker(fixture);
	assert_true(unsealing.cancelled);
	open_worker(fixture, SERVE_WORKER_API);
	assert_int_equal(serve_session_count(fixture->serve), 0);
}

static const struct CMUnitTest tests[] = {
	SERVE_TEST(test_serve_secrets_come_before_the_session),
	SERVE_TEST(test_serve_redis_of_one_session_is_in_order),
	SERVE_TEST(test_serve_redis_asked_for_again_waits_once),
	SERVE_TEST(test_serve_redis_leaves_room_beside_drops),
	SERVE_TEST(test_serve_redis_that_is_not_configured_has_no_helper),
	SERVE_TEST(test_serve_secret_that_is_missing_is_named),
	SERVE_TEST(test_serve_helpers_are_bounded_and_the_rest_waits),
	SERVE_TEST(test_serve_waiting_for_secrets_ends_with_its_asker),
	SERVE_TEST(test_serve_hello_answers_the_facts),
	SERVE_TEST(test_serve_surprises_end_the_connection),
	SERVE_TEST(test_serve_descriptor_from_a_worker_is_refused),
	SERVE_TEST(test_serve_egress_worker_may_only_greet),
	SERVE_TEST(test_serve_start_and_kill_are_answered_when_done),
	SERVE_TEST(test_serve_start_failures_have_their_numbers),
	SERVE_TEST(test_serve_start_ceiling_is_given_back),
	SERVE_TEST(test_serve_own_end_is_told),
	SERVE_TEST(test_serve_session_requests_need_their_state),
	SERVE_TEST(test_serve_dead_worker_leaves_sessions_for_the_next),
	SERVE_TEST(test_serve_sessions_of_a_former_supervisor),
	SERVE_TEST(test_serve_dead_egress_worker_changes_nothing),
	SERVE_TEST(test_serve_client_that_cannot_be_watched),
	SERVE_TEST(test_serve_adopt_comes_once),
	SERVE_TEST(test_serve_slow_worker_loses_nothing),
	SERVE_TEST(test_serve_stopping_refuses_and_empties),
};

TEST_MAIN(tests)
