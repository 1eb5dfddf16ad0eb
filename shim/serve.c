/*
 * Theory. One connection at a time. Who may connect is decided by the folder of the socket, which
 * only root enters; credentials would say nothing, since the ids of the host are unmapped here. A
 * second connection is refused while the first lives; when the first is dead but its end was not
 * yet seen, it is replaced.
 *
 *   no peer     accept
 *   connected   only HELLO is allowed
 *   greeted     every frame of wire.h's first list
 *
 * Anything malformed drops the connection and nothing else: jobs go on, and the next HELLO fetches
 * what was not acknowledged. Frames are sent by number, smallest first, whatever job they are of.
 */
#include "shim/serve.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/frame.h"
#include "base/loop.h"
#include "base/sockmsg.h"

#include "shim/jobs.h"
#include "shim/shim.h"

#define SERVE_FRAMES_A_TURN 32

static void serve_drop(struct shim *shim)
{
	shim->api_source = loop_remove(shim->api_source);
	shim->api_fd = fd_close(shim->api_fd);
	shim->is_greeted = false;
	shim->hello_pending = false;
	shim->stats_pending = false;
	shim->is_blocked = false;
	shim->held.size = 0;
	files_job_cancel_all(shim);
}

static int serve_send(struct shim *shim, uint16_t type, uint32_t job, const void *payload,
		      size_t size)
{
	struct {
		struct wire_header header;
		uint8_t payload[sizeof(struct wire_hello)];
	} frame;

	_Static_assert(sizeof(struct wire_hello) >= sizeof(struct wire_stats), "fits");
	_Static_assert(sizeof(struct wire_hello) >= sizeof(struct wire_denied), "fits");
	_Static_assert(sizeof(struct wire_hello) >= sizeof(struct wire_taken), "fits");
	frame.header = frame_header(type, job, 0, size);
	if (type == WIRE_HELLO)
		frame.header.flags =
			WIRE_FEATURES | (shim->root_begun ? 0u : WIRE_FEATURE_UNTOUCHED);
	memcpy(frame.payload, payload, size);
	return sockmsg_send(shim->api_fd, &frame, sizeof(frame.header) + size, NULL, 0);
}

static int serve_send_hello(struct shim *shim)
{
	struct wire_hello hello = frame_hello(shim->context.params.session, shim->last_number);
	int r;

	r = serve_send(shim, WIRE_HELLO, 0, &hello, sizeof(hello));
	if (r >= 0)
		shim->hello_pending = false;
	return r;
}

static int serve_send_stats(struct shim *shim)
{
	struct wire_stats stats = {.n_orphans_reaped = shim->n_orphans_reaped};
	int r;

	for (size_t i = 0; i < SHIM_N_SLOTS; i++) {
		const struct job *job = &shim->job[i];

		if (job->state == JOB_STATE_RUNNING || job->state == JOB_STATE_DRAINING)
			stats.n_jobs++;
		stats.frames_held += outbox_frames(&job->outbox);
		stats.bytes_held += outbox_bytes(&job->outbox);
	}
	r = serve_send(shim, WIRE_STATS, 0, &stats, sizeof(stats));
	if (r >= 0)
		shim->stats_pending = false;
	return r;
}

static int serve_send_denied(struct shim *shim)
{
	const struct wire_denied *denied;

	while ((denied = denials_next(&shim->denials))) {
		int r = serve_send(shim, WIRE_DENIED, 0, denied, sizeof(*denied));

		if (r < 0)
			return r;
		denials_sent(&shim->denials);
	}
	return 0;
}

/* KEPT comes before anything else of its command. */
static int serve_send_kept(struct shim *shim)
{
	for (size_t i = 0; i < SHIM_N_SLOTS; i++) {
		struct job *job = &shim->job[i];
		struct wire_header header;
		struct wire_kept kept;
		struct iovec iov[] = {
			{.iov_base = &header,   .iov_len = sizeof(header) },
			{.iov_base = &kept,     .iov_len = sizeof(kept)   },
			{.iov_base = job->note, .iov_len = job->note_bytes},
		};
		int r;

		if (job->state == JOB_STATE_FREE || !job->kept_pending)
			continue;
		header = frame_header(WIRE_KEPT, job->id, 0, sizeof(kept) + job->note_bytes);
		kept = job_kept(job);
		r = sockmsg_sendv(shim->api_fd, iov, job->note_bytes > 0 ? 3 : 2, NULL, 0);
		if (r < 0)
			return r;
		job->kept_pending = false;
	}
	return 0;
}

