#include "supervisor/api/janitor/plan.h"

#include <stdbool.h>

/* The heap's order is only that of its top, so the earliest are kept by insertion: victims are few,
 * sessions may be thousands. */
size_t janitor_plan_expired(const struct registry *registry, usec_t now,
			    struct janitor_victim *ret_victims, size_t max)
{
	size_t n = 0;

	for (size_t i = 0; max > 0 && i < registry->n_heap; i++) {
		const struct session *session = registry->heap[i];
		size_t at;

		if (now < session->expires_at || session->state == SESSION_STATE_CLOSING ||
		    session->state == SESSION_STATE_CLOSED)
			continue;
		if (n == max && ret_victims[n - 1].expires_at <= session->expires_at)
			continue;
		at = n < max ? n++ : n - 1;
		for (; at > 0 && ret_victims[at - 1].expires_at > session->expires_at; at--)
			ret_victims[at] = ret_victims[at - 1];
		ret_victims[at] = (struct janitor_victim){
			.session = session->id,
			.reason = SESSION_REASON_EXPIRED,
			.expires_at = session->expires_at,
		};
	}
	return n;
}

usec_t janitor_plan_next(const struct registry *registry)
{
	const struct session *session = registry_next_deadline(registry);

	return session ? session->expires_at : USEC_NEVER;
}

uint32_t janitor_plan_warning(usec_t expires_at, usec_t now, uint32_t told)
{
	static const uint32_t minutes[] = {1, 5};

	if (now >= expires_at)
		return 0; /* its end says so */
	for (size_t i = 0; i < ARRAY_SIZE(minutes); i++)
		if (expires_at - now <= minutes[i] * USEC_PER_MINUTE)
			return told == 0 || told > minutes[i] ? minutes[i] : 0;
	return 0;
}

enum janitor_start janitor_plan_start(const struct janitor_row *row, bool live, usec_t now)
{
	ASSERT(row || live);
	if (!row)
		return JANITOR_START_KILL;
	if (now >= row->expires_at)
		return live ? JANITOR_START_KILL : JANITOR_START_CLOSE_ROW;
	if (!live)
		return JANITOR_START_DORMANT;
	return row->restoring ? JANITOR_START_DROP_TREE : JANITOR_START_ADOPT;
}

static usec_t before(usec_t now, uint64_t keep_s)
{
	if (keep_s > now / USEC_PER_SEC)
		return 0;
	return now - keep_s * USEC_PER_SEC;
}

struct janitor_retention janitor_plan_retention(usec_t now, uint64_t frames_keep_s,
						uint64_t rows_keep_s, uint64_t bodies_keep_s)
{
	return (struct janitor_retention){
		.frames_before = before(now, frames_keep_s),
		.rows_before = before(now, rows_keep_s),
		.bodies_before = before(now, bodies_keep_s),
	};
}
