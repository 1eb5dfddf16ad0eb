#include "policy/limit.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "base/num.h"
#include "base/str.h"

#include "policy/line.h"
#include "sandboxd/limits.h"
#include "sandboxd/plan.h"

#define TIB        (1ull << 40)
#define DAY_S      (24ull * 60 * 60)
#define WEIGHT_MAX 10000

/* The longest of all profiles; what one profile allows is its own ttl-max. */
enum {
	TTL_LONGEST_MINUTES = AGENT_TTL_MAX_MINUTES
};

enum limit_form {
	LIMIT_SIZE,    /* as num_parse_size */
	LIMIT_COUNT,   /* as num_parse_u64 */
	LIMIT_SECONDS, /* as num_parse_seconds */
	LIMIT_MINUTES, /* the same, whole minutes */
};

/* min 0: `none` may be said, and is stored as 0. The plan's own ranges hold for what goes into a
 * plan. */
struct limit_row {
	const char *name;
	size_t offset;
	size_t bytes;
	enum limit_form form;
	uint64_t min;
	uint64_t max;
};

/* clang-format off */
#define LIMIT(name, field, form, min, max) \
	{name, offsetof(struct policy_limits, field), sizeof(((struct policy_limits *)0)->field), form, min, max}
static const struct limit_row rows[] = {
	LIMIT("tmpfs",           tmpfs_bytes,       LIMIT_SIZE,    PLAN_TMPFS_MIN_BYTES,  PLAN_TMPFS_MAX_BYTES),
	LIMIT("inodes",          tmpfs_inodes,      LIMIT_COUNT,   PLAN_INODES_MIN,       PLAN_INODES_MAX),
	LIMIT("memory",          memory_bytes,      LIMIT_SIZE,    PLAN_MEMORY_MIN_BYTES, PLAN_MEMORY_MAX_BYTES),
	LIMIT("pids",            max_pids,          LIMIT_COUNT,   PLAN_PIDS_MIN,         PLAN_PIDS_MAX),
	LIMIT("files",           max_files,         LIMIT_COUNT,   PLAN_FILES_MIN,        PLAN_FILES_MAX),
	LIMIT("cpu",             cpu_pct,           LIMIT_COUNT,   PLAN_CPU_MIN_PCT,      PLAN_CPU_MAX_PCT),
	LIMIT("cpu-weight",      cpu_weight,        LIMIT_COUNT,   1,                     WEIGHT_MAX),
	LIMIT("ptys",            max_ptys,          LIMIT_COUNT,   1,                     PLAN_PTYS_MAX),
	LIMIT("output-rate",     output_rate_bytes, LIMIT_SIZE,    0,                     TIB),
	LIMIT("output-max",      output_max_bytes,  LIMIT_SIZE,    0,                     TIB),
	LIMIT("ttl",             ttl_minutes,       LIMIT_MINUTES, TTL_MIN_MINUTES,       TTL_LONGEST_MINUTES),
	LIMIT("ttl-max",         ttl_max_minutes,   LIMIT_MINUTES, TTL_MIN_MINUTES,       TTL_LONGEST_MINUTES),
	LIMIT("load-timeout",    load_timeout_s,    LIMIT_SECONDS, 0,                     DAY_S),
	LIMIT("execute-timeout", execute_timeout_s, LIMIT_SECONDS, 0,                     DAY_S),
	LIMIT("command-timeout", command_timeout_s, LIMIT_SECONDS, 0,                     DAY_S),
};
/* clang-format on */
_Static_assert(ARRAY_SIZE(rows) < 32, "bits of limit_set.given");

static const char *form_text(enum limit_form form)
{
	switch (form) {
	case LIMIT_SIZE:
		return "a size such as 64MiB";
	case LIMIT_COUNT:
		return "a number";
	case LIMIT_SECONDS:
	case LIMIT_MINUTES:
		break;
	}
	return "a time such as 30min";
}

static int parse_minutes(const char *text, uint64_t max, uint64_t *ret_value)
{
	uint64_t seconds = 0;
	int r;

	r = num_parse_seconds(text, max * 60, &seconds);
	if (r < 0 || seconds % 60 != 0)
		return r < 0 ? r : -EINVAL;
	*ret_value = seconds / 60;
	return 0;
}

static int parse_value(const struct limit_row *row, const char *text, uint64_t *ret_value)
{
	uint64_t value = 0;
	int r = 0;

	if (row->min == 0 && str_equal(text, "none")) {
		*ret_value = 0;
		return 0;
	}
	switch (row->form) {
	case LIMIT_SIZE:
		r = num_parse_size(text, row->max, &value);
		break;
	case LIMIT_COUNT:
		r = num_parse_u64(text, row->min, row->max, &value);
		break;
	case LIMIT_SECONDS:
		r = num_parse_seconds(text, row->max, &value);
		break;
	case LIMIT_MINUTES:
		r = parse_minutes(text, row->max, &value);
		break;
	}
	/* 0 is said as `none`, where it can be said. */
	if (r < 0 || value == 0 || value < row->min)
		return r < 0 ? r : -ERANGE;
	*ret_value = value;
	return 0;
}

static void store(struct policy_limits *limits, const struct limit_row *row, uint64_t value)
{
	uint8_t *field = (uint8_t *)limits + row->offset;
	uint32_t narrow = (uint32_t)value; /* every 32-bit row has a maximum that fits */

	if (row->bytes == sizeof(value))
		memcpy(field, &value, sizeof(value));
	else
		memcpy(field, &narrow, sizeof(narrow));
}

int limit_parse(struct line *line, struct limit_set *set, struct err *err)
{
	const char *name = line_take(line);
	const char *text = line_take(line);
	uint64_t value = 0;
	size_t at = 0;

	while (name && at < ARRAY_SIZE(rows) && !str_equal(rows[at].name, name))
		at++;
	if (!text || at == ARRAY_SIZE(rows))
		return line_fail(&line->where, err,
				 "expected 'limit NAME VALUE' with a known name");
	if (set->given & 1u << at)
		return line_fail(&line->where, err, "limit %s is set twice", name);
	if (parse_value(&rows[at], text, &value) < 0)
		return line_fail(&line->where, err, "expected %s%s for %s, in its range",
				 form_text(rows[at].form), rows[at].min == 0 ? " or 'none'" : "",
				 name);
	store(&set->value, &rows[at], value);
	set->given |= 1u << at;
	return line_expect_end(line, err);
}

int limit_check(const struct limit_set *set, const struct line_where *where, struct err *err)
{
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		if ((set->given & 1u << i) == 0)
			return line_fail(where, err, "limit %s is missing", rows[i].name);
	}
	/* A full tmpfs must be ENOSPC and never an OOM kill. */
	if (set->value.tmpfs_bytes > set->value.memory_bytes / 2)
		return line_fail(where, err, "tmpfs is more than half of memory");
	if (set->value.ttl_minutes > set->value.ttl_max_minutes)
		return line_fail(where, err, "ttl is more than ttl-max");
	return 0;
}
