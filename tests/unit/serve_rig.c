#include "tests/unit/serve_rig.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/sockmsg.h"

#include "supervisor/host.h"

/* --- the paper engine ------------------------------------------------------------------------ */

/* One engine for all tests, as the real one is one for a process. */
struct paper paper; /* NOLINT(*-global-variables) */

/* NOLINTNEXTLINE(readability-function-size): the interface has six parameters */
int unseal_start(struct unsealer *unsealer, const struct secret_request *request, unseal_done done,
		 void *userdata, struct unseal **ret_unseal, struct err *err)
{
	(void)unsealer;
	if (paper.refuse_unseal < 0)
		return err_fail(err, paper.refuse_unseal, "paper", "told to fail");
	if (paper.refuse_unseal > 0)
		return paper.refuse_unseal;
	paper.unseal = (struct unseal){.request = request, .done = done, .userdata = userdata};
	paper.n_unseals++;
	*ret_unseal = &paper.unseal;
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

int redis_helper_start(const struct redis_helper_place *place, const struct redis_request *request,
		       redis_helper_done done, void *userdata, struct redis_helper **ret_helper,
		       struct err *err)
{
	(void)place;
	(void)err;
	assert_in_range(paper.n_redis_helpers, 0, PAPER_HELPERS - 1);
	*ret_helper = &paper.redis_helpers[paper.n_redis_helpers++];
	**ret_helper =
		(struct redis_helper){.request = *request, .done = done, .userdata = userdata};
	return 0;
}

int s3_helper_start(const struct s3_helper_place *place, const struct s3_request *request,
		    s3_helper_ended ended, void *userdata, struct s3_helper **ret_helper,
		    struct err *err)
{
	(void)err;
	paper.s3_request = *request;
	paper.s3_job_fd = fcntl(place->job_fd, F_DUPFD_CLOEXEC, 0);
	paper.s3_ended = ended;
	paper.s3_userdata = userdata;
	paper.n_s3++;
	*ret_helper = NULL;
	return 0;
}

struct s3_helper *s3_helper_cancel(struct s3_helper *helper)
{
	(void)helper;
	return NULL;
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
	return &paper.image;
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
	return PAPER_PROBES;
}

const struct id *host_incompatible(const struct host *host, size_t *ret_n)
{
	(void)host;
	*ret_n = paper.n_incompatible;
	return paper.incompatible;
}

int host_take_adopted(struct host *host, const struct session_events *events, void *userdata,
		      struct session **ret_session)
{
	(void)host;
	for (size_t i = 0; i < PAPER_SESSIONS; i++) {
		if (!paper.sessions[i].used || paper.sessions[i].events)
			continue;
		paper.sessions[i].events = events;
		paper.sessions[i].userdata = userdata;
		*ret_session = &paper.sessions[i];
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
	if (paper.refuse_start != LAUNCH_E_NONE) {
		*ret_error = paper.refuse_start;
		return err_fail(err, -EIO, "paper", "told to fail");
	}
	for (size_t i = 0; i < PAPER_SESSIONS; i++) {
		if (paper.sessions[i].used)
			continue;
		paper.sessions[i] = (struct session){.used = true,
						     .plan = *launch->plan,
						     .state = SESSION_STATE_STARTING,
						     .events = events,
						     .userdata = userdata};
		memcpy(paper.sessions[i].id.bytes, launch->plan->session, ID_BYTES);
		*ret_session = &paper.sessions[i];
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

int session_hold(struct session *session, bool is_held)
{
	if (paper.n_holds_refused > 0) {
		paper.n_holds_refused--;
		return -EIO;
	}
	session->is_held = is_held;
	return 0;
}

int session_part(struct session *session, bool apart, session_parted *done, void *userdata)
{
	(void)apart;
	(void)done;
	(void)userdata;
	return session->state == SESSION_STATE_FROZEN ? -EIO : -EINVAL;
}

bool session_is_moving(const struct session *session)
{
	(void)session;
	return false;
}

bool session_is_parted(const struct session *session)
{
	(void)session;
	return false;
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

struct session *rig_find(uint8_t number)
{
	for (size_t i = 0; i < PAPER_SESSIONS; i++) {
		if (paper.sessions[i].used && paper.sessions[i].plan.session[0] == number)
			return &paper.sessions[i];
	}
	fail_msg("no session %d", number);
	return NULL;
}

void rig_become_live(uint8_t number)
{
	struct session *session = rig_find(number);

	session->state = SESSION_STATE_LIVE;
	session->events->started(session->userdata, session, LAUNCH_E_NONE, NULL);
}

void rig_end_session(uint8_t number)
{
	struct session *session = rig_find(number);

	session->used = false;
	session->events->ended(session->userdata, session, LAUNCH_GONE_SHIM_EXITED, 9);
}

/* --- the worker's side ----------------------------------------------------------------------- */

static int end_turn(void *userdata, uint32_t events)
{
	struct fixture *fixture = userdata;

	(void)events;
	loop_quit(fixture->loop, 0);
	return 0;
}

void rig_turns(struct fixture *fixture, int n)
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

void rig_open_worker(struct fixture *fixture, enum serve_worker worker)
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

void rig_close_worker(struct fixture *fixture)
{
	serve_client_done(&fixture->client);
	fixture->worker_fd = fd_close(fixture->worker_fd);
}

struct launch_msg rig_request(struct fixture *fixture, enum launch_type type, uint8_t number)
{
	uint8_t session[ID_BYTES] = {number};

	return launch_message(type, ++fixture->serial, session);
}

void rig_ask(struct fixture *fixture, const struct launch_msg *msg)
{
	assert_int_equal(sockmsg_send(fixture->worker_fd, msg, sizeof(*msg), NULL, 0), 0);
	rig_turns(fixture, 3);
}

bool rig_hear(struct fixture *fixture, struct launch_msg *ret_msg)
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

void rig_expect_silence(struct fixture *fixture)
{
	struct launch_msg msg;

	assert_int_equal(sockmsg_recv(fixture->worker_fd, &msg, sizeof(msg), NULL, 0), -EAGAIN);
}

void rig_expect_error(struct fixture *fixture, const struct launch_msg *msg,
		      enum launch_error error)
{
	struct launch_msg answer;

	rig_ask(fixture, msg);
	(void)rig_hear(fixture, &answer);
	assert_int_equal(answer.type, msg->type + 1);
	assert_int_equal(answer.serial, msg->serial);
	assert_memory_equal(answer.session, msg->session, ID_BYTES);
	assert_int_equal(answer.error, error);
}

struct launch_msg rig_hello(struct fixture *fixture)
{
	struct launch_msg msg = rig_request(fixture, LAUNCH_HELLO, 0);

	msg.u.hello.magic = LAUNCH_MAGIC;
	msg.u.hello.version = LAUNCH_VERSION;
	msg.u.hello.message_bytes = sizeof(msg);
	return msg;
}

void rig_greet(struct fixture *fixture)
{
	struct launch_msg msg = rig_hello(fixture);

	rig_expect_error(fixture, &msg, LAUNCH_E_NONE);
}

struct launch_msg rig_start_message(struct fixture *fixture, uint8_t number)
{
	struct launch_msg msg = rig_request(fixture, LAUNCH_START, number);

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

void rig_start(struct fixture *fixture, uint8_t number)
{
	struct launch_msg msg = rig_start_message(fixture, number);
	struct launch_msg answer;

	rig_ask(fixture, &msg);
	rig_expect_silence(fixture);
	rig_become_live(number);
	assert_true(rig_hear(fixture, &answer));
	assert_int_equal(answer.error, LAUNCH_E_NONE);
	assert_int_equal(answer.serial, msg.serial);
}

int rig_set_up(void **state)
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
	struct serve_options options = {.instance = "0123abcd",
					.n_egress = 1,
					.lease_fd = -1,
					.emptied = on_emptied,
					.userdata = &fixture};
	static struct unsealer unsealer;

	memset(&paper, 0, sizeof(paper));
	paper.config.api.redis.port = 6379;
	memcpy(paper.config.redis.password, "credential", sizeof("credential"));

	log_set_level(LOG_LEVEL_ERROR);
	fixture = (struct fixture){.worker_fd = -1};
	paper.image = (struct policy_image_header){.n_profiles = 2};
	paper.image.profile[0].kind = POLICY_KIND_SESSION;
	memset(paper.image.profile[0].hash, 7, sizeof(paper.image.profile[0].hash));
	paper.image.profile[1].kind = POLICY_KIND_WORKER;
	memset(paper.image.profile[1].hash, 7, sizeof(paper.image.profile[1].hash));
	ceilings_init(&options.ceilings, &config, 1ull << 34, 20000);
	assert_int_equal(loop_new(&fixture.loop), 0);
	assert_int_equal(loop_add_deferred(fixture.loop, end_turn, &fixture, &fixture.turn), 0);
	loop_deferred_set(fixture.turn, 1);
	options.loop = fixture.loop;
	options.unsealer = &unsealer;
	options.config = &paper.config;
	assert_int_equal(serve_new(&options, &fixture.serve), 0);
	rig_open_worker(&fixture, SERVE_WORKER_API);
	*state = &fixture;
	return 0;
}

int rig_tear_down(void **state)
{
	struct fixture *fixture = *state;

	rig_close_worker(fixture);
	for (size_t i = 0; i < PAPER_SESSIONS; i++) {
		if (paper.sessions[i].used)
			rig_end_session(paper.sessions[i].plan.session[0]);
	}
	fixture->serve = serve_free(fixture->serve);
	fixture->turn = loop_remove(fixture->turn);
	loop_free(fixture->loop);
	return 0;
}
