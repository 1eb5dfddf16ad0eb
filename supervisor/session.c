/*
 * Theory. A session is a state machine in the supervisor's loop; nothing here waits. Its end has
 * one way, whatever the cause (asked for, the shim's death, a failed launch): ENDING kills the v2
 * group by one write, which reaches everything however it forked and also what is frozen (E2, E3),
 * and then three facts are awaited, in any order: pid 1 is reaped through its pidfd (B19), the
 * group reports that it is empty, and the kernel lets the groups be removed. Only then go socket
 * and ids, and only then is the owner told: what it hears is true.
 */
#include "supervisor/session.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/io.h"
#include "base/log.h"
#include "base/str.h"

#include "sandboxd/kernel.h"
#include "supervisor/prove.h"
#include "supervisor/record.h"
#include "supervisor/session_state.h"

#define RETRY_FIRST_US (2 * USEC_PER_MS)
#define RETRY_MAX_US   (250 * USEC_PER_MS)
#define RETRIES_TOLD   40u /* after about ten seconds */

uint32_t session_elapsed_us(const struct session *session)
{
	return (uint32_t)(clock_boottime() - session->begun_at);
}

void session_trace_step(struct session *session, const char *name, uint32_t us, uint32_t side)
{
	struct launch_trace *trace = &session->trace;

	if (trace->n == LAUNCH_TRACE_MAX)
		return;
	struct launch_trace_step *step = &trace->step[trace->n++];
	(void)strncpy(step->name, name, sizeof(step->name) - 1);
	step->us = us;
	step->side = side;
}

static void take_child_trace(struct session *session)
{
	if (session->clock == SESSION_NO_CLOCK)
		return;
	const struct steps_clock *clock = &session->host->clocks[session->clock];
	for (uint32_t i = 0; i < STEPS_CHILD_MAX && steps_child_name(i); i++) {
		if (clock->us[i] != 0)
			session_trace_step(session, steps_child_name(i), clock->us[i], 1);
	}
}

/* Without memory for a timer there is none: descriptors then carry the end alone. */
static void wake_after(struct session *session, usec_t pause)
{
	usec_t at = clock_add(clock_boottime(), pause);

	if (session->timer)
		loop_timer_set(session->timer, at);
	else
		(void)!loop_add_timer(session->host->loop, at, session_on_timer, session,
				      &session->timer);
}

static void close_all(struct session *session)
{
	session->pid_source = loop_remove(session->pid_source);
	session->ready_source = loop_remove(session->ready_source);
	session->events_source = loop_remove(session->events_source);
	session->timer = loop_remove(session->timer);
	session->pid_fd = fd_close(session->pid_fd);
	session->events_fd = fd_close(session->events_fd);
}

static void session_free(struct session *session)
{
	usr_copies_give(&session->host->usr_use, session->usr_set);
	free(session);
}

void session_free_dead(struct host *host)
{
	LIST_FOR_EACH_SAFE (link, following, &host->dead) {
		struct session *session = LIST_ENTRY(link, struct session, link);
		list_remove(&session->link);
		session_free(session);
	}
}

static enum launch_gone_reason reason_of(const struct session *session)
{
	if (session->kill_asked)
		return LAUNCH_GONE_KILLED;
	return session->oom_kills > 0 ? LAUNCH_GONE_OOM : LAUNCH_GONE_SHIM_EXITED;
}

/* What the groups say at the end. One that is half removed says less. */
static void take_counts(struct session *session)
{
	const struct cgroup *cgroup = &session->host->cgroup;

	if (!session->has_group)
		return;
	uint64_t cpu_us = cgroup_cpu_us(cgroup, session->name);
	uint32_t oom_kills = cgroup_oom_kills(cgroup, session->name);
	uint32_t forks_refused = cgroup_forks_refused(cgroup, session->name);

	if (cpu_us > session->cpu_us)
		session->cpu_us = cpu_us;
	if (oom_kills > session->oom_kills)
		session->oom_kills = oom_kills;
	if (forks_refused > session->forks_refused)
		session->forks_refused = forks_refused;
}

