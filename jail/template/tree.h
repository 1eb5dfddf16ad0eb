/*
 * The root that is made: names in it are only ever looked up one by one, and none through a link.
 * What is there already at a name goes when another thing comes, as layers over each other want it;
 * a folder over a folder is the same with other attributes.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include "base/auto.h"

#include "jail/template/bounds.h"
#include "jail/template/trash.h"

struct tree {
	int root_fd; /* not owned */
	struct bounds *bounds;
	struct trash *trash;
	/* The folder that was last worked in, so that the next name in it costs no walk. What is
	 * made in a folder changes its time, so that is put back when it is left. */
	int folder_fd; /* -1: none */
	struct timespec folder_mtime;
	char folder[TEMPLATE_PATH_MAX + 1]; /* "": the root */
};
void tree_init(struct tree *tree, int root_fd, struct bounds *bounds, struct trash *trash);
void tree_done(struct tree *tree);

struct tree_attributes {
	uint32_t mode;
	uint32_t uid;
	uint32_t gid;
	struct timespec mtime;
};
/* Of what the source says: ids and bits that no template has are changed, and counted. */
struct tree_attributes tree_attributes(struct bounds *bounds, uint32_t mode, int64_t uid,
				       int64_t gid, struct timespec mtime);

/* path of all: as name_normalize gives it. 0, or -1 (bounds_fail). */
MUST_USE int tree_make_folder(struct tree *tree, const char *path,
			      const struct tree_attributes *attributes);
MUST_USE int tree_make_link(struct tree *tree, const char *path, const char *target,
			    const struct tree_attributes *attributes);
MUST_USE int tree_make_hard_link(struct tree *tree, const char *path, const char *target);
/* An empty file, counted with `size`, whose descriptor is the caller's until tree_end_file. -1: as
 * above. */
MUST_USE int tree_make_file(struct tree *tree, const char *path, uint64_t size);
MUST_USE int tree_end_file(struct tree *tree, int fd, const char *path, uint64_t size,
			   const struct tree_attributes *attributes);
/* Of a file that is open. Other than user.* are only counted. */
MUST_USE int tree_set_xattr(struct tree *tree, int fd, const char *path, const char *name,
			    const void *value, size_t size);
/* What is at the path goes; or all that is in that folder. Nothing there is no error. */
MUST_USE int tree_remove(struct tree *tree, const char *path);
MUST_USE int tree_remove_children(struct tree *tree, const char *path);
/* When everything is made: the folders that a session mounts something on. */
MUST_USE int tree_finish(struct tree *tree);
