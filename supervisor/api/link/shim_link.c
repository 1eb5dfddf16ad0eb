#include "supervisor/api/link/shim_link.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/uio.h>

#include "base/err.h"
#include "base/frame.h"
#include "base/list.h"
#include "base/sockmsg.h"

#define MAX_READS_A_TURN 8
#define CREDIT_BYTES     (WIRE_FILE_WINDOW_BYTES / 4)

enum wire_job_state {
	WIRE_JOB_FREE,
	/* A command: STARTED once, output, EXIT or FAILED may come. STARTED has no number: it is
	 * not sent again, so nothing waits for it. */
	WIRE_JOB_COMMAND,
	WIRE_JOB_PUTTING, /* a file: PUT_DONE or FAILED may come */
	WIRE_JOB_FILE,    /* an operation on files: the same, and before it TAKEN and FILE_DATA */
	WIRE_JOB_FOREIGN, /* of an earlier worker: was cancelled, what comes is dropped */
	/* Nothing of it may come, but the shim keeps its slot until its end is acknowledged: until
	 * then there is no room for another one. */
	WIRE_JOB_ENDED,
	WIRE_JOB_KEPT, /* the same of a kept one: until shim_link_forget */
	WIRE_JOB_MAX_,
};

struct wire_job {
	uint32_t id;
	enum wire_job_state state;
	bool started; /* STARTED came */
	bool kept;    /* WIRE_EXEC_KEEP */
	uint64_t end; /* WIRE_JOB_ENDED: number of its last frame */
	/* WIRE_JOB_FILE: bytes of FILE_DATA that came, are out of the way, and were said to be. */
	uint64_t came_bytes;
	uint64_t taken_bytes;
	uint64_t credited_bytes;
};

/* One frame that waits for the socket. */
struct out {
	struct list link;
	size_t size;
	uint8_t data[];
};

struct shim_link {
	sd_event_source *io;
	const struct shim_link_events *events;
	void *userdata;
	struct list out;
	size_t out_bytes;
	struct id session;
	uint8_t *scratch;  /* not owned */
	struct flow *flow; /* not owned: the session's */
	uint32_t next_job;
	uint32_t n_jobs;
	/* As the shim has slots: what an earlier worker left takes some. */
	struct wire_job job[SHIM_N_SLOTS];
	uint64_t n_held; /* frames that the shim had for us when it was asked */
	uint64_t n_durable;
	int fd;
	bool greeted;
	bool adopted;
	uint32_t n_running; /* in the shim, or about to, by STATS */
	bool counted;       /* STATS came: n_held and n_running are valid */
	bool known;
	bool first_seen; /* a durable frame came */
	bool lost;
	bool want_out;
	bool paused;
};

static void lose(struct shim_link *link, int error)
{
	if (link->lost)
		return;
	link->lost = true;
	link->io = sd_event_source_disable_unref(link->io);
	link->events->lost(link->userdata, error);
}

static void update_events(struct shim_link *link)
{
	uint32_t events = 0;

	if (link->lost)
		return;
	if (!link->paused)
		events |= EPOLLIN;
	if (link->want_out)
		events |= EPOLLOUT;
	(void)sd_event_source_set_io_events(link->io, events);
}

/* struct iovec has no const: what is sent is not written to. */
static struct iovec piece(const void *data, size_t size)
{
	union {
		const void *from;
		void *to;
	} pointer = {.from = data};

	return (struct iovec){pointer.to, size};
}

/* Send now if nothing waits, else queue. */
static int send_frame(struct shim_link *link, const struct wire_header *header,
		      const struct iovec *parts, size_t n_parts)
{
	struct iovec iov[4] = {piece(header, sizeof(*header))};
	struct out *out;
	size_t at = 0;
	int r;

	ASSERT(n_parts < ARRAY_SIZE(iov));
	if (link->lost)
		return -EPIPE;
	/* Jobs ask has_room first; this bounds what the shim itself can provoke. */
	if (link->out_bytes > 2 * SHIM_LINK_OUT_MAX_BYTES)
		return -ENOBUFS;
	for (size_t i = 0; i < n_parts; i++)
		iov[i + 1] = parts[i];
	if (list_empty(&link->out)) {
		r = sockmsg_sendv(link->fd, iov, n_parts + 1, NULL, 0);
		if (r != -EAGAIN)
			return r;
	}
	out = malloc(sizeof(*out) + header->length);
	if (!out)
		return -ENOMEM;
	for (size_t i = 0; i <= n_parts; i++) {
		if (iov[i].iov_len > 0)
			memcpy(out->data + at, iov[i].iov_base, iov[i].iov_len);
		at += iov[i].iov_len;
	}
	out->size = at;
	list_append(&link->out, &out->link);
	link->out_bytes += at;
	link->want_out = true;
	update_events(link);
	return 0;
}

