/*
 * Quotas of owners, workspaces and the host: judged here, in the one turn in which what is asked
 * for is also entered, so that two requests cannot pass together. Pure.
 */
#pragma once

#include "base/auto.h"
#include "base/clock.h"

#include "sandboxd/worker.h"
#include "supervisor/api/session/tenants.h"

struct quota_refusal {
	char detail[96]; /* of the 429 */
	uint32_t retry_after_s;
};

/* Whose request it is: owner "" for the local operator, workspace "" for none. */
struct quota_asker {
	const char *owner;
	const char *workspace;
	uint64_t memory_bytes; /* limit of the session that is asked for */
	usec_t now;            /* boottime */
	usec_t realtime;
};

/* One more session. Takes from the owner's launch rate where it is true. */
MUST_USE bool tenant_quota_session(struct tenants *tenants, const struct quota_config *config,
				   const struct quota_asker *asker,
				   struct quota_refusal *ret_refusal);
/* A new process tree for a session that has its place. Takes from the owner's launch rate where it
 * is true. */
MUST_USE bool tenant_quota_launch(const struct session *session, const struct quota_config *config,
				  usec_t now, usec_t realtime, struct quota_refusal *ret_refusal);
/* One more job for a session. */
MUST_USE bool tenant_quota_job(const struct session *session, const struct quota_config *config,
			       usec_t realtime, struct quota_refusal *ret_refusal);
/* Work in a session: only processor time is asked for. */
MUST_USE bool tenant_quota_work(const struct session *session, const struct quota_config *config,
				usec_t realtime, struct quota_refusal *ret_refusal);
/* Bytes that a session will hold more than now, of a body of body_bytes. Takes from the owner's
 * rate where it is true. */
MUST_USE bool tenant_quota_store(const struct session *session, const struct quota_config *config,
				 uint64_t more_bytes, uint64_t body_bytes, usec_t now,
				 struct quota_refusal *ret_refusal);
/* Bytes that all tenants of the session may still store. */
uint64_t tenant_quota_room(const struct session *session, const struct quota_config *config);
/* A request of this owner that changes something. Takes from the rate where it is true. */
MUST_USE bool tenant_quota_change(struct tenants *tenants, const struct quota_config *config,
				  const char *owner, usec_t now, struct quota_refusal *ret_refusal);
/* What this tenant may have: its own, or its scope's. */
const struct quota_limits *tenant_quota_limits(const struct quota_config *config,
					       enum quota_scope scope, const char *name);
const char *tenant_quota_scope_text(enum quota_scope scope);
