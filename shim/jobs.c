#include "shim/jobs.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>

#include "base/err.h"
#include "base/frame.h"
#include "base/loop.h"

#include "sandboxd/limits.h"
#include "shim/message.h"
#include "shim/shim.h"
#include "shim/stdio.h"

#define JOBS_PUT_US (60 * USEC_PER_SEC)

static int job_open_command(struct job *job, const struct wire_exec *head, int fds[3],
			    size_t *ret_n)
{
	bool has_stdin = (head->flags & WIRE_EXEC_STDIN) != 0;
	enum stdio_mask mask = STDIO_MASK_TEXT;
	size_t n = 0;
	int r = 0;

	if (head->program == WIRE_PROGRAM_LOADER)
		mask = STDIO_MASK_RECORDS;
	else if (head->program == WIRE_PROGRAM_ARCHIVE)
		mask = STDIO_MASK_NONE;
	job->has_terminal = (head->flags & WIRE_EXEC_PTY) != 0;
	if (job->has_terminal) {
		*ret_n = 0;
		return stdio_expect_terminal(job);
	}
	if (has_stdin)
		r = stdio_open_input(job, (size_t)EXEC_STDIN_MAX_BYTES, &fds[n++]);
	if (r >= 0)
		r = stdio_open_output(job, 0, WIRE_STDOUT, mask, &fds[n++]);
	if (r >= 0)
		r = stdio_open_output(job, 1, WIRE_STDERR,
				      mask == STDIO_MASK_NONE ? mask : STDIO_MASK_TEXT, &fds[n++]);
	*ret_n = n;
	return r;
}

static void job_keep(struct job *job, const struct frame_exec *exec)
{
	job->outbox.keeps = (exec->head.flags & WIRE_EXEC_KEEP) != 0;
	job->note_bytes = exec->head.note_bytes;
	memcpy(job->note, exec->note, job->note_bytes);
}

/* While the session is paused the spawners of its commands are frozen with them. */
static enum agent_kind exec_agent(const struct shim *shim, bool is_root)
{
	if (shim->paused_at != 0)
		return is_root ? AGENT_ROOT_TOOL_RUNNER : AGENT_TOOL_RUNNER;
	return is_root ? AGENT_ROOT_RUNNER : AGENT_RUNNER;
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
	r = job_new(shim, id, exec_agent(shim, is_root), &job);
	if (r != 0)
		return r < 0 ? r : 0;
	if (is_root && exec.head.program == WIRE_PROGRAM_ARGV)
		shim->root_begun = true;
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
		/* What is told now would be of commands that run. */
		step = WIRE_STEP_FORK;
		r = shim->paused_at != 0 && !halt_is_done(shim) ? -EAGAIN : 0;
	}
	if (r >= 0) {
		step = WIRE_STEP_PIPE;
		r = job_open_command(job, &exec.head, fds, &n_fds);
	}
	if (r >= 0)
		r = job_start(job, message, payload, fds, n_fds, &step);
	for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
		fds[i] = fd_close(fds[i]);
	if (r < 0)
		job_end_failed(job, step, -r);
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
		job_end_failed(job, step, -r);
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
	struct job *job = job_find_running(shim, id);
	uint32_t step;
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
	step = r == -ENOBUFS ? WIRE_STEP_REQUEST : WIRE_STEP_PIPE;
	if (job->kind == AGENT_HELPER)
		job_end_failed(job, step, -r);
	else
		job_fail(job, step, -r);
	return 0;
}

int jobs_input_end(struct shim *shim, uint32_t id, uint16_t type)
{
	struct job *job = job_find_running(shim, id);

	if (!job)
		return 0;
	if (!job_takes(job, type))
		return -EBADMSG;
	stdio_write_end(job);
	if (job->file.is_open)
		files_job_commit(job);
	return 0;
}

void jobs_cancel(struct shim *shim, uint32_t id)
{
	struct job *job = job_find_running(shim, id);

	if (!job || job->stop != JOB_STOP_NO)
		return;
	if (job->kind == AGENT_HELPER) {
		files_job_cancel(job);
		return;
	}
	job->exit.flags |= WIRE_EXIT_CANCELLED;
	job_stop(job, clock_boottime());
}

void jobs_leave_tools(struct shim *shim)
{
	for (size_t i = 0; i < SHIM_N_SLOTS; i++) {
		struct job *job = &shim->job[i];

		if (job->state == JOB_STATE_FREE || !job_is_tools(job))
			continue;
		job->is_left = true;
		jobs_cancel(shim, job->id);
	}
	agent_drop_tools(shim);
}

int jobs_signal(struct shim *shim, uint32_t id, const struct wire_signal *signal)
{
	struct job *job = job_find_running(shim, id);

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
	const struct job *job = job_find_running(shim, id);

	/* The kernel tells the foreground group (SIGWINCH). Without a terminal left there is
	 * nobody. */
	if (job && job->has_terminal && job->output[0].fd >= 0)
		(void)ioctl(job->output[0].fd, TIOCSWINSZ, &window);
}

int jobs_forget(struct shim *shim, uint32_t id)
{
	struct job *job = job_find(shim, id);

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
		job_output_changed(job);
	}
}

void jobs_pause(struct shim *shim, bool is_paused)
{
	usec_t now = clock_boottime();

	if (is_paused == (shim->paused_at != 0))
		return;
	for (size_t i = 0; i < SHIM_N_SLOTS && !is_paused; i++) {
		struct job *job = &shim->job[i];

		if (job->state != JOB_STATE_FREE && job_is_paused(job))
			job_add_time(job, now - shim->paused_at);
	}
	shim->paused_at = is_paused ? now : 0;
	jobs_arm(shim);
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

static int jobs_on_time(void *userdata, uint32_t events)
{
	struct shim *shim = userdata;
	usec_t now = clock_boottime();
	bool is_first_known = false;

	(void)events;
	/* Another one is first each time: where tokens of the session are short it takes what there
	 * is. */
	for (size_t n = 0, i = shim->first_on_time; n < SHIM_N_SLOTS; n++, i++) {
		struct job *job = &shim->job[i % SHIM_N_SLOTS];

		if (job->state == JOB_STATE_FREE || job_next(job) > now)
			continue;
		if (!is_first_known) {
			shim->first_on_time = i % SHIM_N_SLOTS + 1;
			is_first_known = true;
		}
		job_on_time(job, now);
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
