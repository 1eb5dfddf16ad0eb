#include "shim/files_job.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/frame.h"
#include "base/io.h"
#include "base/loop.h"
#include "base/sockmsg.h"

#include "shim/jobs.h"
#include "shim/message.h"
#include "shim/serve.h"
#include "shim/shim.h"
#include "shim/stdio.h"

#define FILES_JOB_PIPE_BYTES    (256 * 1024)
#define FILES_JOB_FRAMES_A_TURN 8
/* Silence of a helper for which something is to do: `user` may have stopped it. Whole folders take
 * their time without a word. */
#define FILES_JOB_IDLE          (60 * USEC_PER_SEC)
#define FILES_JOB_LONG          (600 * USEC_PER_SEC)
#define FILES_JOB_CANCEL        (60 * USEC_PER_SEC) /* what a whole folder takes to go */

static bool is_live(const struct job *job)
{
	return job->state == JOB_STATE_RUNNING && job->file.is_open;
}

static size_t allowance(const struct job *job)
{
	uint64_t on_the_way = job->file.sent_bytes - job->file.taken_bytes;

	return on_the_way < WIRE_FILE_WINDOW_BYTES ? WIRE_FILE_WINDOW_BYTES - (size_t)on_the_way
						   : 0;
}

static int on_found(void *userdata, uint32_t events)
{
	struct job *job = userdata;

	(void)events;
	serve_flush(job->shim);
	return 0;
}

void files_job_arm(struct job *job)
{
	bool is_long = job->file.op == WIRE_FILE_COPY || job->file.op == WIRE_FILE_MOVE ||
		       job->file.op == WIRE_FILE_REMOVE;
	bool is_put = job->file.op == WIRE_FILE_PUT;
	bool waits = is_put ? job->input.is_ended || job->input.queue.size > 0
			    : job->file.fd < 0 || allowance(job) > 0;

	if (!is_live(job))
		return;
	/* A watch is silent where nothing changes. */
	if (job->file.op == WIRE_FILE_WATCH)
		waits = false;
	job->stop_at =
		waits ? clock_add(clock_boottime(), is_long ? FILES_JOB_LONG : FILES_JOB_IDLE)
		      : USEC_NEVER;
	jobs_arm(job->shim);
}

static int open_pipes(struct job *job, int fds[2], size_t *ret_n)
{
	int r;

	*ret_n = 1;
	r = stdio_pipe(0, &job->file.fd, &fds[0]);
	if (r < 0)
		return r;
	(void)fcntl(job->file.fd, F_SETPIPE_SZ, FILES_JOB_PIPE_BYTES); /* may be refused */
	r = loop_add(job->shim->loop, job->file.fd, 0, on_found, job, &job->file.source);
	if (r < 0) {
		job->file.fd = fd_close(job->file.fd);
		return r;
	}
	if (job->file.op != WIRE_FILE_PUT) {
		job->input.is_ended = true;
		return 0;
	}
	*ret_n = 2;
	r = stdio_open_input(job, STDIO_PUT_MAX_BYTES, &fds[1]);
	if (r >= 0)
		(void)fcntl(job->input.fd, F_SETPIPE_SZ, FILES_JOB_PIPE_BYTES);
	return r;
}

int files_job_start(struct shim *shim, uint32_t id, const uint8_t *payload, size_t size)
{
	const struct message message = {.type = MESSAGE_FILE, .n_bytes = (uint32_t)size};
	uint32_t step = WIRE_STEP_PIPE;
	int fds[2] = {-1, -1};
	struct frame_file file;
	struct job *job = NULL;
	size_t n_fds = 0;
	int r;

	if (frame_file_parse(payload, size, &file) < 0)
		return -EBADMSG;
	r = job_new(shim, id, AGENT_HELPER, &job);
	if (r != 0)
		return r < 0 ? r : 0;
	job->file.is_open = true;
	job->file.op = file.head.op;
	r = open_pipes(job, fds, &n_fds);
	if (r >= 0)
		r = job_start(job, message, payload, fds, n_fds, &step);
	fds[0] = fd_close(fds[0]);
	fds[1] = fd_close(fds[1]);
	if (r < 0)
		job_end_failed(job, step, -r);
	else
		files_job_arm(job);
	return 0;
}

void files_job_commit(struct job *job)
{
	const struct message message = {.type = MESSAGE_COMMIT, .n_bytes = sizeof(uint64_t)};

	if (job->file.is_cancelled)
		return;
	job->file.is_committed = true;
	/* If it is gone its end-of-file says so. */
	if (job->agent_fd >= 0 &&
	    message_send(job->agent_fd, &message, &job->input.sent_bytes, NULL, 0) < 0)
		return;
	files_job_arm(job);
}

static bool makes_file(const struct job *job)
{
	return is_live(job) && (job->file.op == WIRE_FILE_PUT || job->file.op == WIRE_FILE_COPY);
}

