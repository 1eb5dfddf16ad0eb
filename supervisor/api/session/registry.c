#include "supervisor/api/session/registry.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"

int registry_init(struct registry *registry)
{
	*registry = (struct registry){.by_id = IDMAP_NULL};
	list_init(&registry->by_age);
	tenants_init(&registry->tenants);
	return 0;
}

void registry_done(struct registry *registry)
{
	ASSERT(list_empty(&registry->by_age));
	idmap_done(&registry->by_id);
	tenants_done(&registry->tenants);
	free(registry->heap);
	registry->heap = NULL;
}

/* ---- deadlines: a binary heap, each session knows its place ---- */

static void heap_put(struct registry *registry, size_t at, struct session *session)
{
	registry->heap[at] = session;
	session->deadline_at = at;
}

static void heap_up(struct registry *registry, size_t at)
{
	struct session *session = registry->heap[at];

	while (at > 0) {
		size_t parent = (at - 1) / 2;

		if (registry->heap[parent]->expires_at <= session->expires_at)
			break;
		heap_put(registry, at, registry->heap[parent]);
		at = parent;
	}
	heap_put(registry, at, session);
}

static void heap_down(struct registry *registry, size_t at)
{
	struct session *session = registry->heap[at];

	for (;;) {
		size_t child = at * 2 + 1;

		if (child >= registry->n_heap)
			break;
		if (child + 1 < registry->n_heap &&
		    registry->heap[child + 1]->expires_at < registry->heap[child]->expires_at)
			child++;
		if (session->expires_at <= registry->heap[child]->expires_at)
			break;
		heap_put(registry, at, registry->heap[child]);
		at = child;
	}
	heap_put(registry, at, session);
}

static int heap_reserve(struct registry *registry)
{
	size_t allocated = registry->heap_allocated ? registry->heap_allocated * 2 : 16;
	struct session **heap;

	if (registry->n_heap < registry->heap_allocated)
		return 0;
	heap = reallocarray(registry->heap, allocated, sizeof(struct session *));
	if (!heap)
		return -ENOMEM;
	registry->heap = heap;
	registry->heap_allocated = allocated;
	return 0;
}

/* The order is total, so that a page begins where the one before ended whatever came or went. */
static bool stands_behind(const struct session *session, usec_t at, const struct id *id)
{
	if (session->created_at != at)
		return session->created_at < at;
	return memcmp(session->id.bytes, id->bytes, ID_BYTES) < 0;
}

/* ---- */

int registry_add(struct registry *registry, struct session *session)
{
	struct list *at;
	int r;

	r = heap_reserve(registry);
	if (r < 0)
		return r;
	r = idmap_add(&registry->by_id, &session->id, session);
	if (r < 0)
		return r;
	r = tenants_add(&registry->tenants, session);
	if (r < 0) {
		idmap_remove(&registry->by_id, &session->id);
		return r;
	}
	/* New ones go to the front at once; only adopted ones have to look for their place. */
	at = registry->by_age.next;
	while (at != &registry->by_age && !stands_behind(LIST_ENTRY(at, struct session, by_age),
							 session->created_at, &session->id))
		at = at->next;
	list_append(at, &session->by_age);
	registry->heap[registry->n_heap] = session;
	heap_up(registry, registry->n_heap++);
	return 0;
}

void registry_remove(struct registry *registry, struct session *session)
{
	size_t at = session->deadline_at;

	ASSERT(registry_find(registry, &session->id) == session);
	idmap_remove(&registry->by_id, &session->id);
	tenants_remove(session);
	list_remove(&session->by_age);
	registry->n_heap--;
	if (at == registry->n_heap)
		return;
	heap_put(registry, at, registry->heap[registry->n_heap]);
	heap_up(registry, at);
	heap_down(registry, registry->heap[at]->deadline_at);
}

size_t registry_count(const struct registry *registry)
{
	return registry->by_id.n_used;
}

struct session *registry_find(const struct registry *registry, const struct id *id)
{
	return idmap_get(&registry->by_id, id);
}

const char *registry_owner(const struct session *session)
{
	return session->operator_owned ? "" : session->owner;
}

bool registry_may_see(const char *owner, const char *workspace, const struct viewer *viewer)
{
	if (viewer->sees_all)
		return true;
	if (viewer->owner[0] != '\0' && str_equal(owner, viewer->owner))
		return true;
	return workspace[0] != '\0' && str_equal(workspace, viewer->workspace);
}

/* A sandbox of the runtime API that has a project is that project's and, where nobody named one,
 * the organisation's. */
static bool in_project(const struct session *session, const struct viewer *viewer)
{
	return session->dagster || viewer->sees_all || session->project[0] == '\0' ||
	       !viewer->project || viewer->project[0] == '\0' ||
	       str_equal(session->project, viewer->project);
}

static bool is_viewers(const struct session *session, const struct viewer *viewer)
{
	return registry_may_see(registry_owner(session), session->workspace, viewer) &&
	       in_project(session, viewer);
}

static bool visible(const struct session *session, const struct viewer *viewer, usec_t now)
{
	return session_is_visible(session, now) && is_viewers(session, viewer);
}

struct session *registry_find_visible(const struct registry *registry, const char *text,
				      const struct viewer *viewer, usec_t now)
{
	struct session *session;
	struct id id;

	if (id_parse(text, &id) < 0)
		return NULL;
	session = registry_find(registry, &id);
	return session && visible(session, viewer, now) ? session : NULL;
}