static struct log_context log_context_of(const struct session *session)
{
	return (struct log_context){.session = &session->id, .request = session->request_id};
}

/* Nothing runs any more. Remove what is left, tell the owner, be freed at the end of the turn. */
static void finish(struct session *session)
{
	const struct log_context context = log_context_of(session);
	struct host *host = session->host;

	take_counts(session);
	session_crash_point(session, "drained");
	int r = steps_parent_undo(session);
	if (r < 0) {
		/* EBUSY for a moment after the last exit: try again, off the request path, and for
		 * as long as it takes: its ids are not free before. */
		usec_t pause = RETRY_FIRST_US << (session->n_retries < 7 ? session->n_retries : 7);
		if (++session->n_retries == RETRIES_TOLD)
			log_line(LOG_LEVEL_ERROR, &context,
				 "groups of an ended session cannot be removed, trying on",
				 "errno=%d", -r);
		wake_after(session, pause < RETRY_MAX_US ? pause : RETRY_MAX_US);
		return;
	}
	session_crash_point(session, "removed");
	close_all(session);
	list_remove(&session->link);
	list_append(&host->dead, &session->link);
	host_wake(host);
	if (session->announced)
		session->events.ended(session->userdata, session, reason_of(session),
				      session->wait_status);
	else
		session->events.started(session->userdata, session, session->error, &session->err);
}

static void advance(struct session *session)
{
	if (!session->drained)
		session->drained =
			session->events_fd < 0 || cgroup_populated(session->events_fd) <= 0;
	if (session->drained && session->reaped && session->mover_fd < 0)
		finish(session);
	else
		/* The events below bring the next call; this is for a kernel that loses one. */
		wake_after(session, RETRY_MAX_US);
}

static int on_events(void *userdata, uint32_t events)
{
	(void)events;
	advance(userdata);
	return 0;
}

static bool reap(struct session *session, int options)
{
	siginfo_t info = {0};

	if (session->is_adopted) {
		struct pollfd ended = {.fd = session->pid_fd, .events = POLLIN};

		if (poll(&ended, 1, 0) <= 0)
			return false;
		/* Whoever is its parent now has the status. */
		session->wait_status = LAUNCH_STATUS_UNKNOWN;
		session->reaped = true;
		session->pid_source = loop_remove(session->pid_source);
		return true;
	}
	while (waitid(P_PIDFD, (id_t)session->pid_fd, &info, WEXITED | __WALL | options) < 0) {
		if (errno != EINTR)
			break;
	}
	if (info.si_pid == 0)
		return false;
	session->wait_status =
		info.si_code == CLD_EXITED ? (info.si_status & 0xff) << 8 : info.si_status & 0x7f;
	session->reaped = true;
	session->pid_source = loop_remove(session->pid_source);
	return true;
}

/* The end of a launch wakes what waits for a moment without any. */
static void set_state(struct session *session, enum session_state state)
{
	struct host *host = session->host;

	if (session->state == SESSION_STATE_STARTING) {
		host->reserve.n_launches--;
		host_wake(host);
	}
	session->state = state;
}

/* Begin the end. The caller has set what the owner will be told. */
static void begin_end(struct session *session)
{
	struct host *host = session->host;

	set_state(session, SESSION_STATE_ENDING);
	session->ready_source = loop_remove(session->ready_source);
	session->ready_fd = fd_close(session->ready_fd);
	session_crash_point(session, "end");
	session_part_stop(session);
	/* One write for everything in the group; the signal is for a child that never got into it.
	 */
	(void)!cgroup_kill(&host->cgroup, session->name);
	session_close_net(session);
	if (!session->reaped)
		(void)kernel_pidfd_send_signal(session->pid_fd, SIGKILL);
	int fd = cgroup_open_events(&host->cgroup, session->name);
	session->events_fd = fd < 0 ? -1 : fd;
	/* Without memory for a source the timer polls. */
	if (fd >= 0)
		(void)!loop_add(host->loop, fd, EPOLLPRI, on_events, session,
				&session->events_source);
	if (!session->pid_source && !session->reaped)
		(void)!loop_add(host->loop, session->pid_fd, EPOLLIN, session_on_pid, session,
				&session->pid_source);
	wake_after(session, RETRY_FIRST_US);
}

