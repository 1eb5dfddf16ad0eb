/*
 * Theory. A pipe is read only while three things allow it: room in the job's ring (credit of the
 * api worker), tokens (output rate), and a turn of the loop. When one is missing the pipe is not
 * watched at all, the kernel fills it and then blocks the command; no queue of ours grows.
 *
 * A token has to be there twice: of the command, and of the session, whose rate is that of
 * SESSION_OUTPUT_RATES commands. Who floods with all the commands that a session may have at once
 * would keep the api worker busy alone, which serves everybody's sessions.
 *
 * Beyond output_max the bytes are read and dropped, so that a command that floods still ends, and
 * counted for the exit.
 *
 * After the leader has ended the pipes usually are at their end. A descendant may hold one open
 * (a server in the background): what was in the pipe at the leader's end is delivered, then
 * JOB_DRAIN_US from that end are given for more, and then the pipe is closed; what is written to
 * it later gets EPIPE. A pipe that waits for credit or tokens is never given up with bytes owed.
 *
 * In a session with secrets a mask (mask.h) lies between pipe and ring. What it holds back counts
 * as owed once it is decided; at the end of a pipe and of the leader everything is.
 */
#include "shim/stdio.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/err.h"
#include "base/frame.h"
#include "base/io.h"
#include "base/loop.h"

#include "shim/serve.h"
#include "shim/shim.h"

#define STDIO_FRAMES_A_TURN    4
#define STDIO_LARGE_PIPE_BYTES (256 * 1024)

static int stdio_on_output(void *userdata, uint32_t events)
{
	struct job_output *output = userdata;
	struct job *job = output->job;

	(void)events;
	stdio_pump(job, clock_boottime());
	job_output_changed(job);
	return 0;
}

int stdio_pipe(int mine, int *ret_fd, int *ret_child_fd)
{
	AUTO_CLOSE int ours = -1;
	AUTO_CLOSE int theirs = -1;
	int pair[2];
	int r;

	if (pipe2(pair, O_CLOEXEC) < 0)
		return -errno;
	ours = pair[mine];
	theirs = pair[1 - mine];
	r = fd_set_nonblock(ours, 1);
	if (r < 0)
		return r;
	*ret_fd = TAKE_FD(ours);
	*ret_child_fd = TAKE_FD(theirs);
	return 0;
}

/* The mask of one output, where the session has secrets. */
static int stdio_open_mask(struct job_output *output, enum stdio_mask kind)
{
	const struct mask *mask = &output->job->shim->secrets.mask;
	int r;

	ASSERT(!output->mask);
	if (mask->n == 0 || kind == STDIO_MASK_NONE)
		return 0;
	output->mask = malloc(sizeof(*output->mask));
	if (!output->mask)
		return -ENOMEM;
	r = mask_stream_init(output->mask, mask, kind == STDIO_MASK_RECORDS);
	if (r < 0) {
		free(output->mask);
		output->mask = NULL;
	}
	return r;
}

static void stdio_close_mask(struct job_output *output)
{
	if (output->mask)
		mask_stream_done(output->mask);
	free(output->mask);
	output->mask = NULL;
}

static int stdio_init_output(struct job *job, struct job_output *output, uint16_t type,
			     enum stdio_mask mask)
{
	ASSERT(output->fd < 0);
	output->job = job;
	output->type = type;
	output->is_large = false;
	output->owed_bytes = 0;
	return stdio_open_mask(output, mask);
}

int stdio_open_output(struct job *job, int index, uint16_t type, enum stdio_mask mask,
		      int *ret_child_fd)
{
	struct job_output *output = &job->output[index];
	AUTO_CLOSE int child_fd = -1;
	int r;

	r = stdio_init_output(job, output, type, mask);
	if (r < 0)
		return r;
	r = stdio_pipe(0, &output->fd, &child_fd);
	if (r < 0)
		return r;
	/* Not watched before the runner's STARTED, so that nothing overtakes it. */
	r = loop_add(job->shim->loop, output->fd, 0, stdio_on_output, output, &output->source);
	if (r < 0) {
		output->fd = fd_close(output->fd);
		return r;
	}
	*ret_child_fd = TAKE_FD(child_fd);
	return 0;
}

/* Whoever was killed may have been in the middle of a value; above 128 it is a shell that says so
 * of its child. */
static bool stdio_was_killed(const struct job *job)
{
	return job->stop != JOB_STOP_NO || job->exit.signal != 0 || job->exit.code > 128;
}

/* How the leader ended is known from DRAINING on: before that the mask keeps what it holds. */
static void stdio_close_output(struct job_output *output)
{
	const struct job *job = output->job;

	output->source = loop_remove(output->source);
	output->fd = fd_close(output->fd);
	output->owed_bytes = 0;
	if (output->mask && job->state != JOB_STATE_RUNNING)
		mask_stream_end(output->mask, stdio_was_killed(job));
}

