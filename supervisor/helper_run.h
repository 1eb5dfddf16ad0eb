/*
 * One run of sandboxd-helper or sandboxd-s3: a request through a pipe, a report of fixed size back;
 * watched in the loop, killed when it takes too long, reaped. For redis_helper.c, unseal.c and
 * serve_s3.c, which know what they say.
 */
#pragma once

#include <stddef.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/loop.h"

#include "supervisor/worker_spawn.h"

#define HELPER_REQUEST_MAX_BYTES 4096 /* what the smallest pipe takes */

struct host;

/* Inside of what its owner keeps of the run, and at its place until helper_run_done. */
struct helper_run {
	int pid_fd;
	int step_fd;   /* worker_spawn's pipe */
	int report_fd; /* does not block; a report of at most PIPE_BUF lies in it whole */
	struct loop_source *pid_source;
	struct loop_source *timer;
	const char *program;
	const char *not_started;
	void (*ended)(void *userdata);
	void *userdata;
};

#define HELPER_RUN_NULL ((struct helper_run){.pid_fd = -1, .step_fd = -1, .report_fd = -1})

/* What a run needs. */
struct helper_start {
	struct loop *loop;
	struct host *host;
	const char *mode;        /* sandboxd-helper's argument; of another program: its name here */
	const char *program;     /* NULL: sandboxd-helper; constant */
	const char *not_started; /* what the log says then; constant */
	const void *request;     /* HELPER_FD_REQUEST, then its end */
	size_t request_bytes;    /* at most HELPER_REQUEST_MAX_BYTES */
	usec_t timeout;
	/* Only no_network, and the descriptors beside those of request, report and policy. */
	struct worker_spawn worker;
	/* Once, from the loop, when it is reaped: it calls helper_run_done. */
	void (*ended)(void *userdata);
	void *userdata;
};

/* Runs as root in the supervisor's namespaces. *run is HELPER_RUN_NULL. 0, or -errno and *run is
 * for helper_run_done. */
MUST_USE int helper_run_start(struct helper_run *run, const struct helper_start *start,
			      struct err *err);
/* It is reaped later, as when it ends by itself. */
void helper_run_kill(const struct helper_run *run);
/* Killed and reaped here, without `ended`; then as helper_run_done. */
void helper_run_end(struct helper_run *run);
void helper_run_done(struct helper_run *run);
