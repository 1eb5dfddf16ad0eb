/*
 * Theory. A plan comes from the api worker, which parses what strangers send and may be theirs; so
 * the supervisor asks of every field that it lies in a range in which nothing can go wrong. A new
 * field is a new row; the assertion below fails until every byte of the struct is covered.
 */
#include "base/plan.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "base/id.h"

#include "sandboxd/policy_image.h"

struct plan_field {
	const char *name;
	uint16_t offset;
	uint16_t size; /* 2, 4 or 8 */
	uint64_t min;
	uint64_t max;
};

#define FIELD(member, min, max)                                                                    \
	{                                                                                          \
#member, offsetof(struct plan, member), sizeof(((struct plan *)0)->member), (min), \
			(max)                                                                      \
	}
#define ONLY(member, value) FIELD(member, value, value)

/* clang-format off */
static const struct plan_field fields[] = {
	ONLY(magic, PLAN_MAGIC),
	ONLY(version, PLAN_VERSION),
	ONLY(size, sizeof(struct plan)),
	FIELD(profile, 0, POLICY_MAX_PROFILES - 1),
	FIELD(egress, 0, PLAN_EGRESS_MAX),
	FIELD(tmpfs_bytes, PLAN_TMPFS_MIN_BYTES, PLAN_TMPFS_MAX_BYTES),
	FIELD(tmpfs_inodes, PLAN_INODES_MIN, PLAN_INODES_MAX),
	FIELD(memory_bytes, PLAN_MEMORY_MIN_BYTES, PLAN_MEMORY_MAX_BYTES),
	FIELD(max_pids, PLAN_PIDS_MIN, PLAN_PIDS_MAX),
	FIELD(max_files, PLAN_FILES_MIN, PLAN_FILES_MAX),
	FIELD(cpu_pct, PLAN_CPU_MIN_PCT, PLAN_CPU_MAX_PCT),
	FIELD(cpu_weight, PLAN_CPU_WEIGHT_MIN, PLAN_CPU_WEIGHT_MAX),
	FIELD(max_ptys, 0, PLAN_PTYS_MAX),
	FIELD(flags, 0, PLAN_CANARY),
};
/* clang-format on */

/* Two u16, nine u32 and three u64 in the table; session and hash beside it. */
_Static_assert(ARRAY_SIZE(fields) == 14, "a field was added: count it below");
_Static_assert(sizeof(struct plan) == 2 * 2 + 9 * 4 + 3 * 8 + ID_BYTES + 32,
	       "every byte of a plan is in a row, the session id or the hash");

static uint64_t field_value(const struct plan *plan, const struct plan_field *field)
{
	const uint8_t *at = (const uint8_t *)plan + field->offset;
	uint16_t u16;
	uint32_t u32;
	uint64_t u64;

	switch (field->size) {
	case sizeof(u16):
		memcpy(&u16, at, sizeof(u16));
		return u16;
	case sizeof(u32):
		memcpy(&u32, at, sizeof(u32));
		return u32;
	default:
		ASSERT(field->size == sizeof(u64));
		memcpy(&u64, at, sizeof(u64));
		return u64;
	}
}

int plan_check(const struct plan *plan, struct err *err)
{
	struct id session;

	for (size_t i = 0; i < ARRAY_SIZE(fields); i++) {
		uint64_t value = field_value(plan, &fields[i]);

		if (value < fields[i].min || value > fields[i].max)
			return err_fail(err, -EINVAL, "plan", "%s is out of range", fields[i].name);
	}
	memcpy(session.bytes, plan->session, ID_BYTES);
	if (id_is_null(&session))
		return err_fail(err, -EINVAL, "plan", "session is null");
	/* tmpfs pages are charged as memory: above half, a full disk would be an OOM kill. */
	if (plan->tmpfs_bytes > plan->memory_bytes / 2)
		return err_fail(err, -EINVAL, "plan", "tmpfs_bytes is over half of memory_bytes");
	return 0;
}
