#include "supervisor/api/session/tenants.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"

#include "supervisor/api/jobs/job.h"
#include "supervisor/api/session/registry.h"
#include "supervisor/api/session/session.h"
#include "supervisor/api/session/snapshots.h"

#define USEC_PER_DAY (24ull * 60 * USEC_PER_MINUTE)

/* FNV-1a: names come from a trusted proxy, but a user may choose his own. Chains are short enough
 * for that: as many tenants as there are sessions. */
static struct list *bucket_of(struct tenants *tenants, enum quota_scope scope, const char *name)
{
	uint32_t hash = 2166136261u ^ (uint32_t)scope;

	for (; *name; name++)
		hash = (hash ^ (uint8_t)*name) * 16777619u;
	return &tenants->bucket[hash & (TENANTS_N_BUCKETS - 1)];
}

void tenants_init(struct tenants *tenants)
{
	*tenants = (struct tenants){.host.scope = QUOTA_SCOPE_HOST};
	list_init(&tenants->host.link);
	list_init(&tenants->host.sessions);
	for (size_t i = 0; i < TENANTS_N_BUCKETS; i++)
		list_init(&tenants->bucket[i]);
}

static void tenant_free(struct tenant *tenant)
{
	ASSERT(list_empty(&tenant->sessions));
	list_remove(&tenant->link);
	free(tenant);
}

void tenants_done(struct tenants *tenants)
{
	ASSERT(list_empty(&tenants->host.sessions));
	for (size_t i = 0; i < TENANTS_N_BUCKETS; i++)
		LIST_FOR_EACH_SAFE (link, following, &tenants->bucket[i])
			tenant_free(LIST_ENTRY(link, struct tenant, link));
}

struct tenant *tenants_find(struct tenants *tenants, enum quota_scope scope, const char *name)
{
	if (scope == QUOTA_SCOPE_HOST)
		return &tenants->host;
	LIST_FOR_EACH (link, bucket_of(tenants, scope, name)) {
		struct tenant *tenant = LIST_ENTRY(link, struct tenant, link);

		if (tenant->scope == scope && str_equal(tenant->name, name))
			return tenant;
	}
	return NULL;
}

struct tenant *tenants_get(struct tenants *tenants, enum quota_scope scope, const char *name)
{
	struct tenant *tenant = tenants_find(tenants, scope, name);

	if (tenant || name[0] == '\0')
		return tenant;
	tenant = calloc(1, sizeof(*tenant));
	if (!tenant)
		return NULL;
	if (str_copy(tenant->name, sizeof(tenant->name), name) < 0) {
		free(tenant);
		return NULL;
	}
	tenant->scope = scope;
	list_init(&tenant->sessions);
	list_append(bucket_of(tenants, scope, name), &tenant->link);
	return tenant;
}

static void enter(struct tenant *tenant, struct session *session)
{
	struct tenant_place *place = &session->place[tenant->scope];

	place->tenant = tenant;
	place->session = session;
	list_append(&tenant->sessions, &place->link);
	tenant->n_sessions++;
}

int tenants_add(struct tenants *tenants, struct session *session)
{
	const char *names[] = {
		[QUOTA_SCOPE_OWNER] = registry_owner(session),
		[QUOTA_SCOPE_WORKSPACE] = session->workspace,
		[QUOTA_SCOPE_HOST] = "",
	};

	for (enum quota_scope scope = 0; scope < QUOTA_SCOPE_MAX_; scope++) {
		struct tenant *tenant = tenants_get(tenants, scope, names[scope]);

		if (tenant) {
			enter(tenant, session);
		} else if (names[scope][0] != '\0') {
			tenants_remove(session);
			return -ENOMEM;
		}
	}
	return 0;
}

void tenants_remove(struct session *session)
{
	for (enum quota_scope scope = 0; scope < QUOTA_SCOPE_MAX_; scope++) {
		struct tenant_place *place = &session->place[scope];

		if (!place->tenant)
			continue;
		list_remove(&place->link);
		place->tenant->n_sessions--;
		place->tenant = NULL; /* stays: its rates and its day go on */
	}
}

