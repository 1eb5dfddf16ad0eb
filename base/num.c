#include "base/num.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "base/str.h"

/*
 * The digits at the front of text. *ret_end is where they stop. -EINVAL: none, or a leading zero;
 * -ERANGE: more than a u64 holds.
 */
static int parse_digits(const char *text, const char **ret_end, uint64_t *ret_value)
{
	uint64_t value = 0;
	bool too_large = false;
	const char *at = text;

	for (; *at >= '0' && *at <= '9'; at++)
		if (__builtin_mul_overflow(value, (uint64_t)10, &value) ||
		    __builtin_add_overflow(value, (uint64_t)(*at - '0'), &value))
			too_large = true;
	if (at == text || (text[0] == '0' && at - text > 1))
		return -EINVAL;
	*ret_end = at;
	*ret_value = value;
	return too_large ? -ERANGE : 0;
}

int num_parse_u64(const char *text, uint64_t min, uint64_t max, uint64_t *ret_value)
{
	const char *end = text;
	uint64_t value = 0;
	int r;

	r = parse_digits(text, &end, &value);
	if (r == -EINVAL || *end != '\0')
		return -EINVAL;
	if (r < 0 || value < min || value > max)
		return -ERANGE;
	*ret_value = value;
	return 0;
}

int num_parse_u32(const char *text, uint32_t min, uint32_t max, uint32_t *ret_value)
{
	uint64_t value = 0;
	int r = num_parse_u64(text, min, max, &value);

	if (r < 0)
		return r;
	*ret_value = (uint32_t)value;
	return 0;
}

int num_parse_i32(const char *text, int32_t min, int32_t max, int32_t *ret_value)
{
	bool negative = text[0] == '-';
	uint64_t magnitude = 0;
	int64_t value;
	int r;

	r = num_parse_u64(text + negative, 0, (uint64_t)INT32_MAX + 1, &magnitude);
	if (r < 0)
		return r;
	if (negative && magnitude == 0)
		return -EINVAL;
	value = negative ? -(int64_t)magnitude : (int64_t)magnitude;
	if (value < min || value > max)
		return -ERANGE;
	*ret_value = (int32_t)value;
	return 0;
}

struct unit {
	const char *name;
	uint64_t factor;
};

static int parse_unit(const char *text, const struct unit *units, size_t n_units, uint64_t max,
		      uint64_t *ret_value)
{
	const char *end = text;
	uint64_t value = 0;
	int r;

	r = parse_digits(text, &end, &value);
	if (r == -EINVAL)
		return r;
	for (size_t i = 0; i < n_units; i++) {
		if (!str_equal(end, units[i].name))
			continue;
		if (r < 0 || __builtin_mul_overflow(value, units[i].factor, &value) || value > max)
			return -ERANGE;
		*ret_value = value;
		return 0;
	}
	return -EINVAL;
}

int num_parse_size(const char *text, uint64_t max, uint64_t *ret_bytes)
{
	static const struct unit units[] = {
		{"",    1         },
		{"K",   1ull << 10},
		{"KiB", 1ull << 10},
		{"M",   1ull << 20},
		{"MiB", 1ull << 20},
		{"G",   1ull << 30},
		{"GiB", 1ull << 30},
	};

	return parse_unit(text, units, ARRAY_SIZE(units), max, ret_bytes);
}

int num_parse_seconds(const char *text, uint64_t max, uint64_t *ret_seconds)
{
	static const struct unit units[] = {
		{"",    1    },
                {"s",   1    },
                {"min", 60   },
                {"h",   3600 },
                {"d",   86400},
	};

	return parse_unit(text, units, ARRAY_SIZE(units), max, ret_seconds);
}
