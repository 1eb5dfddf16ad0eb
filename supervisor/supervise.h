/*
 * The supervisor as a whole: its start-up stages, its loop, its end.
 */
#pragma once

#include "base/auto.h"
#include "base/err.h"

#include "supervisor/options.h"

/* Runs until the service has ended. 0, or -errno with the stage's error in err. */
MUST_USE int supervise_run(const struct options *options, struct err *err);
