#include "jail/archive/hard_links.h"

#include <errno.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>

struct hard_link {
	dev_t dev;
	ino_t ino;
	char name[];
};

static int compare(const void *a, const void *b)
{
	const struct hard_link *left = a;
	const struct hard_link *right = b;

	if (left->dev != right->dev)
		return left->dev < right->dev ? -1 : 1;
	if (left->ino != right->ino)
		return left->ino < right->ino ? -1 : 1;
	return 0;
}

int hard_links_find(struct hard_links *links, const struct stat *st, const char *name,
		    const char **ret_name)
{
	size_t size = strlen(name) + 1;
	struct hard_link *link = malloc(sizeof(*link) + size);
	struct hard_link *const *found;

	*ret_name = NULL;
	if (!link)
		return -ENOMEM;
	link->dev = st->st_dev;
	link->ino = st->st_ino;
	memcpy(link->name, name, size);
	found = tsearch(link, &links->tree, compare);
	if (found && *found == link)
		return 0;
	free(link);
	if (!found)
		return -ENOMEM;
	*ret_name = (*found)->name;
	return 0;
}

void hard_links_done(struct hard_links *links)
{
	tdestroy(links->tree, free);
	links->tree = NULL;
}
