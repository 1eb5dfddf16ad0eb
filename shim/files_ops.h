/*
 * Operations of the file helper below the folders of a session (WIRE_FILE).
 */
#pragma once

#include "base/frame.h"

#include "shim/files.h"

struct files_operation {
	const struct frame_file *file;
	int root_fd;
	int to_root_fd;
	int socket_fd; /* to pid 1 */
	int out_fd;    /* for what is found */
	int in_fd;     /* WIRE_FILE_PUT: its bytes; else -1 */
};

/* A put that does not come to its end, and any failure but that of what is removed halfway,
 * or was moved to the other root and is still at its old place, changes nothing (folders on the way
 * aside). */
void files_operate(const struct files_operation *operation, struct files_result *ret_result);
