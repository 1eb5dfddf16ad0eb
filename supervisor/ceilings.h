/*
 * What the api worker may have launched, however it behaves: counted here because a worker that was
 * taken over would not count. Pure; time is an argument.
 */
#pragma once

#include <stdint.h>

#include "base/auto.h"
#include "base/clock.h"

#include "sandboxd/launch.h"
#include "sandboxd/limits.h"
#include "sandboxd/plan.h"
#include "sandboxd/worker.h"

struct ceilings {
	uint32_t max_sessions;          /* configured */
	uint32_t max_sessions_by_files; /* what RLIMIT_NOFILE has room for */
	uint64_t host_memory_bytes;
	uint64_t max_memory_bytes;
	uint64_t max_pids;
	struct session_ceilings session;
	usec_t launch_interval; /* 1 s / launches a second */
	usec_t launch_next;     /* theoretical time of the next launch (see ceilings_take) */

	uint32_t n_sessions;
	uint64_t memory_bytes;
	uint64_t n_pids;
};

/* host_memory_bytes: for max_memory_bytes 0; max_files: RLIMIT_NOFILE. */
void ceilings_init(struct ceilings *ceilings, const struct supervisor_config *config,
		   uint64_t host_memory_bytes, uint64_t max_files);
/* Other maxima; what is taken stays taken, also above them. */
void ceilings_configure(struct ceilings *ceilings, const struct supervisor_config *config);
/* Sessions that can be had at all. */
uint32_t ceilings_sessions(const struct ceilings *ceilings);
/* Take what the plan asks for, or LAUNCH_E_PLAN, _SESSIONS, _DESCRIPTORS, _MEMORY, _PIDS, _RATE and
 * nothing is taken. */
MUST_USE enum launch_error ceilings_take(struct ceilings *ceilings, const struct plan *plan,
					 usec_t now);
/* Count a session that lives already, also beyond the maxima: then nothing is taken until enough
 * has been given back. */
void ceilings_count(struct ceilings *ceilings, const struct plan *plan);
/* Give back what the session of this plan took; its launch stays counted in the rate. */
void ceilings_give(struct ceilings *ceilings, const struct plan *plan);