static void fail_launch(struct session *session, enum launch_error error)
{
	session->error = error;
	begin_end(session);
}

void session_moved(struct session *session)
{
	if (session->state == SESSION_STATE_ENDING)
		advance(session);
}

int session_on_pid(void *userdata, uint32_t events)
{
	struct session *session = userdata;

	(void)events;
	if (!reap(session, WNOHANG))
		return 0;
	if (session->state == SESSION_STATE_STARTING) {
		/* Its last words may still be in the pipe. */
		if (session->ready_source)
			(void)session_on_ready(session, 0);
		if (session->state == SESSION_STATE_LIVE) {
			begin_end(session);
		} else if (session->state == SESSION_STATE_STARTING) {
			(void)err_fail(&session->err, -EPIPE, "start", "ended without a word");
			fail_launch(session, LAUNCH_E_STEP);
		}
	} else if (session->state != SESSION_STATE_ENDING) {
		begin_end(session);
	}
	advance(session);
	return 0;
}

/* Before anybody hears of it: from here on a next supervisor takes the session over. */
static int mark_live(struct session *session)
{
	struct record record;

	session_fill_record(session, &record);
	record.state = RECORD_STATE_LIVE;
	record.pid = session->pid;
	record.proof = session->proof;
	int r = record_rewrite(session->record_fd, &record);
	session->record_fd = fd_close(session->record_fd);
	return r;
}

/* The shim is confined and listens. */
static void become_live(struct session *session)
{
	session_trace_step(session, "ready", session_elapsed_us(session), 2);
	session->ready_source = loop_remove(session->ready_source);
	session->ready_fd = fd_close(session->ready_fd);
	session->timer = loop_remove(session->timer);
	int r = steps_parent_take_net(session);
	if (r < 0) {
		(void)err_fail(&session->err, r, "sockets", "take the sockets of its network");
		fail_launch(session, LAUNCH_E_STEP);
		return;
	}
	prove_late(session);
	session_trace_step(session, "proved", session_elapsed_us(session), 0);
	if (!prove_holds(session)) {
		const struct log_context context = log_context_of(session);
		log_line(LOG_LEVEL_WARNING, &context, "proof of effect differs from the plan",
			 "wanted=0x%x in_force=0x%x", session->proof.wanted,
			 session->proof.in_force);
		if (session->host->strict) {
			(void)err_fail(&session->err, -EPERM, "prove", "wanted 0x%x, seen 0x%x",
				       session->proof.wanted, session->proof.in_force);
			fail_launch(session, LAUNCH_E_PROOF);
			return;
		}
	}
	session_crash_point(session, "proved");
	r = mark_live(session);
	session_crash_point(session, "live");
	if (r < 0) {
		(void)err_fail(&session->err, r, "record", "mark the session as live");
		fail_launch(session, LAUNCH_E_STEP);
		return;
	}
	session->host->clocks_used &=
		~(session->clock == SESSION_NO_CLOCK ? 0 : 1ull << session->clock);
	session->clock = SESSION_NO_CLOCK;
	set_state(session, SESSION_STATE_LIVE);
	if (session->is_held) {
		session->is_held = false;
		r = session_hold(session, true);
		if (r < 0) {
			(void)err_fail(&session->err, r, "hold", "freeze the group");
			fail_launch(session, LAUNCH_E_STEP);
			return;
		}
	}
	session->announced = true;
	session->events.started(session->userdata, session, LAUNCH_E_NONE, NULL);
}

