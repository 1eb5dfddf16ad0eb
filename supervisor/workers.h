/*
 * Our workers: started, greeted, watched, started again.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/auto.h"
#include "base/err.h"
#include "base/log.h"
#include "base/loop.h"

#include "sandboxd/worker.h"
#include "supervisor/serve.h"

struct host;
struct workers;

struct workers_options {
	struct loop *loop;
	struct host *host;
	struct serve *serve;
	const struct config_answer *config; /* the caller's; copied for each worker that starts */
	const struct launch_config *config_state; /* the caller's */
	int control_fd;                           /* stay the caller's */
	int operator_fd;
	int state_fd;
	const char *libexec_dir; /* as the host names it; kept by pointer */
	enum log_level log_level;
	/* Every worker has said HELLO once. */
	void (*ready)(void *userdata);
	/* A worker died, or could not be started, again and again before its first HELLO: the
	 * service cannot start. */
	void (*failed)(void *userdata);
	/* All workers of a kind that was stopped are gone. */
	void (*stopped)(void *userdata, enum serve_worker kind);
	void *userdata;
};

MUST_USE int workers_start(const struct workers_options *options, struct workers **ret_workers,
			   struct err *err);
/* The api worker gets its part of the configuration again; also after each of its HELLOs. */
void workers_tell_config(const struct workers *workers);
/* The signal, after the grace KILL, no restart; `stopped` follows, at once where none runs. */
void workers_stop(struct workers *workers, enum serve_worker kind, int signal_number, usec_t grace);
/* Of every worker, those that start later included. Accepts NULL. */
void workers_set_log_level(struct workers *workers, enum log_level level);
/* A new socket pair for the api worker and that egress worker; false: one of them is not up, and
 * its next HELLO brings one. */
bool workers_link(struct workers *workers, uint32_t egress);
/* Kills what is left and waits a moment for its end. Returns NULL. */
struct workers *workers_free(struct workers *workers);
