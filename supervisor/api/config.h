/*
 * The worker's settings: one sealed struct, checked again here because everything after relies on
 * its texts being terminated and its counts being in range.
 */
#pragma once

#include "base/auto.h"
#include "base/err.h"

#include "sandboxd/worker.h"

/* It has secrets: overwritten, and freed. Accepts NULL, returns NULL. */
struct api_config *config_free(struct api_config *config);
DEFINE_AUTO(struct api_config *, config_free);
/* Read and check. *ret_config goes to config_free. 0; -EBADMSG; -errno. */
MUST_USE int config_read(int fd, struct api_config **ret_config, struct err *err);
/* Pure. 0 or -EBADMSG. */
MUST_USE int config_check(const struct api_config *config, struct err *err);
