/*
 * Theory. Each worker goes round this circle; a state says what is open:
 *
 *   IDLE      nothing; the timer, if set, starts it
 *   GREETING  process, socket, log pipe; the timer is the deadline for its HELLO
 *   RUNNING   as GREETING; no timer
 *   STOPPING  was told to end (or, before its HELLO, killed); the timer is the moment of KILL
 *   STOPPED   nothing, for good: where STOPPING leads
 *
 * A worker is judged by its process alone: a broken connection, a missed deadline or a wrong
 * message kills the process, and only its end (pidfd) leads back to IDLE. Sessions never depend on
 * a worker: a new api worker says HELLO and adopts them. After a steady half minute a restart waits
 * for nothing; the pause before the following ones doubles up to ten seconds.
 */
#include "supervisor/workers.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/launch.h"
#include "base/log.h"
#include "base/sockmsg.h"
#include "base/str.h"

#include "sandboxd/kernel.h"
#include "sandboxd/provider.h"
#include "supervisor/host.h"
#include "supervisor/log_relay.h"
#include "supervisor/worker_spawn.h"

#define BACKOFF_MIN     (50 * USEC_PER_MS)
#define BACKOFF_MAX     (10 * USEC_PER_SEC)
#define STEADY_AFTER    (30 * USEC_PER_SEC)
#define HELLO_TIMEOUT   (20 * USEC_PER_SEC)
#define MAX_FIRST_TRIES 3

enum worker_state {
	WORKER_STATE_IDLE,
	WORKER_STATE_GREETING,
	WORKER_STATE_RUNNING,
	WORKER_STATE_STOPPING,
	WORKER_STATE_STOPPED,
	WORKER_STATE_MAX_,
};

struct worker {
	struct workers *workers;
	enum serve_worker kind;
	uint32_t index; /* among its kind, as in struct plan */
	enum worker_state state;
	struct serve_client client;
	struct log_relay relay;
	int pid_fd;
	int step_fd; /* worker_spawn's pipe */
	struct loop_source *process_source;
	struct loop_source *timer;
	usec_t started_at;
	usec_t backoff;
	uint32_t n_tries; /* that ended without any HELLO yet */
	bool greeted;     /* once, in any of its lives */
};

struct workers {
	struct workers_options options;
	bool ready;
	enum log_level log_level;
	uint32_t n_restarts[SERVE_WORKER_MAX_];
	uint32_t n_workers;
	struct worker worker[];
};

static const struct worker_kind {
	const char *program;
	uint32_t id_offset;
	bool serves_clients; /* gets the listening sockets and the state directory */
} kinds[SERVE_WORKER_MAX_] = {
	[SERVE_WORKER_API] = {"sandboxd-api",      WORKER_ID_API,      true },
	[SERVE_WORKER_EGRESS] = {"sandboxd-egress",   WORKER_ID_EGRESS,   false},
	[SERVE_WORKER_PROVIDER] = {"sandboxd-provider", WORKER_ID_PROVIDER, false},
};

static bool is_remote(const struct supervisor_config *config)
{
	return config->remote.url[0] != '\0';
}

static enum launch_engine engine_of(const struct supervisor_config *config)
{
	if (is_remote(config))
		return LAUNCH_ENGINE_REMOTE;
	return config->docker.socket[0] != '\0' ? LAUNCH_ENGINE_DOCKER : LAUNCH_ENGINE_NONE;
}

static int open_provider_config(const struct workers *workers)
{
	struct provider_config config = {
		.magic = CONFIG_MAGIC,
		.version = CONFIG_VERSION,
		.size = sizeof(config),
	};
	const struct supervisor_config *wanted = &workers->options.config->supervisor;
	int r;

	memcpy(config.url, wanted->remote.url, sizeof(config.url));
	memcpy(config.image, is_remote(wanted) ? wanted->remote.template : wanted->docker.image,
	       sizeof(config.image));
	r = str_copy(config.programs_dir, sizeof(config.programs_dir),
		     workers->options.libexec_dir);
	return r < 0 ? r : fd_memfd_sealed("provider-config", &config, sizeof(config), 0);
}

/* A new one for every life: a descriptor of its own has an offset of its own, so what a former
 * worker read, or did to it, is not seen. */
static int open_config(const struct workers *workers, enum serve_worker kind)
{
	const struct config_answer *config = workers->options.config;

	switch (kind) {
	case SERVE_WORKER_API:
		return fd_memfd_sealed("api-config", &config->api, sizeof(config->api), 0);
	case SERVE_WORKER_EGRESS:
		return fd_memfd_sealed("egress-config", &config->egress, sizeof(config->egress), 0);
	case SERVE_WORKER_PROVIDER:
		return open_provider_config(workers);
	case SERVE_WORKER_MAX_:
		break;
	}
	return -EINVAL;
}

