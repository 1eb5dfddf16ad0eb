#include "supervisor/rlimits.h"

#include <errno.h>
#include <stddef.h>

int rlimits_lower(__rlimit_resource_t resource, uint64_t value)
{
	struct rlimit limit;

	if (getrlimit(resource, &limit) < 0)
		return -errno;
	if (limit.rlim_max == RLIM_INFINITY || limit.rlim_max > value)
		limit.rlim_max = value;
	if (limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur > limit.rlim_max)
		limit.rlim_cur = limit.rlim_max;
	if (resource == RLIMIT_NOFILE || resource == RLIMIT_CORE)
		limit.rlim_cur = limit.rlim_max;
	return setrlimit(resource, &limit) < 0 ? -errno : 0;
}

int rlimits_lower_counted(void)
{
	static const struct {
		__rlimit_resource_t resource;
		uint64_t value;
	} rows[] = {
		{RLIMIT_MSGQUEUE,   819200            },
		{RLIMIT_SIGPENDING, 4096              },
		{RLIMIT_MEMLOCK,    8ull * 1024 * 1024},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		int r = rlimits_lower(rows[i].resource, rows[i].value);
		if (r < 0)
			return r;
	}
	return 0;
}
