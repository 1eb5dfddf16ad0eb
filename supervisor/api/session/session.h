/*
 * One session as the api worker sees it.
 *
 *   CREATING    the launch was asked for. Allowed: close. Not visible to anybody yet.
 *   DORMANT     the row is open, there is no process tree. Allowed: everything; what needs a tree
 *               waits for a new one. No job is in the queue.
 *   REBUILDING  a new tree is launched and its folder filled. Allowed: as DORMANT.
 *   OPEN        lives, no task runs. Allowed: everything.
 *   RUNNING     lives, one task runs (more may wait). Allowed: everything; a load answers 409.
 *   FALLING     the tree ended by itself, or with the service; its rest is being removed, the row
 *               stays open. Allowed: as DORMANT.
 *   CLOSING     kill was asked for; no longer visible. Allowed: nothing.
 *   CLOSED      nothing of it is left; the object is forgotten at the end of the turn.
 *
 * The row is the promise, trees come and go (docs/ARCHITECTURE.md): only CLOSING and CLOSED end it.
 *
 * session_apply is the only writer of `state`. It returns what is to be done as a set of actions;
 * it does nothing itself.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/id.h"
#include "base/list.h"

#include "sandboxd/limits.h"
#include "sandboxd/plan.h"
#include "sandboxd/policy_image.h"
#include "supervisor/api/denials/ring.h"
#include "supervisor/api/jobs/flow.h"
#include "supervisor/api/jobs/load.h"
#include "supervisor/api/session/spec.h"
#include "supervisor/api/session/suspension.h"
#include "supervisor/api/session/tenants.h"

enum session_state {
	SESSION_STATE_CREATING,
	SESSION_STATE_DORMANT,
	SESSION_STATE_REBUILDING,
	SESSION_STATE_OPEN,
	SESSION_STATE_RUNNING,
	SESSION_STATE_FALLING,
	SESSION_STATE_CLOSING,
	SESSION_STATE_CLOSED,
	SESSION_STATE_MAX_,
};

enum session_event {
	SESSION_EVENT_LAUNCHED,      /* the supervisor gave a connected shim */
	SESSION_EVENT_LAUNCH_FAILED, /* nothing is left of it */
	SESSION_EVENT_JOB_STARTED,   /* a task (execute) begins */
	SESSION_EVENT_JOBS_IDLE,     /* the last running task ended and none waits */
	SESSION_EVENT_CLOSE,         /* asked for: delete, expiry, janitor */
	SESSION_EVENT_STOP,          /* the service stops: the tree ends, the row stays open */
	SESSION_EVENT_ADOPT_ROW,     /* at start: its row is open and there is no tree */
	SESSION_EVENT_ADOPT_TREE,    /* at start: it lives; RESTORED when its shim has answered */
	SESSION_EVENT_USE,           /* something needs a tree */
	SESSION_EVENT_RESTORED,      /* the folder of a new tree is as the row says */
	SESSION_EVENT_LOST,          /* its shim's socket ended or broke the protocol */
	SESSION_EVENT_UNLINKED,      /* that ended with its provider's process; its tree lives */
	SESSION_EVENT_GONE,          /* the supervisor says that nothing of it is left */
	SESSION_EVENT_MAX_,
};

enum session_action {
	SESSION_ACTION_NONE = 0,
	SESSION_ACTION_ANSWER = 1u << 0,        /* the create is done: 201 once the row is, too */
	SESSION_ACTION_ANSWER_FAILED = 1u << 1, /* the create failed */
	SESSION_ACTION_STATUS_ROW = 1u << 2,    /* write the row's status (session_status_text) */
	SESSION_ACTION_FAIL_JOBS = 1u << 3,     /* each job gets its one error frame */
	SESSION_ACTION_KILL = 1u << 4,          /* ask the supervisor for LAUNCH_KILL */
	SESSION_ACTION_CLOSE_ROW = 1u << 5,     /* the row says closed, with closed_reason */
	SESSION_ACTION_FORGET = 1u << 6,        /* answer who waits for the end, then free it */
	SESSION_ACTION_REBUILD = 1u << 7,       /* begin a new tree */
	SESSION_ACTION_RESTORE = 1u << 8,       /* fill its folder from the row */
	SESSION_ACTION_GO_ON = 1u << 9,         /* those who wait for a tree go on */
	SESSION_ACTION_DROP_TREE = 1u << 10,    /* nothing is left of the tree: forget its link */
	SESSION_ACTION_UNLINK = 1u << 11,       /* first: what outlives the link does not fail */
};

/* Why it ended; session_reason_text gives the row's closed_reason. */
enum session_reason {
	SESSION_REASON_NONE,
	SESSION_REASON_DELETED,
	SESSION_REASON_EXPIRED,
	SESSION_REASON_LOST,    /* its shim ended by itself */
	SESSION_REASON_MEMORY,  /* the kernel's OOM killer ended it */
	SESSION_REASON_RESTART, /* a restart found no live shim, or its provider was restarted */
	SESSION_REASON_HOST_STOPPED,
	SESSION_REASON_LAUNCH,
	SESSION_REASON_DEMOTED, /* it was suspended, and its memory is wanted: its row stays */
	SESSION_REASON_TAKEN,   /* another host has taken it: here its tree ends, not its row */
	SESSION_REASON_INCOMPATIBLE, /* this release cannot serve it */
	SESSION_REASON_MAX_,
};