static int serve_send_taken(struct shim *shim)
{
	for (size_t i = 0; i < SHIM_N_SLOTS; i++) {
		struct job *job = &shim->job[i];
		struct wire_taken taken = {.taken = job_taken(job), .is_closed = job->input.fd < 0};
		int r;

		if (!job->input.taken_pending || job->state != JOB_STATE_RUNNING ||
		    (job->kind == AGENT_HELPER && !job->file.is_open))
			continue;
		r = serve_send(shim, WIRE_TAKEN, job->id, &taken, sizeof(taken));
		if (r < 0)
			return r;
		job->input.taken_pending = false;
	}
	return 0;
}

/* STARTED has no number; it is sent once a connection, before any frame of its job. */
static int serve_send_started(struct shim *shim)
{
	for (size_t i = 0; i < SHIM_N_SLOTS; i++) {
		struct job *job = &shim->job[i];
		struct wire_started started = {.pid = job->pid};
		int r;

		if (job->state == JOB_STATE_FREE || !job->started_pending)
			continue;
		r = serve_send(shim, WIRE_STARTED, job->id, &started, sizeof(started));
		if (r < 0)
			return r;
		job->started_pending = false;
	}
	return 0;
}

/* The frame with the smallest number. 1: sent; 0: there is none. */
static int serve_send_next(struct shim *shim)
{
	struct outbox *first = NULL;
	uint64_t smallest = UINT64_MAX;
	int r;

	for (size_t i = 0; i < SHIM_N_SLOTS; i++) {
		uint64_t number;

		if (shim->job[i].state == JOB_STATE_FREE)
			continue;
		number = outbox_next(&shim->job[i].outbox);
		if (number == 0 || number >= smallest)
			continue;
		first = &shim->job[i].outbox;
		smallest = number;
	}
	if (!first)
		return 0;
	r = outbox_send(first, shim->api_fd);
	return r < 0 ? r : 1;
}

/* Whoever asked for a pause is answered when nothing is half done and none of `user` runs. */
static bool serve_may_answer(struct shim *shim)
{
	if (shim->paused_at != 0 && files_job_is_ending(shim))
		return false;
	if (shim->paused_at != 0)
		halt_set(shim, true);
	return !halt_is_asked(&shim->halt);
}

static int serve_send_all(struct shim *shim)
{
	int r = 0;

	if (shim->hello_pending)
		r = serve_send_hello(shim);
	if (r >= 0)
		r = serve_send_kept(shim);
	if (r >= 0)
		r = serve_send_started(shim);
	if (r >= 0 && shim->stats_pending && serve_may_answer(shim))
		r = serve_send_stats(shim);
	if (r >= 0)
		r = serve_send_taken(shim);
	if (r >= 0)
		r = serve_send_denied(shim);
	if (r >= 0)
		r = files_job_send(shim);
	if (r < 0)
		return r;
	do
		r = serve_send_next(shim);
	while (r > 0);
	return r;
}

void serve_flush(struct shim *shim)
{
	int r;

	if (shim->api_fd < 0 || !shim->is_greeted || shim->is_blocked)
		return;
	r = serve_send_all(shim);
	if (r == -EAGAIN) {
		shim->is_blocked = true;
		r = loop_set_events(shim->api_source, EPOLLIN | EPOLLOUT);
	}
	if (r < 0)
		serve_drop(shim);
	else
		files_job_watch(shim);
}

static int serve_hello(struct shim *shim, const uint8_t *payload)
{
	struct wire_hello hello;

	memcpy(&hello, payload, sizeof(hello));
	if (frame_hello_check(&hello, shim->context.params.session) < 0 ||
	    hello.acked > shim->last_number)
		return -EBADMSG;
	jobs_leave_tools(shim);
	/* In this order, and greeted last: nothing is sent before our HELLO, nothing twice. */
	for (size_t i = 0; i < SHIM_N_SLOTS; i++) {
		outbox_rewind(&shim->job[i].outbox);
		job_announce(&shim->job[i]);
	}
	jobs_ack(shim, hello.acked);
	shim->hello_pending = true;
	shim->is_greeted = true;
	return 0;
}

static int serve_credit(struct shim *shim, const uint8_t *payload)
{
	struct wire_credit credit;

	memcpy(&credit, payload, sizeof(credit));
	if (credit.acked > shim->last_number)
		return -EBADMSG;
	jobs_ack(shim, credit.acked);
	return 0;
}

static int serve_file_credit(struct shim *shim, uint32_t id, const uint8_t *payload)
{
	struct wire_credit credit;

	memcpy(&credit, payload, sizeof(credit));
	return files_job_credit(shim, id, credit.acked);
}

static int serve_signal(struct shim *shim, uint32_t id, const uint8_t *payload)
{
	struct wire_signal signal;

	memcpy(&signal, payload, sizeof(signal));
	return jobs_signal(shim, id, &signal);
}

