/*
 * Every session that this worker holds: by id, newest first, by deadline. Who may see which one is
 * decided here and nowhere else: same owner, or same non-empty workspace; the local operator sees
 * all. Missing, closed, expired and foreign ones are the same "not found" (docs/THREATS.md).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/id.h"
#include "base/list.h"

#include "supervisor/api/session/idmap.h"
#include "supervisor/api/session/session.h"
#include "supervisor/api/session/tenants.h"

struct registry {
	struct idmap by_id;
	struct list by_age;    /* struct session, newest first */
	struct session **heap; /* by expires_at, owned array */
	size_t n_heap;
	size_t heap_allocated;
	struct tenants tenants;
};

struct viewer {
	const char *owner;
	const char *workspace; /* "" : none */
	bool sees_all;         /* the local operator */
	const char *project;   /* NULL, "": all of the organisation's */
};

int registry_init(struct registry *registry);
void registry_done(struct registry *registry); /* asserts that it is empty */
MUST_USE int registry_add(struct registry *registry, struct session *session);
void registry_remove(struct registry *registry, struct session *session);
size_t registry_count(const struct registry *registry);
/* Any state, no check of who asks: for peers of ours (shim, supervisor, store). */
struct session *registry_find(const struct registry *registry, const struct id *id);
/* For requests: `text` is what stood in the path. NULL: the one 404. */
struct session *registry_find_visible(const struct registry *registry, const char *text,
				      const struct viewer *viewer, usec_t now);
bool registry_may_see(const char *owner, const char *workspace, const struct viewer *viewer);
/* The open session that its owner calls so, one that is being made included; or NULL. */
struct session *registry_find_named(const struct registry *registry, const char *owner,
				    bool operator_owned, const char *name, usec_t now);
/* The sandbox that a create of the viewer's organisation and very project with this key has made or
 * makes, or NULL. A key is free again when its sandbox ends, or after REGISTRY_IDEMPOTENCY_AGE. */
struct session *registry_find_idempotent(const struct registry *registry,
					 const struct viewer *viewer, const char *key, usec_t now);
#define REGISTRY_IDEMPOTENCY_AGE (24ULL * 60 * USEC_PER_MINUTE)
/* For the second of two deletes at once: the session of the path that is being deleted, or NULL. */
struct session *registry_find_deleting(const struct registry *registry, const char *text,
				       const struct viewer *viewer);
/* The name that a viewer must have. The operator's sessions are nobody's: a platform may well have
 * a user who is called "operator". */
const char *registry_owner(const struct session *session);
/* session->expires_at changed. */
void registry_deadline_changed(struct registry *registry, struct session *session);
/* The session with the earliest deadline that is in CREATING, OPEN or RUNNING, or NULL. */
struct session *registry_next_deadline(const struct registry *registry);

enum registry_status {
	REGISTRY_STATUS_ANY,
	REGISTRY_STATUS_OPEN,
	REGISTRY_STATUS_RUNNING,
	REGISTRY_STATUS_SUSPENDED,
	REGISTRY_STATUS_MAX_,
};
/* -1: no such one. SUSPENDED is a status of sandboxes alone: sessions are open then. */
int registry_status_from_text(const char *text);
#define REGISTRY_METADATA_MAX 4
struct registry_filter {
	size_t limit;           /* 1..500 */
	const struct id *after; /* continue behind this session; NULL: from the newest */
	enum registry_status status;
	bool of_sandboxes; /* the status is that of summary_sandbox */
	const char *name;  /* NULL: any */
	/* Only what stands behind this place in the order, whether a session is there or not;
	 * before_at 0: from the newest. */
	usec_t before_at;
	struct id before_id;
	size_t n_metadata; /* each key has this value */
	const char *metadata_key[REGISTRY_METADATA_MAX];
	const char *metadata_value[REGISTRY_METADATA_MAX];
};
#define REGISTRY_LIST_MAX     500
#define REGISTRY_LIST_DEFAULT 200
/* Fills ret_sessions (filter->limit places), newest first. Number of them; -ENOENT: `after` is not
 * a session that the viewer can see. */
MUST_USE int registry_list(const struct registry *registry, const struct viewer *viewer,
			   const struct registry_filter *filter, usec_t now,
			   struct session **ret_sessions);