struct session *registry_find_deleting(const struct registry *registry, const char *text,
				       const struct viewer *viewer)
{
	struct session *session;
	struct id id;

	if (id_parse(text, &id) < 0)
		return NULL;
	session = registry_find(registry, &id);
	if (!session || session->state != SESSION_STATE_CLOSING ||
	    session->reason != SESSION_REASON_DELETED)
		return NULL;
	return is_viewers(session, viewer) ? session : NULL;
}

/* The organisation by its parts: as one text, a workspace may be called as what stands in for a
 * user. */
static bool is_organizations(const struct session *session, const struct viewer *viewer)
{
	return str_equal(session->workspace, viewer->workspace) &&
	       (viewer->workspace[0] != '\0' || str_equal(registry_owner(session), viewer->owner));
}

struct session *registry_find_idempotent(const struct registry *registry,
					 const struct viewer *viewer, const char *key, usec_t now)
{
	LIST_FOR_EACH (entry, &registry->by_age) {
		struct session *session = LIST_ENTRY(entry, struct session, by_age);

		if (clock_add(session->created_at, REGISTRY_IDEMPOTENCY_AGE) <= now)
			break; /* those behind it are older */
		if (!str_equal(session->spec.runtime.idempotency_key, key) ||
		    !str_equal(session->project, viewer->project) ||
		    session->state >= SESSION_STATE_CLOSING || session->expires_at <= now)
			continue;
		if (is_organizations(session, viewer))
			return session;
	}
	return NULL;
}

struct session *registry_find_named(const struct registry *registry, const char *owner,
				    bool operator_owned, const char *name, usec_t now)
{
	LIST_FOR_EACH (entry, &registry->by_age) {
		struct session *session = LIST_ENTRY(entry, struct session, by_age);

		if (str_equal(session->spec.name, name) &&
		    session->operator_owned == operator_owned &&
		    str_equal(registry_owner(session), operator_owned ? "" : owner) &&
		    session->state < SESSION_STATE_CLOSING && session->expires_at > now)
			return session;
	}
	return NULL;
}

void registry_deadline_changed(struct registry *registry, struct session *session)
{
	heap_up(registry, session->deadline_at);
	heap_down(registry, session->deadline_at);
}

struct session *registry_next_deadline(const struct registry *registry)
{
	struct session *best = NULL;

	/* Sessions that are closing stay in the heap until they are gone: few, and at its top. */
	for (size_t i = 0; i < registry->n_heap; i++) {
		struct session *session = registry->heap[i];

		if (best && best->expires_at <= session->expires_at)
			continue;
		if (session->state == SESSION_STATE_CLOSING ||
		    session->state == SESSION_STATE_CLOSED)
			continue;
		best = session;
		if (i == 0)
			break;
	}
	return best;
}

int registry_status_from_text(const char *text)
{
	static const char *const texts[REGISTRY_STATUS_MAX_] = {
		[REGISTRY_STATUS_OPEN] = "open",
		[REGISTRY_STATUS_RUNNING] = "running",
		[REGISTRY_STATUS_SUSPENDED] = "suspended",
	};

	for (int i = 0; i < REGISTRY_STATUS_MAX_; i++)
		if (texts[i] && str_equal(texts[i], text))
			return i;
	return -1;
}

static bool is_suspended(const struct session *session, const struct registry_filter *filter)
{
	return filter->of_sandboxes && (session->suspension.state == SUSPENSION_SUSPENDING ||
					session->suspension.state == SUSPENSION_SUSPENDED);
}

static bool matches(const struct session *session, const struct registry_filter *filter)
{
	if (filter->name && !str_equal(session->spec.name, filter->name))
		return false;
	if (filter->before_at != 0 &&
	    !stands_behind(session, filter->before_at, &filter->before_id))
		return false;
	for (size_t i = 0; i < filter->n_metadata; i++) {
		const char *value = json_string_value(
			json_object_get(session->spec.runtime.metadata, filter->metadata_key[i]));

		if (!value || !str_equal(value, filter->metadata_value[i]))
			return false;
	}
	switch (filter->status) {
	case REGISTRY_STATUS_ANY:
	case REGISTRY_STATUS_MAX_:
		break;
	case REGISTRY_STATUS_OPEN:
		return session->state != SESSION_STATE_RUNNING && !is_suspended(session, filter);
	case REGISTRY_STATUS_RUNNING:
		return session->state == SESSION_STATE_RUNNING;
	case REGISTRY_STATUS_SUSPENDED:
		return is_suspended(session, filter);
	}
	return true;
}

int registry_list(const struct registry *registry, const struct viewer *viewer,
		  const struct registry_filter *filter, usec_t now, struct session **ret_sessions)
{
	struct list *from = registry->by_age.next;
	int n = 0;

	if (filter->after) {
		struct session *after = registry_find(registry, filter->after);

		if (!after || !visible(after, viewer, now))
			return -ENOENT;
		from = after->by_age.next;
	}
	for (struct list *at = from; at != &registry->by_age; at = at->next) {
		struct session *session = LIST_ENTRY(at, struct session, by_age);

		if ((size_t)n >= filter->limit)
			break;
		if (visible(session, viewer, now) && matches(session, filter))
			ret_sessions[n++] = session;
	}
	return n;
}
