/*
 * The configuration's files as one sealed snapshot (sandboxd/config.h): made by the supervisor for
 * its reader, and by sandboxctl for the same reader. Nothing is parsed here.
 */
#pragma once

#include <stdbool.h>

#include "base/auto.h"
#include "base/clock.h"
#include "base/err.h"

#include "sandboxd/config.h"

/* The directory of the configuration file at `path` (absolute), every component root's alone.
 * is_default: the directory may be missing, then -ENOENT. -errno with the reason in err. */
MUST_USE int config_bundle_open_dir(const char *path, bool is_default, struct err *err);

/*
 * Copy the file of the directory that `path` ends with (nothing else of it is looked up) and, in
 * the order of their names, its drop-ins. Each has to be a regular file of root that nobody else
 * may write. may_be_missing: the file itself; drop-ins always may. dir_fd -1: no file at all.
 * provider: what SANDBOX_PROVIDER is set to, which goes before all of them; NULL or "": it is not.
 * *ret_changed_at (may be NULL): realtime of the last change of a file or of the directory of
 * drop-ins; 0: there is none. A sealed memfd, close-on-exec, or -errno.
 */
MUST_USE int config_bundle_make(int dir_fd, const char *path, bool may_be_missing,
				const char *provider, usec_t *ret_changed_at, struct err *err);
