/*
 * The audit's lines on disk: one file that is only appended to, and older ones beside it.
 *
 *   audit.jsonl      being written
 *   audit.jsonl.1    the one before it, up to .AUDIT_OLD_FILES, the oldest
 *
 * A line is there as a whole or not at all. It outlives every process of ours at once, and a loss
 * of power once audit_file_sync was called; of one that was not, a part may be left, on a line of
 * its own.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/auto.h"
#include "base/err.h"

struct audit_file {
	int dir_fd; /* not owned */
	int fd;
	uint64_t size;
	uint64_t max_bytes;
	bool unsynced;
};
#define AUDIT_FILE_NULL ((struct audit_file){.dir_fd = -1, .fd = -1})

/* dir_fd stays the caller's. max_bytes: of one file. On failure append tries to open it again. */
MUST_USE int audit_file_open(struct audit_file *file, int dir_fd, uint64_t max_bytes);
/* line: with its newline. 0 or -errno: nothing was written. */
MUST_USE int audit_file_append(struct audit_file *file, const char *line, size_t size);
/* What was written so far is on the disk. A file that somebody removed is opened anew. */
MUST_USE int audit_file_sync(struct audit_file *file);
void audit_file_close(struct audit_file *file);
