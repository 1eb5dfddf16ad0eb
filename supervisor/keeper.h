/*
 * The first process where there is no systemd.
 */
#pragma once

#include "base/auto.h"
#include "base/err.h"

#include "supervisor/options.h"

/* Runs until the service has ended. The exit status, or -errno when it could not start. */
MUST_USE int keeper_run(const struct options *options, int argc, char *const argv[],
			struct err *err);
