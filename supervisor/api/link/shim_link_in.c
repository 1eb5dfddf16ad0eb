/* What a shim says. */
#include <errno.h>
#include <string.h>

#include "base/err.h"
#include "base/frame.h"

#include "supervisor/api/link/shim_link_state.h"

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
	link->features = header->flags;
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
	if (header->type == WIRE_TAKEN)
		return 0; /* maybe before its STARTED */
	if (header->number > 0)
		shim_link_settle(link, header->number);
	if (is_new) {
		job = shim_link_find_room(link, SHIM_N_SLOTS);
		if (!job)
			return -EPROTO; /* more than a shim has slots for */
		*job = (struct wire_job){.id = header->job,
					 .state = WIRE_JOB_FOREIGN,
					 .started = header->type == WIRE_STARTED};
	}
	if (header->type != WIRE_STARTED && header->type != WIRE_STDOUT &&
	    header->type != WIRE_STDERR) {
		shim_link_end_job(link, job, header->number);
		return 0;
	}
	return is_new ? shim_link_send_bytes(link, WIRE_CANCEL, header->job, NULL, 0) : 0;
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
		shim_link_end_job(link, job, 0);
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
	if (!link->adopted || link->counted || shim_link_find_job(link, header->job) ||
	    kept.pid < 0)
		return -EPROTO;
	job = shim_link_find_room(link, SHIM_N_SLOTS);
	if (!job)
		return -EPROTO;
	*job = (struct wire_job){
		.id = header->job,
		.state = WIRE_JOB_COMMAND,
		.started = kept.pid != 0,
		.kept = true,
	};
	link->n_jobs++;
	if (!link->events->kept || link->ending)
		return shim_link_send_bytes(link, WIRE_CANCEL, job->id, NULL, 0);
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
		shim_link_end_job(link, job, header->number);
		link->events->exited(link->userdata, id, header->number, &status);
		return 0;
	case WIRE_FAILED:
		memcpy(&failed, payload, sizeof(failed));
		shim_link_end_job(link, job, header->number);
		link->events->failed(link->userdata, id, header->number, &failed);
		return 0;
	case WIRE_PUT_DONE:
		if (job->state != WIRE_JOB_PUTTING && job->state != WIRE_JOB_FILE)
			return -EPROTO;
		shim_link_end_job(link, job, header->number);
		link->events->put_done(link->userdata, id, header->number);
		return 0;
	default:
		return -EPROTO;
	}
}

/* -EPROTO: it keeps no room for what is not acknowledged. */
static int count_owed(struct shim_link *link, size_t size)
{
	if (link->flow->credited >= link->mark) {
		link->bytes_to_mark = link->bytes_behind;
		link->bytes_behind = 0;
		link->mark = link->flow->received;
	}
	link->bytes_behind += size;
	return link->bytes_to_mark + link->bytes_behind > SHIM_LINK_OWED_MAX_BYTES ? -EPROTO : 0;
}

/* Of a kept command: what was in its ring when the connection began, once. */
static int take_again(struct shim_link *link, const struct wire_header *header,
		      struct wire_job *job)
{
	if (!job || !job->kept || !link->adopted)
		return -EPROTO;
	job->again_bytes += header->length;
	return job->again_bytes > SHIM_RING_BYTES + WIRE_FRAME_MAX_BYTES ? -EPROTO : 0;
}

/* 0: go on. FLOW_E_DUPLICATE: drop it. */
static int take_number(struct shim_link *link, uint64_t number, size_t size)
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
	if (r == 0)
		r = count_owed(link, size);
	if (r != 0)
		return r;
	if (shim_link_unsettled(link) >= SHIM_LINK_WINDOW) {
		link->paused = true;
		shim_link_update_events(link);
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
	if (link->pausing && (link->counted || !link->adopted)) {
		link->pausing = false;
		if (link->events->paused)
			link->events->paused(link->userdata);
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
	job = shim_link_find_job(link, header->job);
	if (header->flags & WIRE_AGAIN) {
		/* Numbers that were acknowledged, maybe before the ones that the store knows. */
		link->n_durable++;
		r = take_again(link, header, job);
		if (r < 0)
			return r;
	} else if (frame_is_durable(header->type)) {
		link->n_durable++;
		r = take_number(link, header->number, header->length);
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
		return shim_link_take_file_data(link, job, payload, size);
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

int shim_link_take(struct shim_link *link, const struct wire_header *header, const uint8_t *payload,
		   size_t size)
{
	int r = take_frame(link, header, payload, size);

	if (r >= 0)
		check_known(link);
	return r;
}