static void add_fd(struct worker_spawn *spawn, int from, int to)
{
	spawn->fds[spawn->n_fds++] = (struct worker_spawn_fd){from, to};
}

/* Of a server: it may connect at all. */
static bool is_client(const struct api_config *config)
{
	return config->store_dsn[0] != '\0' || config->platform.redis.place.port != 0 ||
	       config->celery.broker.place.port != 0;
}

/* The process with its socket and its log; worker_fd and log_fd are the far ends. */
static int spawn_process(struct worker *worker, int worker_fd, int log_fd, struct err *err)
{
	const struct workers_options *options = &worker->workers->options;
	const struct worker_kind *kind = &kinds[worker->kind];
	AUTO_CLOSE int config_fd = open_config(worker->workers, worker->kind);
	struct worker_spawn spawn = {
		.program = kind->program,
		.id = host_worker_ids(options->host) + kind->id_offset,
		.state_fd = kind->serves_clients ? options->state_fd : -1,
		.mode = worker->kind == SERVE_WORKER_API && is_client(&options->config->api)
				? WORKER_MODE_NETWORK
				: NULL,
		.guarded = worker->kind == SERVE_WORKER_EGRESS,
	};

	if (worker->kind == SERVE_WORKER_PROVIDER) {
		const struct supervisor_config *config = &options->config->supervisor;

		/* Only a service elsewhere is reached by the network. */
		spawn.no_network = !is_remote(config);
		if (is_remote(config))
			spawn.credential = config->remote.credential_file;
		else
			spawn.engine = config->docker.socket;
	}

	if (config_fd < 0)
		return err_fail(err, config_fd, "worker", "sealed configuration");
	add_fd(&spawn, STDIN_FILENO, STDIN_FILENO); /* /dev/null, see signals_open */
	add_fd(&spawn, STDIN_FILENO, STDOUT_FILENO);
	add_fd(&spawn, log_fd, STDERR_FILENO);
	add_fd(&spawn, worker_fd, WORKER_FD_SUPERVISOR);
	add_fd(&spawn, host_policy_fd(options->host), WORKER_FD_POLICY);
	add_fd(&spawn, config_fd, WORKER_FD_CONFIG);
	if (kind->serves_clients) {
		add_fd(&spawn, options->control_fd, WORKER_FD_CONTROL);
		add_fd(&spawn, options->operator_fd, WORKER_FD_OPERATOR);
		add_fd(&spawn, options->state_fd, WORKER_FD_STATE);
	}
	return worker_spawn(options->host, &spawn, &worker->pid_fd, &worker->step_fd, err);
}

static void kill_process(struct worker *worker)
{
	/* ESRCH: dead already, and its pidfd tells. */
	if (worker->pid_fd >= 0)
		(void)kernel_pidfd_send_signal(worker->pid_fd, SIGKILL);
}

/* Everything of this life; the process is dead or was never started. */
static void close_worker(struct worker *worker)
{
	serve_client_done(&worker->client);
	worker->process_source = loop_remove(worker->process_source);
	worker->pid_fd = fd_close(worker->pid_fd);
	worker->step_fd = fd_close(worker->step_fd);
	log_relay_done(&worker->relay);
}

/* Its engine may be down, which is no reason not to serve what needs none. */
static bool is_optional(const struct worker *worker)
{
	return worker->kind == SERVE_WORKER_PROVIDER;
}

static void check_ready(struct workers *workers)
{
	if (workers->ready)
		return;
	for (uint32_t i = 0; i < workers->n_workers; i++) {
		if (!workers->worker[i].greeted && !is_optional(&workers->worker[i]))
			return;
	}
	workers->ready = true;
	workers->options.ready(workers->options.userdata);
}

static bool is_up(const struct worker *worker)
{
	return worker->state == WORKER_STATE_RUNNING;
}

/* It is the last one. */
static bool has_provider(const struct workers *workers)
{
	return workers->worker[workers->n_workers - 1].kind == SERVE_WORKER_PROVIDER;
}

