/*
 * The file helper: file work below the folders of a session, as `user`.
 */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "base/auto.h"

struct nursery_context;

/* Body of the process after the nursery forked it. fd: socket to pid 1, blocking. */
_Noreturn void files_main(const struct nursery_context *context, int fd);

struct files_result {
	uint32_t step; /* enum wire_step; 0: done */
	int32_t error_number;
};
/*
 * Put a file of exactly size_bytes, read from data_fd until its end, at `path` below dir_fd, with
 * missing folders made. Either the whole file is in place or nothing changed (folders aside).
 */
void files_put(int dir_fd, const char *path, mode_t mode, uint64_t size_bytes, int data_fd,
	       struct files_result *ret_result);

#define FILES_DIR_MODE 0755