static int send_bytes(struct shim_link *link, uint16_t type, uint32_t job, const void *data,
		      size_t size)
{
	struct wire_header header = frame_header(type, job, 0, size);
	struct iovec part = piece(data, size);

	return send_frame(link, &header, &part, size > 0 ? 1 : 0);
}

static int send_waiting(struct shim_link *link)
{
	while (!list_empty(&link->out)) {
		struct out *out = LIST_ENTRY(link->out.next, struct out, link);
		int r;

		r = sockmsg_send(link->fd, out->data, out->size, NULL, 0);
		if (r == -EAGAIN)
			return 0;
		if (r < 0)
			return r;
		list_remove(&out->link);
		link->out_bytes -= out->size;
		free(out);
	}
	link->want_out = false;
	update_events(link);
	return 0;
}

static struct wire_job *find_job(struct shim_link *link, uint32_t id)
{
	for (size_t i = 0; i < SHIM_N_SLOTS; i++) {
		const struct wire_job *job = &link->job[i];

		if ((job->state == WIRE_JOB_COMMAND || job->state == WIRE_JOB_PUTTING ||
		     job->state == WIRE_JOB_FILE || job->state == WIRE_JOB_FOREIGN) &&
		    job->id == id)
			return &link->job[i];
	}
	return NULL;
}

static bool is_room(const struct shim_link *link, const struct wire_job *job)
{
	return job->state == WIRE_JOB_FREE ||
	       (job->state == WIRE_JOB_ENDED && job->end <= link->flow->credited);
}

static struct wire_job *find_room(struct shim_link *link, size_t max)
{
	struct wire_job *room = NULL;
	size_t n = 0;

	for (size_t i = 0; i < SHIM_N_SLOTS; i++) {
		if (is_room(link, &link->job[i]))
			room = &link->job[i];
		else if (link->job[i].state != WIRE_JOB_KEPT)
			n++;
	}
	return n < max ? room : NULL;
}

static int add_job(struct shim_link *link, enum wire_job_state state, struct wire_job **ret_job)
{
	struct wire_job *job;

	if (link->lost)
		return -EPIPE;
	job = link->known ? find_room(link, SHIM_MAX_JOBS) : NULL;
	if (!job)
		return -EBUSY;
	*job = (struct wire_job){.id = link->next_job, .state = state};
	link->next_job = link->next_job == UINT32_MAX ? 1 : link->next_job + 1;
	link->n_jobs++;
	*ret_job = job;
	return 0;
}

int shim_link_resume(struct shim_link *link, uint32_t id)
{
	struct wire_job *job = find_room(link, SHIM_N_SLOTS);

	if (!job)
		return -EBUSY;
	*job = (struct wire_job){.id = id, .state = WIRE_JOB_COMMAND};
	link->n_jobs++;
	return 0;
}

/* It was never sent. */
static void drop_job(struct shim_link *link, struct wire_job *job)
{
	job->state = WIRE_JOB_FREE;
	link->n_jobs--;
}

static void end_job(struct shim_link *link, struct wire_job *job, uint64_t number)
{
	if (job->state != WIRE_JOB_FOREIGN)
		link->n_jobs--;
	job->state = job->kept ? WIRE_JOB_KEPT : WIRE_JOB_ENDED;
	job->end = number;
}

/* Numbers. */

static uint64_t unsettled(const struct shim_link *link)
{
	return link->flow->received - link->flow->settled;
}

void shim_link_settle(struct shim_link *link, uint64_t number)
{
	IGNORE_RESULT(flow_settle(link->flow, number));
	if (link->paused && unsettled(link) < SHIM_LINK_WINDOW / 2) {
		link->paused = false;
		update_events(link);
	}
}

