/*
 * The parts of one shim_link, for its own files only: in is what the shim says, out what is sent,
 * files what is about files.
 */
#pragma once

#include <sys/uio.h>

#include "base/list.h"

#include "supervisor/api/link/shim_link.h"

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
	uint64_t again_bytes; /* kept: bytes that came with WIRE_AGAIN */
};

/* One frame that waits for the socket. */
struct shim_link_out {
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
	uint16_t features; /* enum wire_features; 0 before its HELLO */
	uint32_t next_job;
	uint32_t n_jobs;
	/* As the shim has slots: what an earlier worker left takes some. */
	struct wire_job job[SHIM_N_SLOTS];
	uint64_t n_held; /* frames that the shim had for us when it was asked */
	uint64_t n_durable;
	/* Bytes of durable frames, up to the number `mark` and behind it. What is acknowledged up
	 * to there is forgotten: at most twice what is not acknowledged is counted. */
	uint64_t mark;
	size_t bytes_to_mark;
	size_t bytes_behind;
	int fd;
	bool greeted;
	bool adopted;
	bool root_begun;    /* over this connection; none of our own programs */
	uint32_t n_running; /* in the shim, or about to, by STATS */
	bool counted;       /* STATS came: n_held and n_running are valid */
	bool known;
	bool pausing;    /* it was told, and asked whether it knows */
	bool first_seen; /* a durable frame came */
	bool lost;
	bool ending; /* no job is begun any more */
	bool want_out;
	bool paused;
};

/* The table of jobs. NULL: none, or no room. */
struct wire_job *shim_link_find_job(struct shim_link *link, uint32_t id);
struct wire_job *shim_link_find_room(struct shim_link *link, size_t max);
/* 0; -EPIPE: the link is lost, or its session ends; -EBUSY. */
MUST_USE int shim_link_add_job(struct shim_link *link, enum wire_job_state state,
			       struct wire_job **ret_job);
void shim_link_drop_job(struct shim_link *link, struct wire_job *job); /* it was never sent */
void shim_link_end_job(struct shim_link *link, struct wire_job *job, uint64_t number);

uint64_t shim_link_unsettled(const struct shim_link *link); /* durable frames */
void shim_link_update_events(struct shim_link *link);

/* In. One frame, checked by frame_check. 0, or -errno: the link is lost. */
MUST_USE int shim_link_take(struct shim_link *link, const struct wire_header *header,
			    const uint8_t *payload, size_t size);
MUST_USE int shim_link_take_file_data(struct shim_link *link, struct wire_job *job,
				      const uint8_t *payload, size_t size);

/* Out. Sent now if nothing waits, else queued. 0; -EPIPE; -ENOBUFS; -ENOMEM; -errno. */
MUST_USE int shim_link_send(struct shim_link *link, const struct wire_header *header,
			    const struct iovec *parts, size_t n_parts);
MUST_USE int shim_link_send_bytes(struct shim_link *link, uint16_t type, uint32_t job,
				  const void *data, size_t size);
/* In as many frames as it takes. */
MUST_USE int shim_link_send_pieces(struct shim_link *link, uint16_t type, uint32_t job,
				   const void *data, size_t size);
MUST_USE int shim_link_send_waiting(struct shim_link *link);
/* May so much more wait for the socket? */
bool shim_link_has_room(const struct shim_link *link, size_t size);
void shim_link_out_free(struct shim_link_out *out);
/* struct iovec has no const: what is sent is not written to. */
struct iovec shim_link_piece(const void *data, size_t size);
