#include "supervisor/api/session/tenant_quota.h"

#include "base/str.h"

#include "supervisor/api/jobs/job.h"
#include "supervisor/api/session/session.h"

#define SECONDS_PER_DAY 86400u
#define CHANGE_WINDOW   (5 * USEC_PER_SEC)

enum resource {
	RESOURCE_SESSIONS,
	RESOURCE_JOBS,
	RESOURCE_MEMORY,
	RESOURCE_STORED,
	RESOURCE_CPU,
	RESOURCE_LAUNCHES,
	RESOURCE_STORE_RATE,
	RESOURCE_CHANGES,
	RESOURCE_MAX_,
};

enum form {
	FORM_NUMBER,
	FORM_SIZE,
	FORM_TIME,
};

static const struct {
	const char *text;
	enum form form;
	uint32_t retry_after_s; /* 0: at the end of the day */
} resources[] = {
	[RESOURCE_SESSIONS] = {"live sessions",                 FORM_NUMBER, 30},
	[RESOURCE_JOBS] = {"queued jobs",                   FORM_NUMBER, 5 },
	[RESOURCE_MEMORY] = {"memory in all sessions",        FORM_SIZE,   30},
	[RESOURCE_STORED] = {"stored bytes",                  FORM_SIZE,   60},
	[RESOURCE_CPU] = {"processor time a day",          FORM_TIME,   0 },
	[RESOURCE_LAUNCHES] = {"launches a second",             FORM_NUMBER, 1 },
	[RESOURCE_STORE_RATE] = {"stored components in a second", FORM_SIZE,   1 },
	[RESOURCE_CHANGES] = {"changes a second",              FORM_NUMBER, 1 },
};
_Static_assert(ARRAY_SIZE(resources) == RESOURCE_MAX_, "one row per resource");

const char *tenant_quota_scope_text(enum quota_scope scope)
{
	static const char *const texts[] = {
		[QUOTA_SCOPE_OWNER] = "owner",
		[QUOTA_SCOPE_WORKSPACE] = "workspace",
		[QUOTA_SCOPE_HOST] = "host",
	};

	ASSERT((size_t)scope < ARRAY_SIZE(texts));
	return texts[scope];
}

const struct quota_limits *tenant_quota_limits(const struct quota_config *config,
					       enum quota_scope scope, const char *name)
{
	for (uint32_t i = 0; i < config->n_overrides; i++) {
		if (config->override[i].scope == scope && str_equal(config->override[i].name, name))
			return &config->override[i].limits;
	}
	return &config->limits[scope];
}

/* The largest unit without a rest. */
static void format_limit(enum form form, uint64_t limit, char *text, size_t text_bytes)
{
	static const struct {
		enum form form;
		uint64_t size;
		const char *unit;
	} units[] = {
		{FORM_SIZE,   1ull << 30, " GiB of"},
		{FORM_SIZE,   1ull << 20, " MiB of"},
		{FORM_SIZE,   1ull << 10, " KiB of"},
		{FORM_SIZE,   1,          " B of"  },
		{FORM_TIME,   3600,       " h of"  },
		{FORM_TIME,   60,         " min of"},
		{FORM_TIME,   1,          " s of"  },
		{FORM_NUMBER, 1,          ""       },
	};
	size_t i = 0;

	while (units[i].form != form || limit % units[i].size != 0)
		i++;
	IGNORE_RESULT(str_format(text, text_bytes, "%llu%s",
				 (unsigned long long)(limit / units[i].size), units[i].unit));
}

static bool refuse(enum resource resource, enum quota_scope scope, uint64_t limit, usec_t realtime,
		   struct quota_refusal *refusal)
{
	char number[48];

	format_limit(resources[resource].form, limit, number, sizeof(number));
	IGNORE_RESULT(str_format(refusal->detail, sizeof(refusal->detail),
				 "quota: %s %s for this %s", number, resources[resource].text,
				 tenant_quota_scope_text(scope)));
	refusal->retry_after_s = resources[resource].retry_after_s;
	if (refusal->retry_after_s == 0)
		refusal->retry_after_s =
			SECONDS_PER_DAY - (uint32_t)(realtime / USEC_PER_SEC % SECONDS_PER_DAY);
	return false;
}

