#include "supervisor/api/session/idmap.h"

#include <errno.h>
#include <stdlib.h>

#include "base/err.h"

void idmap_done(struct idmap *map)
{
	free(map->entry);
	*map = IDMAP_NULL;
}

static size_t idmap_home(const struct idmap *map, const struct id *id)
{
	return id_hash(id) & (map->n_slots - 1);
}

/* The entry of id, or the free one where it would be. The map has at least one free slot. */
static struct idmap_entry *idmap_slot(const struct idmap *map, const struct id *id)
{
	size_t at = idmap_home(map, id);

	while (map->entry[at].object && !id_equal(&map->entry[at].id, id))
		at = (at + 1) & (map->n_slots - 1);
	return &map->entry[at];
}

static int idmap_grow(struct idmap *map)
{
	struct idmap bigger = {.n_slots = map->n_slots ? map->n_slots * 2 : 16};

	bigger.entry = calloc(bigger.n_slots, sizeof(*bigger.entry));
	if (!bigger.entry)
		return -ENOMEM;
	for (size_t i = 0; i < map->n_slots; i++)
		if (map->entry[i].object)
			*idmap_slot(&bigger, &map->entry[i].id) = map->entry[i];
	bigger.n_used = map->n_used;
	free(map->entry);
	*map = bigger;
	return 0;
}

int idmap_add(struct idmap *map, const struct id *id, void *object)
{
	struct idmap_entry *entry;
	int r;

	ASSERT(object);
	if (idmap_get(map, id))
		return -EEXIST;
	if ((map->n_used + 1) * 2 > map->n_slots) {
		r = idmap_grow(map);
		if (r < 0)
			return r;
	}
	entry = idmap_slot(map, id);
	entry->id = *id;
	entry->object = object;
	map->n_used++;
	return 0;
}

void *idmap_get(const struct idmap *map, const struct id *id)
{
	if (map->n_slots == 0)
		return NULL;
	return idmap_slot(map, id)->object;
}

/* Backward shift: a later entry that could not be at home moves into the hole, so that no search
 * stops early and no marker of deleted entries piles up. */
void idmap_remove(struct idmap *map, const struct id *id)
{
	struct idmap_entry *entry;
	size_t mask = map->n_slots - 1;
	size_t hole;

	if (map->n_slots == 0)
		return;
	entry = idmap_slot(map, id);
	if (!entry->object)
		return;
	hole = (size_t)(entry - map->entry);
	for (size_t at = (hole + 1) & mask; map->entry[at].object; at = (at + 1) & mask) {
		size_t home = idmap_home(map, &map->entry[at].id);

		if (((at - home) & mask) >= ((at - hole) & mask)) {
			map->entry[hole] = map->entry[at];
			hole = at;
		}
	}
	map->entry[hole].object = NULL;
	map->n_used--;
}
