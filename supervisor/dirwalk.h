/*
 * Visit every entry below a directory, without recursion, without following a link and without
 * leaving the file system. Start-up only: it allocates.
 */
#pragma once

#include "base/auto.h"

#define DIRWALK_PATH_BYTES 4096

struct dirwalk_entry {
	int dir_fd;       /* the directory that holds it */
	const char *path; /* of that directory, relative to the start; "" for the start itself */
	const char *name;
	unsigned char type; /* DT_… */
};

/* Return 1 to go into a directory, 0 to go on, -errno to stop. */
typedef int (*dirwalk_visit)(void *userdata, const struct dirwalk_entry *entry);

/* 0; what visit returned; or -errno. A directory that vanished meanwhile is passed over. */
MUST_USE int dirwalk(int root_fd, dirwalk_visit visit, void *userdata);

/* path/name, or name where path is "". 0 or -ENAMETOOLONG. */
MUST_USE int dirwalk_join(char dest[DIRWALK_PATH_BYTES], const char *path, const char *name);
