/* The sessions that a request may see, and what it is told of them. */
#include "supervisor/api/http/actions.h"
#include "supervisor/api/http/reply.h"
#include "supervisor/api/idle.h"
#include "supervisor/api/rebuild.h"
#include "supervisor/api/session_seek.h"
#include "supervisor/api/suspend.h"

static struct viewer viewer_of(const struct request *request, bool all)
{
	return (struct viewer){
		.owner = request->identity.user,
		.workspace = request->identity.workspace,
		.project = request->identity.project,
		.sees_all = request->identity.is_operator ||
			    (all && (request->identity.scopes & AUTH_ADMIN)),
	};
}

struct session *action_find(struct request *request, bool all)
{
	struct app *app = request_app(request);
	struct viewer viewer = viewer_of(request, all);
	struct session *session;

	session =
		registry_find_visible(&app->registry, request->path_id, &viewer, clock_realtime());
	if (!session && !session_seek(request, &viewer))
		reply_not_found(request);
	return session;
}

struct session *action_find_tree(struct request *request)
{
	struct session *session = action_find(request, false);

	if (session)
		idle_touch(live_of(session));
	if (!session || session_is_usable(session))
		return session;
	if (request_app(request)->phase != APP_PHASE_SERVING)
		reply_detail(request, MHD_HTTP_SERVICE_UNAVAILABLE, "the service stops");
	else if (suspend_may_wait(request, session))
		rebuild_wait(request, session);
	return NULL;
}

const struct session *action_find_other(const struct request *request, const char *id)
{
	struct viewer viewer = viewer_of(request, false);

	return registry_find_visible(&request_app(request)->registry, id, &viewer,
				     clock_realtime());
}

struct session *action_find_delete(struct request *request)
{
	struct viewer viewer = viewer_of(request, false);
	struct session *session =
		registry_find_deleting(&request_app(request)->registry, request->path_id, &viewer);

	return session ? session : action_find(request, false);
}

int action_list(struct request *request, const struct registry_filter *filter, bool all,
		struct session **ret)
{
	struct viewer viewer = viewer_of(request, all);

	return registry_list(&request_app(request)->registry, &viewer, filter, clock_realtime(),
			     ret);
}

json_t *action_summary(struct request *request, const struct session *session)
{
	return summary_session(session, &request_app(request)->summary);
}

json_t *action_sandbox(struct request *request, const struct session *session)
{
	json_t *doc = summary_sandbox(session, &request_app(request)->summary);

	suspend_show_error(live_of(session), doc);
	return doc;
}
