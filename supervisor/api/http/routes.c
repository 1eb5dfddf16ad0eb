#include "supervisor/api/http/routes.h"

#include "base/auto.h"

static const struct route_list *const lists[] = {
	&routes_dagster, &routes_sandbox, &routes_files, &routes_git, &routes_service,
};

const struct route *routes_at(size_t at)
{
	for (size_t i = 0; i < ARRAY_SIZE(lists); i++) {
		if (at < lists[i]->n)
			return &lists[i]->row[at];
		at -= lists[i]->n;
	}
	return NULL;
}
