/*
 * Id -> object, open addressing. The ids are random, so their bytes are the hash; an attacker does
 * not choose them.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/auto.h"
#include "base/id.h"

struct idmap_entry {
	struct id id;
	void *object; /* NULL: free */
};

struct idmap {
	struct idmap_entry *entry; /* owned */
	size_t n_slots;            /* a power of two, or 0 */
	size_t n_used;
};
#define IDMAP_NULL ((struct idmap){0})

void idmap_done(struct idmap *map);
MUST_USE int idmap_add(struct idmap *map, const struct id *id, void *object); /* -EEXIST, -ENOMEM */
void *idmap_get(const struct idmap *map, const struct id *id);                /* NULL: not there */
void idmap_remove(struct idmap *map, const struct id *id);