/* One byte: confined. A struct err: a step failed, in the child or in the shim. Nothing: killed. */
int session_on_ready(void *userdata, uint32_t events)
{
	struct session *session = userdata;
	union {
		struct err err;
		uint8_t bytes[sizeof(struct err)];
	} word;

	(void)events;
	ssize_t n = io_read(session->ready_fd, word.bytes, sizeof(word.bytes));
	if (n == -EAGAIN)
		return 0;
	take_child_trace(session);
	if (n == 1 && word.bytes[0] == SHIM_READY_BYTE) {
		become_live(session);
		return 0;
	}
	if (n == (ssize_t)sizeof(struct err)) {
		session->err = word.err;
		err_sanitize(&session->err);
	} else if (n == 0) {
		(void)err_fail(&session->err, -EPIPE, "start", "ended without a word");
	} else {
		(void)err_fail(&session->err, n < 0 ? (int)n : -EPROTO, "start",
			       "unexpected bytes on the ready pipe");
	}
	fail_launch(session, LAUNCH_E_STEP);
	return 0;
}

int session_on_timer(void *userdata, uint32_t events)
{
	struct session *session = userdata;

	(void)events;
	if (session->state == SESSION_STATE_STARTING) {
		(void)err_fail(&session->err, -ETIMEDOUT, "start", "not ready in time");
		fail_launch(session, LAUNCH_E_STEP);
		return 0;
	}
	if (!session->reaped)
		(void)reap(session, WNOHANG);
	advance(session);
	return 0;
}

void session_close_net(struct session *session)
{
	for (size_t i = 0; i < ARRAY_SIZE(session->net_fd); i++)
		session->net_fd[i] = fd_close(session->net_fd[i]);
}

struct session *session_alloc(struct host *host, const struct plan *plan)
{
	struct session *session = calloc(1, sizeof(*session));

	if (!session)
		return NULL;
	session->host = host;
	session->plan = *plan;
	memcpy(session->id.bytes, plan->session, ID_BYTES);
	id_format(&session->id, session->name);
	session->userns = USERNS_NULL;
	session->clock = SESSION_NO_CLOCK;
	session->listen_fd = session->group_fd = session->plan_fd = -1;
	session->child_plan_fd = session->child_ready_fd = -1;
	session->ready_fd = session->pid_fd = session->events_fd = session->record_fd = -1;
	session->secrets_fd = session->mover_fd = -1;
	session->template = "";
	session->template_use = TEMPLATE_USE_NULL;
	session->lookup = SKLOOKUP_NULL;
	for (size_t i = 0; i < ARRAY_SIZE(session->net_fd); i++)
		session->net_fd[i] = -1;
	session->begun_at = clock_boottime();
	return session;
}

/* Seven values of seven kinds. NOLINTNEXTLINE(readability-function-size) */
int session_start(struct host *host, const struct session_launch *launch,
		  const struct session_events *events, void *userdata, struct session **ret_session,
		  enum launch_error *ret_error, struct err *err)
{
	const struct plan *plan = launch->plan;
	struct err why = ERR_NULL;
	enum launch_error error = LAUNCH_E_STEP;

	if (plan->profile >= POLICY_MAX_PROFILES || host->session_policy_fd[plan->profile] < 0) {
		*ret_error = LAUNCH_E_PLAN;
		return err_fail(err, -EINVAL, "plan", "no session profile %u", plan->profile);
	}
	int r = host_settle(host, err);
	if (r < 0) {
		*ret_error = LAUNCH_E_STEP;
		return r;
	}
	struct session *session = session_alloc(host, plan);
	if (!session) {
		*ret_error = LAUNCH_E_STEP;
		return err_fail(err, -ENOMEM, "plan", "memory");
	}
	session->events = *events;
	session->userdata = userdata;
	session->secrets_fd = launch->secrets_fd;
	session->template = launch->template ? launch->template : "";
	if (launch->request_id)
		IGNORE_RESULT(str_copy(session->request_id, sizeof(session->request_id),
				       launch->request_id));
	r = steps_parent_run(session, &error, &why);
	session->secrets_fd = -1;
	session->template = "";
	host_wake(host); /* the reserve has one less */
	if (r < 0 && session->pid_fd < 0) {
		/* No child exists, so nothing can be busy. */
		(void)!steps_parent_undo(session);
		session_free(session);
		*ret_error = error;
		if (err)
			*err = why;
		return r;
	}
	list_append(&host->sessions, &session->link);
	host->reserve.n_launches++;
	if (r < 0) {
		session->err = why;
		fail_launch(session, error);
	}
	*ret_session = session;
	return 0;
}