/* To each worker that has said HELLO: whoever shows the service's state, or has a log level. */
static void tell_facts(struct workers *workers)
{
	struct launch_msg event = launch_message(LAUNCH_EVENT_FACTS, 0, NULL);
	struct launch_facts *facts = &event.u.facts;

	facts->n_api_restarts = workers->n_restarts[SERVE_WORKER_API];
	facts->n_egress_restarts = workers->n_restarts[SERVE_WORKER_EGRESS];
	facts->n_egress = workers->options.config->supervisor.n_egress;
	facts->egress_guarded = host_egress_guarded(workers->options.host);
	facts->log_level = (uint32_t)workers->log_level;
	facts->n_provider_restarts = workers->n_restarts[SERVE_WORKER_PROVIDER];
	facts->engine = engine_of(&workers->options.config->supervisor);
	facts->provider_up =
		has_provider(workers) && is_up(&workers->worker[workers->n_workers - 1]);
	for (uint32_t i = 0; i < workers->n_workers; i++)
		facts->n_egress_up += workers->worker[i].kind == SERVE_WORKER_EGRESS &&
				      is_up(&workers->worker[i]);
	for (uint32_t i = 0; i < workers->n_workers; i++)
		if (is_up(&workers->worker[i]))
			peer_send(&workers->worker[i].client.peer, &event, -1);
}

void workers_tell_config(const struct workers *workers)
{
	int fd = open_config(workers, SERVE_WORKER_API);

	if (fd < 0)
		log_line(LOG_LEVEL_ERROR, NULL, "the api worker keeps its configuration",
			 "errno=%d", -fd);
	serve_tell_config(workers->options.serve, workers->options.config_state, fd);
}

/* A socket pair of their own for the api worker and that worker, if both are up. Without one the
 * sessions of that worker get no new policy, or nothing: the next life of either tries again. */
static bool link_to_api(struct worker *worker)
{
	struct worker *api = &worker->workers->worker[0];
	struct launch_msg event = launch_message(LAUNCH_EVENT_LINK, 0, NULL);
	int fds[2];
	int r;

	if (!is_up(api) || !is_up(worker))
		return false;
	r = sockmsg_pair(fds, 1);
	if (r < 0) {
		log_line(LOG_LEVEL_ERROR, NULL, "no socket between api and other worker",
			 "worker=%s errno=%d", kinds[worker->kind].program, -r);
		kill_process(worker);
		return false;
	}
	event.u.link.egress = worker->index;
	peer_send(&api->client.peer, &event, fds[0]);
	peer_send(&worker->client.peer, &event, fds[1]);
	return true;
}

bool workers_link(struct workers *workers, uint32_t egress)
{
	/* The first is the api worker. */
	return egress < workers->options.config->supervisor.n_egress &&
	       link_to_api(&workers->worker[egress + 1]);
}

static void link_workers(struct worker *worker)
{
	struct workers *workers = worker->workers;

	if (worker->kind != SERVE_WORKER_API) {
		(void)link_to_api(worker);
		if (worker->kind == SERVE_WORKER_EGRESS)
			serve_hand_over(&worker->client);
		return;
	}
	for (uint32_t i = 1; i < workers->n_workers; i++)
		(void)link_to_api(&workers->worker[i]);
}

static void on_hello(void *userdata)
{
	struct worker *worker = userdata;

	if (worker->state != WORKER_STATE_GREETING)
		return; /* it is being stopped */
	worker->state = WORKER_STATE_RUNNING;
	loop_timer_set(worker->timer, USEC_NEVER);
	worker->greeted = true;
	/* It was started with what was in force then. */
	if (worker->kind == SERVE_WORKER_API)
		workers_tell_config(worker->workers);
	log_line(LOG_LEVEL_INFO, NULL, "worker is up", "worker=%s", kinds[worker->kind].program);
	tell_facts(worker->workers);
	link_workers(worker);
	check_ready(worker->workers);
}

static void on_connection_lost(void *userdata)
{
	struct worker *worker = userdata;

	/* One that was told to stop closes its socket first and may still be writing. */
	if (worker->state != WORKER_STATE_STOPPING)
		kill_process(worker);
}

/* One that ends itself before it has greeted has said why in a line of its own: mostly that
 * something it needs is away. */
static const char *end_text(const struct worker *worker, const siginfo_t *info)
{
	return worker->state == WORKER_STATE_GREETING && info->si_code == CLD_EXITED
		       ? "worker gave up at its start and is started again"
		       : "worker died and is started again";
}

static int on_process(void *userdata, uint32_t events);