/* Whether more fits; limit 0: no bound. What is used may be above a limit that was lowered. */
static bool fits(uint64_t limit, uint64_t used, uint64_t more)
{
	return limit == 0 || (used <= limit && more <= limit - used);
}

static bool has_cpu(const struct tenant *tenant, const struct quota_limits *limits, usec_t realtime,
		    struct quota_refusal *refusal)
{
	if (limits->cpu_s == 0 || tenant->cpu_us < limits->cpu_s * USEC_PER_SEC)
		return true;
	return refuse(RESOURCE_CPU, tenant->scope, limits->cpu_s, realtime, refusal);
}

static bool has_session(const struct tenant *tenant, const struct quota_limits *limits,
			uint64_t memory_bytes, usec_t realtime, struct quota_refusal *refusal)
{
	struct tenant_use use;

	if (tenant->n_sessions >= limits->sessions)
		return refuse(RESOURCE_SESSIONS, tenant->scope, limits->sessions, realtime,
			      refusal);
	if (limits->memory_bytes != 0) {
		tenant_sum(tenant, &use);
		if (!fits(limits->memory_bytes, use.memory_bytes, memory_bytes))
			return refuse(RESOURCE_MEMORY, tenant->scope, limits->memory_bytes,
				      realtime, refusal);
	}
	return has_cpu(tenant, limits, realtime, refusal);
}

/* owner: NULL for the operator, who has no bound. */
static bool take_launch(struct tenant *owner, const struct quota_config *config, usec_t now,
			usec_t realtime, struct quota_refusal *refusal)
{
	uint64_t per_s;

	if (!owner)
		return true;
	per_s = tenant_quota_limits(config, QUOTA_SCOPE_OWNER, owner->name)->launches_per_s;
	return tenant_take(&owner->launch_next, per_s, 1, now) ||
	       refuse(RESOURCE_LAUNCHES, QUOTA_SCOPE_OWNER, per_s, realtime, refusal);
}

bool tenant_quota_session(struct tenants *tenants, const struct quota_config *config,
			  const struct quota_asker *asker, struct quota_refusal *ret_refusal)
{
	const char *names[] = {
		[QUOTA_SCOPE_OWNER] = asker->owner,
		[QUOTA_SCOPE_WORKSPACE] = asker->workspace,
		[QUOTA_SCOPE_HOST] = "",
	};
	static const struct tenant nobody[] = {
		[QUOTA_SCOPE_OWNER] = {.scope = QUOTA_SCOPE_OWNER},
		[QUOTA_SCOPE_WORKSPACE] = {.scope = QUOTA_SCOPE_WORKSPACE},
	};

	for (enum quota_scope scope = 0; scope < QUOTA_SCOPE_MAX_; scope++) {
		const struct tenant *tenant = tenants_find(tenants, scope, names[scope]);

		if (names[scope][0] == '\0' && scope != QUOTA_SCOPE_HOST)
			continue;
		if (!tenant)
			tenant = &nobody[scope];
		if (!has_session(tenant, tenant_quota_limits(config, scope, names[scope]),
				 asker->memory_bytes, asker->realtime, ret_refusal))
			return false;
	}
	/* Only now, so that refused ones leave nothing behind; NULL: also where there is no memory.
	 */
	return take_launch(tenants_get(tenants, QUOTA_SCOPE_OWNER, asker->owner), config,
			   asker->now, asker->realtime, ret_refusal);
}

bool tenant_quota_launch(const struct session *session, const struct quota_config *config,
			 usec_t now, usec_t realtime, struct quota_refusal *ret_refusal)
{
	return take_launch(session->place[QUOTA_SCOPE_OWNER].tenant, config, now, realtime,
			   ret_refusal);
}

/* Each tenant of a session with its limits. */
static const struct tenant *next_tenant(const struct session *session,
					const struct quota_config *config, enum quota_scope scope,
					const struct quota_limits **ret_limits)
{
	const struct tenant *tenant = session->place[scope].tenant;

	if (tenant)
		*ret_limits = tenant_quota_limits(config, scope, tenant->name);
	return tenant;
}

