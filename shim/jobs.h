/*
 * The jobs of a session together: what the api worker asks of them, and their timer.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/auto.h"

#include "sandboxd/wire.h"

struct shim;

MUST_USE int jobs_init(struct shim *shim);

/* Frames of the api worker. 0, or -EBADMSG: the connection is to be dropped. */
MUST_USE int jobs_exec(struct shim *shim, uint32_t id, const uint8_t *payload, size_t size);
MUST_USE int jobs_put(struct shim *shim, uint32_t id, const uint8_t *payload, size_t size);
MUST_USE int jobs_input(struct shim *shim, uint32_t id, uint16_t type, const uint8_t *data,
			size_t size);
MUST_USE int jobs_input_end(struct shim *shim, uint32_t id, uint16_t type);
void jobs_cancel(struct shim *shim, uint32_t id);
MUST_USE int jobs_signal(struct shim *shim, uint32_t id, const struct wire_signal *signal);
void jobs_resize(struct shim *shim, uint32_t id, const struct wire_size *size);
/* The session is about to be frozen, or was thawed; again is nothing. */
void jobs_pause(struct shim *shim, bool is_paused);
MUST_USE int jobs_forget(struct shim *shim, uint32_t id);
/* Another api worker is there: nobody waits for what jail tools do for the one before, and they may
 * be frozen with the commands. */
void jobs_leave_tools(struct shim *shim);
void jobs_ack(struct shim *shim, uint64_t acked);

/* Compute the next timer of all jobs. */
void jobs_arm(struct shim *shim);
