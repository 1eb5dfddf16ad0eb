/*
 * Files that were written under their first name, by inode.
 */
#pragma once

#include <sys/stat.h>

#include "base/auto.h"

struct hard_links {
	void *tree; /* of tsearch(3) */
};

/* *ret_name: the name that it has already, owned by the table, or NULL, and then it has this one
 * from now on. 0 or -ENOMEM. */
MUST_USE int hard_links_find(struct hard_links *links, const struct stat *st, const char *name,
			     const char **ret_name);
void hard_links_done(struct hard_links *links);