bool tenant_quota_work(const struct session *session, const struct quota_config *config,
		       usec_t realtime, struct quota_refusal *ret_refusal)
{
	const struct quota_limits *limits = NULL;

	for (enum quota_scope scope = 0; scope < QUOTA_SCOPE_MAX_; scope++) {
		const struct tenant *tenant = next_tenant(session, config, scope, &limits);

		if (tenant && !has_cpu(tenant, limits, realtime, ret_refusal))
			return false;
	}
	return true;
}

/* Room for that many bytes more in each of the session's tenants. */
static bool has_store(const struct session *session, const struct quota_config *config,
		      uint64_t more_bytes, struct quota_refusal *refusal)
{
	const struct quota_limits *limits = NULL;
	struct tenant_use use;

	for (enum quota_scope scope = 0; scope < QUOTA_SCOPE_MAX_; scope++) {
		const struct tenant *tenant = next_tenant(session, config, scope, &limits);

		if (!tenant || limits->stored_bytes == 0)
			continue;
		tenant_sum(tenant, &use);
		if (!fits(limits->stored_bytes, use.stored_bytes, more_bytes))
			return refuse(RESOURCE_STORED, scope, limits->stored_bytes, 0, refusal);
	}
	return true;
}

uint64_t tenant_quota_room(const struct session *session, const struct quota_config *config)
{
	const struct quota_limits *limits = NULL;
	struct tenant_use use;
	uint64_t room = UINT64_MAX;

	for (enum quota_scope scope = 0; scope < QUOTA_SCOPE_MAX_; scope++) {
		const struct tenant *tenant = next_tenant(session, config, scope, &limits);
		uint64_t left;

		if (!tenant || limits->stored_bytes == 0)
			continue;
		tenant_sum(tenant, &use);
		left = use.stored_bytes < limits->stored_bytes
			       ? limits->stored_bytes - use.stored_bytes
			       : 0;
		if (left < room)
			room = left;
	}
	return room;
}

bool tenant_quota_change(struct tenants *tenants, const struct quota_config *config,
			 const char *owner, usec_t now, struct quota_refusal *ret_refusal)
{
	struct tenant *tenant = tenants_get(tenants, QUOTA_SCOPE_OWNER, owner);
	uint64_t per_s = tenant_quota_limits(config, QUOTA_SCOPE_OWNER, owner)->changes_per_s;

	if (!tenant)
		return true;
	return tenant_take_within(&tenant->change_next, CHANGE_WINDOW, per_s, 1, now) ||
	       refuse(RESOURCE_CHANGES, QUOTA_SCOPE_OWNER, per_s, 0, ret_refusal);
}

bool tenant_quota_job(const struct session *session, const struct quota_config *config,
		      usec_t realtime, struct quota_refusal *ret_refusal)
{
	const struct quota_limits *limits = NULL;
	struct tenant_use use;

	/* One that starts at once does not wait. */
	for (enum quota_scope scope = 0; session->n_jobs > 0 && scope < QUOTA_SCOPE_MAX_; scope++) {
		const struct tenant *tenant = next_tenant(session, config, scope, &limits);

		if (!tenant)
			continue;
		tenant_sum(tenant, &use);
		if (use.n_jobs >= limits->jobs)
			return refuse(RESOURCE_JOBS, scope, limits->jobs, realtime, ret_refusal);
	}
	/* Its frames need some. */
	return has_store(session, config, 1, ret_refusal) &&
	       tenant_quota_work(session, config, realtime, ret_refusal);
}

bool tenant_quota_store(const struct session *session, const struct quota_config *config,
			uint64_t more_bytes, uint64_t body_bytes, usec_t now,
			struct quota_refusal *ret_refusal)
{
	const struct quota_limits *limits;
	struct tenant *owner = session->place[QUOTA_SCOPE_OWNER].tenant;

	if (!has_store(session, config, more_bytes, ret_refusal))
		return false;
	if (!owner)
		return true;
	limits = tenant_quota_limits(config, QUOTA_SCOPE_OWNER, owner->name);
	if (!tenant_take(&owner->store_next, limits->stored_per_s, body_bytes, now))
		return refuse(RESOURCE_STORE_RATE, QUOTA_SCOPE_OWNER, limits->stored_per_s, 0,
			      ret_refusal);
	return true;
}
