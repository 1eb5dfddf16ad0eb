/*
 * Whole folders, for the file helper.
 */
#pragma once

#include "base/auto.h"

/* All bytes from one file to another, from where they stand. 0 or -errno. */
MUST_USE int files_tree_copy_bytes(int from_fd, int to_fd);
/* The folder `name` and all in it. No link is followed. 0, or -errno and some of it is left. */
MUST_USE int files_tree_remove(int dir_fd, const char *name);
/* Regular files, folders and links of the folder from_fd, which is taken, into a new one. -ENXIO:
 * there is something else; -ENAMETOOLONG: it is deeper than 64 folders. On -errno some of it is
 * there. */
MUST_USE int files_tree_copy(int from_fd, int to_fd, const char *to);
