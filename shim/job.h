/*
 * One job of a session: a command or a file operation, what its agent says of it, and how it is
 * stopped.
 *
 *   FREE      an empty slot.
 *   RUNNING   its agent works. Allowed: input, cancel, output, the agent's report.
 *   DRAINING  the command's leader has ended; what it wrote is still read. Allowed: output.
 *   ENDED     its last frame is made. Allowed: acknowledgement, which frees the slot, or where it
 * is kept: forget. Input for it was sent before the api worker could know, and is ignored.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/auto.h"
#include "base/buf.h"
#include "base/clock.h"

#include "sandboxd/wire.h"
#include "shim/agent.h"
#include "shim/bucket.h"
#include "shim/files_job.h"
#include "shim/message.h"
#include "shim/outbox.h"

struct loop_source;
struct shim;

enum job_state {
	JOB_STATE_FREE,
	JOB_STATE_RUNNING,
	JOB_STATE_DRAINING,
	JOB_STATE_ENDED,
	JOB_STATE_MAX_,
};

enum job_stop {
	JOB_STOP_NO,
	JOB_STOP_TERM,
	JOB_STOP_KILL,
};

/* A pipe from the command. */
struct job_output {
	struct job *job;
	int fd; /* -1: at its end */
	uint16_t type;
	bool is_large;            /* the pipe was enlarged */
	struct mask_stream *mask; /* between pipe and outbox; NULL: the session has no secrets */
	bool is_terminal;         /* its end is EIO */
	size_t owed_bytes;        /* DRAINING: in the pipe when the leader ended, not yet read */
	struct loop_source *source;
};

/* The pipe to the command or to the file helper, or a terminal. */
struct job_input {
	int fd;              /* -1: none, closed by the reader, or all sent */
	bool is_ended;       /* nothing more comes */
	uint64_t sent_bytes; /* that came */
	bool taken_pending;  /* more of them wait no longer, and the api worker is to hear it */
	struct buf queue;
	struct loop_source *source;
};

struct job {
	struct shim *shim;
	uint32_t id;
	enum job_state state;
	enum agent_kind kind;
	bool is_left; /* a tool's: its api worker is gone, and what it ran in was dropped */
	int agent_fd;
	struct loop_source *agent_source;
	int32_t pid;      /* of the command */
	int32_t peer_pid; /* of its runner */
	bool started_pending;
	bool kept_pending;
	bool has_terminal;
	uint16_t note_bytes;
	uint8_t note[WIRE_NOTE_MAX_BYTES];

	struct job_input input;
	struct job_output output[2];
	struct outbox outbox;
	struct files_job file;

	uint32_t grace_ms;
	uint64_t rate_bytes; /* a second; 0: unlimited */
	uint64_t max_bytes;  /* UINT64_MAX: unlimited */
	struct bucket bucket;
	uint64_t total_bytes;

	usec_t begun_at;
	enum job_stop stop;
	usec_t stop_at;  /* next step of stopping */
	usec_t drain_at; /* DRAINING: from then on a pipe that others hold open is given up */
	usec_t read_at;  /* reading goes on then (rate); USEC_NEVER: not waiting */
	struct wire_failed failure; /* step != 0: what to report instead of the exit */
	struct wire_exit exit;
};

void job_reset(struct job *job, struct shim *shim); /* an empty slot */
void job_free(struct job *job);                     /* of one that has no agent any more */
struct job *job_find(struct shim *shim, uint32_t id);
struct job *job_find_running(struct shim *shim, uint32_t id);
/* A slot for a new job. 0; 1: the job is refused as busy, its slot has ended; -EBADMSG. */
MUST_USE int job_new(struct shim *shim, uint32_t id, enum agent_kind kind, struct job **ret_job);
/* Hand the request to an agent. *ret_step: where it failed. */
MUST_USE int job_start(struct job *job, struct message message, const uint8_t *payload,
		       const int *fds, size_t n_fds, uint32_t *ret_step);
/* Of a jail tool, whose spawner is not frozen with the session's commands. */
bool job_is_tools(const struct job *job);
/* Its processes are frozen: none could answer what follows. What began meanwhile goes on. */
bool job_is_paused(const struct job *job);
/* To its agent. */
void job_tell(struct job *job, const struct message *message);
/* The next rung of the ladder. */
void job_stop(struct job *job, usec_t now);
/* End the tree and report {step, error_number} instead of its exit. */
void job_fail(struct job *job, uint32_t step, int error_number);
void job_end_failed(struct job *job, uint32_t step, int error_number);
void job_end_done(struct job *job);
/* Something about its pipes changed. */
void job_output_changed(struct job *job);
/* A new peer hears that it runs, or is kept. */
void job_announce(struct job *job);
struct wire_kept job_kept(const struct job *job);
uint64_t job_taken(const struct job *job); /* bytes of its standard input that wait no longer */
/* What of a pause lies behind. */
void job_add_time(struct job *job, usec_t pause);
usec_t job_next(const struct job *job); /* when job_on_time is due */
void job_on_time(struct job *job, usec_t now);
