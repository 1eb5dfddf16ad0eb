/*
 * What the api worker refuses before it asks anybody: 429 with a reason. The supervisor enforces
 * its own ceilings whatever is decided here.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "sandboxd/launch.h"
#include "supervisor/api/session/session.h"

enum quota_reason {
	QUOTA_OK,
	QUOTA_SESSIONS,         /* too many sessions on this host */
	QUOTA_DESCRIPTORS,      /* RLIMIT_NOFILE would be reached */
	QUOTA_JOBS,             /* the session's queue is full */
	QUOTA_COMMANDS,         /* SHIM_MAX_JOBS at once */
	QUOTA_COMPONENTS,       /* number of components */
	QUOTA_COMPONENTS_BYTES, /* their sum */
	QUOTA_MEMORY,           /* the supervisor's ceilings */
	QUOTA_PIDS,
	QUOTA_RATE,
	QUOTA_IDS,
	QUOTA_REASON_MAX_,
};

/* `detail` of the 429. */
const char *quota_text(enum quota_reason reason);
/* Seconds for Retry-After. */
uint32_t quota_retry_after_s(enum quota_reason reason);

enum quota_reason quota_session(size_t n_sessions, size_t max_sessions, size_t n_descriptors,
				size_t max_descriptors);
enum quota_reason quota_job(const struct session *session, uint32_t max_waiting);
enum quota_reason quota_component(const struct session *session, const char *file,
				  size_t body_bytes);
/* A refusal of the supervisor as a quota, or QUOTA_OK where it is none. */
enum quota_reason quota_from_launch(enum launch_error error);
