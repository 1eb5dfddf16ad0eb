/*
 * The layer that covers what of the host's /usr no session may see.
 */
#pragma once

#include <stdint.h>

#include "base/err.h"

struct usr_mask {
	uint32_t n_entries; /* looked at */
	uint32_t n_sockets; /* also fifos */
	uint32_t n_devices;
	uint32_t n_setuid; /* also setgid */
	uint32_t n_private;
};

/*
 * Look through usr_fd (a detached clone of the host's /usr) once and put a whiteout into mask_fd
 * for each socket, fifo, device, setuid or setgid file and for what others may not read; and for
 * the directories that are hidden as a whole.
 */
MUST_USE int usr_mask_build(int usr_fd, int mask_fd, struct usr_mask *ret_mask, struct err *err);