static int open_worker(struct worker *worker, struct err *err)
{
	const struct workers_options *options = &worker->workers->options;
	const char *program = kinds[worker->kind].program;
	AUTO_CLOSE int our_fd = -1;
	AUTO_CLOSE int worker_fd = -1;
	AUTO_CLOSE int log_write_fd = -1;
	int fds[2];
	int r;

	r = sockmsg_pair(fds, 1);
	if (r < 0)
		return err_fail(err, r, "worker", "socket pair");
	our_fd = fds[0];
	worker_fd = fds[1];
	if (pipe2(fds, O_CLOEXEC) < 0)
		return err_fail(err, -errno, "worker", "log pipe");
	log_write_fd = fds[1];
	r = log_relay_start(&worker->relay, options->loop, fds[0], program);
	if (r < 0)
		return err_fail(err, r, "worker", "watch the log pipe");
	r = spawn_process(worker, worker_fd, log_write_fd, err);
	if (r < 0)
		return r;
	r = loop_add(options->loop, worker->pid_fd, EPOLLIN, on_process, worker,
		     &worker->process_source);
	if (r < 0)
		return err_fail(err, r, "worker", "watch the process");
	worker->client.hello = on_hello;
	worker->client.lost = on_connection_lost;
	worker->client.userdata = worker;
	r = serve_client_open(&worker->client, options->serve, worker->kind, our_fd, program);
	if (r < 0)
		return err_fail(err, r, "worker", "watch the socket");
	(void)TAKE_FD(our_fd);
	return 0;
}

static void reap(struct worker *worker, siginfo_t *ret_info)
{
	/* Cannot fail: it is our child and its pidfd says that it has ended. */
	if (waitid(P_PIDFD, (id_t)worker->pid_fd, ret_info, WEXITED | WNOHANG) < 0)
		log_line(LOG_LEVEL_ERROR, NULL, "wait for a worker", "errno=%d", errno);
}

/* For the places that cannot come back later. */
static void end_process(const struct worker *worker)
{
	if (worker->pid_fd >= 0)
		worker_end(worker->pid_fd, kinds[worker->kind].program);
}

/* A life is over, or did not begin: the next one after a pause. */
static void pause_worker(struct worker *worker)
{
	const struct workers *workers = worker->workers;
	usec_t now = clock_boottime();

	worker->state = WORKER_STATE_IDLE;
	loop_timer_set(worker->timer, clock_add(now, worker->backoff));
	worker->backoff = worker->backoff > 0 ? worker->backoff * 2 : BACKOFF_MIN;
	if (worker->backoff > BACKOFF_MAX)
		worker->backoff = BACKOFF_MAX;
	if (!worker->greeted && ++worker->n_tries == MAX_FIRST_TRIES && !is_optional(worker))
		workers->options.failed(workers->options.userdata);
}

static void start_worker(struct worker *worker)
{
	struct err err = ERR_NULL;

	worker->started_at = clock_boottime();
	if (open_worker(worker, &err) < 0) {
		log_err(LOG_LEVEL_ERROR, NULL, "worker cannot be started", &err);
		end_process(worker);
		close_worker(worker);
		pause_worker(worker);
		return;
	}
	worker->state = WORKER_STATE_GREETING;
	loop_timer_set(worker->timer, clock_add(worker->started_at, HELLO_TIMEOUT));
}

static void worker_stopped(struct worker *worker)
{
	struct workers *workers = worker->workers;

	worker->state = WORKER_STATE_STOPPED;
	loop_timer_set(worker->timer, USEC_NEVER);
	for (uint32_t i = 0; i < workers->n_workers; i++) {
		if (workers->worker[i].kind == worker->kind &&
		    workers->worker[i].state != WORKER_STATE_STOPPED)
			return;
	}
	workers->options.stopped(workers->options.userdata, worker->kind);
}

static int on_process(void *userdata, uint32_t events)
{
	struct worker *worker = userdata;
	siginfo_t info = {0};
	struct err err = ERR_NULL;

	(void)events;
	reap(worker, &info);
	if (worker_spawn_result(worker->step_fd, &err))
		log_err(LOG_LEVEL_ERROR, NULL, "worker failed before its exec", &err);
	close_worker(worker);
	if (worker->state == WORKER_STATE_STOPPING) {
		worker_stopped(worker);
		return 0;
	}
	if (worker->greeted && clock_boottime() - worker->started_at > STEADY_AFTER)
		worker->backoff = 0;
	log_line(LOG_LEVEL_ERROR, NULL, end_text(worker, &info),
		 "worker=%s code=%d status=%d pause_ms=%llu", kinds[worker->kind].program,
		 info.si_code, info.si_status, (unsigned long long)(worker->backoff / USEC_PER_MS));
	worker->workers->n_restarts[worker->kind]++;
	pause_worker(worker);
	tell_facts(worker->workers);
	return 0;
}

