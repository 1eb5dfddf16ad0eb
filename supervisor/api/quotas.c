/*
 * Theory. A tree's processor time is asked for a few sessions a tick, round and round, and comes
 * once more with its end, so that short sessions count as well. What a tree had used before this
 * worker saw it was charged by an earlier one, up to its last look.
 *
 * Tenants and the host share their bounds among sandboxes of all providers. A service elsewhere is
 * therefore not believed that one has used more than its plan allows: with one lie it would use up
 * the day of all, or have others' suspended sessions given back.
 */
#include "supervisor/api/quotas.h"

#include <string.h>

#include "supervisor/api/denials.h"
#include "supervisor/api/http/actions.h"
#include "supervisor/api/http/reply.h"
#include "supervisor/api/live.h"
#include "supervisor/api/provider.h"

#define ASKED_A_TICK 64u

struct look {
	struct app *app;
	struct id session;
};

/* What is charged for the first look of an adopted one is nothing: tenants.c. */
static void believe(struct session *session, struct launch_stat *stat)
{
	struct live *live = live_of(session);
	const struct plan *plan = &session->plan;
	uint64_t possible = (clock_boottime() - live->made_at) * plan->cpu_pct / 100;
	uint64_t more;

	if (stat->memory_bytes > plan->memory_bytes)
		stat->memory_bytes = plan->memory_bytes;
	if (session->cpu_from_before)
		return;
	more = stat->cpu_us >= session->cpu_us ? stat->cpu_us - session->cpu_us : stat->cpu_us;
	if (more > possible - live->believed_cpu_us) {
		more = possible - live->believed_cpu_us;
		stat->cpu_us = session->cpu_us + more;
	}
	live->believed_cpu_us += more;
}

static void on_stat(void *userdata, const struct launch_msg *answer, int fd)
{
	struct look *look = userdata;
	struct session *session = registry_find(&look->app->registry, &look->session);

	(void)fd_close(fd);
	if (session && answer && answer->error == LAUNCH_E_NONE) {
		struct launch_stat stat = answer->u.stat;

		if (live_of(session)->provider->is_elsewhere)
			believe(session, &stat);
		denials_count(look->app, session, stat.oom_kills, stat.forks_refused);
		tenants_charge_cpu(session, stat.cpu_us);
		/* Also of one that an earlier worker froze; others stand still for a lease. */
		if (stat.frozen && session->suspension.state == SUSPENSION_SUSPENDED)
			session->suspension.memory_bytes = stat.memory_bytes;
	}
	free(look);
}

static void ask_stat(struct app *app, const struct session *session)
{
	struct look *look = calloc(1, sizeof(*look));

	if (!look)
		return; /* the next round */
	look->app = app;
	look->session = session->id;
	if (live_of(session)->provider->stat(app, &session->id, on_stat, look) < 0)
		free(look);
}

/* The list turns: those that were asked go to its end. */
static void ask_some(struct app *app)
{
	size_t n = registry_count(&app->registry);

	if (n > ASKED_A_TICK)
		n = ASKED_A_TICK;
	while (n-- > 0 && !list_empty(&app->lives)) {
		struct list *first = app->lives.next;
		const struct live *live = LIST_ENTRY(first, struct live, link);

		list_remove(first);
		list_append(&app->lives, first);
		if (live->shim)
			ask_stat(app, live->session);
	}
}

static void write_tenant(struct app *app, struct tenant *tenant)
{
	const struct store_usage usage = {
		.day = app->registry.tenants.day,
		.scope = tenant->scope,
		.name = tenant->name,
		.cpu_us = tenant->cpu_us,
	};

	if (!tenant->cpu_dirty)
		return;
	tenant->cpu_dirty = false;
	if (store_usage_put(app->store, &usage) < 0)
		tenant->cpu_dirty = true;
}

void quotas_tick(struct app *app)
{
	struct tenants *tenants = &app->registry.tenants;

	(void)tenants_turn_day(tenants, clock_realtime());
	ask_some(app);
	if (store_stats(app->store).degraded)
		return; /* one write for all of it, when it takes some again */
	write_tenant(app, &tenants->host);
	for (size_t i = 0; i < TENANTS_N_BUCKETS; i++)
		LIST_FOR_EACH (link, &tenants->bucket[i])
			write_tenant(app, LIST_ENTRY(link, struct tenant, link));
}

void quotas_tree_gone(struct session *session, uint64_t cpu_us)
{
	tenants_charge_cpu(session, cpu_us);
	session->cpu_us = 0;
	session->cpu_from_before = false;
}

static int take_usage(void *userdata, const struct store_usage *usage)
{
	struct app *app = userdata;
	struct tenant *tenant = usage->scope < QUOTA_SCOPE_MAX_
					? tenants_get(&app->registry.tenants,
						      (enum quota_scope)usage->scope, usage->name)
					: NULL;

	if (tenant)
		tenant->cpu_us = usage->cpu_us;
	return 0;
}