static void stdio_close_input(struct job *job)
{
	job->input.source = loop_remove(job->input.source);
	job->input.fd = fd_close(job->input.fd);
	buf_done(&job->input.queue);
	job->input.taken_pending = job->input.sent_bytes > 0;
}

void stdio_close(struct job *job)
{
	for (size_t i = 0; i < ARRAY_SIZE(job->output); i++) {
		stdio_close_output(&job->output[i]);
		stdio_close_mask(&job->output[i]);
	}
	stdio_close_input(job);
}

/* Of all commands of the session. */
static uint64_t stdio_session_rate(const struct job *job)
{
	uint64_t rate;

	if (__builtin_mul_overflow(job->rate_bytes, (uint64_t)SESSION_OUTPUT_RATES, &rate))
		return UINT64_MAX;
	return rate;
}

/* How much may be read now; 0 and job->read_at set where only time is missing. */
static size_t stdio_allowance(struct job *job, usec_t now)
{
	size_t room = outbox_room(&job->outbox, (size_t)job->shim->context.params.ring_bytes);
	struct bucket *session = &job->shim->output;
	bool waits = job->read_at != USEC_NEVER && now < job->read_at;

	if (waits && room > 0)
		return 0; /* also where something else woke us */
	job->read_at = USEC_NEVER;
	if (room == 0 || job->rate_bytes == 0)
		return room;
	bucket_refill(&job->bucket, job->rate_bytes, now);
	bucket_refill(session, stdio_session_rate(job), now);
	if (job->bucket.tokens < BUCKET_MIN_TOKENS) {
		job->read_at = bucket_enough_at(&job->bucket, job->rate_bytes, now);
		return 0;
	}
	if (session->tokens < BUCKET_MIN_TOKENS) {
		job->read_at = bucket_enough_at(session, stdio_session_rate(job), now);
		return 0;
	}
	if (job->bucket.tokens < room)
		room = (size_t)job->bucket.tokens;
	return session->tokens < room ? (size_t)session->tokens : room;
}

/* Read into a frame. As outbox_read. */
static ssize_t stdio_read_frame(struct job_output *output, size_t max_bytes)
{
	struct job *job = output->job;
	struct shim *shim = job->shim;
	uint64_t number = shim->last_number + 1;
	ssize_t n;

	if (outbox_is_open(&job->outbox)) {
		n = outbox_read(&job->outbox, output->fd,
				frame_header(output->type, job->id, number, 0), max_bytes);
	} else {
		int r;

		/* Most often the first read is the end: no ring for that. */
		n = io_read(output->fd, shim->frame, max_bytes);
		if (n <= 0)
			return n;
		r = outbox_first(&job->outbox,
				 frame_header(output->type, job->id, number, (size_t)n),
				 shim->frame, (size_t)shim->context.params.ring_bytes);
		if (r < 0)
			return r;
	}
	if (n > 0)
		shim->last_number = number;
	return n;
}

/* As stdio_read_frame, into the mask: stdio_flush makes the frames. */
static ssize_t stdio_read_masked(struct job_output *output, size_t max_bytes)
{
	uint8_t *space = NULL;
	size_t room = mask_stream_room(output->mask, &space);
	ssize_t n;

	if (room == 0)
		return -EAGAIN;
	n = io_read(output->fd, space, room < max_bytes ? room : max_bytes);
	if (n > 0)
		mask_stream_commit(output->mask, (size_t)n);
	return n;
}

/* Bytes of shim->frame as one frame. 0 or -ENOMEM. */
static int stdio_put_frame(struct job_output *output, size_t size)
{
	struct job *job = output->job;
	struct shim *shim = job->shim;
	uint64_t number = shim->last_number + 1;
	struct wire_header header = frame_header(output->type, job->id, number, size);
	int r = 0;

	if (outbox_is_open(&job->outbox))
		outbox_append(&job->outbox, header, shim->frame);
	else
		r = outbox_first(&job->outbox, header, shim->frame,
				 (size_t)shim->context.params.ring_bytes);
	if (r >= 0)
		shim->last_number = number;
	return r;
}

/* What the mask has decided becomes frames, as long as there is room for them. */
static void stdio_flush(struct job_output *output)
{
	struct job *job = output->job;

	while (output->mask && mask_stream_ready(output->mask)) {
		size_t room =
			outbox_room(&job->outbox, (size_t)job->shim->context.params.ring_bytes);
		size_t n;
		int r;

		if (room == 0)
			return;
		n = mask_stream_take(output->mask, job->shim->frame, room);
		if (n == 0)
			return; /* covered bytes only */
		r = stdio_put_frame(output, n);
		if (r < 0) {
			job_fail(job, WIRE_STEP_PIPE, -r);
			return;
		}
	}
}

