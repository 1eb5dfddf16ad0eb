/*
 * Matching of method and path against a route table: pure, apart from the table itself, which names
 * every handler.
 */
#include <string.h>

#include "base/err.h"
#include "base/str.h"

#include "supervisor/api/http/routes.h"

static const char *const method_names[ROUTE_METHOD_MAX_] = {
	[ROUTE_GET] = "GET",     [ROUTE_POST] = "POST", [ROUTE_DELETE] = "DELETE",
	[ROUTE_PATCH] = "PATCH", [ROUTE_PUT] = "PUT",
};

const char *routes_method_name(enum route_method method)
{
	ASSERT(method < ROUTE_METHOD_MAX_);
	return method_names[method];
}

/* *ret_id, *ret_length: the segment that stands for `{id}`; length 0 where there is none. */
static bool path_fits(const char *pattern, const char *path, const char **ret_id,
		      size_t *ret_length)
{
	const char *id = NULL;
	size_t length = 0;

	while (*pattern) {
		if (str_has_prefix(pattern, "{id}")) {
			id = path;
			length = strcspn(path, "/");
			if (length == 0)
				return false;
			pattern += strlen("{id}");
			path += length;
			continue;
		}
		if (*pattern != *path)
			return false;
		pattern++;
		path++;
	}
	if (*path)
		return false;
	*ret_id = id;
	*ret_length = length;
	return true;
}

static void add_allow(struct route_match *match, const char *name)
{
	size_t used = strlen(match->allow);
	const char *separator = used > 0 ? ", " : "";

	if (used + strlen(separator) + strlen(name) >= sizeof(match->allow))
		return;
	IGNORE_RESULT(str_format(match->allow + used, sizeof(match->allow) - used, "%s%s",
				 separator, name));
}

void routes_match(const struct route *routes, size_t n_routes, const char *method, const char *path,
		  struct route_match *ret_match)
{
	struct route_match match = {0};

	if (str_equal(method, "HEAD"))
		method = "GET";
	for (size_t i = 0; i < n_routes; i++) {
		const struct route *route = &routes[i];
		const char *name = routes_method_name(route->method);
		const char *id;
		size_t length;

		if (!path_fits(route->pattern, path, &id, &length))
			continue;
		match.path_known = true;
		add_allow(&match, name);
		if (!match.route && str_equal(method, name)) {
			match.route = route;
			if (length > 0 && str_copy_n(match.id, sizeof(match.id), id, length) < 0)
				match.id[0] = '\0';
		}
	}
	*ret_match = match;
}