static int serve_resize(struct shim *shim, uint32_t id, const uint8_t *payload)
{
	struct wire_size size;

	memcpy(&size, payload, sizeof(size));
	jobs_resize(shim, id, &size);
	return 0;
}

static int serve_pause(struct shim *shim, const uint8_t *payload)
{
	struct wire_pause pause;

	memcpy(&pause, payload, sizeof(pause));
	if (pause.is_paused > 1 || pause.zero != 0)
		return -EBADMSG;
	jobs_pause(shim, pause.is_paused != 0);
	/* A helper is `user`'s: one that is about to end is not stopped before. */
	if (pause.is_paused == 0)
		halt_set(shim, false);
	return 0;
}

/* frame_check has checked type, direction, job and size. */
static int serve_frame(struct shim *shim, const struct wire_header *header, const uint8_t *payload,
		       size_t size)
{
	if ((header->type == WIRE_HELLO) == shim->is_greeted)
		return -EBADMSG;
	switch (header->type) {
	case WIRE_HELLO:
		return serve_hello(shim, payload);
	case WIRE_EXEC:
		return jobs_exec(shim, header->job, payload, size);
	case WIRE_STDIN:
	case WIRE_PUT_DATA:
		return jobs_input(shim, header->job, header->type, payload, size);
	case WIRE_STDIN_EOF:
	case WIRE_PUT_END:
		return jobs_input_end(shim, header->job, header->type);
	case WIRE_CANCEL:
		jobs_cancel(shim, header->job);
		return 0;
	case WIRE_CREDIT:
		return serve_credit(shim, payload);
	case WIRE_PUT:
		return jobs_put(shim, header->job, payload, size);
	case WIRE_FILE:
		return files_job_start(shim, header->job, payload, size);
	case WIRE_FILE_CREDIT:
		return serve_file_credit(shim, header->job, payload);
	case WIRE_PING:
		shim->stats_pending = true;
		return 0;
	case WIRE_SIGNAL:
		return serve_signal(shim, header->job, payload);
	case WIRE_RESIZE:
		return serve_resize(shim, header->job, payload);
	case WIRE_PAUSE:
		return serve_pause(shim, payload);
	case WIRE_FORGET:
		return jobs_forget(shim, header->job);
	default:
		return -EBADMSG;
	}
}

/* 1: a frame was handled; 0: none is there; negative: the peer is gone or wrong. */
static int serve_receive(struct shim *shim)
{
	struct wire_header header;
	const uint8_t *payload;
	size_t size;
	ssize_t n;
	int r;

	n = sockmsg_recv(shim->api_fd, shim->frame, sizeof(shim->frame), NULL, 0);
	if (n == -EAGAIN)
		return 0;
	if (n <= 0)
		return n < 0 ? (int)n : -EPIPE;
	r = frame_check(shim->frame, (size_t)n, FRAME_TO_SHIM, &header, &payload, &size);
	if (r >= 0)
		r = serve_frame(shim, &header, payload, size);
	return r < 0 ? r : 1;
}

static int serve_on_api(void *userdata, uint32_t events)
{
	struct shim *shim = userdata;
	int r = 1;

	if (events & EPOLLOUT) {
		shim->is_blocked = false;
		if (loop_set_events(shim->api_source, EPOLLIN) < 0) {
			serve_drop(shim);
			return 0;
		}
	}
	/* A flush inside may find the peer gone and drop it. */
	for (int i = 0; shim->api_fd >= 0 && r > 0 && i < SERVE_FRAMES_A_TURN; i++)
		r = serve_receive(shim);
	if (r < 0 && shim->api_fd >= 0)
		serve_drop(shim);
	serve_flush(shim);
	return 0;
}

static bool serve_peer_is_dead(int fd)
{
	struct pollfd poll_fd = {.fd = fd, .events = POLLRDHUP};

	return poll(&poll_fd, 1, 0) > 0;
}

static int serve_on_listen(void *userdata, uint32_t events)
{
	struct shim *shim = userdata;
	AUTO_CLOSE int fd = -1;
	int r;

	(void)events;
	fd = accept4(SHIM_FD_LISTEN, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (fd < 0) {
		/* The peer gave up; or descriptors are short, then the next turn asks again. */
		return 0;
	}
	if (shim->api_fd >= 0 && !serve_peer_is_dead(shim->api_fd))
		return 0;
	serve_drop(shim);
	r = loop_add(shim->loop, fd, EPOLLIN, serve_on_api, shim, &shim->api_source);
	if (r < 0)
		return 0; /* no memory: the peer sees the end and tries again */
	shim->api_fd = TAKE_FD(fd);
	return 0;
}

int serve_init(struct shim *shim)
{
	shim->api_fd = -1;
	return loop_add(shim->loop, SHIM_FD_LISTEN, EPOLLIN, serve_on_listen, shim,
			&shim->listen_source);
}