int quotas_load(struct app *app)
{
	int r;

	(void)tenants_turn_day(&app->registry.tenants, clock_realtime());
	r = store_each_usage(app->store, app->registry.tenants.day, take_usage, app);
	return r < 0 ? r : quotas_count_frames(app);
}

/* Frames. */

static void take_frames(void *userdata, enum store_result result,
			const struct store_frames_use *use)
{
	struct app *app = userdata;

	if (result == STORE_DEGRADED) {
		app->counts_frames = false;
		return; /* what was counted before stays */
	}
	if (!app->counts_frames)
		tenants_forget_frames(&app->registry.tenants);
	app->counts_frames = use != NULL;
	if (use)
		tenants_charge_frames(&app->registry.tenants, use->owner, use->workspace,
				      use->bytes);
}

int quotas_count_frames(struct app *app)
{
	/* What waits would be missing. What is on its way to the store meanwhile is, until the
	 * next time. */
	if (store_stats(app->store).degraded || app->counts_frames)
		return 0;
	return store_frames_use(app->store, take_frames, app);
}

void quotas_charge_frames(struct app *app, struct job *job, uint32_t first_seq)
{
	const struct session *session = registry_find(&app->registry, &job->session);

	tenants_charge_frames(&app->registry.tenants, job->owner, job->workspace,
			      frames_stored_bytes(&job->frames, first_seq));
	if (session)
		frames_bound(&job->frames, tenant_quota_room(session, &app->config->quota));
}

bool action_change(struct request *request)
{
	struct app *app = request_app(request);
	struct quota_refusal refusal;

	if (request->identity.is_operator ||
	    tenant_quota_change(&app->registry.tenants, &app->config->quota, request->identity.user,
				clock_boottime(), &refusal))
		return true;
	reply_refusal(request, &refusal);
	return false;
}

/* The route. */

static json_t *pair(uint64_t limit, uint64_t used, bool is_bound)
{
	return json_pack("{s:o, s:I}", "limit",
			 is_bound ? json_integer((json_int_t)limit) : json_null(), "used",
			 (json_int_t)used);
}

/* What bounds them is not of the tenant's own: [snapshots] and [api]. */
static void add_suspended(json_t *document, const struct api_config *config, enum quota_scope scope,
			  const struct tenant_use *use)
{
	uint64_t frozen_max = scope == QUOTA_SCOPE_HOST ? config->frozen_memory_max_bytes : 0;
	uint64_t snapshot_max = scope == QUOTA_SCOPE_HOST ? 0 : config->snapshot_organization_bytes;

	(void)json_object_set_new(document, "frozen_sessions", pair(0, use->n_frozen, false));
	(void)json_object_set_new(document, "frozen_memory_bytes",
				  pair(frozen_max, use->frozen_bytes, frozen_max != 0));
	(void)json_object_set_new(document, "snapshots", pair(0, use->n_snapshots, false));
	(void)json_object_set_new(document, "snapshot_bytes",
				  pair(snapshot_max, use->snapshot_bytes, snapshot_max != 0));
}

static json_t *tenant_document(const struct api_config *config, enum quota_scope scope,
			       const struct quota_limits *limits, const struct tenant *tenant)
{
	struct tenant_use use = {0};
	json_t *document;
	uint64_t cpu_s = tenant ? tenant->cpu_us / USEC_PER_SEC : 0;

	if (tenant)
		tenant_sum(tenant, &use);
	document =
		json_pack("{s:o, s:o, s:o, s:o, s:o}", "sessions",
			  pair(limits->sessions, use.n_sessions, true), "queued_jobs",
			  pair(limits->jobs, use.n_jobs, true), "memory_bytes",
			  pair(limits->memory_bytes, use.memory_bytes, limits->memory_bytes != 0),
			  "stored_bytes",
			  pair(limits->stored_bytes, use.stored_bytes, limits->stored_bytes != 0),
			  "cpu_seconds_today", pair(limits->cpu_s, cpu_s, limits->cpu_s != 0));
	add_suspended(document, config, scope, &use);
	return document;
}

static void add_scope(json_t *answer, struct app *app, enum quota_scope scope, const char *name)
{
	(void)json_object_set_new(
		answer, tenant_quota_scope_text(scope),
		tenant_document(app->config, scope,
				tenant_quota_limits(&app->config->quota, scope, name),
				tenants_find(&app->registry.tenants, scope, name)));
}

void action_quota(struct request *request)
{
	struct app *app = request_app(request);
	const struct identity *identity = &request->identity;
	json_t *answer = json_object();

	if (!identity->is_operator)
		add_scope(answer, app, QUOTA_SCOPE_OWNER, identity->user);
	if (identity->workspace[0] != '\0')
		add_scope(answer, app, QUOTA_SCOPE_WORKSPACE, identity->workspace);
	/* Sums over everybody: what others have could be told from them. */
	if (identity->scopes & AUTH_ADMIN)
		add_scope(answer, app, QUOTA_SCOPE_HOST, "");
	reply_json(request, MHD_HTTP_OK, answer);
}
