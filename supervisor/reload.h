/*
 * The configuration while the service runs: SIGHUP reads it again, and either all of it takes
 * effect or nothing.
 */
#pragma once

#include <stdbool.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/log.h"

#include "sandboxd/launch.h"
#include "sandboxd/worker.h"
#include "supervisor/config_run.h"
#include "supervisor/egress_guard.h"

struct host;
struct serve;
struct workers;

struct reload {
	struct config_source source;
	struct config_answer config; /* in force */
	struct launch_config state;  /* what the api worker is told */
	const enum log_level *level; /* of the command line, which goes first; NULL: none */

	struct host *host; /* set once, before the first reload */
	struct serve *serve;
	struct workers *workers;
	struct loop *loop;
	struct config_run *run; /* a reload is under way */
	usec_t began;           /* realtime: when its snapshot was taken */
	bool again;             /* and was asked for meanwhile */
};

/* At the start: the first configuration, without which there is no service. 0 or -errno. */
MUST_USE int reload_first(struct reload *reload, const struct host *host, struct err *err);
/* What it says of the egress workers' connections; points into it. */
struct egress_guard reload_guard(const struct config_answer *config);
/* Read it again, while the loop goes on. What becomes of it is in the log, in `state`, and told to
 * the api worker. */
void reload_begin(struct reload *reload);
/* No reload takes effect any more. */
void reload_done(struct reload *reload);