static void stdio_enlarge(struct job_output *output)
{
	/* Filled between two of our turns: a larger pipe means fewer of them. The kernel may refuse
	 * (pipe-user-pages-soft), and then it stays as it is. */
	if (!output->is_large && !output->is_terminal)
		(void)fcntl(output->fd, F_SETPIPE_SZ, STDIO_LARGE_PIPE_BYTES);
	output->is_large = true;
}

/* One read of one pipe. true: there may be more. */
static bool stdio_read(struct job_output *output, size_t allowance)
{
	struct job *job = output->job;
	uint64_t left = job->max_bytes - job->total_bytes;
	bool is_dropped = left == 0;
	ssize_t n;

	if (is_dropped && output->mask)
		mask_stream_end(output->mask, true);
	if (is_dropped)
		n = io_read(output->fd, job->shim->frame, sizeof(job->shim->frame));
	else if (output->mask)
		n = stdio_read_masked(output, left < allowance ? (size_t)left : allowance);
	else
		n = stdio_read_frame(output, left < allowance ? (size_t)left : allowance);
	if (n == -EAGAIN)
		return false;
	if (n == -EIO && output->is_terminal)
		n = 0; /* nobody has it open any more */
	if (n <= 0) {
		if (n < 0)
			job_fail(job, WIRE_STEP_PIPE, (int)-n);
		stdio_close_output(output);
		return false;
	}
	output->owed_bytes -= output->owed_bytes < (size_t)n ? output->owed_bytes : (size_t)n;
	if (is_dropped) {
		job->exit.dropped_bytes += (uint64_t)n;
		job->exit.flags |= WIRE_EXIT_TRUNCATED;
		return true;
	}
	job->total_bytes += (uint64_t)n;
	if (job->rate_bytes > 0) {
		job->bucket.tokens -= (uint64_t)n;
		job->shim->output.tokens -= (uint64_t)n;
	}
	if ((size_t)n == WIRE_PAYLOAD_MAX_BYTES)
		stdio_enlarge(output);
	return true;
}

static void stdio_set_events(struct job *job, uint32_t events)
{
	for (size_t k = 0; k < ARRAY_SIZE(job->output); k++) {
		struct job_output *output = &job->output[k];
		int r;

		if (output->fd < 0)
			continue;
		r = loop_set_events(output->source, events);
		if (r < 0)
			job_fail(job, WIRE_STEP_PIPE, -r);
	}
}

void stdio_pump(struct job *job, usec_t now)
{
	bool again = true;
	size_t allowance = 0;

	/* An acknowledgement or a timer can come before the runner's STARTED, which no output may
	 * overtake. */
	if (job->pid == 0)
		return;
	/* The two pipes in turn, so that neither starves the other. */
	for (int i = 0; again && i < STDIO_FRAMES_A_TURN; i++) {
		again = false;
		for (size_t k = 0; k < ARRAY_SIZE(job->output); k++) {
			struct job_output *output = &job->output[k];

			stdio_flush(output);
			if (output->fd < 0)
				continue;
			allowance = stdio_allowance(job, now);
			if (allowance > 0)
				again = stdio_read(output, allowance) || again;
			stdio_flush(output);
		}
	}
	stdio_set_events(job, stdio_allowance(job, now) > 0 ? EPOLLIN : 0);
}

void stdio_watch(struct job *job)
{
	stdio_set_events(job, EPOLLIN);
}

void stdio_leader_ended(struct job *job)
{
	for (size_t k = 0; k < ARRAY_SIZE(job->output); k++) {
		int bytes = 0;

		if (job->output[k].fd < 0 && job->output[k].mask)
			mask_stream_end(job->output[k].mask, stdio_was_killed(job));
		if (job->output[k].fd < 0 || ioctl(job->output[k].fd, FIONREAD, &bytes) < 0)
			continue;
		job->output[k].owed_bytes = bytes > 0 ? (size_t)bytes : 0;
	}
}

void stdio_give_up(struct job *job)
{
	for (size_t k = 0; k < ARRAY_SIZE(job->output); k++) {
		stdio_close_output(&job->output[k]);
		if (job->output[k].job)
			stdio_flush(&job->output[k]);
	}
}

static bool stdio_is_masking(const struct job_output *output)
{
	return output->mask && mask_stream_ready(output->mask);
}

bool stdio_at_end(const struct job *job)
{
	for (size_t k = 0; k < ARRAY_SIZE(job->output); k++)
		if (job->output[k].fd >= 0 || stdio_is_masking(&job->output[k]))
			return false;
	return true;
}

