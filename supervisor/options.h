/*
 * The command line of sandboxd.
 */
#pragma once

#include <stdbool.h>

#include "base/auto.h"
#include "base/err.h"
#include "base/log.h"

#define OPTIONS_E_DONE 1 /* --help or --version was printed: leave with status 0 */

struct options {
	const char *runtime_dir;
	const char *state_dir;
	const char *libexec_dir;
	const char *cgroup_parent;  /* NULL: the group that the supervisor was started in */
	const char *config;         /* NULL: the default file, which may be missing */
	const char *log_level_text; /* NULL: the configuration says it */
	enum log_level log_level;
	bool supervisor; /* run as the supervisor although no service manager says so */
};

/* Texts stay argv's. 0, OPTIONS_E_DONE, or -EINVAL with the option named in err. */
MUST_USE int options_parse(struct options *ret_options, int argc, char *const argv[],
			   struct err *err);

#define OPTIONS_DEFAULT_CONFIG "/etc/sandboxd/sandboxd.conf"
