/*
 * Routes of git.
 */
#include <errno.h>
#include <string.h>

#include "base/str.h"

#include "supervisor/api/http/actions.h"
#include "supervisor/api/http/handlers.h"
#include "supervisor/api/http/payload.h"
#include "supervisor/api/http/reply.h"

#define PARAMETER_BYTES (FILE_PATH_BYTES + 16)

static void go_on(struct request *request, struct spec_git *spec)
{
	struct session *session = action_find_tree(request);

	if (session) {
		request_release_body(request); /* a credential in it: not longer than it must */
		action_git(request, session, spec);
	}
	spec_git_done(spec);
}

static void handle_act(struct request *request, enum git_act act)
{
	struct spec_git spec = SPEC_GIT_NULL;

	if (payload_parse(request, spec_parse_git, act, &spec))
		go_on(request, &spec);
}

/* 0; SPEC_E_INVALID or -ENOMEM. */
static int take_parameter(struct request *request, struct spec_git *spec, const char *name,
			  json_t **errors)
{
	const char *raw = request_query(request, name);
	const char *problem = "Value error, malformed escapes, or too long";
	char text[PARAMETER_BYTES];
	size_t length;

	if (!raw && !str_equal(name, "path"))
		return 0;
	if (!raw)
		return spec_error_add(errors, "missing", "query", name, "Field required") < 0
			       ? -ENOMEM
			       : SPEC_E_INVALID;
	if (spec_query_decode(raw, text, sizeof(text), &length))
		problem = spec_git_parameter(spec, name, text, length);
	if (!problem)
		return 0;
	if (problem[0] == '\0' || spec_error_add(errors, "value_error", "query", name, problem) < 0)
		return -ENOMEM;
	return SPEC_E_INVALID;
}

static void handle_look(struct request *request, enum git_act act)
{
	struct spec_git spec = {.act = act};
	json_t *errors = NULL;
	char name[16];
	int r = 0;

	/* The names that the route has, separated by commas. */
	for (const char *at = request->route->parameter; *at && r >= 0;) {
		size_t length = strcspn(at, ",");
		int one;

		ASSERT(str_copy_n(name, sizeof(name), at, length) >= 0);
		one = take_parameter(request, &spec, name, &errors);
		r = one != 0 ? one : r;
		at += length;
		at += *at == ',';
	}
	if (r == 0) {
		go_on(request, &spec);
		return;
	}
	reply_spec_error(request, r, errors);
	spec_git_done(&spec);
}

void handle_git(struct request *request)
{
	static const char *const names[GIT_ACT_MAX_] = {
		[GIT_ACT_CLONE] = "clone",   [GIT_ACT_FETCH] = "fetch",
		[GIT_ACT_PULL] = "pull",     [GIT_ACT_PUSH] = "push",
		[GIT_ACT_BRANCH] = "branch", [GIT_ACT_CHECKOUT] = "checkout",
		[GIT_ACT_ADD] = "add",       [GIT_ACT_COMMIT] = "commit",
		[GIT_ACT_STATUS] = "status", [GIT_ACT_DIFF] = "diff",
		[GIT_ACT_LOG] = "log",
	};
	const char *name = strrchr(request->route->pattern, '/') + 1;
	enum git_act act = GIT_ACT_CLONE;

	while (act < GIT_ACT_MAX_ && !str_equal(name, names[act]))
		act++;
	ASSERT(act < GIT_ACT_MAX_);
	if (request->route->method == ROUTE_GET)
		handle_look(request, act);
	else
		handle_act(request, act);
}
