/*
 * One session as the supervisor sees it: launched, watched, frozen, proven, torn down. A state
 * machine driven by descriptors in the supervisor's loop; nothing here waits for a session.
 *
 * - STARTING: cloned; the child runs its steps, the shim starts. Allowed: kill.
 * - LIVE: confined, proven, its shim listens. Allowed: connect, freeze, kill, stat, proof, trace.
 * - FROZEN: as LIVE, but nothing in it runs, or, where it is parted, its shim alone. Allowed: thaw
 *   (not where it is parted), part, kill, stat, proof, trace, and connect, which is accepted when
 *   the shim runs.
 * - ENDING: killed or dead; the group drains, then group, id block, socket and tmpfs go. Allowed:
 *   nothing.
 */
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "base/id.h"
#include "base/loop.h"

#include "sandboxd/launch.h"
#include "sandboxd/plan.h"

struct host; /* supervisor/host.h: what was opened and probed at start */
struct session;

enum session_state {
	SESSION_STATE_STARTING,
	SESSION_STATE_LIVE,
	SESSION_STATE_FROZEN,
	SESSION_STATE_ENDING,
	SESSION_STATE_MAX_,
};

/* What the owner of sessions is told. Neither callback may free the session: it is freed by the
 * engine at the end of the turn after `ended` (or after a `started` with an error, for which no
 * `ended` follows). */
struct session_events {
	void (*started)(void *userdata, struct session *session, enum launch_error error,
			const struct err *err);
	void (*ended)(void *userdata, struct session *session, enum launch_gone_reason reason,
		      int wait_status);
};

struct session_launch {
	const struct plan *plan;
	const char *request_id; /* checked; "": none */
	const char *template;   /* checked; NULL or "": the host's /usr */
	int secrets_fd;         /* becomes SHIM_FD_SECRETS; stays the caller's; -1: none */
};

/*
 * Begin a launch. The plan is already checked (plan_check, profile and hash known, ceilings).
 * Returns 0 and a session in STARTING; `started` follows from the loop. On a negative errno nothing
 * is left and no callback comes; ret_error says which LAUNCH_E_ it is.
 */
MUST_USE int session_start(struct host *host, const struct session_launch *launch,
			   const struct session_events *events, void *userdata,
			   struct session **ret_session, enum launch_error *ret_error,
			   struct err *err);
void session_kill(struct session *session); /* idempotent; `ended` follows when nothing is left */
MUST_USE int session_freeze(struct session *session);
MUST_USE int session_thaw(struct session *session);
/* Whatever its state: while it is held nothing in it runs, once it is live. 0 or -errno. */
MUST_USE int session_hold(struct session *session, bool is_held);
/* apart: the shim and what it starts from now on run, the rest stays frozen; else all of it is
 * frozen again. 0: `done` follows, once, r as of cgroup_part and cgroup_join; -EINVAL: not FROZEN,
 * or the last one is under way. */
typedef void session_parted(void *userdata, struct session *session, int r);
MUST_USE int session_part(struct session *session, bool apart, session_parted *done,
			  void *userdata);
/* On its way there, or back. */
bool session_is_moving(const struct session *session);
/* Or may be. */
bool session_is_parted(const struct session *session);
/* A new connection to the shim's socket. The descriptor is the caller's. */
MUST_USE int session_connect(struct session *session, int *ret_fd);
/* The sockets for its egress worker, which stay the session's. False: it has no network. */
bool session_net(const struct session *session, int ret_fds[LAUNCH_NET_FDS]);
MUST_USE int session_stat(struct session *session, struct launch_stat *ret_stat);

const struct id *session_id(const struct session *session);
const struct plan *session_plan(const struct session *session);
enum session_state session_state(const struct session *session);
/* What an ended one used and was refused: cpu_us, oom_kills, forks_refused. */
void session_fill_gone(const struct session *session, struct launch_gone *gone);
const struct launch_proof *session_proof(const struct session *session);
const struct launch_trace *session_trace(const struct session *session);
