/*
 * State of pid 1. One object, made before the first byte from outside is read.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/loop.h"

#include "sandboxd/limits.h"
#include "shim/agent.h"
#include "shim/denials.h"
#include "shim/files_job.h"
#include "shim/halt.h"
#include "shim/job.h"
#include "shim/nursery.h"
#include "shim/secrets.h"

struct shim {
	struct loop *loop;
	struct nursery_context context;
	struct secrets secrets;
	int nursery_fd;
	int spawner_fd[SPAWNER_MAX_]; /* of root commands: -1 until there is one */
	int idle_fd[AGENT_MAX_];
	pid_t nursery_pid;
	uint32_t n_orphans_reaped;
	int signal_fd;
	struct loop_source *signal_source;

	struct loop_source *listen_source;
	int api_fd; /* -1: no api worker */
	struct loop_source *api_source;
	bool is_greeted;      /* its HELLO was right */
	bool hello_pending;   /* ours is to be sent */
	bool stats_pending;   /* a PING is to be answered */
	bool is_blocked;      /* the socket is full */
	bool root_begun;      /* a command of `root`, none of ours */
	uint64_t last_number; /* of durable frames */

	struct denials denials;
	struct bucket output;      /* of all jobs; starts full */
	struct loop_source *timer; /* the first of all jobs */
	usec_t paused_at;          /* the session is frozen since then; 0: it is not */
	struct halt halt;
	size_t first_on_time; /* the slot that the next timer asks first */
	struct job job[SHIM_N_SLOTS];
	struct files_held held;
	uint8_t held_frame[WIRE_FRAME_MAX_BYTES];
	uint8_t frame[WIRE_FRAME_MAX_BYTES]; /* one received frame; scratch for dropped output */
};
