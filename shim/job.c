/*
 * Theory. A job holds a slot from its first frame until the api worker has acknowledged its last
 * one: what it owes to the api worker survives the worker. SHIM_MAX_JOBS of the slots may be
 * running or hold a ring, which bounds memory; the rest is for jobs that have only a last frame
 * left, a refusal among them, and for kept ones that have ended. A peer that fills those too does
 * not acknowledge, or forget: it is dropped.
 *
 * Stopping is one ladder, climbed by a timer: timeout or cancel, TERM, grace, KILL, abandon. The
 * last step is for a runner that hangs; it is killed and the job fails with SPAWNER_LOST.
 */
#include "shim/job.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>

#include "base/err.h"
#include "base/loop.h"

#include "sandboxd/limits.h"
#include "shim/jobs.h"
#include "shim/serve.h"
#include "shim/shim.h"
#include "shim/stdio.h"

#define JOB_DRAIN_US   (100 * USEC_PER_MS)
#define JOB_ABANDON_US (10 * USEC_PER_SEC)

struct job *job_find(struct shim *shim, uint32_t id)
{
	for (size_t i = 0; i < SHIM_N_SLOTS; i++) {
		if (shim->job[i].state != JOB_STATE_FREE && shim->job[i].id == id)
			return &shim->job[i];
	}
	return NULL;
}

struct job *job_find_running(struct shim *shim, uint32_t id)
{
	struct job *job = job_find(shim, id);

	return job && job->state == JOB_STATE_RUNNING ? job : NULL;
}

static bool job_counts(const struct job *job)
{
	return job->state == JOB_STATE_RUNNING || job->state == JOB_STATE_DRAINING ||
	       (outbox_is_open(&job->outbox) && !outbox_rests(&job->outbox));
}

void job_reset(struct job *job, struct shim *shim)
{
	*job = (struct job){
		.shim = shim,
		.agent_fd = -1,
		.input = {.fd = -1},
		.file = {          .fd = -1       },
		.output = { {.fd = -1},        {.fd = -1}},
		.stop_at = USEC_NEVER,
		.drain_at = USEC_NEVER,
		.read_at = USEC_NEVER,
		.max_bytes = UINT64_MAX,
	};
}

bool job_is_tools(const struct job *job)
{
	return job->kind == AGENT_TOOL_RUNNER || job->kind == AGENT_ROOT_TOOL_RUNNER;
}

static void job_dismiss_agent(struct job *job, bool is_idle)
{
	job->agent_source = loop_remove(job->agent_source);
	if (job->agent_fd >= 0 && is_idle && !job->is_left)
		job->agent_fd = agent_release(job->shim, job->kind, job->agent_fd);
	job->agent_fd = fd_close(job->agent_fd);
	/* Those of one that was left are dropped; others may have begun since. */
	if (job_is_tools(job) && !job->is_left)
		agent_drop_tools(job->shim);
}

void job_free(struct job *job)
{
	ASSERT(job->agent_fd < 0);
	stdio_close(job);
	files_job_close(job);
	outbox_done(&job->outbox);
	job_reset(job, job->shim);
}

/* The last frame, and with it the end of everything but the acknowledgement. */
static void job_end(struct job *job, uint16_t type, const void *payload, size_t size)
{
	struct shim *shim = job->shim;

	job_dismiss_agent(job, false);
	stdio_close(job);
	files_job_close(job);
	job->stop_at = USEC_NEVER;
	job->drain_at = USEC_NEVER;
	job->read_at = USEC_NEVER;
	job->state = JOB_STATE_ENDED;
	outbox_set_last(&job->outbox, frame_header(type, job->id, ++shim->last_number, size),
			payload);
	jobs_arm(shim);
	serve_flush(shim);
}

void job_end_failed(struct job *job, uint32_t step, int error_number)
{
	const struct wire_failed failed = {.step = step, .error_number = error_number};

	job_end(job, WIRE_FAILED, &failed, sizeof(failed));
}

void job_end_done(struct job *job)
{
	job_end(job, WIRE_PUT_DONE, NULL, 0);
}

static void job_end_exit(struct job *job)
{
	if (job->failure.step != 0)
		job_end_failed(job, job->failure.step, job->failure.error_number);
	else
		job_end(job, WIRE_EXIT, &job->exit, sizeof(job->exit));
}

bool job_is_paused(const struct job *job)
{
	return job->shim->paused_at != 0 && job->begun_at <= job->shim->paused_at;
}

static uint32_t job_lost_step(const struct job *job)
{
	return job->kind == AGENT_HELPER ? WIRE_STEP_HELPER_LOST : WIRE_STEP_SPAWNER_LOST;
}

void job_tell(struct job *job, const struct message *message)
{
	/* Its socket is nearly empty; if it is gone its end-of-file says so, and a stop that did
	 * not arrive is followed by the next rung. */
	if (job->agent_fd >= 0 && message_send(job->agent_fd, message, NULL, NULL, 0) < 0)
		return;
}

