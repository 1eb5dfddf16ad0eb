/*
 * Start sandbox-loader in a session: for a task (execute) or for a load that is answered directly.
 */
#pragma once

#include "supervisor/api/live.h"
#include "supervisor/api/session/environment.h"

enum loader_run_kind {
	LOADER_RUN_LOAD,
	LOADER_RUN_EXECUTE,
};

/* As shim_link_exec. */
MUST_USE int loader_run(struct live *live, enum loader_run_kind kind, uint32_t *ret_wire_job);

/* Of the configuration: NAME=URL, or NULL where the session has none. */
const char *session_gateways(const struct app *app, const struct session *session);
/* The environment of a command of this session; extra: NAME=VALUE of the command, or NULL. */
MUST_USE int session_environment(const struct live *live, char *const *extra, bool is_root,
				 struct environment *ret_environment);
const struct policy_profile *session_profile(const struct live *live);
const struct policy_limits *session_limits(const struct live *live);
