/*
 * Matching of method and path against the route table: pure, apart from the table itself, which
 * names every handler.
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

#define SEGMENTS 2 /* the object, and one of its own */

/* Segments that stand for one of these. */
static const struct {
	const char *text;
	size_t segment;
} placeholders[] = {
	{"{id}",          0},
	{"{cid}",         1},
	{"{snapshot_id}", 1},
};

struct segment {
	const char *text;
	size_t length; /* 0: there is none */
};

/* The placeholder that the rest of a pattern begins with, or -1. */
static int placeholder_at(const char *pattern)
{
	for (size_t i = 0; i < ARRAY_SIZE(placeholders); i++)
		if (str_has_prefix(pattern, placeholders[i].text))
			return (int)i;
	return -1;
}

static bool path_fits(const char *pattern, const char *path, struct segment ret_segment[SEGMENTS])
{
	memset(ret_segment, 0, SEGMENTS * sizeof(*ret_segment));
	while (*pattern) {
		int which = placeholder_at(pattern);

		if (which >= 0) {
			size_t length = strcspn(path, "/");

			if (length == 0)
				return false;
			ret_segment[placeholders[which].segment] = (struct segment){path, length};
			pattern += strlen(placeholders[which].text);
			path += length;
			continue;
		}
		if (*pattern != *path)
			return false;
		pattern++;
		path++;
	}
	return *path == '\0';
}

/* What is longer than an id is none. */
static void take_segment(char dest[ROUTE_ID_BYTES], const struct segment *segment)
{
	if (segment->length > 0 &&
	    str_copy_n(dest, ROUTE_ID_BYTES, segment->text, segment->length) < 0)
		dest[0] = '\0';
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

void routes_match(const char *method, const char *path, struct route_match *ret_match)
{
	struct route_match match = {0};
	const struct route *route;

	if (str_equal(method, "HEAD"))
		method = "GET";
	for (size_t i = 0; (route = routes_at(i)); i++) {
		const char *name = routes_method_name(route->method);
		struct segment segment[SEGMENTS];

		if (!path_fits(route->pattern, path, segment))
			continue;
		match.path_known = true;
		add_allow(&match, name);
		if (!match.route && str_equal(method, name)) {
			match.route = route;
			take_segment(match.id, &segment[0]);
			take_segment(match.cid, &segment[1]);
		}
	}
	*ret_match = match;
}
