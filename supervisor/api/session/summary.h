/*
 * What the API shows of a session. The eleven fields of the platform first, in their order; all of
 * ours in one further object `sandbox`.
 */
#pragma once

#include <jansson.h>

#include "base/clock.h"

#include "supervisor/api/session/environment.h"
#include "supervisor/api/session/session.h"

struct summary_context {
	const char *host;                          /* shown name of this host */
	const char *operator_default[ENDPOINTS_N]; /* to name sources; NULL: none */
};

/* {id, owner, workspace_id, project_id, created_at, expires_at, components, asset_keys,
 * last_run_id, log_summary, status, sandbox: {persisted, degraded, limits_effective,
 * endpoint_sources, host, problems}}. A new reference; NULL: no memory. */
json_t *summary_session(const struct session *session, const struct summary_context *context);
/* The /v1 view: {sandbox_uuid, status, profile, created_at, expires_at, persisted, degraded,
 * limits_effective, host}. */
json_t *summary_sandbox(const struct session *session, const struct summary_context *context);
json_t *summary_limits(const struct session *session);
json_t *summary_endpoint_sources(const struct session *session,
				 const struct summary_context *context);
