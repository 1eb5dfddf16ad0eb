/*
 * Whether a session runs or stands still: pure, part of struct session and of its row in
 * sandbox_registry.
 *
 *   RUNNING     Allowed: everything.
 *   SUSPENDING  the row says so, and it is being stopped. Allowed: close.
 *   SUSPENDED   nothing of it runs. Its tree may be there, frozen, or not. Allowed: close, resume.
 *   RESUMING    the row says running, and it is being let go. Allowed: close.
 *
 * Each state but the last is written before it is acted on, so whoever finds the row after a crash
 * knows what was meant, and does it again.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/auto.h"
#include "base/clock.h"

enum suspension_state {
	SUSPENSION_RUNNING,
	SUSPENSION_SUSPENDING,
	SUSPENSION_SUSPENDED,
	SUSPENSION_RESUMING,
	SUSPENSION_MAX_,
};

/* What the last resume found. */
enum suspension_resumed {
	SUSPENSION_RESUMED_NONE, /* there was none */
	SUSPENSION_RESUMED_MEMORY,
	SUSPENSION_RESUMED_SNAPSHOT, /* a new tree: its processes are gone */
	SUSPENSION_RESUMED_MAX_,
};

struct suspension {
	enum suspension_state state;
	enum suspension_resumed resumed;
	uint64_t generation;         /* counts suspends */
	uint64_t durable_generation; /* whose snapshot there is; 0: none */
	uint64_t stored_generation;  /* that the store has said to know */
	bool is_wanted;              /* somebody wants the last one to be durable */
	json_t *snapshot;            /* owned; its reference (snapshot.h); NULL: none */
	usec_t since;                /* realtime: when it was suspended */
	usec_t ttl_left;             /* of its life time, while it does not count */
	uint64_t memory_bytes;       /* that are frozen */
};

void suspension_done(struct suspension *suspension);
/* "running", "suspending", "suspended": the row's words. */
const char *suspension_text(enum suspension_state state);
/* "memory", "snapshot"; NULL: none. */
const char *suspension_resumed_text(enum suspension_resumed resumed);
/* Begin to suspend: its life time stands still from now on. is_wanted: that it is durable. */
void suspension_begin(struct suspension *suspension, usec_t now, usec_t expires_at, bool is_wanted);
/* When it expires if it goes on now. */
usec_t suspension_expiry(const struct suspension *suspension, usec_t now);
/* Is the store's snapshot that of the last suspend? */
static inline bool suspension_is_durable(const struct suspension *suspension)
{
	return suspension->generation > 0 &&
	       suspension->stored_generation == suspension->generation;
}
/* What a row says: an object of status, generation, durable_generation, durable, snapshot_ref,
 * since_us and ttl_left_us. Anything else in it counts for nothing. NULL: no row; RUNNING. */
void suspension_read(const json_t *row, struct suspension *ret_suspension);
