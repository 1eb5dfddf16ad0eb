/*
 * Theory. An id is {generation, slot}. A slot's generation starts at 1 and grows when its object is
 * removed, so an id that somebody kept over a turn of a loop names its own object or nothing. A
 * slot whose generation would wrap is retired: it is never on the free list again, which costs one
 * slot after four thousand million objects in it.
 *
 * Free slots are a stack through next_free: the table stays dense, and its low part stays warm.
 */
#include "base/slots.h"

#include <errno.h>

#include "base/err.h"

#define NO_SLOT UINT32_MAX

int slots_init(struct slots *slots, uint32_t max)
{
	ASSERT(max > 0 && max < NO_SLOT);
	*slots = (struct slots){.max = max, .first_free = NO_SLOT};
	return 0;
}

void slots_done(struct slots *slots)
{
	ASSERT(slots->n_used == 0);
	free(slots->slot);
	*slots = (struct slots){.max = slots->max, .first_free = NO_SLOT};
}

static int grow(struct slots *slots)
{
	uint32_t n_old = slots->n_allocated;
	uint32_t n_new = n_old < 8 ? 8 : n_old;
	struct slot *slot;

	if (n_old == slots->max)
		return -ENOSPC;
	if (n_new > slots->max - n_old)
		n_new = slots->max - n_old;
	n_new += n_old;
	slot = reallocarray(slots->slot, n_new, sizeof(*slot));
	if (!slot)
		return -ENOMEM;
	slots->slot = slot;
	slots->n_allocated = n_new;
	for (uint32_t i = n_new; i > n_old; i--) {
		slot[i - 1] = (struct slot){.generation = 1, .next_free = slots->first_free};
		slots->first_free = i - 1;
	}
	return 0;
}

int slots_add(struct slots *slots, void *object, uint64_t *ret_id)
{
	uint32_t at;

	ASSERT(object);
	if (slots->first_free == NO_SLOT) {
		int r = grow(slots);

		if (r < 0)
			return r;
	}
	at = slots->first_free;
	slots->first_free = slots->slot[at].next_free;
	slots->slot[at].next_free = NO_SLOT;
	slots->slot[at].object = object;
	slots->n_used++;
	*ret_id = (uint64_t)slots->slot[at].generation << 32 | at;
	return 0;
}

static struct slot *find(const struct slots *slots, uint64_t id)
{
	uint32_t at = (uint32_t)id;
	struct slot *slot;

	if (at >= slots->n_allocated)
		return NULL;
	slot = &slots->slot[at];
	if (!slot->object || slot->generation != (uint32_t)(id >> 32))
		return NULL;
	return slot;
}

void *slots_get(const struct slots *slots, uint64_t id)
{
	struct slot *slot = find(slots, id);

	return slot ? slot->object : NULL;
}

void slots_remove(struct slots *slots, uint64_t id)
{
	struct slot *slot = find(slots, id);

	ASSERT(slot);
	slot->object = NULL;
	slots->n_used--;
	slot->generation++;
	if (slot->generation == 0)
		return; /* retired */
	slot->next_free = slots->first_free;
	slots->first_free = (uint32_t)id;
}

void *slots_next(const struct slots *slots, uint32_t *at)
{
	while (*at < slots->n_allocated) {
		void *object = slots->slot[*at].object;

		(*at)++;
		if (object)
			return object;
	}
	return NULL;
}
