/*
 * Copies of those files of /usr that nearly every process maps, in a few sets.
 *
 * Theory. The kernel has one lock for all mappings of a file, taken by each fork, exec and exit of
 * whoever maps it. Where thousands of processes of one session want libc's, each that gets it must
 * first be given a processor out of that session's share, and all others wait in the same line. So
 * sessions are dealt out over sets: those of another set use other files.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* Each costs some 13 MB. Their folders are "1" to "4": a set is named by its number, 0 is none. */
#define USR_COPIES_SETS 4
#define USR_COPIES_MAX  16

struct usr_copies {
	uint32_t n; /* files; 0: there are no sets */
	struct usr_copies_file {
		char path[64]; /* below /usr, where it is no link */
		uint64_t ino;
		uint64_t size;
		int64_t changed_s; /* ctime */
		uint32_t changed_ns;
	} file[USR_COPIES_MAX];
};

/* Copy from usr_fd into the sets below copies_fd. What is missing is passed over. After an error
 * the sets are not to be used. */
MUST_USE int usr_copies_build(int usr_fd, int copies_fd, struct usr_copies *ret_copies,
			      struct err *err);

/* Are the files below dir still the ones that were copied? A package may be upgraded meanwhile:
 * sessions that are launched then take the host's. */
bool usr_copies_current(const struct usr_copies *copies, const char *dir);

/* How many sessions have which set. */
struct usr_copies_use {
	uint32_t n[USR_COPIES_SETS + 1];
};
/* The least used set, which has one more user until it is given back. */
uint8_t usr_copies_take(struct usr_copies_use *use);
void usr_copies_give(struct usr_copies_use *use, uint8_t set); /* accepts 0 */
