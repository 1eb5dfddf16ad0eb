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
#include "shim/jobs.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/wait.h>

#include "base/err.h"
#include "base/frame.h"
#include "base/loop.h"

#include "sandboxd/limits.h"
#include "shim/message.h"
#include "shim/serve.h"
#include "shim/shim.h"
#include "shim/stdio.h"

#define JOBS_DRAIN_US   (100 * USEC_PER_MS)
#define JOBS_ABANDON_US (10 * USEC_PER_SEC)
#define JOBS_PUT_US     (60 * USEC_PER_SEC)

static struct job *jobs_find(struct shim *shim, uint32_t id)
{
	for (size_t i = 0; i < SHIM_N_SLOTS; i++) {
		if (shim->job[i].state != JOB_STATE_FREE && shim->job[i].id == id)
			return &shim->job[i];
	}
	return NULL;
}

static struct job *jobs_find_active(struct shim *shim, uint32_t id)
{
	struct job *job = jobs_find(shim, id);

	return job && job->state == JOB_STATE_RUNNING ? job : NULL;
}

static bool jobs_counts(const struct job *job)
{
	return job->state == JOB_STATE_RUNNING || job->state == JOB_STATE_DRAINING ||
	       (outbox_is_open(&job->outbox) && !outbox_rests(&job->outbox));
}

static void job_reset(struct job *job, struct shim *shim)
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

static void job_dismiss_agent(struct job *job, bool is_idle)
{
	job->agent_source = loop_remove(job->agent_source);
	if (job->agent_fd >= 0 && is_idle)
		job->agent_fd = agent_release(job->shim, job->kind, job->agent_fd);
	job->agent_fd = fd_close(job->agent_fd);
}

static void job_free(struct job *job)
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

void jobs_end_failed(struct job *job, uint32_t step, int error_number)
{
	const struct wire_failed failed = {.step = step, .error_number = error_number};

	job_end(job, WIRE_FAILED, &failed, sizeof(failed));
}

void jobs_end_done(struct job *job)
{
	job_end(job, WIRE_PUT_DONE, NULL, 0);
}

static void job_end_exit(struct job *job)
{
	if (job->failure.step != 0)
		jobs_end_failed(job, job->failure.step, job->failure.error_number);
	else
		job_end(job, WIRE_EXIT, &job->exit, sizeof(job->exit));
}

static uint32_t job_lost_step(const struct job *job)
{
	return job->kind == AGENT_HELPER ? WIRE_STEP_HELPER_LOST : WIRE_STEP_SPAWNER_LOST;
}

static void job_tell(struct job *job, const struct message *message)
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
	jobs_end_failed(job, job_lost_step(job), ETIMEDOUT);
}

/* The next rung of the ladder. */
static void job_stop_more(struct job *job, usec_t now)
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
		job->stop_at = clock_add(now, JOBS_ABANDON_US);
		job_signal(job, MESSAGE_KILL);
	}
	jobs_arm(job->shim);
}

void jobs_fail(struct job *job, uint32_t step, int error_number)
{
	if (job->state == JOB_STATE_ENDED || job->failure.step != 0)
		return;
	job->failure = (struct wire_failed){.step = step, .error_number = error_number};
	if (job->state != JOB_STATE_RUNNING || job->kind == AGENT_HELPER)
		return; /* the end is near, and says it */
	job->grace_ms = 0;
	if (job->stop != JOB_STOP_KILL)
		job_stop_more(job, clock_boottime());
}

void jobs_output_changed(struct job *job)
{
	struct shim *shim = job->shim;

	if (job->state == JOB_STATE_DRAINING && !stdio_at_end(job) && stdio_owes_nothing(job) &&
	    clock_boottime() >= job->drain_at)
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
	job->drain_at = clock_add(clock_boottime(), JOBS_DRAIN_US);
	stdio_leader_ended(job);
	stdio_pump(job, clock_boottime());
	jobs_output_changed(job);
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
		jobs_fail(job, WIRE_STEP_PTY, -r);
}

/* What it found may still be in the pipe, whose end sends the last frame. */
static void job_file_is_done(struct job *job)
{
	job->file.is_done = true;
	if (job->file.fd < 0)
		jobs_end_done(job);
	else
		serve_flush(job->shim);
}