void tenant_sum(const struct tenant *tenant, struct tenant_use *ret_use)
{
	struct snapshots_sum snapshots = {0};

	*ret_use = (struct tenant_use){
		.n_sessions = tenant->n_sessions,
		.stored_bytes = tenant->frames_bytes,
	};
	if (tenant->n_sessions == 0)
		return; /* maybe one that stands for nobody, without a list */
	LIST_FOR_EACH (link, &tenant->sessions) {
		const struct session *session =
			LIST_ENTRY(link, struct tenant_place, link)->session;

		ret_use->memory_bytes += session->plan.memory_bytes;
		ret_use->stored_bytes += session->components_bytes + session->coming_bytes;
		ret_use->n_jobs += job_waiting(session);
		ret_use->n_frozen += session->suspension.memory_bytes > 0;
		ret_use->frozen_bytes += session->suspension.memory_bytes;
		if (tenant->scope != QUOTA_SCOPE_OWNER || session->workspace[0] == '\0')
			snapshots_sum(session, &snapshots, &snapshots);
	}
	ret_use->n_snapshots = snapshots.n;
	ret_use->snapshot_bytes = snapshots.bytes;
}

bool tenant_take(usec_t *next, uint64_t per_s, uint64_t n, usec_t now)
{
	return tenant_take_within(next, USEC_PER_SEC, per_s, n, now);
}

bool tenant_take_within(usec_t *next, usec_t window, uint64_t per_s, uint64_t n, usec_t now)
{
	usec_t due = *next > now ? *next : now;
	usec_t span;

	if (per_s == 0)
		return true;
	if (n > per_s)
		n = per_s;
	/* Rounded up, so that many small ones are not for nothing; n <= 2^40: no overflow. */
	span = (n * USEC_PER_SEC + per_s - 1) / per_s;
	if (due - now > window - span)
		return false;
	*next = due + span;
	return true;
}

void tenants_charge_frames(struct tenants *tenants, const char *owner, const char *workspace,
			   uint64_t bytes)
{
	struct tenant *of_owner = tenants_get(tenants, QUOTA_SCOPE_OWNER, owner);
	struct tenant *of_workspace = tenants_get(tenants, QUOTA_SCOPE_WORKSPACE, workspace);

	if (of_owner)
		of_owner->frames_bytes += bytes;
	if (of_workspace)
		of_workspace->frames_bytes += bytes;
	tenants->host.frames_bytes += bytes;
}

void tenants_forget_frames(struct tenants *tenants)
{
	tenants->host.frames_bytes = 0;
	for (size_t i = 0; i < TENANTS_N_BUCKETS; i++)
		LIST_FOR_EACH (link, &tenants->bucket[i])
			LIST_ENTRY(link, struct tenant, link)->frames_bytes = 0;
}

bool tenants_turn_day(struct tenants *tenants, usec_t realtime)
{
	uint32_t day = (uint32_t)(realtime / USEC_PER_DAY);

	if (day == tenants->day)
		return false;
	tenants->day = day;
	tenants->host.cpu_us = 0;
	for (size_t i = 0; i < TENANTS_N_BUCKETS; i++) {
		LIST_FOR_EACH_SAFE (link, following, &tenants->bucket[i]) {
			struct tenant *tenant = LIST_ENTRY(link, struct tenant, link);

			tenant->cpu_us = 0;
			tenant->cpu_dirty = false;
			if (list_empty(&tenant->sessions) && tenant->frames_bytes == 0)
				tenant_free(tenant);
		}
	}
	return true;
}

void tenants_charge_cpu(struct session *session, uint64_t cpu_us)
{
	/* Less than before: the tree is another one. */
	uint64_t more = cpu_us >= session->cpu_us ? cpu_us - session->cpu_us : cpu_us;

	session->cpu_us = cpu_us;
	if (session->cpu_from_before)
		more = 0;
	session->cpu_from_before = false;
	if (more == 0)
		return;
	for (enum quota_scope scope = 0; scope < QUOTA_SCOPE_MAX_; scope++) {
		struct tenant *tenant = session->place[scope].tenant;

		if (!tenant)
			continue;
		tenant->cpu_us += more;
		tenant->cpu_dirty = true;
	}
}