static void job_signal(struct job *job, uint32_t type)
{
	job_tell(job, &(struct message){.type = type});
}

static void job_abandon(struct job *job)
{
	/* Its socket answers for the identity of the pid: while it is open, the runner lives. */
	if (job->kind != AGENT_HELPER && job->peer_pid > 1)
		(void)kill(job->peer_pid, SIGKILL);
	job_end_failed(job, job_lost_step(job), ETIMEDOUT);
}

void job_stop(struct job *job, usec_t now)
{
	if (job->kind == AGENT_HELPER || job->stop == JOB_STOP_KILL) {
		job_abandon(job);
		return;
	}
	if (job->stop == JOB_STOP_NO && job->grace_ms > 0) {
		job->stop = JOB_STOP_TERM;
		job->stop_at = clock_add(now, job->grace_ms * USEC_PER_MS);
		job_signal(job, MESSAGE_TERM);
	} else {
		job->stop = JOB_STOP_KILL;
		job->stop_at = clock_add(now, JOB_ABANDON_US);
		job_signal(job, MESSAGE_KILL);
	}
	jobs_arm(job->shim);
}

void job_fail(struct job *job, uint32_t step, int error_number)
{
	if (job->state == JOB_STATE_ENDED || job->failure.step != 0)
		return;
	job->failure = (struct wire_failed){.step = step, .error_number = error_number};
	if (job->state != JOB_STATE_RUNNING || job->kind == AGENT_HELPER)
		return; /* the end is near, and says it */
	job->grace_ms = 0;
	if (job->stop != JOB_STOP_KILL)
		job_stop(job, clock_boottime());
}

void job_output_changed(struct job *job)
{
	struct shim *shim = job->shim;

	if (job->state == JOB_STATE_DRAINING && !stdio_at_end(job) && stdio_owes_nothing(job) &&
	    clock_boottime() >= job->drain_at && !job_is_paused(job))
		stdio_give_up(job);
	if (job->state == JOB_STATE_DRAINING && stdio_at_end(job)) {
		job_end_exit(job);
		return;
	}
	jobs_arm(shim);
	serve_flush(shim);
}

static void job_on_exit(struct job *job, const struct message *message)
{
	int status = message->wait_status;

	job->exit.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
	job->exit.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
	job->exit.user_us = message->user_us;
	job->exit.system_us = message->system_us;
	job->exit.max_rss_kib = message->max_rss_kib;
	job_dismiss_agent(job, message->n_children == 0);
	job->state = JOB_STATE_DRAINING;
	job->stop_at = USEC_NEVER;
	job->drain_at = clock_add(clock_boottime(), JOB_DRAIN_US);
	stdio_leader_ended(job);
	stdio_pump(job, clock_boottime());
	job_output_changed(job);
}

/* Takes the terminal. */
static void job_on_started(struct job *job, const struct message *message, int *pty_fd)
{
	int r = 0;

	job->pid = message->pid;
	job->peer_pid = message->peer_pid;
	job->started_pending = true;
	if (job->has_terminal)
		r = *pty_fd < 0 ? -EPROTO : stdio_open_terminal(job, TAKE_FD(*pty_fd));
	if (r < 0)
		job_fail(job, WIRE_STEP_PTY, -r);
}

/* What it found may still be in the pipe, whose end sends the last frame. */
static void job_file_is_done(struct job *job)
{
	job->file.is_done = true;
	if (job->file.fd < 0)
		job_end_done(job);
	else
		serve_flush(job->shim);
}

/* A runner starts once, then ends once; a helper has no command. */
static bool job_may_hear(const struct job *job, uint32_t type)
{
	bool is_helper = job->kind == AGENT_HELPER;

	switch (type) {
	case MESSAGE_STARTED:
		return !is_helper && job->pid == 0;
	case MESSAGE_EXIT:
		return !is_helper && job->pid != 0;
	case MESSAGE_DONE:
		return is_helper;
	case MESSAGE_WRITTEN:
		return job->file.is_open && job->file.op == WIRE_FILE_COPY &&
		       !job->file.is_committed;
	default:
		return true;
	}
}

static void job_on_message(struct job *job, const struct message *message, int *pty_fd)
{
	if (!job_may_hear(job, message->type)) {
		job_end_failed(job, job_lost_step(job), EPROTO);
		return;
	}
	switch (message->type) {
	case MESSAGE_STARTED:
		job_on_started(job, message, pty_fd);
		if (!job_is_tools(job))
			halt_again(job->shim);
		serve_flush(job->shim);
		stdio_watch(job);
		break;
	case MESSAGE_EXIT:
		job_on_exit(job, message);
		break;
	case MESSAGE_FAILED:
		/* A runner may serve again; it reaped its child. A helper has closed its pipe. */
		job_dismiss_agent(job, message->step != WIRE_STEP_FORK);
		job_end_failed(job, message->step, message->error_number);
		break;
	case MESSAGE_DONE:
		job_dismiss_agent(job, true);
		if (job->failure.step != 0)
			job_end_exit(job);
		else if (job->file.is_open)
			job_file_is_done(job);
		else
			job_end(job, WIRE_PUT_DONE, NULL, 0);
		break;
	case MESSAGE_WRITTEN:
		files_job_commit(job);
		break;
	default:
		job_end_failed(job, job_lost_step(job), EPROTO);
	}
}