static void job_on_message(struct job *job, const struct message *message, int *pty_fd)
{
	switch (message->type) {
	case MESSAGE_STARTED:
		job_on_started(job, message, pty_fd);
		serve_flush(job->shim);
		stdio_watch(job);
		break;
	case MESSAGE_EXIT:
		job_on_exit(job, message);
		break;
	case MESSAGE_FAILED:
		/* A runner may serve again; it reaped its child. A helper has closed its pipe. */
		job_dismiss_agent(job, message->step != WIRE_STEP_FORK);
		jobs_end_failed(job, message->step, message->error_number);
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
	default:
		jobs_end_failed(job, job_lost_step(job), EPROTO);
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
		jobs_end_failed(job, job_lost_step(job), r == 0 ? 0 : -r);
		return 0;
	}
	job_on_message(job, &message, &pty_fd);
	return 0;
}

/* A slot for a new job. 0; 1: the job is refused as busy, its slot has ended; -EBADMSG. */
static int job_new(struct shim *shim, uint32_t id, enum agent_kind kind, struct job **ret_job)
{
	struct job *job = NULL;
	size_t n = 0;

	if (jobs_find(shim, id))
		return -EBADMSG;
	for (size_t i = 0; i < SHIM_N_SLOTS; i++) {
		if (shim->job[i].state == JOB_STATE_FREE)
			job = &shim->job[i];
		else if (jobs_counts(&shim->job[i]))
			n++;
	}
	if (!job)
		return -EBADMSG;
	job->id = id;
	job->kind = kind;
	job->state = JOB_STATE_RUNNING;
	if (n >= SHIM_MAX_JOBS) {
		jobs_end_failed(job, WIRE_STEP_BUSY, 0);
		return 1;
	}
	*ret_job = job;
	return 0;
}

/* Hand the request to an agent. *ret_step: where it failed. */
static int job_start(struct job *job, struct message message, const uint8_t *payload,
		     const int *fds, size_t n_fds, uint32_t *ret_step)
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

int jobs_new_helper(struct shim *shim, uint32_t id, struct job **ret_job)
{
	return job_new(shim, id, AGENT_HELPER, ret_job);
}

int jobs_start_helper(struct job *job, struct message message, const uint8_t *payload,
		      const int *fds, size_t n_fds, uint32_t *ret_step)
{
	return job_start(job, message, payload, fds, n_fds, ret_step);
}

static int job_open_command(struct job *job, const struct wire_exec *head, int fds[3],
			    size_t *ret_n)
{
	bool has_stdin = (head->flags & WIRE_EXEC_STDIN) != 0;
	bool is_record = head->program == WIRE_PROGRAM_LOADER;
	size_t n = 0;
	int r = 0;

	job->has_terminal = (head->flags & WIRE_EXEC_PTY) != 0;
	if (job->has_terminal) {
		*ret_n = 0;
		return stdio_expect_terminal(job);
	}
	if (has_stdin)
		r = stdio_open_input(job, (size_t)EXEC_STDIN_MAX_BYTES, &fds[n++]);
	if (r >= 0)
		r = stdio_open_output(job, 0, WIRE_STDOUT, is_record, &fds[n++]);
	if (r >= 0)
		r = stdio_open_output(job, 1, WIRE_STDERR, false, &fds[n++]);
	*ret_n = n;
	return r;
}

static void job_keep(struct job *job, const struct frame_exec *exec)
{
	job->outbox.keeps = (exec->head.flags & WIRE_EXEC_KEEP) != 0;
	job->note_bytes = exec->head.note_bytes;
	memcpy(job->note, exec->note, job->note_bytes);
}

int jobs_exec(struct shim *shim, uint32_t id, const uint8_t *payload, size_t size)
{
	static struct frame_exec exec; /* ten kilobytes of pointers */
	const struct message message = {.type = MESSAGE_EXEC, .n_bytes = (uint32_t)size};
	int fds[3] = {-1, -1, -1};
	struct job *job = NULL;
	uint32_t step;
	size_t n_fds = 0;
	usec_t now = clock_boottime();
	bool is_root;
	int r;

	if (frame_exec_parse(payload, size, &exec) < 0)
		return -EBADMSG;
	is_root = (exec.head.flags & WIRE_EXEC_ROOT) != 0;
	r = job_new(shim, id, is_root ? AGENT_ROOT_RUNNER : AGENT_RUNNER, &job);
	if (r != 0)
		return r < 0 ? r : 0;
	job_keep(job, &exec);
	job->grace_ms = exec.head.grace_ms;
	job->rate_bytes = exec.head.output_rate_bytes;
	job->bucket = (struct bucket){.tokens = job->rate_bytes, .at = now};
	if (exec.head.output_max_bytes > 0)
		job->max_bytes = exec.head.output_max_bytes;
	if (exec.head.timeout_ms > 0)
		job->stop_at = clock_add(now, exec.head.timeout_ms * USEC_PER_MS);

	step = WIRE_STEP_REQUEST;
	r = is_root && !(shim->context.params.flags & SHIM_PARAMS_ROOT_COMMANDS) ? -EPERM : 0;
	if (r >= 0) {
		step = WIRE_STEP_PIPE;
		r = job_open_command(job, &exec.head, fds, &n_fds);
	}
	if (r >= 0)
		r = job_start(job, message, payload, fds, n_fds, &step);
	for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
		fds[i] = fd_close(fds[i]);
	if (r < 0)
		jobs_end_failed(job, step, -r);
	jobs_arm(shim);
	return 0;
}

