/*
 * SESSION:PATH, as the words of cp, changes and git have it.
 */
#pragma once

#include <stdbool.h>

#include "ctl/client.h"
#include "ctl/options.h"

struct place {
	char session[128];
	const char *path; /* behind the colon; may be "" */
};

/* False: it is a path of this host; one with a slash before the colon is that. */
bool place_split(const char *word, struct place *ret_place);

/* The id in place of a short id or a name. EXIT_OK, or the exit status with a message printed. */
int place_resolve(struct client *client, const struct options *options, struct place *place);
