/*
 * What is to go, whole trees too, with no recursion and few descriptors: a folder is renamed into
 * the trash, and when that is emptied the folders in it come to lie beside it.
 */
#pragma once

#include <stdint.h>

#include "base/auto.h"

#include "jail/template/bounds.h"

struct trash {
	int top_fd; /* not owned */
	int fd;     /* of TRASH_FOLDER in it */
	uint64_t next;
	struct bounds *bounds; /* loses what goes; NULL: nothing was counted */
};
#define TRASH_NULL ((struct trash){.top_fd = -1, .fd = -1})

/* Made in the folder top_fd, or found there. 0 or -errno. */
MUST_USE int trash_open(struct trash *trash, int top_fd, struct bounds *bounds);
/* The folder itself is the trash, with all that is in it: nothing is made, as there may be no room
 * for it. 0 or -errno. */
MUST_USE int trash_adopt(struct trash *trash, int folder_fd);
/* Take the name away: at once, or into the trash. 0, also where nothing has it; -errno. */
MUST_USE int trash_put(struct trash *trash, int folder_fd, const char *name);
/* All that is in the folder. */
MUST_USE int trash_put_children(struct trash *trash, int folder_fd);
MUST_USE int trash_empty(struct trash *trash);
/* Remove the folder of the trash, which is empty. 0 or -errno. */
MUST_USE int trash_remove(struct trash *trash);
void trash_done(struct trash *trash);