int shim_link_flush(struct shim_link *link)
{
	struct wire_credit credit;
	int r;

	/* Not before it is known: n_held counts what is not acknowledged. */
	if (link->lost || !link->greeted || !link->known || !flow_credit(link->flow, &credit.acked))
		return 0;
	r = send_bytes(link, WIRE_CREDIT, 0, &credit, sizeof(credit));
	if (r < 0)
		return r;
	flow_credited(link->flow, credit.acked);
	return 0;
}

uint32_t shim_link_jobs(const struct shim_link *link)
{
	return link->n_jobs;
}

/* Frames from the shim. */

static int take_hello(struct shim_link *link, const struct wire_header *header,
		      const uint8_t *payload)
{
	struct wire_hello hello;
	int r;

	if (header->type != WIRE_HELLO)
		return -EPROTO;
	memcpy(&hello, payload, sizeof(hello));
	r = frame_hello_check(&hello, link->session.bytes);
	if (r < 0)
		return r;
	/* What the shim says it has sent must not be below what was committed. */
	if (hello.acked < link->flow->settled)
		return -EPROTO;
	link->greeted = true;
	return 0;
}

/* A frame of a job that this link did not start. Only an adopted session has such jobs: nobody
 * waits for them any more, so they end. */
static int take_foreign(struct shim_link *link, const struct wire_header *header,
			struct wire_job *job)
{
	bool is_new = !job;

	if (!link->adopted || header->type == WIRE_FILE_DATA)
		return -EPROTO;
	if (header->number > 0)
		shim_link_settle(link, header->number);
	if (is_new) {
		job = find_room(link, SHIM_N_SLOTS);
		if (!job)
			return -EPROTO; /* more than a shim has slots for */
		*job = (struct wire_job){.id = header->job,
					 .state = WIRE_JOB_FOREIGN,
					 .started = header->type == WIRE_STARTED};
	}
	if (header->type != WIRE_STARTED && header->type != WIRE_STDOUT &&
	    header->type != WIRE_STDERR) {
		end_job(link, job, header->number);
		return 0;
	}
	return is_new ? send_bytes(link, WIRE_CANCEL, header->job, NULL, 0) : 0;
}

/* Those that run and were announced. */
static uint32_t n_announced(const struct shim_link *link)
{
	uint32_t n = 0;

	for (size_t i = 0; i < SHIM_N_SLOTS; i++)
		n += link->job[i].started && (link->job[i].state == WIRE_JOB_COMMAND ||
					      link->job[i].state == WIRE_JOB_FOREIGN);
	return n;
}

/* Resumed jobs that the shim does not have: it was never asked, or its word was taken before. */
static void fail_missing(struct shim_link *link)
{
	static const struct wire_failed failed = {.step = WIRE_STEP_REQUEST, .error_number = ESRCH};

	/* Something may be about to begin. Nothing new does before it is known. */
	if (n_announced(link) != link->n_running)
		return;
	for (size_t i = 0; i < SHIM_N_SLOTS; i++) {
		struct wire_job *job = &link->job[i];

		if (job->state != WIRE_JOB_COMMAND || job->started)
			continue;
		end_job(link, job, 0);
		link->events->failed(link->userdata, job->id, 0, &failed);
	}
}

/* Before STATS, which counts it where it runs. */
static int take_kept(struct shim_link *link, const struct wire_header *header,
		     const uint8_t *payload, size_t size)
{
	struct wire_kept kept;
	struct wire_job *job;

	memcpy(&kept, payload, sizeof(kept));
	if (!link->adopted || link->counted || find_job(link, header->job) || kept.pid < 0)
		return -EPROTO;
	job = find_room(link, SHIM_N_SLOTS);
	if (!job)
		return -EPROTO;
	*job = (struct wire_job){
		.id = header->job,
		.state = WIRE_JOB_COMMAND,
		.started = kept.pid != 0,
		.kept = true,
	};
	link->n_jobs++;
	if (!link->events->kept)
		return send_bytes(link, WIRE_CANCEL, job->id, NULL, 0);
	return link->events->kept(link->userdata, job->id, &kept, payload + sizeof(kept),
				  size - sizeof(kept));
}

