/*
 * Whole folders, for the file helper.
 */
#pragma once

#include "base/auto.h"

/* A name for what is not complete yet, or not gone yet. 0 or -errno. */
#define FILES_NAME_MAX_BYTES 256
MUST_USE int files_temporary_name(char name[FILES_NAME_MAX_BYTES]);
/* What copies looks now and then whether pid 1, at the other end of socket_fd, has cancelled it or
 * is gone: -ECANCELED. socket_fd -1: it does not. */

/* All bytes from one file to another, from where they stand. 0 or -errno. */
MUST_USE int files_tree_copy_bytes(int from_fd, int to_fd, int socket_fd);
/* What `name` is, with all in it where that is a folder. No link is followed. 0, or -errno and some
 * of it is left. */
MUST_USE int files_tree_remove(int dir_fd, const char *name);
/* The same where folders in it are read-only, too: what is not wanted, or was moved. */
MUST_USE int files_tree_discard(int dir_fd, const char *name);
/* Regular files, folders and links of the folder from_fd, which is taken, into a new one. -ENXIO:
 * there is something else; -ENAMETOOLONG: it is deeper than 64 folders. On -errno some of it is
 * there. */
MUST_USE int files_tree_copy(int from_fd, int to_fd, const char *to, int socket_fd);
/* What `name` is, a link itself, under a new name. As files_tree_copy. */
MUST_USE int files_tree_copy_item(int from_fd, const char *name, int to_fd, const char *to);
