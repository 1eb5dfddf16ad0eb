/* Life of a link, its table of jobs, and the numbers of durable frames. */
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>

#include "base/err.h"
#include "base/fd.h"
#include "base/frame.h"
#include "base/sockmsg.h"

#include "supervisor/api/link/shim_link_state.h"

#define MAX_READS_A_TURN 8

static void lose(struct shim_link *link, int error)
{
	if (link->lost)
		return;
	link->lost = true;
	link->io = sd_event_source_disable_unref(link->io);
	link->events->lost(link->userdata, error);
}

void shim_link_update_events(struct shim_link *link)
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

struct wire_job *shim_link_find_job(struct shim_link *link, uint32_t id)
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

struct wire_job *shim_link_find_room(struct shim_link *link, size_t max)
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

int shim_link_add_job(struct shim_link *link, enum wire_job_state state, struct wire_job **ret_job)
{
	struct wire_job *job;

	if (link->lost || link->ending)
		return -EPIPE;
	job = link->known ? shim_link_find_room(link, SHIM_MAX_JOBS) : NULL;
	if (!job)
		return -EBUSY;
	*job = (struct wire_job){.id = link->next_job, .state = state};
	link->next_job = link->next_job == UINT32_MAX ? 1 : link->next_job + 1;
	link->n_jobs++;
	*ret_job = job;
	return 0;
}

void shim_link_begin_end(struct shim_link *link)
{
	link->ending = true;
}

int shim_link_resume(struct shim_link *link, uint32_t id)
{
	struct wire_job *job = shim_link_find_room(link, SHIM_N_SLOTS);

	if (!job)
		return -EBUSY;
	*job = (struct wire_job){.id = id, .state = WIRE_JOB_COMMAND};
	link->n_jobs++;
	return 0;
}

/* It was never sent. */
void shim_link_drop_job(struct shim_link *link, struct wire_job *job)
{
	job->state = WIRE_JOB_FREE;
	link->n_jobs--;
}

void shim_link_end_job(struct shim_link *link, struct wire_job *job, uint64_t number)
{
	if (job->state != WIRE_JOB_FOREIGN)
		link->n_jobs--;
	job->state = job->kept ? WIRE_JOB_KEPT : WIRE_JOB_ENDED;
	job->end = number;
}

uint64_t shim_link_unsettled(const struct shim_link *link)
{
	return link->flow->received - link->flow->settled;
}

void shim_link_settle(struct shim_link *link, uint64_t number)
{
	IGNORE_RESULT(flow_settle(link->flow, number));
	if (link->paused && shim_link_unsettled(link) < SHIM_LINK_WINDOW / 2) {
		link->paused = false;
		shim_link_update_events(link);
	}
}

int shim_link_flush(struct shim_link *link)
{
	struct wire_credit credit;
	int r;

	/* Not before it is known: n_held counts what is not acknowledged. */
	if (link->lost || !link->greeted || !link->known || !flow_credit(link->flow, &credit.acked))
		return 0;
	r = shim_link_send_bytes(link, WIRE_CREDIT, 0, &credit, sizeof(credit));
	if (r < 0)
		return r;
	flow_credited(link->flow, credit.acked);
	return 0;
}

bool shim_link_known(const struct shim_link *link)
{
	return link->known;
}

uint32_t shim_link_jobs(const struct shim_link *link)
{
	return link->n_jobs;
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
			r = shim_link_take(link, &header, payload, payload_bytes);
		if (r < 0)
			return r;
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
		r = shim_link_send_waiting(link);
	if (r >= 0 && !link->paused && (revents & (EPOLLIN | EPOLLHUP | EPOLLERR)))
		r = receive(link);
	else if (r >= 0 && link->paused && (revents & (EPOLLHUP | EPOLLERR)))
		r = -EPIPE;
	if (r < 0)
		lose(link, r);
	return 0;
}

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
		r = shim_link_send_bytes(link, WIRE_HELLO, 0, &hello, sizeof(hello));
	if (r >= 0 && link->adopted)
		r = shim_link_send_bytes(link, WIRE_PING, 0, NULL, 0);
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
		struct shim_link_out *out = LIST_ENTRY(link->out.next, struct shim_link_out, link);

		list_remove(&out->link);
		shim_link_out_free(out);
	}
	link->fd = fd_close(link->fd);
	free(link);
	return NULL;
}