static int take_taken(struct shim_link *link, const struct wire_job *job, const uint8_t *payload)
{
	struct wire_taken taken;

	memcpy(&taken, payload, sizeof(taken));
	if ((job->state != WIRE_JOB_COMMAND && job->state != WIRE_JOB_FILE) ||
	    taken.is_closed > 1 || taken.zero != 0)
		return -EPROTO;
	if (link->events->taken)
		link->events->taken(link->userdata, job->id, &taken);
	return 0;
}

static int take_file_data(struct shim_link *link, struct wire_job *job, const uint8_t *payload,
			  size_t size)
{
	if (job->state != WIRE_JOB_FILE)
		return -EPROTO;
	job->came_bytes += size;
	if (job->came_bytes - job->taken_bytes > WIRE_FILE_WINDOW_BYTES)
		return -EPROTO;
	link->events->file_data(link->userdata, job->id, payload, size);
	return 0;
}

static int take_denied(struct shim_link *link, const uint8_t *payload)
{
	struct wire_denied denied;

	memcpy(&denied, payload, sizeof(denied));
	if (denied.count == 0 || denied.pid < 0 || denied.zero != 0)
		return -EPROTO;
	if (link->events->denied)
		link->events->denied(link->userdata, &denied);
	return 0;
}

/* STATS comes behind the STARTED of what runs; what has ended follows with its frames. */
static void check_known(struct shim_link *link)
{
	if (link->known || !link->counted || link->n_durable < link->n_held)
		return;
	fail_missing(link);
	link->known = true;
	link->events->known(link->userdata);
}

static int take_started(struct shim_link *link, struct wire_job *job, const uint8_t *payload)
{
	struct wire_started started;

	if (job->state != WIRE_JOB_COMMAND || job->started)
		return -EPROTO;
	memcpy(&started, payload, sizeof(started));
	job->started = true;
	link->events->started(link->userdata, job->id, started.pid);
	return 0;
}

static int take_end(struct shim_link *link, struct wire_job *job, const struct wire_header *header,
		    const uint8_t *payload)
{
	uint32_t id = job->id;
	struct wire_exit status;
	struct wire_failed failed;

	switch (header->type) {
	case WIRE_EXIT:
		if (job->state != WIRE_JOB_COMMAND)
			return -EPROTO;
		memcpy(&status, payload, sizeof(status));
		end_job(link, job, header->number);
		link->events->exited(link->userdata, id, header->number, &status);
		return 0;
	case WIRE_FAILED:
		memcpy(&failed, payload, sizeof(failed));
		end_job(link, job, header->number);
		link->events->failed(link->userdata, id, header->number, &failed);
		return 0;
	case WIRE_PUT_DONE:
		if (job->state != WIRE_JOB_PUTTING && job->state != WIRE_JOB_FILE)
			return -EPROTO;
		end_job(link, job, header->number);
		link->events->put_done(link->userdata, id, header->number);
		return 0;
	default:
		return -EPROTO;
	}
}

/* 0: go on. FLOW_E_DUPLICATE: drop it. */
static int take_number(struct shim_link *link, uint64_t number)
{
	int r;

	/* The shim was told more than the store knows where output of commands was handed out
	 * after the last commit: after an adoption the first number may lie ahead. */
	if (link->adopted && !link->first_seen && number > link->flow->received) {
		flow_done(link->flow);
		flow_init(link->flow, number - 1);
	}
	link->first_seen = true;
	r = flow_receive(link->flow, number);
	if (r != 0)
		return r;
	if (unsettled(link) >= SHIM_LINK_WINDOW) {
		link->paused = true;
		update_events(link);
	}
	return 0;
}

static int take_stats(struct shim_link *link, const uint8_t *payload)
{
	struct wire_stats stats;

	memcpy(&stats, payload, sizeof(stats));
	if (!link->counted) {
		link->n_held = stats.frames_held;
		link->n_running = stats.n_jobs;
	}
	link->counted = true;
	return 0;
}