static int on_timer(void *userdata, uint32_t events)
{
	struct worker *worker = userdata;

	(void)events;
	switch (worker->state) {
	case WORKER_STATE_IDLE:
		start_worker(worker);
		break;
	case WORKER_STATE_GREETING:
		log_line(LOG_LEVEL_ERROR, NULL, "worker says nothing and is killed", "worker=%s",
			 kinds[worker->kind].program);
		kill_process(worker);
		break;
	case WORKER_STATE_STOPPING:
		log_line(LOG_LEVEL_WARNING, NULL, "worker does not stop and is killed", "worker=%s",
			 kinds[worker->kind].program);
		kill_process(worker);
		break;
	case WORKER_STATE_RUNNING:
	case WORKER_STATE_STOPPED:
	case WORKER_STATE_MAX_:
		break;
	}
	return 0;
}

static void init_worker(struct workers *workers, uint32_t index, enum serve_worker kind)
{
	workers->worker[index] = (struct worker){
		.workers = workers,
		.kind = kind,
		.index = kind == SERVE_WORKER_EGRESS     ? index - 1
			 : kind == SERVE_WORKER_PROVIDER ? LAUNCH_LINK_PROVIDER
							 : 0,
		.state = WORKER_STATE_IDLE,
		.relay = LOG_RELAY_NULL,
		.pid_fd = -1,
		.step_fd = -1,
		.backoff = BACKOFF_MIN,
	};
	workers->worker[index].client.peer.fd = -1;
	workers->worker[index].client.index = workers->worker[index].index;
}

static enum serve_worker kind_of(const struct supervisor_config *config, uint32_t index)
{
	if (index == 0)
		return SERVE_WORKER_API;
	return index <= config->n_egress ? SERVE_WORKER_EGRESS : SERVE_WORKER_PROVIDER;
}

int workers_start(const struct workers_options *options, struct workers **ret_workers,
		  struct err *err)
{
	const struct supervisor_config *config = &options->config->supervisor;
	uint32_t n = 1 + config->n_egress + (engine_of(config) != LAUNCH_ENGINE_NONE);
	struct workers *workers;
	int r = 0;

	workers = calloc(1, sizeof(*workers) + n * sizeof(workers->worker[0]));
	if (!workers)
		return err_fail(err, -ENOMEM, "workers", "memory");
	workers->options = *options;
	workers->log_level = options->log_level;
	workers->n_workers = n;
	for (uint32_t i = 0; i < n; i++)
		init_worker(workers, i, kind_of(config, i));
	for (uint32_t i = 0; r == 0 && i < n; i++) {
		r = loop_add_timer(options->loop, USEC_NEVER, on_timer, &workers->worker[i],
				   &workers->worker[i].timer);
		if (r < 0)
			(void)err_fail(err, r, "workers", "timer");
		else
			start_worker(&workers->worker[i]);
	}
	if (r < 0) {
		(void)workers_free(workers);
		return r;
	}
	*ret_workers = workers;
	return 0;
}

static void stop_worker(struct worker *worker, int signal_number, usec_t grace)
{
	switch (worker->state) {
	case WORKER_STATE_IDLE:
	case WORKER_STATE_STOPPED: /* asked again: told again */
		worker_stopped(worker);
		break;
	case WORKER_STATE_GREETING:
		/* Pid 1 of a namespace never sees a signal that it does not wait for yet; and
		 * before its HELLO a worker has promised nothing to anybody. */
		worker->state = WORKER_STATE_STOPPING;
		kill_process(worker);
		break;
	case WORKER_STATE_RUNNING:
		worker->state = WORKER_STATE_STOPPING;
		(void)kernel_pidfd_send_signal(worker->pid_fd, signal_number);
		loop_timer_set(worker->timer, clock_add(clock_boottime(), grace));
		break;
	case WORKER_STATE_STOPPING:
	case WORKER_STATE_MAX_:
		break;
	}
}

void workers_stop(struct workers *workers, enum serve_worker kind, int signal_number, usec_t grace)
{
	for (uint32_t i = 0; i < workers->n_workers; i++) {
		if (workers->worker[i].kind == kind)
			stop_worker(&workers->worker[i], signal_number, grace);
	}
}

void workers_set_log_level(struct workers *workers, enum log_level level)
{
	if (!workers)
		return;
	workers->log_level = level;
	tell_facts(workers);
}

struct workers *workers_free(struct workers *workers)
{
	if (!workers)
		return NULL;
	for (uint32_t i = 0; i < workers->n_workers; i++) {
		struct worker *worker = &workers->worker[i];

		end_process(worker);
		close_worker(worker);
		worker->timer = loop_remove(worker->timer);
	}
	free(workers);
	return NULL;
}