int jobs_put(struct shim *shim, uint32_t id, const uint8_t *payload, size_t size)
{
	const struct message message = {.type = MESSAGE_PUT, .n_bytes = (uint32_t)size};
	AUTO_CLOSE int data_fd = -1;
	struct job *job = NULL;
	uint32_t step = WIRE_STEP_PIPE;
	struct wire_put put;
	int r;

	if (size <= sizeof(put))
		return -EBADMSG;
	memcpy(&put, payload, sizeof(put));
	if (put.path_bytes != size - sizeof(put) || put.path_bytes > EXEC_CWD_BYTES ||
	    memchr(payload + sizeof(put), '\0', put.path_bytes) != payload + size - 1)
		return -EBADMSG;
	r = job_new(shim, id, AGENT_HELPER, &job);
	if (r != 0)
		return r < 0 ? r : 0;
	job->stop_at = clock_add(clock_boottime(), JOBS_PUT_US);
	r = stdio_open_input(job, STDIO_PUT_MAX_BYTES, &data_fd);
	if (r >= 0)
		r = job_start(job, message, payload, &data_fd, 1, &step);
	if (r < 0)
		jobs_end_failed(job, step, -r);
	jobs_arm(shim);
	return 0;
}

/* Input of the right kind for this job. */
static bool job_takes(const struct job *job, uint16_t type)
{
	bool is_file = type == WIRE_PUT_DATA || type == WIRE_PUT_END;

	return is_file == (job->kind == AGENT_HELPER) && !job->input.is_ended;
}

int jobs_input(struct shim *shim, uint32_t id, uint16_t type, const uint8_t *data, size_t size)
{
	struct job *job = jobs_find_active(shim, id);
	int r;

	/* Sent before the api worker could know that the job has ended. */
	if (!job)
		return 0;
	if (!job_takes(job, type))
		return -EBADMSG;
	job->input.sent_bytes += size;
	r = stdio_write(job, data, size);
	if (r >= 0) {
		files_job_arm(job);
		return 0;
	}
	jobs_fail(job, r == -ENOBUFS ? WIRE_STEP_REQUEST : WIRE_STEP_PIPE, -r);
	if (job->kind == AGENT_HELPER)
		job_abandon(job);
	return 0;
}

int jobs_input_end(struct shim *shim, uint32_t id, uint16_t type)
{
	struct job *job = jobs_find_active(shim, id);

	if (!job)
		return 0;
	if (!job_takes(job, type))
		return -EBADMSG;
	stdio_write_end(job);
	if (job->file.is_open)
		files_job_commit(job);
	return 0;
}

void jobs_announce(struct job *job)
{
	if (job->state == JOB_STATE_FREE)
		return;
	/* That of one that is kept says all of it. */
	job->kept_pending = job->outbox.keeps;
	job->started_pending =
		job->state == JOB_STATE_RUNNING && job->pid != 0 && !job->outbox.keeps;
	job->input.taken_pending = false;
}

uint64_t jobs_taken(const struct job *job)
{
	const struct job_input *input = &job->input;

	/* An end-of-file character in the queue was not sent to us. */
	return input->sent_bytes > input->queue.size ? input->sent_bytes - input->queue.size : 0;
}

struct wire_kept jobs_kept(const struct job *job)
{
	bool runs = job->state == JOB_STATE_RUNNING || job->state == JOB_STATE_DRAINING;
	bool takes = job->state == JOB_STATE_RUNNING && !job->input.is_ended &&
		     (job->input.fd >= 0 || (job->has_terminal && job->pid == 0));