#define SESSION_PROVIDER_MAX 32 /* as its column */

struct session_component {
	char *name; /* canonical file name, owned */
	size_t body_bytes;
};

struct session {
	struct id id;
	enum session_state state;
	/* Set by the first CLOSE, STOP, LOST, UNLINKED or GONE; NONE again once it is DORMANT. A
	 * CLOSE wins over what ended only the tree. */
	enum session_reason reason;
	bool dagster;        /* made by API_PREFIX_DAGSTER: environment and 404 text */
	bool operator_owned; /* owner column NULL; owner_text keeps the name */
	char owner[IDENTITY_MAX + 1];
	char workspace[IDENTITY_MAX + 1]; /* "": none */
	char project[IDENTITY_MAX + 1];
	char provider[SESSION_PROVIDER_MAX + 1]; /* "": that of the service's own sessions */
	usec_t created_at;                       /* realtime, as rows hold it */
	usec_t expires_at;                       /* realtime */
	struct spec_create spec;                 /* owned */
	struct plan plan;
	uint64_t limits_missing; /* enum launch_proof_bit: limits this host cannot set */

	struct session_component *component; /* sorted by name, owned */
	size_t n_components;
	size_t components_bytes;
	size_t coming_bytes; /* of components that are being written */

	struct load_result load; /* of the last load or execute */
	bool loaded;
	char last_run_id[ID_TEXT_BYTES]; /* "" : none */
	json_t *log_summary;             /* array, at most SESSION_LOG_SUMMARY entries */

	bool row_exists;     /* the insert is durable */
	bool row_incomplete; /* the store gave a write up: the row will never have it */
	uint32_t n_degraded; /* writes that the store still owes */
	struct flow flow;    /* numbers on its shim's socket */
	struct list jobs;    /* struct job, queue_link: running first, then waiting in order */
	uint32_t n_jobs;

	struct suspension suspension;

	void *link; /* the link adapter's connection; not touched here */

	struct list by_age;                          /* registry: newest first */
	size_t deadline_at;                          /* registry: place in the heap */
	struct tenant_place place[QUOTA_SCOPE_MAX_]; /* registry: in its tenants */
	struct denials denials;
	uint32_t by_credentials; /* bit per endpoint whose production only credentials keep away */
	uint64_t cpu_us;         /* of its tree, as last seen */
	bool cpu_from_before; /* of a tree that an earlier worker saw: the first look is not charged
			       */
};

#define SESSION_LOG_SUMMARY 50

/* New in CREATING; the spec is taken over (left empty). NULL: no memory. */
struct session *session_new(const struct id *id, struct spec_create *spec, usec_t now);
/* Asserts that it is in no registry and has no jobs. Returns NULL. */
struct session *session_free(struct session *session);

/*
 * 0 and the actions to take; -EPROTO: the event is not possible in this state, which is a bug of
 * the caller or a lie of a peer: log it. `reason` counts for CLOSE, STOP, LOST, UNLINKED and GONE
 * only.
 */
MUST_USE int session_apply(struct session *session, enum session_event event,
			   enum session_reason reason, uint32_t *ret_actions);

/* "open", "running", "closed": the words of the row and the answers. CREATING counts as open. */
const char *session_status_text(enum session_state state);
const char *session_state_text(enum session_state state);
const char *session_reason_text(enum session_reason reason);
/* Whose it is under /v1: the workspace, or without one the user stands in. */
void session_organization(const char *user, const char *workspace,
			  char ret_organization[SPEC_ORGANIZATION_MAX + 1]);
/* `code` of the error frame that a job of a session gets that ended so. */
const char *session_reason_code(enum session_reason reason);
/* Visible to a reader at all: it was created, is not being closed, and not past its expiry. */
bool session_is_visible(const struct session *session, usec_t now);
static inline bool session_has_tree(const struct session *session)
{
	return session->state == SESSION_STATE_OPEN || session->state == SESSION_STATE_RUNNING;
}
/* And its commands run. */
static inline bool session_is_usable(const struct session *session)
{
	return session_has_tree(session) && session->suspension.state == SUSPENSION_RUNNING;
}
/* "live", "dormant", "rebuilding" or "suspended": of the summary. */
const char *session_tree_text(const struct session *session);
bool session_persisted(const struct session *session);

/* Note a stored component. replaced bytes are given back. 0 or -ENOMEM. */
MUST_USE int session_component_set(struct session *session, const char *file, size_t body_bytes);
const struct session_component *session_component_find(const struct session *session,
						       const char *file);
void session_component_remove(struct session *session, const char *file);

/* A line of ours in log_summary. code: what happened, for programs. 0 or -ENOMEM. */
MUST_USE int session_log_note(struct session *session, const char *code, const char *message,
			      usec_t now);
/* Append to log_summary, cut to the last SESSION_LOG_SUMMARY. Takes no reference. 0 or -ENOMEM. */
MUST_USE int session_log_append(struct session *session, json_t *entry);
