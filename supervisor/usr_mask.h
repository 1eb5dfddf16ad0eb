/*
 * The layer that covers what of the host's /usr no session may see.
 */
#pragma once

#include <stdint.h>

#include "base/clock.h"
#include "base/err.h"

#include "supervisor/usr_copies.h"

struct usr_mask {
	uint32_t n_entries; /* looked at */
	uint32_t n_sockets; /* also fifos */
	uint32_t n_devices;
	uint32_t n_setuid; /* also setgid */
	uint32_t n_private;
	struct usr_copies copies; /* made by the same process */
};

/* A scan in a process of its own, so that the start need not wait for it. */
struct usr_mask_job {
	int pid_fd;              /* -1: none */
	struct usr_mask *result; /* shared with the child; valid when it has ended with status 0 */
	usec_t begun_at;
};
#define USR_MASK_JOB_NULL ((struct usr_mask_job){.pid_fd = -1})

/* Begin; the copies of usr_copies.h go below copies_fd. The descriptors stay the caller's. */
MUST_USE int usr_mask_begin(int usr_fd, int mask_fd, int copies_fd, struct usr_mask_job *ret_job,
			    struct err *err);
/* Wait for the end and take the result. Called once. */
MUST_USE int usr_mask_end(struct usr_mask_job *job, struct usr_mask *ret_mask, struct err *err);
/* End it without its result. Accepts one that is none. */
void usr_mask_cancel(struct usr_mask_job *job);

/*
 * Look through usr_fd (a detached clone of the host's /usr) once and put a whiteout into mask_fd
 * for each socket, fifo, device, setuid or setgid file and for what others may not read; and for
 * the directories that are hidden as a whole.
 */
MUST_USE int usr_mask_build(int usr_fd, int mask_fd, struct usr_mask *ret_mask, struct err *err);
