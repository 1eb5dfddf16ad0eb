/*
 * Start-up steps that pid 1, nursery, spawner and file helper share: what is checked and what is
 * given up. Each reports through struct err with the name of its step.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

#include "sandboxd/plan.h"
#include "sandboxd/policy_image.h"

#define STEPS_SESSION_DIR "/session"
#define STEPS_TMP_DIR     "/tmp"

/* Is a layer left away? Only ever in a test build: supervisor/weaken.h. */
static inline bool shim_weak(const struct shim_params *params, uint32_t flag)
{
#ifdef SANDBOXD_TEST_HOOKS
	return (params->flags & flag) != 0;
#else
	(void)params;
	(void)flag;
	return false;
#endif
}

/* The descriptors that the launch promises are open, of the right kind, and nothing else is. */
MUST_USE int steps_descriptors(struct err *err);
/* Read and check SHIM_FD_PARAMS, and close it. */
MUST_USE int steps_params(struct shim_params *ret_params, struct err *err);
/* Map SHIM_FD_POLICY read-only (the pages are shared by all sessions) and check it. */
MUST_USE int steps_policy(const struct session_policy **ret_policy, struct err *err);
/* Default action for every signal, and all of them blocked. */
MUST_USE int steps_signals(struct err *err);
/* Not dumpable, no new privileges. */
MUST_USE int steps_self(struct err *err);
/* Permitted and effective become `mask` (bits of 1 << CAP_), inheritable and ambient empty. */
MUST_USE int steps_caps(uint64_t mask, struct err *err);
/* The bounding set loses all but `keep`; needs CAP_SETPCAP. */
MUST_USE int steps_bounding(uint64_t keep, struct err *err);
/*
 * Lock what uid 0 means, where the supervisor has left that to us (there may be root commands):
 * nothing, or, in the second spawner, what it usually does: its exec has the bounding set as its
 * capabilities, and who leaves the id loses them. Needs CAP_SETPCAP.
 */
MUST_USE int steps_securebits(const struct shim_params *params, bool is_root, struct err *err);
/* Become `user` for good: groups, ids, capabilities. */
MUST_USE int steps_become_user(const struct shim_params *params, struct err *err);
/* RLIMIT_NOFILE of commands, no core files. */
MUST_USE int steps_rlimits(const struct shim_params *params, struct err *err);
/* Take the COMMAND filter so that what it refuses with EPERM is told to *ret_fd, whose owner
 * answers (denials.h). -1: nobody can be told here, and the filter answers by itself. */
MUST_USE int steps_filter_told(const struct session_policy *policy, int *ret_fd, struct err *err);
/* Take one filter of the policy. */
MUST_USE int steps_filter(const struct session_policy *policy, enum policy_filter which,
			  struct err *err);
