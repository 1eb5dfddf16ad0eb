/*
 * Routes of snapshots.
 */
#include "supervisor/api/http/actions.h"
#include "supervisor/api/http/handlers.h"
#include "supervisor/api/http/payload.h"
#include "supervisor/api/http/reply.h"

void handle_snapshot_create(struct request *request)
{
	struct session *session = action_find_tree(request);

	if (session)
		action_snapshot(request, session);
}

void handle_snapshot_list(struct request *request)
{
	handle_in_session(request, action_snapshot_list);
}

void handle_snapshot_delete(struct request *request)
{
	handle_in_session(request, action_snapshot_delete);
}

void handle_snapshot_restore(struct request *request)
{
	struct spec_restore spec;
	struct session *session;

	if (!payload_parse(request, spec_parse_restore, &spec))
		return;
	session = action_find_tree(request);
	if (session)
		action_snapshot_restore(request, session, &spec);
}
