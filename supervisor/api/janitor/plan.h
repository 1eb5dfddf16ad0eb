/*
 * Who has to go, and why: (now, sessions in memory, rows of the store) -> victims. Decides only.
 */
#pragma once

#include <stddef.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/id.h"

#include "supervisor/api/session/registry.h"

struct janitor_victim {
	struct id session;
	enum session_reason reason;
	usec_t expires_at;
};

/* Expired sessions, earliest deadline first, at most max. Number of them. */
size_t janitor_plan_expired(const struct registry *registry, usec_t now,
			    struct janitor_victim *ret_victims, size_t max);
/* When to look again: the earliest deadline, or USEC_NEVER. */
usec_t janitor_plan_next(const struct registry *registry);

/* The tasks of a session are told twice that it expires. Which of the two is due: 5 or 1 (minutes),
 * 0: none. told: the last one, 0: none yet. */
uint32_t janitor_plan_warning(usec_t expires_at, usec_t now, uint32_t told);

/*
 * At start: a live session of the supervisor without a row is killed, as is one whose folder was
 * not complete; a row that says open or running without a live session is dormant until its next
 * use; an expired one is killed and closed.
 */
struct janitor_row {
	struct id session;
	usec_t expires_at;
	bool restoring;
};
enum janitor_start {
	JANITOR_START_ADOPT,     /* live, row open: connect */
	JANITOR_START_KILL,      /* live, no row, or expired: kill, and close the row */
	JANITOR_START_CLOSE_ROW, /* row, not live, expired */
	JANITOR_START_DROP_TREE, /* live, row open, folder incomplete: kill; then dormant */
	JANITOR_START_DORMANT,   /* row open, not live */
};
/* row or live may be absent, not both. */
enum janitor_start janitor_plan_start(const struct janitor_row *row, bool live, usec_t now);

/* Rows and frames older than these are deleted. 0 keeps nothing older than now; USEC_NEVER: all. */
struct janitor_retention {
	usec_t frames_before; /* tasks whose session (or themselves) ended before: frames go */
	usec_t rows_before;   /* closed rows go, with their tasks */
	usec_t bodies_before; /* closed rows lose their component bodies and overrides */
};
struct janitor_retention janitor_plan_retention(usec_t now, uint64_t frames_keep_s,
						uint64_t rows_keep_s, uint64_t bodies_keep_s);
