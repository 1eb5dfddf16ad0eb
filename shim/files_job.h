/*
 * File operations as pid 1 sees them: a job whose agent is a file helper, with a pipe from it and,
 * for a put, one to it. What comes goes on as WIRE_FILE_DATA, as far as the api worker has taken
 * what it has; the pipe is not read otherwise, and the kernel stops the helper.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/auto.h"

struct job;
struct loop_source;
struct shim;

struct files_job {
	bool is_open;      /* the job is one */
	bool is_done;      /* the helper says so; what it found may still be in the pipe */
	bool is_committed; /* PUT, COPY: it is seen from now on, or fails by itself */
	bool is_cancelled; /* PUT, COPY: the helper is told, and has yet to say that nothing is left
			    */
	uint16_t op;       /* enum wire_file_op */
	int fd;            /* from the helper; -1: at its end */
	struct loop_source *source;
	uint64_t sent_bytes;
	uint64_t taken_bytes; /* <= sent_bytes */
};

/* A frame that the socket did not take. One for all jobs: while there is one nothing is read. */
struct files_held {
	uint32_t job;
	uint32_t size; /* with its header; 0: none */
};

/* 0, or -EBADMSG: the connection is to be dropped. */
MUST_USE int files_job_start(struct shim *shim, uint32_t id, const uint8_t *payload, size_t size);
/* All bytes were sent, or a copy is complete. */
void files_job_commit(struct job *job);
/* Nobody waits for it. What makes a file ends with the helper's word: nothing of it is left then,
 * or it was committed before and is whole. */
void files_job_cancel(struct job *job);
/* A file is about to be seen, or what is left of one about to go: a moment. */
bool files_job_is_ending(const struct shim *shim);
MUST_USE int files_job_credit(struct shim *shim, uint32_t id, uint64_t taken_bytes);
/* Send what there is and may be sent. 0, -EAGAIN: the socket is full; other: the peer is gone. */
MUST_USE int files_job_send(struct shim *shim);
/* Watch the pipes of which more may be sent. */
void files_job_watch(struct shim *shim);
/* How long the helper may be silent now. */
void files_job_arm(struct job *job);
void files_job_close(struct job *job);
/* The peer is gone. */
void files_job_cancel_all(struct shim *shim);
