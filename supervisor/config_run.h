/*
 * Run sandboxd-config once: the only process that parses the configuration file.
 */
#pragma once

#include "base/auto.h"
#include "base/err.h"

#include "sandboxd/worker.h"

struct host;

/* Open the configuration file in the host's mount namespace, every component root's. path NULL: the
 * default file; if that is missing, /dev/null (all defaults). The descriptor or -errno. */
MUST_USE int config_run_open(const char *path, struct err *err);
/* Give the file to the reader, wait for its answer (bounded), check it. 0, or -errno: what the
 * reader had to say is in the log by then. */
MUST_USE int config_run(const struct host *host, int file_fd, struct config_answer *ret_answer,
			struct err *err);