void session_kill(struct session *session)
{
	if (session->state == SESSION_STATE_ENDING)
		return;
	session->kill_asked = true;
	if (session->state == SESSION_STATE_STARTING) {
		(void)err_fail(&session->err, -ECANCELED, "start", "killed before it was ready");
		session->error = LAUNCH_E_STEP;
	}
	begin_end(session);
}

int session_freeze(struct session *session)
{
	if (session->state != SESSION_STATE_LIVE)
		return -EINVAL;
	int r = cgroup_freeze(&session->host->cgroup, session->name, true);
	if (r == 0)
		session->state = SESSION_STATE_FROZEN;
	return r;
}

int session_thaw(struct session *session)
{
	if (session->state != SESSION_STATE_FROZEN || session->is_parted || session->mover_fd >= 0)
		return -EINVAL;
	int r = cgroup_freeze(&session->host->cgroup, session->name, session->is_held);
	if (r == 0)
		session->state = SESSION_STATE_LIVE;
	return r;
}

int session_hold(struct session *session, bool is_held)
{
	if (session->is_held == is_held)
		return 0;
	int r = session->state == SESSION_STATE_LIVE
			? cgroup_freeze(&session->host->cgroup, session->name, is_held)
			: 0;
	if (r == 0)
		session->is_held = is_held;
	return r;
}

bool session_is_moving(const struct session *session)
{
	return session->mover_fd >= 0;
}

bool session_is_parted(const struct session *session)
{
	/* What moves them may be at any point. */
	return session->is_parted || session_is_moving(session);
}

int session_connect(struct session *session, int *ret_fd)
{
	struct sockaddr_un address;

	/* Nobody accepts while it is frozen, but the connection waits in the backlog. */
	if (session->state != SESSION_STATE_LIVE && session->state != SESSION_STATE_FROZEN)
		return -EINVAL;
	int r = session_socket_address(session, &address);
	if (r < 0)
		return r;
	/* Never blocks: a full backlog is EAGAIN, and whoever gets the descriptor polls it anyway.
	 */
	AUTO_CLOSE int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	if (connect(fd, &address, sizeof(address)) < 0)
		return -errno;
	*ret_fd = TAKE_FD(fd);
	return 0;
}

int session_stat(struct session *session, struct launch_stat *ret_stat)
{
	return cgroup_stat(&session->host->cgroup, session->name, ret_stat);
}

bool session_net(const struct session *session, int ret_fds[LAUNCH_NET_FDS])
{
	for (size_t i = 0; i < LAUNCH_NET_FDS; i++) {
		if (session->net_fd[i] < 0)
			return false;
		ret_fds[i] = session->net_fd[i];
	}
	return true;
}

void session_fill_gone(const struct session *session, struct launch_gone *gone)
{
	gone->cpu_us = session->cpu_us;
	gone->oom_kills = session->oom_kills;
	gone->forks_refused = session->forks_refused;
}

const struct id *session_id(const struct session *session)
{
	return &session->id;
}

const struct plan *session_plan(const struct session *session)
{
	return &session->plan;
}

enum session_state session_state(const struct session *session)
{
	return session->state;
}

const struct launch_proof *session_proof(const struct session *session)
{
	return &session->proof;
}

const struct launch_trace *session_trace(const struct session *session)
{
	return &session->trace;
}