static int take_frame(struct shim_link *link, const struct wire_header *header,
		      const uint8_t *payload, size_t size)
{
	struct wire_job *job;
	int r;

	if (!link->greeted)
		return take_hello(link, header, payload);
	if (header->type == WIRE_STATS)
		return take_stats(link, payload);
	if (header->type == WIRE_DENIED)
		return take_denied(link, payload);
	if (header->type == WIRE_KEPT)
		return take_kept(link, header, payload, size);
	job = find_job(link, header->job);
	if (header->flags & WIRE_AGAIN) {
		/* Numbers that were acknowledged, maybe before the ones that the store knows. */
		link->n_durable++;
		if (!job || !job->kept || !link->adopted)
			return -EPROTO;
	} else if (frame_is_durable(header->type)) {
		link->n_durable++;
		r = take_number(link, header->number);
		if (r != 0)
			return r < 0 ? r : 0;
	}
	if (!job || job->state == WIRE_JOB_FOREIGN)
		return take_foreign(link, header, job);
	switch (header->type) {
	case WIRE_STARTED:
		return take_started(link, job, payload);
	case WIRE_TAKEN:
		return take_taken(link, job, payload);
	case WIRE_FILE_DATA:
		return take_file_data(link, job, payload, size);
	case WIRE_STDOUT:
	case WIRE_STDERR:
		if (job->state != WIRE_JOB_COMMAND)
			return -EPROTO;
		link->events->output(link->userdata, job->id, header->number,
				     header->type == WIRE_STDERR, payload, size);
		return 0;
	default:
		return take_end(link, job, header, payload);
	}
}

static int receive(struct shim_link *link)
{
	for (unsigned int i = 0; i < MAX_READS_A_TURN && !link->lost && !link->paused; i++) {
		struct wire_header header;
		const uint8_t *payload;
		size_t payload_bytes;
		ssize_t n;
		int r;

		n = sockmsg_recv(link->fd, link->scratch, WIRE_FRAME_MAX_BYTES, NULL, 0);
		if (n == -EAGAIN)
			return 0;
		if (n <= 0)
			return n == 0 ? -EPIPE : (int)n;
		r = frame_check(link->scratch, (size_t)n, FRAME_FROM_SHIM, &header, &payload,
				&payload_bytes);
		if (r >= 0)
			r = take_frame(link, &header, payload, payload_bytes);
		if (r < 0)
			return r;
		check_known(link);
	}
	return 0;
}

static int on_io(sd_event_source *source, int fd, uint32_t revents, void *userdata)
{
	struct shim_link *link = userdata;
	int r = 0;

	(void)source;
	(void)fd;
	if (revents & EPOLLOUT)
		r = send_waiting(link);
	if (r >= 0 && !link->paused && (revents & (EPOLLIN | EPOLLHUP | EPOLLERR)))
		r = receive(link);
	else if (r >= 0 && link->paused && (revents & (EPOLLHUP | EPOLLERR)))
		r = -EPIPE;
	if (r < 0)
		lose(link, r);
	return 0;
}

/* Life. */

int shim_link_new(sd_event *event, int fd, const struct shim_link_options *options,
		  const struct shim_link_events *events, void *userdata,
		  struct shim_link **ret_link)
{
	struct wire_hello hello = frame_hello(options->session->bytes, options->flow->settled);
	struct shim_link *link;
	int r;

	link = calloc(1, sizeof(*link));
	if (!link)
		return -ENOMEM;
	list_init(&link->out);
	link->events = events;
	link->userdata = userdata;
	link->session = *options->session;
	link->scratch = options->scratch;
	link->flow = options->flow;
	link->next_job = options->first_job > 0 ? options->first_job : 1;
	link->adopted = options->adopted;
	link->known = !options->adopted;
	link->fd = fd;
	r = fd_set_nonblock(fd, 1);
	if (r >= 0)
		r = sd_event_add_io(event, &link->io, fd, EPOLLIN, on_io, link);
	if (r >= 0)
		r = send_bytes(link, WIRE_HELLO, 0, &hello, sizeof(hello));
	if (r >= 0 && link->adopted)
		r = send_bytes(link, WIRE_PING, 0, NULL, 0);
	if (r < 0) {
		link->fd = -1; /* stays the caller's */
		(void)shim_link_free(link);
		return r;
	}
	*ret_link = link;
	return 0;
}

