#include <stdlib.h>
#include <string.h>

#include "base/json.h"

#include "supervisor/api/http/actions.h"
#include "supervisor/api/http/handlers.h"
#include "supervisor/api/http/payload.h"
#include "supervisor/api/http/reply.h"

void handle_sandbox_create(struct request *request)
{
	struct spec_create spec = SPEC_CREATE_NULL;

	if (!payload_parse(request, spec_parse_sandbox, &spec))
		return;
	action_create(request, &spec, false);
	spec_create_done(&spec);
}

void handle_sandbox_get(struct request *request)
{
	const struct session *session = action_find(request, false);

	if (session)
		reply_json(request, MHD_HTTP_OK, action_sandbox(request, session));
}

void handle_sandbox_timeout(struct request *request)
{
	struct session *session;
	uint32_t minutes;

	if (!payload_parse(request, spec_parse_timeout, &minutes))
		return;
	session = action_find(request, false);
	if (session)
		action_timeout(request, session, minutes);
}

void handle_sandbox_delete(struct request *request)
{
	struct session *session = action_find_delete(request);

	if (session)
		action_delete(request, session);
}

void handle_sandbox_suspend(struct request *request)
{
	struct spec_suspend spec = SPEC_SUSPEND_NULL;
	struct session *session;

	if (!payload_parse(request, spec_parse_suspend, &spec))
		return;
	/* Whoever is suspended, or on the way, needs no tree for the answer. */
	session = action_find(request, false);
	if (session && session->suspension.state == SUSPENSION_RUNNING)
		session = action_find_tree(request);
	if (session)
		action_suspend(request, session, &spec);
	spec_suspend_done(&spec);
}

void handle_sandbox_resume(struct request *request)
{
	struct spec_resume spec = SPEC_RESUME_NULL;
	struct session *session;

	if (!payload_parse(request, spec_parse_resume, &spec))
		return;
	session = action_find(request, false);
	if (session)
		action_resume(request, session, &spec);
	spec_resume_done(&spec);
}

void handle_sandbox_proof(struct request *request)
{
	struct session *session = action_find(request, true);

	if (session)
		action_proof(request, session);
}

void handle_sandbox_trace(struct request *request)
{
	struct session *session = action_find(request, true);

	if (session)
		action_trace(request, session);
}

void handle_sandbox_stats(struct request *request)
{
	handle_in_session(request, action_stats);
}
