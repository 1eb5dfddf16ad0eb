#include "supervisor/api/session/suspension.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/json.h"
#include "base/str.h"

static const char *const texts[] = {
	[SUSPENSION_RUNNING] = "running",
	[SUSPENSION_SUSPENDING] = "suspending",
	[SUSPENSION_SUSPENDED] = "suspended",
	[SUSPENSION_RESUMING] = "running",
};
_Static_assert(ARRAY_SIZE(texts) == SUSPENSION_MAX_, "one text per state");

void suspension_done(struct suspension *suspension)
{
	json_decref(suspension->snapshot);
	suspension->snapshot = NULL;
}

const char *suspension_text(enum suspension_state state)
{
	ASSERT((size_t)state < ARRAY_SIZE(texts));
	return texts[state];
}

const char *suspension_resumed_text(enum suspension_resumed resumed)
{
	switch (resumed) {
	case SUSPENSION_RESUMED_MEMORY:
		return "memory";
	case SUSPENSION_RESUMED_SNAPSHOT:
		return "snapshot";
	case SUSPENSION_RESUMED_NONE:
	case SUSPENSION_RESUMED_MAX_:
		break;
	}
	return NULL;
}

void suspension_begin(struct suspension *suspension, usec_t now, usec_t expires_at, bool is_wanted)
{
	suspension->state = SUSPENSION_SUSPENDING;
	suspension->generation++;
	suspension->since = now;
	suspension->ttl_left = expires_at > now ? expires_at - now : 0;
	suspension->memory_bytes = 0;
	suspension->is_wanted = is_wanted;
}

usec_t suspension_expiry(const struct suspension *suspension, usec_t now)
{
	return clock_add(now, suspension->ttl_left);
}

static uint64_t number_of(const json_t *row, const char *name)
{
	json_int_t number = json_integer_value(json_object_get(row, name));

	return number > 0 ? (uint64_t)number : 0;
}

void suspension_read(const json_t *row, struct suspension *ret_suspension)
{
	const char *status = json_string_value(json_object_get(row, "status"));
	const char *snapshot = json_string_value(json_object_get(row, "snapshot_ref"));
	const char *reason;
	struct suspension suspension = {
		.generation = number_of(row, "generation"),
		.durable_generation = number_of(row, "durable_generation"),
		.is_wanted = number_of(row, "durable") != 0,
		.since = number_of(row, "since_us"),
		.ttl_left = number_of(row, "ttl_left_us"),
	};

	/* What was begun counts: where its tree lives it is frozen now, else nothing of it runs. */
	if (status && (str_equal(status, texts[SUSPENSION_SUSPENDED]) ||
		       str_equal(status, texts[SUSPENSION_SUSPENDING])))
		suspension.state = SUSPENSION_SUSPENDED;
	suspension.stored_generation = suspension.durable_generation;
	if (snapshot && doc_parse(snapshot, strlen(snapshot), &suspension.snapshot, &reason) < 0)
		suspension.snapshot = NULL;
	*ret_suspension = suspension;
}
