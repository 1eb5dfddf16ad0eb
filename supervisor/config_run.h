/*
 * Run sandboxd-config once: the only process that parses the configuration file.
 */
#pragma once

#include <stdbool.h>

#include "base/auto.h"
#include "base/err.h"

#include "sandboxd/worker.h"

struct host;

/* Where the configuration is: its directory, held open, so that it can be read again when no path
 * of the host can be looked up any more. */
struct config_source {
	int dir_fd;
	const char *name;    /* of the file; not owned */
	bool may_be_missing; /* the default file */
};
#define CONFIG_SOURCE_NULL ((struct config_source){.dir_fd = -1})

/* In the host's mount namespace. path NULL: the default file, which may be missing. 0 or -errno. */
MUST_USE int config_source_open(struct config_source *source, const char *path, struct err *err);
void config_source_done(struct config_source *source);
/* Give a snapshot of the files to the reader, wait for its answer (bounded), check it. 0, or
 * -errno: what the reader had to say is in the log by then, its first complaint in ret_complaint
 * (LAUNCH_CONFIG_TEXT bytes; untouched where it had none). */
MUST_USE int config_run(const struct host *host, const struct config_source *source,
			struct config_answer *ret_answer, char *ret_complaint, struct err *err);
