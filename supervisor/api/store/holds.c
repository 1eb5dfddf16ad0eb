#include "supervisor/api/store/holds.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define HOLDS_FIRST 64

/* Where the session is, or would be. */
static size_t find(const struct holds *holds, const struct id *session, bool *ret_found)
{
	size_t low = 0;
	size_t high = holds->n;

	*ret_found = false;
	while (low < high) {
		size_t at = low + (high - low) / 2;
		int order = memcmp(holds->hold[at].session.bytes, session->bytes, ID_BYTES);

		if (order == 0) {
			*ret_found = true;
			return at;
		}
		if (order < 0)
			low = at + 1;
		else
			high = at;
	}
	return low;
}

static int grow(struct holds *holds)
{
	size_t max = holds->max ? holds->max * 2 : HOLDS_FIRST;
	struct hold *hold = reallocarray(holds->hold, max, sizeof(*hold));

	if (!hold)
		return -ENOMEM;
	holds->hold = hold;
	holds->max = max;
	return 0;
}

int holds_set(struct holds *holds, const struct id *session, int64_t fence)
{
	bool found;
	size_t at = find(holds, session, &found);
	int r = found || holds->n < holds->max ? 0 : grow(holds);

	if (r < 0)
		return r;
	if (!found) {
		memmove(&holds->hold[at + 1], &holds->hold[at],
			(holds->n - at) * sizeof(*holds->hold));
		holds->n++;
	}
	holds->hold[at] = (struct hold){.session = *session, .fence = fence};
	return 0;
}

void holds_drop(struct holds *holds, const struct id *session)
{
	bool found;
	size_t at = find(holds, session, &found);

	if (!found)
		return;
	holds->n--;
	memmove(&holds->hold[at], &holds->hold[at + 1], (holds->n - at) * sizeof(*holds->hold));
}

int64_t holds_fence(const struct holds *holds, const struct id *session)
{
	bool found;
	size_t at = find(holds, session, &found);

	return found ? holds->hold[at].fence : FENCE_ANY;
}

void holds_done(struct holds *holds)
{
	free(holds->hold);
	*holds = (struct holds){0};
}
