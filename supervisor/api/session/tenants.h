/*
 * Owners, workspaces and the host, with what each has now. Every session of the registry, from its
 * launch to its end, has a place in the host, in at most one owner and in at most one workspace:
 * the local operator's sessions are no owner's. Sums are taken over a tenant's own sessions when
 * they are asked for, so that none can drift.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/list.h"

#include "sandboxd/limits.h"
#include "sandboxd/worker.h"

struct session;

#define TENANTS_N_BUCKETS 256 /* power of two */

struct tenant {
	struct list link;     /* in its bucket */
	struct list sessions; /* struct tenant_place */
	enum quota_scope scope;
	char name[IDENTITY_MAX + 1];
	uint32_t n_sessions;
	bool cpu_dirty;        /* more than the store knows */
	uint64_t cpu_us;       /* used today */
	uint64_t frames_bytes; /* of its tasks in the store, also of closed sessions */
	usec_t launch_next;    /* boottime, see tenant_take */
	usec_t store_next;
	usec_t change_next;
};

/* A session's place in one of its tenants. */
struct tenant_place {
	struct list link;      /* tenant->sessions */
	struct tenant *tenant; /* NULL: none of this scope */
	struct session *session;
};

struct tenants {
	struct list bucket[TENANTS_N_BUCKETS];
	struct tenant host;
	uint32_t day; /* since 1970, UTC: of the processor time */
};

struct tenant_use {
	uint64_t memory_bytes;
	uint64_t stored_bytes; /* with what is on its way */
	uint32_t n_sessions;
	uint32_t n_jobs; /* that wait */
	uint32_t n_frozen;
	uint64_t frozen_bytes;
	/* Of an owner those of sessions without a workspace, where the owner is the organisation.
	 */
	uint64_t n_snapshots;
	uint64_t snapshot_bytes;
};

void tenants_init(struct tenants *tenants);
void tenants_done(struct tenants *tenants); /* asserts that no session is left */
/* The host for QUOTA_SCOPE_HOST. NULL: none of that name; "" is nobody's. */
struct tenant *tenants_find(struct tenants *tenants, enum quota_scope scope, const char *name);
/* As tenants_find, but made where it is missing. NULL: no memory, or the name is "". */
struct tenant *tenants_get(struct tenants *tenants, enum quota_scope scope, const char *name);
/* From the registry: a session comes and goes. 0 or -ENOMEM. */
MUST_USE int tenants_add(struct tenants *tenants, struct session *session);
void tenants_remove(struct session *session);
void tenant_sum(const struct tenant *tenant, struct tenant_use *ret_use);

/*
 * A token bucket that holds one second's worth, written as the time at which the next token would
 * be due if they came evenly. True: n were taken (all there are, where n is more than the bucket
 * holds). per_s 0: no bound.
 */
bool tenant_take(usec_t *next, uint64_t per_s, uint64_t n, usec_t now);

/* The same with a bucket that holds what comes in `window`, at least a second. */
bool tenant_take_within(usec_t *next, usec_t window, uint64_t per_s, uint64_t n, usec_t now);

/* That many bytes of frames of a task of these tenants were given to the store. */
void tenants_charge_frames(struct tenants *tenants, const char *owner, const char *workspace,
			   uint64_t bytes);
/* Before they are counted anew. */
void tenants_forget_frames(struct tenants *tenants);

/* A new day begins with no processor time used. True: it did. */
bool tenants_turn_day(struct tenants *tenants, usec_t realtime);
/* The session has used cpu_us since it began. */
void tenants_charge_cpu(struct session *session, uint64_t cpu_us);