struct shim_link *shim_link_free(struct shim_link *link)
{
	if (!link)
		return NULL;
	link->io = sd_event_source_disable_unref(link->io);
	while (!list_empty(&link->out)) {
		struct out *out = LIST_ENTRY(link->out.next, struct out, link);

		list_remove(&out->link);
		free(out);
	}
	link->fd = fd_close(link->fd);
	free(link);
	return NULL;
}

/* Jobs. */

static int send_pieces(struct shim_link *link, uint16_t type, uint32_t job, const void *data,
		       size_t size)
{
	const uint8_t *at = data;

	while (size > 0) {
		size_t n = size < WIRE_PAYLOAD_MAX_BYTES ? size : WIRE_PAYLOAD_MAX_BYTES;
		int r;

		r = send_bytes(link, type, job, at, n);
		if (r < 0)
			return r;
		at += n;
		size -= n;
	}
	return 0;
}

static bool has_room(const struct shim_link *link, size_t size)
{
	return size < SHIM_LINK_OUT_MAX_BYTES && link->out_bytes < SHIM_LINK_OUT_MAX_BYTES - size;
}

int shim_link_exec(struct shim_link *link, const struct shim_link_command *command,
		   uint32_t *ret_job)
{
	struct wire_exec head = command->head;
	AUTO_FREE uint8_t *payload = NULL;
	size_t payload_bytes;
	struct wire_job *job;
	int r;

	if (!has_room(link, command->stdin_bytes + WIRE_FRAME_MAX_BYTES))
		return -ENOBUFS;
	payload = malloc(WIRE_PAYLOAD_MAX_BYTES);
	if (!payload)
		return -ENOMEM;
	if (command->stdin_data || command->stdin_open)
		head.flags |= WIRE_EXEC_STDIN;
	head.note_bytes = command->note_bytes;
	r = frame_exec_build(payload, WIRE_PAYLOAD_MAX_BYTES, &head, command->cwd, command->argv,
			     command->env, command->note, &payload_bytes);
	if (r < 0)
		return r;
	r = add_job(link, WIRE_JOB_COMMAND, &job);
	if (r < 0)
		return r;
	job->kept = (head.flags & WIRE_EXEC_KEEP) != 0;
	r = send_bytes(link, WIRE_EXEC, job->id, payload, payload_bytes);
	if (r >= 0 && command->stdin_data)
		r = send_pieces(link, WIRE_STDIN, job->id, command->stdin_data,
				command->stdin_bytes);
	if (r >= 0 && (head.flags & WIRE_EXEC_STDIN) && !command->stdin_open)
		r = send_bytes(link, WIRE_STDIN_EOF, job->id, NULL, 0);
	if (r < 0) {
		drop_job(link, job);
		return r;
	}
	*ret_job = job->id;
	return 0;
}

int shim_link_put(struct shim_link *link, const char *path, uint32_t mode, const void *data,
		  size_t size, uint32_t *ret_job)
{
	struct wire_put put = {.mode = mode, .size_bytes = size};
	size_t path_bytes = strlen(path) + 1;
	struct iovec parts[2] = {piece(&put, sizeof(put)), piece(path, path_bytes)};
	struct wire_header header;
	struct wire_job *job;
	int r;

	if (path_bytes > EXEC_CWD_BYTES)
		return -E2BIG;
	if (!has_room(link, size + WIRE_FRAME_MAX_BYTES))
		return -ENOBUFS;
	put.path_bytes = (uint32_t)path_bytes;
	r = add_job(link, WIRE_JOB_PUTTING, &job);
	if (r < 0)
		return r;
	header = frame_header(WIRE_PUT, job->id, 0, sizeof(put) + path_bytes);
	r = send_frame(link, &header, parts, ARRAY_SIZE(parts));
	if (r >= 0)
		r = send_pieces(link, WIRE_PUT_DATA, job->id, data, size);
	if (r >= 0)
		r = send_bytes(link, WIRE_PUT_END, job->id, NULL, 0);
	if (r < 0) {
		drop_job(link, job);
		return r;
	}
	*ret_job = job->id;
	return 0;
}