	return (struct wire_kept){
		.pid = job->pid,
		.flags = (runs ? WIRE_KEPT_RUNS : 0u) | (takes ? WIRE_KEPT_STDIN : 0u),
		.dropped = job->outbox.dropped,
		.stdin_sent = job->input.sent_bytes,
		.stdin_taken = jobs_taken(job),
	};
}

void jobs_cancel(struct shim *shim, uint32_t id)
{
	struct job *job = jobs_find_active(shim, id);

	if (!job || job->stop != JOB_STOP_NO)
		return;
	if (job->kind == AGENT_HELPER) {
		jobs_end_failed(job, WIRE_STEP_WRITE, ECANCELED);
		return;
	}
	job->exit.flags |= WIRE_EXIT_CANCELLED;
	job_stop_more(job, clock_boottime());
}

int jobs_signal(struct shim *shim, uint32_t id, const struct wire_signal *signal)
{
	struct job *job = jobs_find_active(shim, id);

	if (signal->number < 1 || signal->number >= NSIG || signal->scope >= WIRE_SIGNAL_MAX_)
		return -EBADMSG;
	if (job && job->kind != AGENT_HELPER)
		job_tell(job, &(struct message){.type = MESSAGE_SIGNAL,
						.wait_status = (int32_t)signal->number,
						.step = signal->scope});
	return 0;
}

void jobs_resize(struct shim *shim, uint32_t id, const struct wire_size *size)
{
	const struct winsize window = {.ws_row = size->rows, .ws_col = size->cols};
	const struct job *job = jobs_find_active(shim, id);

	/* The kernel tells the foreground group (SIGWINCH). Without a terminal left there is
	 * nobody. */
	if (job && job->has_terminal && job->output[0].fd >= 0)
		(void)ioctl(job->output[0].fd, TIOCSWINSZ, &window);
}

int jobs_forget(struct shim *shim, uint32_t id)
{
	struct job *job = jobs_find(shim, id);

	if (!job)
		return 0;
	if (job->state != JOB_STATE_ENDED || !job->outbox.keeps)
		return -EBADMSG;
	job_free(job);
	return 0;
}

void jobs_ack(struct shim *shim, uint64_t acked)
{
	usec_t now = clock_boottime();

	for (size_t i = 0; i < SHIM_N_SLOTS; i++) {
		struct job *job = &shim->job[i];

		if (job->state == JOB_STATE_FREE)
			continue;
		outbox_ack(&job->outbox, acked);
		if (job->state == JOB_STATE_ENDED) {
			if (!job->outbox.keeps && outbox_empty(&job->outbox))
				job_free(job);
			continue;
		}
		stdio_pump(job, now);
		jobs_output_changed(job);
	}
}

static usec_t job_next(const struct job *job)
{
	usec_t next = job->stop_at < job->read_at ? job->stop_at : job->read_at;

	return job->drain_at < next ? job->drain_at : next;
}

void jobs_arm(struct shim *shim)
{
	usec_t next = USEC_NEVER;

	for (size_t i = 0; i < SHIM_N_SLOTS; i++) {
		usec_t at = job_next(&shim->job[i]);

		if (shim->job[i].state != JOB_STATE_FREE && at < next)
			next = at;
	}
	loop_timer_set(shim->timer, next);
}

static void job_on_time(struct job *job, usec_t now)
{
	if (job->stop_at <= now) {
		if (job->stop == JOB_STOP_NO)
			job->exit.flags |= WIRE_EXIT_TIMED_OUT;
		job_stop_more(job, now);
		return;
	}
	if (job->drain_at <= now && !stdio_owes_nothing(job)) {
		/* Credit or tokens are missing; the last byte owed ends the job. */
		job->drain_at = clock_add(now, JOBS_DRAIN_US);
	}
	stdio_pump(job, now);
	jobs_output_changed(job);
}

static int jobs_on_time(void *userdata, uint32_t events)
{
	struct shim *shim = userdata;
	usec_t now = clock_boottime();

	(void)events;
	for (size_t i = 0; i < SHIM_N_SLOTS; i++) {
		if (shim->job[i].state != JOB_STATE_FREE && job_next(&shim->job[i]) <= now)
			job_on_time(&shim->job[i], now);
	}
	jobs_arm(shim);
	return 0;
}

int jobs_init(struct shim *shim)
{
	for (size_t i = 0; i < SHIM_N_SLOTS; i++)
		job_reset(&shim->job[i], shim);
	return loop_add_timer(shim->loop, USEC_NEVER, jobs_on_time, shim, &shim->timer);
}
