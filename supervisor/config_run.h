/*
 * Run sandboxd-config once: the only process that parses the configuration file.
 */
#pragma once

#include <stdbool.h>

#include "base/auto.h"
#include "base/err.h"

#include "sandboxd/worker.h"

struct host;
struct loop;

/* Where the configuration is: its directory, held open, so that it can be read again when no path
 * of the host can be looked up any more. */
struct config_source {
	int dir_fd;
	const char *path;     /* of the file, to name it; not owned */
	bool may_be_missing;  /* the default file */
	const char *provider; /* SANDBOX_PROVIDER, or NULL; not owned */
};
#define CONFIG_SOURCE_NULL ((struct config_source){.dir_fd = -1})

/* In the host's mount namespace. path NULL: the default file, which may be missing. 0 or -errno. */
MUST_USE int config_source_open(struct config_source *source, const char *path, struct err *err);
void config_source_done(struct config_source *source);
/*
 * Give a snapshot of the files to the reader and watch it from the loop. `done` comes once, later,
 * and is the last that is heard of the run: answer NULL, err and the reader's first complaint ("":
 * none; at most CONFIG_REASON_BYTES) where it is refused. What the reader had to say is in the
 * log by then. 0, or -errno and `done` does not come.
 */
typedef void (*config_run_done)(void *userdata, const struct config_answer *answer,
				const char *complaint, const struct err *err);
struct config_run_watcher {
	struct loop *loop;
	config_run_done done;
	void *userdata;
};
struct config_run;
MUST_USE int config_run_start(const struct host *host, const struct config_source *source,
			      const struct config_run_watcher *watcher, struct config_run **ret_run,
			      struct err *err);
/* Before `done`: it does not come. Accepts NULL, returns NULL. */
struct config_run *config_run_cancel(struct config_run *run);
/* Both at once, for the start: waits. 0 or -errno. */
MUST_USE int config_run(const struct host *host, const struct config_source *source,
			struct config_answer *ret_answer, struct err *err);