bool stdio_owes_nothing(const struct job *job)
{
	for (size_t k = 0; k < ARRAY_SIZE(job->output); k++)
		if (job->output[k].owed_bytes > 0 || stdio_is_masking(&job->output[k]))
			return false;
	return true;
}

/* Write what is queued. */
static void stdio_feed(struct job *job)
{
	struct job_input *input = &job->input;

	while (input->fd >= 0 && input->queue.size > 0) {
		ssize_t n;

		n = io_write(input->fd, input->queue.data, input->queue.size);
		if (n == -EAGAIN)
			break;
		if (n < 0) {
			/* EPIPE: the reader closed it, which is its right. */
			stdio_close_input(job);
			return;
		}
		buf_consume(&input->queue, (size_t)n);
		input->taken_pending = true;
	}
	if (input->fd < 0)
		return;
	if (input->queue.size == 0 && input->is_ended)
		stdio_close_input(job);
	else if (loop_set_events(input->source, input->queue.size > 0 ? EPOLLOUT : 0) < 0)
		job_fail(job, WIRE_STEP_PIPE, ENOMEM);
}

static int stdio_on_input(void *userdata, uint32_t events)
{
	struct job *job = userdata;

	(void)events;
	stdio_feed(job);
	files_job_arm(job);
	serve_flush(job->shim);
	return 0;
}

int stdio_open_input(struct job *job, size_t max_bytes, int *ret_child_fd)
{
	struct job_input *input = &job->input;
	AUTO_CLOSE int child_fd = -1;
	int r;

	ASSERT(input->fd < 0);
	r = stdio_pipe(1, &input->fd, &child_fd);
	if (r < 0)
		return r;
	r = loop_add(job->shim->loop, input->fd, 0, stdio_on_input, job, &input->source);
	if (r < 0) {
		input->fd = fd_close(input->fd);
		return r;
	}
	input->is_ended = false;
	input->queue = BUF_NULL(max_bytes);
	*ret_child_fd = TAKE_FD(child_fd);
	return 0;
}

int stdio_expect_terminal(struct job *job)
{
	job->input.queue = BUF_NULL((size_t)EXEC_STDIN_MAX_BYTES);
	job->output[0].is_terminal = true;
	return stdio_init_output(job, &job->output[0], WIRE_STDOUT, STDIO_MASK_TEXT);
}

static int stdio_take_terminal(struct job *job, int pty_fd)
{
	struct job_output *output = &job->output[0];
	struct job_input *input = &job->input;
	int r;

	output->fd = pty_fd;
	r = fd_set_nonblock(pty_fd, 1);
	if (r < 0)
		return r;
	r = loop_add(job->shim->loop, pty_fd, 0, stdio_on_output, output, &output->source);
	if (r < 0)
		return r;
	/* A second descriptor: each is watched for its own side. */
	input->fd = fcntl(pty_fd, F_DUPFD_CLOEXEC, 3);
	if (input->fd < 0)
		return -errno;
	r = loop_add(job->shim->loop, input->fd, 0, stdio_on_input, job, &input->source);
	if (r >= 0)
		stdio_feed(job); /* what came before it was there */
	return r;
}

int stdio_open_terminal(struct job *job, int pty_fd)
{
	int r = stdio_take_terminal(job, pty_fd);

	if (r < 0) {
		/* Half of it is not to be watched. */
		stdio_close_output(&job->output[0]);
		stdio_close_input(job);
	}
	return r;
}

int stdio_write(struct job *job, const uint8_t *data, size_t size)
{
	struct job_input *input = &job->input;
	bool is_early = job->has_terminal && job->pid == 0; /* there is none yet */
	int r;

	if ((input->fd < 0 && !is_early) || size == 0) {
		input->taken_pending = true;
		return 0; /* the reader has left */
	}
	if (input->queue.size == 0 && !is_early) {
		ssize_t n;

		n = io_write(input->fd, data, size);
		if (n < 0 && n != -EAGAIN) {
			stdio_close_input(job);
			return 0;
		}
		if (n > 0) {
			data += n;
			size -= (size_t)n;
			input->taken_pending = true;
		}
	}
	r = size > 0 ? buf_append(&input->queue, data, size) : 0;
	if (r < 0)
		return r == -EMSGSIZE ? -ENOBUFS : r;
	stdio_feed(job);
	return 0;
}

void stdio_write_end(struct job *job)
{
	static const uint8_t end_of_file = 4;

	if (job->has_terminal) {
		if (stdio_write(job, &end_of_file, 1) < 0)
			return; /* full: whoever reads so little does not wait for an end */
		return;
	}
	job->input.is_ended = true;
	stdio_feed(job);
}