int shim_link_file(struct shim_link *link, const struct wire_file *file, const char *path,
		   const char *to, uint32_t *ret_job)
{
	struct wire_file head = *file;
	size_t path_bytes = strlen(path) + 1;
	size_t to_bytes = to ? strlen(to) + 1 : 0;
	struct iovec parts[3] = {piece(&head, sizeof(head)), piece(path, path_bytes),
				 piece(to, to_bytes)};
	struct wire_header header;
	struct wire_job *job;
	int r;

	if (path_bytes > FILE_PATH_BYTES || to_bytes > FILE_PATH_BYTES)
		return -E2BIG;
	if (!has_room(link, WIRE_FRAME_MAX_BYTES))
		return -ENOBUFS;
	head.path_bytes = (uint16_t)path_bytes;
	head.to_bytes = (uint16_t)to_bytes;
	r = add_job(link, WIRE_JOB_FILE, &job);
	if (r < 0)
		return r;
	header = frame_header(WIRE_FILE, job->id, 0, sizeof(head) + path_bytes + to_bytes);
	r = send_frame(link, &header, parts, to ? 3 : 2);
	if (r < 0) {
		drop_job(link, job);
		return r;
	}
	*ret_job = job->id;
	return 0;
}

static struct wire_job *find_file(struct shim_link *link, uint32_t id)
{
	struct wire_job *job = link->lost ? NULL : find_job(link, id);

	return job && job->state == WIRE_JOB_FILE ? job : NULL;
}

int shim_link_file_put(struct shim_link *link, uint32_t job, const void *data, size_t size)
{
	if (!find_file(link, job))
		return -ESRCH;
	return send_pieces(link, WIRE_PUT_DATA, job, data, size);
}

int shim_link_file_put_end(struct shim_link *link, uint32_t job)
{
	return find_file(link, job) ? send_bytes(link, WIRE_PUT_END, job, NULL, 0) : -ESRCH;
}

void shim_link_file_credit(struct shim_link *link, uint32_t id, size_t size)
{
	struct wire_job *job = find_file(link, id);
	struct wire_credit credit;

	if (!job)
		return;
	job->taken_bytes += size;
	if (job->taken_bytes - job->credited_bytes < CREDIT_BYTES)
		return;
	credit.acked = job->taken_bytes;
	if (send_bytes(link, WIRE_FILE_CREDIT, id, &credit, sizeof(credit)) >= 0)
		job->credited_bytes = job->taken_bytes;
}

static bool is_running(struct shim_link *link, uint32_t id)
{
	const struct wire_job *job = link->lost ? NULL : find_job(link, id);

	return job && job->state == WIRE_JOB_COMMAND;
}

int shim_link_stdin(struct shim_link *link, uint32_t job, const void *data, size_t size)
{
	if (!is_running(link, job))
		return -ESRCH;
	if (!has_room(link, size))
		return -ENOBUFS;
	return send_pieces(link, WIRE_STDIN, job, data, size);
}

int shim_link_stdin_end(struct shim_link *link, uint32_t job)
{
	return is_running(link, job) ? send_bytes(link, WIRE_STDIN_EOF, job, NULL, 0) : -ESRCH;
}

int shim_link_signal(struct shim_link *link, uint32_t job, const struct wire_signal *signal)
{
	if (!is_running(link, job))
		return -ESRCH;
	return send_bytes(link, WIRE_SIGNAL, job, signal, sizeof(*signal));
}

int shim_link_resize(struct shim_link *link, uint32_t job, const struct wire_size *size)
{
	if (!is_running(link, job))
		return -ESRCH;
	return send_bytes(link, WIRE_RESIZE, job, size, sizeof(*size));
}

void shim_link_forget(struct shim_link *link, uint32_t id)
{
	for (size_t i = 0; i < SHIM_N_SLOTS; i++) {
		struct wire_job *job = &link->job[i];

		if (job->state != WIRE_JOB_KEPT || job->id != id)
			continue;
		/* What is started next comes behind it on the socket. */
		if (!link->lost && send_bytes(link, WIRE_FORGET, id, NULL, 0) >= 0)
			job->state = WIRE_JOB_FREE;
		return;
	}
}

void shim_link_cancel(struct shim_link *link, uint32_t job)
{
	if (!link->lost && find_job(link, job))
		IGNORE_RESULT(send_bytes(link, WIRE_CANCEL, job, NULL, 0));
}
