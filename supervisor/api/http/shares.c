#include "supervisor/api/http/shares.h"

#include <stdint.h>
#include <stdlib.h>

#include "base/err.h"
#include "base/str.h"

#define HALF   2
#define EIGHTH 8

/* FNV-1a, as in tenants.c: as many users as there are requests. */
static struct list *bucket_of(struct shares *shares, const char *user)
{
	uint32_t hash = 2166136261u;

	for (; *user; user++)
		hash = (hash ^ (uint8_t)*user) * 16777619u;
	return &shares->bucket[hash & (SHARES_N_BUCKETS - 1)];
}

void shares_init(struct shares *shares)
{
	for (size_t i = 0; i < SHARES_N_BUCKETS; i++)
		list_init(&shares->bucket[i]);
}

struct share *shares_get(struct shares *shares, const char *user)
{
	struct list *bucket = bucket_of(shares, user);
	struct share *share;

	LIST_FOR_EACH (link, bucket) {
		share = LIST_ENTRY(link, struct share, link);
		if (str_equal(share->user, user))
			return share_ref(share);
	}
	share = user[0] != '\0' ? calloc(1, sizeof(*share)) : NULL;
	if (!share)
		return NULL;
	if (str_copy(share->user, sizeof(share->user), user) < 0) {
		free(share);
		return NULL;
	}
	share->n_holders = 1;
	list_init(&share->turn_link);
	list_init(&share->waiting);
	list_init(&share->counted_link);
	list_append(bucket, &share->link);
	return share;
}

struct share *share_ref(struct share *share)
{
	if (share)
		share->n_holders++;
	return share;
}

struct share *share_put(struct share *share)
{
	if (!share || --share->n_holders > 0)
		return NULL;
	for (size_t i = 0; i < SHARE_OF_MAX_; i++)
		ASSERT(share->used[i] == 0);
	ASSERT(list_empty(&share->waiting));
	list_remove(&share->link);
	free(share);
	return NULL;
}

bool share_is_scarce(size_t total, size_t max)
{
	return total > max / HALF;
}

bool share_allows(const struct share *share, enum share_of what, size_t total, size_t max, size_t n)
{
	if (total > max || n > max - total)
		return false;
	return !share || !share_is_scarce(total + n, max) || share->used[what] + n <= max / EIGHTH;
}

bool share_take(struct share *share, enum share_of what, size_t *total, size_t max, size_t n)
{
	if (!share_allows(share, what, *total, max, n))
		return false;
	*total += n;
	if (share)
		share->used[what] += n;
	return true;
}

bool share_exceeds(size_t own, size_t total, size_t max)
{
	return total > max || (share_is_scarce(total, max) && own > max / EIGHTH);
}

void share_give(struct share *share, enum share_of what, size_t *total, size_t n)
{
	ASSERT(*total >= n && (!share || share->used[what] >= n));
	*total -= n;
	if (share)
		share->used[what] -= n;
}
