#include "supervisor/api/session/quota.h"

#include "base/auto.h"
#include "base/err.h"

#include "sandboxd/limits.h"

static const struct {
	const char *text;
	uint32_t retry_after_s;
} reasons[] = {
	[QUOTA_OK] = {"ok",						0 },
	[QUOTA_SESSIONS] = {"too many sessions: sessions",                       30},
	[QUOTA_DESCRIPTORS] = {"too many sessions: descriptors",                    30},
	[QUOTA_JOBS] = {"too many queued executions: jobs",                  5 },
	[QUOTA_COMMANDS] = {"too many commands at once: commands",               1 },
	[QUOTA_COMPONENTS] = {"too many components: components",                   60},
	[QUOTA_COMPONENTS_BYTES] = {"components are too large in all: components_bytes", 60},
	[QUOTA_MEMORY] = {"too many sessions: memory",                         30},
	[QUOTA_PIDS] = {"too many sessions: pids",                           30},
	[QUOTA_RATE] = {"too many launches: rate",                           1 },
	[QUOTA_IDS] = {"too many sessions: ids",                            10},
};
_Static_assert(ARRAY_SIZE(reasons) == QUOTA_REASON_MAX_, "one row per reason");

const char *quota_text(enum quota_reason reason)
{
	ASSERT((size_t)reason < ARRAY_SIZE(reasons));
	return reasons[reason].text;
}

uint32_t quota_retry_after_s(enum quota_reason reason)
{
	ASSERT((size_t)reason < ARRAY_SIZE(reasons));
	return reasons[reason].retry_after_s;
}

enum quota_reason quota_session(size_t n_sessions, size_t max_sessions, size_t n_descriptors,
				size_t max_descriptors)
{
	if (n_sessions >= max_sessions)
		return QUOTA_SESSIONS;
	if (n_descriptors >= max_descriptors)
		return QUOTA_DESCRIPTORS;
	return QUOTA_OK;
}

enum quota_reason quota_job(const struct session *session, uint32_t max_waiting)
{
	/* One runs, the others wait. */
	return session->n_jobs > max_waiting ? QUOTA_JOBS : QUOTA_OK;
}

enum quota_reason quota_component(const struct session *session, const char *file,
				  size_t body_bytes)
{
	const struct session_component *old = session_component_find(session, file);
	size_t others = session->components_bytes - (old ? old->body_bytes : 0);

	if (!old && session->n_components >= COMPONENTS_MAX)
		return QUOTA_COMPONENTS;
	if (others > (size_t)COMPONENTS_MAX_BYTES ||
	    body_bytes > (size_t)COMPONENTS_MAX_BYTES - others)
		return QUOTA_COMPONENTS_BYTES;
	return QUOTA_OK;
}

enum quota_reason quota_from_launch(enum launch_error error)
{
	switch (error) {
	case LAUNCH_E_SESSIONS:
		return QUOTA_SESSIONS;
	case LAUNCH_E_MEMORY:
		return QUOTA_MEMORY;
	case LAUNCH_E_PIDS:
		return QUOTA_PIDS;
	case LAUNCH_E_RATE:
		return QUOTA_RATE;
	case LAUNCH_E_IDS:
		return QUOTA_IDS;
	case LAUNCH_E_DESCRIPTORS:
		return QUOTA_DESCRIPTORS;
	case LAUNCH_E_NONE:
	case LAUNCH_E_STEP:
	case LAUNCH_E_NOT_FOUND:
	case LAUNCH_E_EXISTS:
	case LAUNCH_E_PLAN:
	case LAUNCH_E_STATE:
	case LAUNCH_E_STOPPING:
	case LAUNCH_E_PROOF:
	case LAUNCH_E_INCOMPATIBLE:
	case LAUNCH_E_SECRET:
	case LAUNCH_E_UNSUPPORTED:
	case LAUNCH_E_TEMPLATE:
	case LAUNCH_E_MAX_:
		break;
	}
	return QUOTA_OK;
}