void files_job_cancel(struct job *job)
{
	if (!makes_file(job)) {
		job_end_failed(job, WIRE_STEP_WRITE, ECANCELED);
		return;
	}
	if (job->file.is_committed || job->file.is_cancelled)
		return;
	job->file.is_cancelled = true;
	job_tell(job, &(struct message){.type = MESSAGE_CANCEL});
	/* It may wait for more of this. */
	stdio_close(job);
	job->stop_at = clock_add(clock_boottime(), FILES_JOB_CANCEL);
	jobs_arm(job->shim);
}

bool files_job_is_ending(const struct shim *shim)
{
	for (size_t i = 0; i < SHIM_N_SLOTS; i++) {
		const struct job *job = &shim->job[i];

		if (makes_file(job) && (job->file.is_committed || job->file.is_cancelled))
			return true;
	}
	return false;
}

static struct job *find(struct shim *shim, uint32_t id)
{
	for (size_t i = 0; i < SHIM_N_SLOTS; i++)
		if (is_live(&shim->job[i]) && shim->job[i].id == id)
			return &shim->job[i];
	return NULL;
}

int files_job_credit(struct shim *shim, uint32_t id, uint64_t taken_bytes)
{
	struct job *job = find(shim, id);

	if (!job)
		return 0; /* it has ended */
	if (taken_bytes < job->file.taken_bytes || taken_bytes > job->file.sent_bytes)
		return -EBADMSG;
	job->file.taken_bytes = taken_bytes;
	files_job_arm(job);
	return 0;
}

static int send_held(struct shim *shim)
{
	int r;

	if (shim->held.size == 0)
		return 0;
	r = sockmsg_send(shim->api_fd, shim->held_frame, shim->held.size, NULL, 0);
	if (r >= 0)
		shim->held.size = 0;
	return r;
}

static void close_pipe(struct job *job)
{
	job->file.source = loop_remove(job->file.source);
	job->file.fd = fd_close(job->file.fd);
}

/* One frame. 1: sent; 0: there is nothing to send; negative as files_job_send. */
static int send_one(struct job *job)
{
	struct shim *shim = job->shim;
	struct wire_header header;
	size_t room = allowance(job);
	ssize_t n;
	int r;

	if (room == 0 || job->file.fd < 0)
		return 0;
	if (room > WIRE_PAYLOAD_MAX_BYTES)
		room = WIRE_PAYLOAD_MAX_BYTES;
	n = io_read(job->file.fd, shim->held_frame + sizeof(header), room);
	if (n == -EAGAIN)
		return 0;
	if (n <= 0) {
		/* An error of a pipe is its end: the helper says how it went. */
		close_pipe(job);
		return 0;
	}
	header = frame_header(WIRE_FILE_DATA, job->id, 0, (size_t)n);
	memcpy(shim->held_frame, &header, sizeof(header));
	shim->held = (struct files_held){.job = job->id, .size = header.length};
	job->file.sent_bytes += (uint64_t)n;
	r = send_held(shim);
	return r < 0 ? r : 1;
}

static int send_job(struct job *job)
{
	uint64_t sent_bytes = job->file.sent_bytes;
	int r = 1;

	for (int i = 0; r > 0 && i < FILES_JOB_FRAMES_A_TURN; i++)
		r = send_one(job);
	/* It is not silent, or waits for the client now, which may take its time. */
	if (job->file.sent_bytes > sent_bytes)
		files_job_arm(job);
	if (r >= 0 && job->file.is_done && job->file.fd < 0)
		job_end_done(job);
	return r < 0 ? r : 0;
}

int files_job_send(struct shim *shim)
{
	int r = send_held(shim);

	for (size_t i = 0; r >= 0 && i < SHIM_N_SLOTS; i++)
		if (is_live(&shim->job[i]))
			r = send_job(&shim->job[i]);
	return r;
}

void files_job_watch(struct shim *shim)
{
	for (size_t i = 0; i < SHIM_N_SLOTS; i++) {
		struct job *job = &shim->job[i];
		uint32_t events;
		int r;

		if (!is_live(job) || job->file.fd < 0)
			continue;
		events = !shim->is_blocked && shim->held.size == 0 && allowance(job) > 0 ? EPOLLIN
											 : 0;
		r = loop_set_events(job->file.source, events);
		if (r < 0)
			job_end_failed(job, WIRE_STEP_PIPE, -r);
	}
}

void files_job_close(struct job *job)
{
	struct shim *shim = job->shim;

	if (!job->file.is_open)
		return;
	close_pipe(job);
	/* Nothing of a job comes behind its last frame. */
	if (shim->held.size > 0 && shim->held.job == job->id)
		shim->held.size = 0;
	job->file.is_open = false;
}

void files_job_cancel_all(struct shim *shim)
{
	for (size_t i = 0; i < SHIM_N_SLOTS; i++)
		if (is_live(&shim->job[i]))
			job_end_failed(&shim->job[i], WIRE_STEP_WRITE, ECANCELED);
}
