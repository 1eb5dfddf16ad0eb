/*
 * What is still to be looked at: a stack of paths, so that the depth of a tree costs memory and
 * neither stack nor descriptors.
 */
#pragma once

#include <stddef.h>

#include "base/auto.h"

struct walk {
	char **path; /* owned, each */
	size_t n;
	size_t allocated;
};

MUST_USE int walk_push(struct walk *walk, const char *path); /* 0 or -ENOMEM */
char *walk_pop(struct walk *walk);                           /* the caller's; NULL: no more */
/* Push what is in the folder, so that it comes in the order of its names. folder_fd stays the
 * caller's. 0; -ENAMETOOLONG: a path of it is; -errno. */
MUST_USE int walk_push_folder(struct walk *walk, const char *path, int folder_fd);
void walk_done(struct walk *walk);