static int job_on_agent(void *userdata, uint32_t events)
{
	struct job *job = userdata;
	struct message message;
	AUTO_CLOSE int pty_fd = -1;
	int r;

	(void)events;
	r = message_receive(job->agent_fd, &message, sizeof(message), &message, &pty_fd, 1);
	if (r == -EAGAIN)
		return 0;
	if (r <= 0) {
		job_end_failed(job, job_lost_step(job), r == 0 ? 0 : -r);
		return 0;
	}
	job_on_message(job, &message, &pty_fd);
	return 0;
}

int job_new(struct shim *shim, uint32_t id, enum agent_kind kind, struct job **ret_job)
{
	struct job *job = NULL;
	size_t n = 0;

	if (job_find(shim, id))
		return -EBADMSG;
	for (size_t i = 0; i < SHIM_N_SLOTS; i++) {
		if (shim->job[i].state == JOB_STATE_FREE)
			job = &shim->job[i];
		else if (job_counts(&shim->job[i]))
			n++;
	}
	if (!job)
		return -EBADMSG;
	job->id = id;
	job->kind = kind;
	job->state = JOB_STATE_RUNNING;
	job->begun_at = clock_boottime();
	if (n >= SHIM_MAX_JOBS) {
		job_end_failed(job, WIRE_STEP_BUSY, 0);
		return 1;
	}
	*ret_job = job;
	return 0;
}

int job_start(struct job *job, struct message message, const uint8_t *payload, const int *fds,
	      size_t n_fds, uint32_t *ret_step)
{
	int r;

	*ret_step = WIRE_STEP_FORK;
	r = agent_acquire(job->shim, job->kind, &job->agent_fd);
	if (r < 0)
		return r;
	*ret_step = job_lost_step(job);
	r = message_send(job->agent_fd, &message, payload, fds, n_fds);
	if (r < 0)
		return r;
	return loop_add(job->shim->loop, job->agent_fd, EPOLLIN, job_on_agent, job,
			&job->agent_source);
}

void job_announce(struct job *job)
{
	if (job->state == JOB_STATE_FREE)
		return;
	/* That of one that is kept says all of it. */
	job->kept_pending = job->outbox.keeps;
	job->started_pending =
		job->state == JOB_STATE_RUNNING && job->pid != 0 && !job->outbox.keeps;
	job->input.taken_pending = false;
}

uint64_t job_taken(const struct job *job)
{
	const struct job_input *input = &job->input;

	/* An end-of-file character in the queue was not sent to us. */
	return input->sent_bytes > input->queue.size ? input->sent_bytes - input->queue.size : 0;
}

struct wire_kept job_kept(const struct job *job)
{
	bool runs = job->state == JOB_STATE_RUNNING || job->state == JOB_STATE_DRAINING;
	bool takes = job->state == JOB_STATE_RUNNING && !job->input.is_ended &&
		     (job->input.fd >= 0 || (job->has_terminal && job->pid == 0));

	return (struct wire_kept){
		.pid = job->pid,
		.flags = (runs ? WIRE_KEPT_RUNS : 0u) | (takes ? WIRE_KEPT_STDIN : 0u),
		.dropped = job->outbox.dropped,
		.stdin_sent = job->input.sent_bytes,
		.stdin_taken = job_taken(job),
	};
}

void job_add_time(struct job *job, usec_t pause)
{
	if (job->stop_at != USEC_NEVER)
		job->stop_at = clock_add(job->stop_at, pause);
	if (job->drain_at != USEC_NEVER)
		job->drain_at = clock_add(job->drain_at, pause);
}

usec_t job_next(const struct job *job)
{
	usec_t next = job->stop_at < job->read_at ? job->stop_at : job->read_at;

	if (job_is_paused(job))
		return job->read_at;
	return job->drain_at < next ? job->drain_at : next;
}

void job_on_time(struct job *job, usec_t now)
{
	if (job->stop_at <= now && !job_is_paused(job)) {
		if (job->stop == JOB_STOP_NO)
			job->exit.flags |= WIRE_EXIT_TIMED_OUT;
		job_stop(job, now);
		return;
	}
	if (job->drain_at <= now && !stdio_owes_nothing(job)) {
		/* Credit or tokens are missing; the last byte owed ends the job. */
		job->drain_at = clock_add(now, JOB_DRAIN_US);
	}
	stdio_pump(job, now);
	job_output_changed(job);
}
