/*
 * The state directory: the instance's id, kept over restarts, and the api worker's own directory.
 */
#pragma once

#include <stdint.h>

#include "base/auto.h"
#include "base/err.h"

#define INSTANCE_ID_BYTES 9 /* 8 hexadecimal digits and the NUL */

struct instance {
	char id[INSTANCE_ID_BYTES];
	int state_fd; /* the state directory */
	int id_fd;    /* its file `instance`; holds the lock */
	int lock_fd;  /* of the runtime directory; -1: not ours */
};
#define INSTANCE_NULL ((struct instance){.state_fd = -1, .id_fd = -1, .lock_fd = -1})

/* Open or make the state directory, take its lock, read or make the id. -EAGAIN: another supervisor
 * runs on it, and did not end within three seconds. Runs as root in the host's mount namespace. */
MUST_USE int instance_open(struct instance *instance, const char *state_dir, struct err *err);
/* The api worker's directory (0700), owned by worker_id. No worker may be alive. The descriptor or
 * -errno. */
MUST_USE int instance_open_api_dir(const struct instance *instance, uint32_t worker_id,
				   struct err *err);
/* Nobody else works on the sessions of this runtime directory. Errors as above. */
MUST_USE int instance_lock_runtime(struct instance *instance, int runtime_fd, struct err *err);
/* Nothing is left there: remove the lock's file as well. instance_done leaves it. */
void instance_unlock_runtime(struct instance *instance, int runtime_fd);
void instance_done(struct instance *instance);
