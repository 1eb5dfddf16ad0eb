/*
 * What the worker counts about itself, and Prometheus' text form of it. Pure.
 *
 * No label ever holds a user, a session, an endpoint or anything else that a caller chooses: the
 * number of series is fixed by this release.
 */
#pragma once

#include <stdint.h>

#include "base/auto.h"
#include "base/buf.h"

#include "sandboxd/launch.h"
#include "supervisor/api/metrics/histogram.h"

enum metrics_exec {         /* a command, from the request on */
	METRICS_EXEC_SPAWN, /* the request was read -> the shim has started it */
	METRICS_EXEC_RUN,   /* started -> ended */
	METRICS_EXEC_MAX_,
};

enum metrics_denial { /* the kinds of a denial record */
	METRICS_DENIAL_SYSCALL,
	METRICS_DENIAL_FILE,
	METRICS_DENIAL_NETWORK,
	METRICS_DENIAL_MEMORY,
	METRICS_DENIAL_PIDS,
	METRICS_DENIAL_DISK,
	METRICS_DENIAL_TIME,
	METRICS_DENIAL_OUTPUT,
	METRICS_DENIAL_MAX_,
};

enum metrics_adoption { /* of sessions, at a start of this worker and since */
	METRICS_ADOPTION_ADOPTED,
	METRICS_ADOPTION_KILLED,  /* it lived and had no open row */
	METRICS_ADOPTION_CLOSED,  /* its row expired meanwhile, or this release cannot serve it */
	METRICS_ADOPTION_REBUILT, /* a row got a new tree */
	METRICS_ADOPTION_FAILED,  /* it lived and could not be taken; its row stays */
	METRICS_ADOPTION_MAX_,
};

struct metrics_step {
	char name[LAUNCH_TRACE_NAME + 1]; /* "" : not used yet */
	uint32_t side;
	struct histogram took;
};

struct metrics {
	struct histogram create; /* POST -> 201 */
	struct histogram exec[METRICS_EXEC_MAX_];
	struct metrics_step launch[LAUNCH_TRACE_MAX];
	uint64_t n_denials[METRICS_DENIAL_MAX_];
	uint64_t n_adoptions[METRICS_ADOPTION_MAX_];
	uint64_t n_audit_lines;
	uint64_t n_audit_lost;
};

/* The steps of one launch. Each is counted by what it took: the time since the step before it on
 * its side of the launch. Names that do not fit the table are not counted. */
void metrics_add_launch(struct metrics *metrics, const struct launch_trace *trace);

/* One value, its labels ("state=\"open\"" or "") included. */
struct metrics_value {
	const char *labels;
	uint64_t value;
};
/* A family: name without our prefix; type is "gauge" or "counter". 0, -ENOMEM, -EMSGSIZE. */
MUST_USE int metrics_append(struct buf *text, const char *name, const char *type, const char *help,
			    const struct metrics_value *values, size_t n_values);
/* All families of struct metrics. */
MUST_USE int metrics_append_all(struct buf *text, const struct metrics *metrics);
