/* What is kept of snapshots: how much it may be, and what goes. */
#include <errno.h>

#include "base/log.h"
#include "base/str.h"

#include "supervisor/api/session/snapshots.h"
#include "supervisor/api/snapshot_state.h"

#define SWEEP_AGE (USEC_PER_MINUTE * 60)

/* An organisation: the workspace, or who has none. */

static bool is_same_organization(const struct session *one, const struct session *other)
{
	if (one->workspace[0] != '\0' || other->workspace[0] != '\0')
		return str_equal(one->workspace, other->workspace);
	return one->operator_owned == other->operator_owned && str_equal(one->owner, other->owner);
}

/* Files that have yet to go to the object store count as well: it may be away for long. */
static uint64_t kept_bytes(const struct app *app, const struct session *asker)
{
	uint64_t sum = snapshots_sent_bytes(app, asker, is_same_organization);

	LIST_FOR_EACH (entry, &app->lives) {
		const struct live *live = LIST_ENTRY(entry, struct live, link);

		if (is_same_organization(live->session, asker))
			sum += snapshots_bytes(live->session) + snapshots_file_bytes(live->staged);
	}
	return sum;
}

/* Of those that are not whole yet. */
static uint64_t written_bytes(const struct app *app, const struct session *asker)
{
	uint64_t sum = 0;

	LIST_FOR_EACH (entry, &app->snapshot_runs) {
		const struct snapshot_run *run = LIST_ENTRY(entry, struct snapshot_run, link);
		const struct session *session = registry_find(&app->registry, &run->session);

		if (run->makes && run->error == 0 && session &&
		    is_same_organization(session, asker))
			sum += run->file.reference.bytes;
	}
	return sum;
}

bool snapshot_is_over_quota(const struct snapshot_run *run, const struct session *session)
{
	uint64_t all = run->app->config->snapshot_organization_bytes;

	return all > 0 && kept_bytes(run->app, session) + written_bytes(run->app, session) > all;
}

int snapshot_room(const struct live *live, uint64_t *ret_max)
{
	const struct api_config *config = live->app->config;
	uint64_t all = config->snapshot_organization_bytes;
	uint64_t kept =
		kept_bytes(live->app, live->session) + written_bytes(live->app, live->session);

	*ret_max = config->snapshot_max_bytes;
	if (all == 0)
		return 0;
	if (kept >= all)
		return -EDQUOT;
	if (all - kept < *ret_max)
		*ret_max = all - kept;
	return 0;
}

/* What goes. */

int snapshot_remove_reference(struct app *app, const struct id *owner, json_t *reference)
{
	struct snapshot_reference parsed;
	int r = snapshot_reference_parse(reference, owner, &parsed);

	if (r < 0)
		return r;
	if (parsed.key[0] == '\0')
		return snapshot_remove(&app->snapshots, parsed.name);
	snapshot_remove_remote(app, parsed.key);
	return 0;
}

struct sweep {
	const struct app *app;
	usec_t now;
};

static bool is_being_written(const struct app *app, const char *name)
{
	LIST_FOR_EACH (entry, &app->snapshot_runs) {
		const struct snapshot_run *run = LIST_ENTRY(entry, struct snapshot_run, link);

		if (run->makes && str_has_prefix(name, run->file.reference.name))
			return true;
	}
	return false;
}

usec_t snapshot_sweep_age(const struct app *app, const struct session *session)
{
	const struct api_config *config = app->config;
	usec_t kept = config->snapshot_retention_s * USEC_PER_SEC;

	return !session && config->store_dsn[0] != '\0' && kept > SWEEP_AGE ? kept : SWEEP_AGE;
}

/* It has yet to go to the object store, which may be away for long. */
static bool is_staged(const struct session *session, const char *name)
{
	const char *staged = json_string_value(json_object_get(live_of(session)->staged, "name"));

	return staged && str_equal(staged, name);
}

static bool on_swept(void *userdata, const struct snapshot_entry *entry)
{
	const struct sweep *sweep = userdata;
	const struct app *app = sweep->app;
	const struct session *session = registry_find(&app->registry, &entry->sandbox);

	if (is_being_written(app, entry->name))
		return true;
	if (!entry->is_part &&
	    clock_add(entry->written_at, snapshot_sweep_age(app, session)) > sweep->now)
		return true;
	if (entry->is_part || !session)
		return false;
	/* Until the store has what is in memory, its row may speak of others. */
	return !session_persisted(session) || snapshots_have_file(session, entry->name) ||
	       is_staged(session, entry->name);
}

void snapshots_sweep(struct app *app)
{
	struct sweep sweep = {.app = app, .now = clock_realtime()};
	int n;

	/* Before and after, the sessions in memory are not all that there are. */
	if (app->phase != APP_PHASE_SERVING)
		return;
	snapshots_sweep_remote(app);
	n = snapshot_sweep(&app->snapshots, on_swept, &sweep);
	if (n < 0)
		log_line(LOG_LEVEL_WARNING, NULL, "snapshots cannot be looked through", "errno=%d",
			 -n);
	else if (n > 0)
		log_line(LOG_LEVEL_INFO, NULL, "snapshots removed", "n=%d", n);
}

void snapshots_remove(struct app *app, const struct id *owner, const json_t *references)
{
	json_t *reference;
	size_t i;

	json_array_foreach(references, i, reference)
	{
		/* What stays is swept. */
		IGNORE_RESULT(snapshot_remove_reference(app, owner, reference));
	}
}
